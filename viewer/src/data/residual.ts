// Dinic's algorithm on the residual graph: it augments a flow to a maximum flow with its cut.
//
// A search goes from the sink up to all nodes that reach it over edges with residual capacity, or up
// edges whose flow can be cancelled. If it reaches the source, flow is pushed along shortest paths,
// and the search starts again. If not, the nodes that it reached are the sink's side of a minimum
// cut. Bits tell which edges have room and which carry flow, so that a search reads few numbers.

import type { Greedy } from "./greedy.ts";
import {
  contains,
  EPSILON,
  fillLevels,
  firstMember,
  insert,
  remove,
  type LayeredGraph,
  type Pair,
} from "./layered.ts";

/** The flow on edge x from u to q, or its capacity. */
export interface Amount {
  x: number;
  u: number;
  q: number;
  amount: number;
}

const NONE = 1e-12; // flow up to this is not listed

export class Residual {
  private readonly graph: LayeredGraph;
  private pair!: Pair;
  private readonly flows: EdgeFlows;
  private readonly inflow: Int32Array; // [x, q]: positions that send flow here
  private saturated = new Int32Array(1 << 12); // node and q of edges taken from the open ones
  private taken = 0;
  private sent!: Float64Array; // [u]: flow on the edges out of the source
  private demand!: Float64Array; // [u]: residual capacity of the last edges
  // Nodes: level * n + position; sets of positions of each level
  private readonly unreached: Int32Array;
  private readonly rounds: Int32Array[] = []; // those reached in each, without dead ends
  private readonly some: Uint8Array[] = []; // whether a round reached any of a level
  private readonly arc: Int32Array; // the edge of a node to try next: q to go down, n + p to go up

  constructor(graph: LayeredGraph) {
    const { n, depth, words } = graph;
    this.graph = graph;
    this.flows = new EdgeFlows(graph);
    this.inflow = new Int32Array(depth * n * words);
    this.unreached = new Int32Array((depth + 1) * words);
    this.arc = new Int32Array((depth + 1) * n);
  }

  /** Start without flow, but for that on the edges out of the source and on the last edges. */
  start(pair: Pair, { sent, demand, entryEdges }: Greedy): void {
    const { n, words, open } = this.graph;
    for (let k = 0; k < this.taken; k += 2) {
      insert(open, this.saturated[k] * words, this.saturated[k + 1]);
    }
    this.taken = 0;
    this.inflow.fill(0, n * words, Math.max(this.pair?.level ?? 0, pair.level) * n * words);
    this.flows.clear(pair.sink, entryEdges);
    this.pair = pair;
    this.sent = sent;
    this.demand = demand;
  }

  /** Add flow to edge x from u to q. */
  add(x: number, u: number, q: number, amount: number, capacity: number): void {
    const { n, words } = this.graph;
    const node = x * n + u;
    insert(this.inflow, (x * n + q) * words, u);
    const flow = this.flows.add(node, u, q, amount, capacity);
    if (capacity - flow <= EPSILON) this.close(node, q);
  }

  /** Take a saturated edge from the open ones. */
  private close(node: number, q: number): void {
    const { words, open } = this.graph;
    if (!contains(open, node * words, q)) return;
    remove(open, node * words, q);
    if (this.taken === this.saturated.length) {
      const longer = new Int32Array(2 * this.taken);
      longer.set(this.saturated);
      this.saturated = longer;
    }
    this.saturated[this.taken++] = node;
    this.saturated[this.taken++] = q;
  }

  /** Augment the flow until it is maximum; returns how much was added. */
  maximize(): number {
    let added = 0;
    for (let flow = 1; flow > 0;) {
      const round = this.search();
      if (round < 0) break;
      flow = this.pushFromSource(round);
      added += flow;
    }
    return added;
  }

  // Search

  /** Search from the sink up; returns the round that reached the source, or -1. Paths of round r cancel
   * flow on r edges. */
  private search(): number {
    const { unreached, pair } = this;
    const { words } = this.graph;
    const { level: top, first, end } = pair;
    fillLevels(unreached, top, words, first, end);
    for (let round = 0, found = true; found; round++) {
      found = false;
      this.addRound(round);
      for (let level = 1; level < top; level++) {
        if (this.reachLevel(level, round)) found = true;
      }
      const here = this.rounds[round];
      for (let q = first; q < end && this.some[round][top - 1]; q++) {
        if (contains(here, (top - 1) * words, q) && pair.row[q] - this.sent[q] > EPSILON) {
          return round;
        }
      }
    }
    return -1;
  }

  private addRound(round: number): void {
    const { depth, words } = this.graph;
    if (round === this.rounds.length) {
      this.rounds.push(new Int32Array((depth + 1) * words));
      this.some.push(new Uint8Array(depth + 1));
    }
    this.rounds[round].fill(0, 0, this.pair.level * words);
    this.some[round].fill(0);
  }

  /** Reach the nodes of a level in this round; returns whether there are any. */
  private reachLevel(level: number, round: number): boolean {
    const { unreached, arc, inflow, demand } = this;
    const { n, words, open, causal } = this.graph;
    const { first, end, level: top } = this.pair;
    const here = this.rounds[round];
    const before = round > 0 ? this.rounds[round - 1] : here;
    const down = level > 1 && this.some[round][level - 1] === 1;
    const up = round > 0 && level < top - 1 && this.some[round - 1][level + 1] === 1;
    const last = level === 1 && round === 0;
    if (!down && !up && !last) return false;
    const at = level * words;
    const [low, high] = [first >> 5, (end + 31) >> 5];
    let found = 0;
    for (let w = low; w < high; w++) {
      let fresh = 0;
      const until = causal ? w + 1 : high;
      const from = causal ? w : low;
      for (let word = unreached[at + w]; word !== 0; word &= word - 1) {
        const u = firstMember(word, w);
        const node = level * n + u;
        if (
          (down && meet(open, (node - n) * words, here, at - words, low, until)) ||
          (up && meet(inflow, node * words, before, at + words, from, high)) ||
          (last && demand[u] > EPSILON)
        ) {
          fresh |= word & -word;
          arc[node] = 0;
        }
      }
      unreached[at + w] &= ~fresh;
      here[at + w] = fresh;
      found |= fresh;
    }
    if (found !== 0) this.some[round][level] = 1;
    return found !== 0;
  }

  // Blocking flow

  private pushFromSource(round: number): number {
    const { pair, sent } = this;
    const { words } = this.graph;
    const top = pair.level - 1;
    let added = 0;
    for (let q = pair.first; q < pair.end; q++) {
      const room = pair.row[q] - sent[q];
      if (room <= EPSILON || !contains(this.rounds[round], top * words, q)) continue;
      const flow = this.push(room, top, q, round);
      sent[q] += flow;
      added += flow;
    }
    return added;
  }

  /** Push up to `amount` from (level, u), which a round reached, along shortest paths to the sink;
   * returns how much. */
  private push(amount: number, level: number, u: number, round: number): number {
    const { arc, demand } = this;
    const { n, words } = this.graph;
    const node = level * n + u;
    const full = amount - EPSILON;
    let total = 0;
    if (level === 1 && round === 0) {
      total = Math.min(amount, demand[u]);
      demand[u] -= total;
      if (total >= full) return total;
    } else if (level > 1 && arc[node] < n) {
      total = this.pushDown(amount, level, u, round);
      if (total > 0 && total >= full) return total;
    }
    arc[node] = Math.max(arc[node], n);
    if (round > 0 && level < this.pair.level - 1) {
      total += this.pushUp(amount - total, level, u, round);
      if (total > 0 && total >= full) return total;
    }
    arc[node] = n + (words << 5);
    remove(this.rounds[round], level * words, u); // a dead end
    return total;
  }

  /** Do so over edges down. */
  private pushDown(amount: number, level: number, u: number, round: number): number {
    const { arc, inflow, flows } = this;
    const { n, words, capacity, open, causal } = this.graph;
    const here = this.rounds[round];
    const node = level * n + u;
    const row = node - n;
    const below = (level - 1) * words;
    const until = causal ? (u >> 5) + 1 : words;
    const full = amount - EPSILON;
    let total = 0;
    let w = Math.max(arc[node], this.pair.first) >> 5;
    let mask = w === arc[node] >> 5 ? -1 << (arc[node] & 31) : -1;
    for (; w < until; w++, mask = -1) {
      let word = open[row * words + w] & here[below + w] & mask;
      for (; word !== 0; word &= word - 1) {
        const q = firstMember(word, w);
        // An edge that carries flow is in a table, with its capacity.
        const at = contains(inflow, (row - u + q) * words, u) ? flows.find(row, u, q) : -1;
        const edge = at < 0 ? capacity[row * n + q] : flows.capacityAt(at);
        const room = at < 0 ? edge : edge - flows.flowAt(at);
        const sent = this.push(Math.min(amount - total, room), level - 1, q, round);
        if (sent === 0) continue;
        this.add(level - 1, u, q, sent, edge);
        total += sent;
        if (total < full) continue;
        arc[node] = q;
        return total;
      }
    }
    return total;
  }

  /** Do so up edges whose flow can be cancelled. */
  private pushUp(amount: number, level: number, u: number, round: number): number {
    const { arc, inflow, flows } = this;
    const { n, words } = this.graph;
    const before = this.rounds[round - 1];
    const node = level * n + u;
    const above = (level + 1) * words;
    const full = amount - EPSILON;
    let total = 0;
    let mask = -1 << ((arc[node] - n) & 31);
    for (let w = (arc[node] - n) >> 5; w < words; w++, mask = -1) {
      let word = inflow[node * words + w] & before[above + w] & mask;
      for (; word !== 0; word &= word - 1) {
        const p = firstMember(word, w);
        const most = flows.flowAt(flows.find(node - u + p, p, u));
        const sent = this.push(Math.min(amount - total, most), level + 1, p, round - 1);
        if (sent === 0) continue;
        this.cancel(level, p, u, sent);
        total += sent;
        if (total < full) continue;
        arc[node] = n + p;
        return total;
      }
    }
    return total;
  }

  /** Cancel flow on edge x from u to q. */
  private cancel(x: number, u: number, q: number, amount: number): void {
    const { n, words, open } = this.graph;
    const { flows } = this;
    const node = x * n + u;
    const at = flows.find(node, u, q);
    const flow = flows.change(at, -amount);
    if (flow <= EPSILON) remove(this.inflow, (x * n + q) * words, u);
    if (flows.capacityAt(at) - flow > EPSILON) insert(open, node * words, q);
  }

  // The cut around the nodes that the last search reached

  /** The sum of all capacities over the cut, and of its edges a list, if there is one to fill. */
  cut(list: Amount[] | null = null): number {
    const { unreached } = this;
    const { n, words, capacity, chain, large, small } = this.graph;
    const high = (this.pair.end + 31) >> 5;
    const { level: top, source, sink, first, end, row, column } = this.pair;
    let total = 0;
    for (let q = first; q < end; q++) {
      if (contains(unreached, (top - 1) * words, q)) continue;
      total += row[q];
      list?.push({ x: top - 1, u: source, q, amount: row[q] });
    }
    for (let x = top - 2; x > 0; x--) {
      for (let u = first; u < end; u++) {
        if (!contains(unreached, (x + 1) * words, u)) continue;
        const node = x * n + u;
        if (!contains(unreached, x * words, u)) {
          total += chain[node];
          list?.push({ x, u, q: u, amount: chain[node] });
        }
        for (let w = first >> 5; w < high; w++) {
          const edges = large[node * words + w] | small[node * words + w];
          for (let word = edges & ~unreached[x * words + w]; word !== 0; word &= word - 1) {
            const q = firstMember(word, w);
            if (q < first || q >= end) continue;
            total += capacity[node * n + q];
            list?.push({ x, u, q, amount: capacity[node * n + q] });
          }
        }
      }
    }
    for (let u = first; u < end; u++) {
      if (!contains(unreached, words, u)) continue;
      total += column[u];
      list?.push({ x: 0, u, q: sink, amount: column[u] });
    }
    return total;
  }

  /** The edges with flow. */
  edges(): Amount[] {
    const { n, words } = this.graph;
    const { level, source, sink, first, end, column } = this.pair;
    const list: Amount[] = [];
    const note = (x: number, u: number, q: number, amount: number): void => {
      if (amount > NONE) list.push({ x, u, q, amount });
    };
    for (let x = 1; x < level - 1; x++) {
      for (let q = 0; q < n; q++) {
        for (let u = 0; u < n; u++) {
          if (!contains(this.inflow, (x * n + q) * words, u)) continue;
          note(x, u, q, this.flows.flowAt(this.flows.find(x * n + u, u, q)));
        }
      }
    }
    for (let u = first; u < end; u++) {
      note(level - 1, source, u, this.sent[u]);
      note(0, u, sink, column[u] - this.demand[u]);
    }
    return list;
  }
}

/** Whether two sets have a common member in words from … until - 1. */
function meet(
  a: Int32Array,
  i: number,
  b: Int32Array,
  j: number,
  from: number,
  until: number,
): boolean {
  for (let w = from; w < until; w++) if ((a[i + w] & b[j + w]) !== 0) return true;
  return false;
}

/**
 * The flow on edges. Those of chains and those into the chain of the sink have places of their own.
 * The few others with flow are in a hash table: an array for all edges would take hundreds of
 * megabytes, and each access would wait for memory. What is known of an edge is side by side:
 * a place has two numbers of `amounts`, the flow first, and four of `capacities` and of `keys`,
 * that of the edge third, and its key fourth.
 */
class EdgeFlows {
  private amounts!: Float64Array;
  private capacities!: Float32Array;
  private keys!: Int32Array; // edges plus 1; 0: free
  private readonly graph: LayeredGraph;
  private readonly fixed: number; // places of chains, and as many into the chain of the sink
  private size = 1 << 14; // of the table, a power of 2
  private count = 0;
  private sink = -1;

  constructor(graph: LayeredGraph) {
    this.graph = graph;
    this.fixed = graph.depth * graph.n;
    this.allocate();
  }

  private allocate(): void {
    const buffer = new ArrayBuffer(16 * (2 * this.fixed + this.size));
    this.amounts = new Float64Array(buffer);
    this.capacities = new Float32Array(buffer);
    this.keys = new Int32Array(buffer);
  }

  /** Start without flow. entryEdges: capacities into the chain of the sink. */
  clear(sink: number, entryEdges: Float32Array): void {
    const { capacities, fixed } = this;
    const { chain } = this.graph;
    this.sink = sink;
    this.count = 0;
    this.amounts.fill(0);
    for (let i = 0; i < entryEdges.length; i++) {
      capacities[4 * i + 2] = chain[i];
      capacities[4 * (fixed + i) + 2] = entryEdges[i];
    }
  }

  /** Add flow to an edge, which is noted with its capacity; returns the flow on it. */
  add(node: number, u: number, q: number, amount: number, capacity: number): number {
    const at = this.find(node, u, q);
    this.capacities[4 * at + 2] = capacity;
    return this.change(at, amount);
  }

  /** Change the flow at a place; returns it. */
  change(at: number, amount: number): number {
    return (this.amounts[2 * at] += amount);
  }

  flowAt(at: number): number {
    return this.amounts[2 * at];
  }

  capacityAt(at: number): number {
    return this.capacities[4 * at + 2];
  }

  /** The place of the edge from a node, a position u, to q. */
  find(node: number, u: number, q: number): number {
    if (u === q) return node;
    if (q === this.sink) return this.fixed + node;
    const key = node * this.graph.n + q + 1;
    let at = this.slot(key);
    if (this.keys[4 * at + 3] === key) return at;
    if (2 * this.count >= this.size) {
      this.grow();
      at = this.slot(key);
    }
    this.count++;
    this.keys[4 * at + 3] = key;
    return at;
  }

  /** Where a key is, or may be. */
  private slot(key: number): number {
    const { keys, size } = this;
    const first = 2 * this.fixed;
    let at = (Math.imul(key, 0x9e3779b1) >>> 8) & (size - 1);
    for (;;) {
      const here = keys[4 * (first + at) + 3];
      if (here === 0 || here === key) return first + at;
      at = (at + 1) & (size - 1);
    }
  }

  private grow(): void {
    const { keys, amounts, fixed } = this;
    this.size *= 2;
    this.allocate();
    this.amounts.set(amounts.subarray(0, 4 * fixed));
    for (let from = 2 * fixed; 4 * from < keys.length; from++) {
      const key = keys[4 * from + 3];
      if (key === 0) continue;
      const at = this.slot(key);
      this.amounts[2 * at] = amounts[2 * from];
      this.amounts[2 * at + 1] = amounts[2 * from + 1];
      this.keys[4 * at + 3] = key;
    }
  }
}
