// Dinic's algorithm on the residual graph: it augments a flow to a maximum flow with its cut.
//
// A search goes from the sink up to all nodes that reach it over edges with residual capacity, or up
// edges whose flow can be cancelled. If it reaches the source, flow is pushed along shortest paths,
// and the search starts again. If not, the nodes that it reached are the sink's side of a minimum
// cut. Bits tell which edges have room and which carry flow, so that a search reads few numbers.

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
  private readonly flow: Float64Array; // [x, u, q]
  private readonly inflow: Int32Array; // [x, q]: positions that send flow here
  private changed = new Int32Array(1 << 14); // edges that got flow
  private changes = 0;
  private sent!: Float64Array; // [u]: flow on the edges out of the source
  private demand!: Float64Array; // [u]: residual capacity of the last edges
  // Nodes: level * n + position; sets of positions of each level
  private readonly unreached: Int32Array;
  private readonly reached: Int32Array; // without dead ends
  private readonly latest: Int32Array; // reached in the latest round
  private readonly steps: Int32Array; // up, on a shortest path to the sink
  private readonly arc: Int32Array; // the edge of a node to try next: q to go down, n + p to go up

  constructor(graph: LayeredGraph) {
    const { n, depth, words } = graph;
    this.graph = graph;
    this.flow = new Float64Array(depth * n * n);
    this.inflow = new Int32Array(depth * n * words);
    this.unreached = new Int32Array((depth + 1) * words);
    this.reached = new Int32Array((depth + 1) * words);
    this.latest = new Int32Array((depth + 1) * words);
    this.steps = new Int32Array((depth + 1) * n);
    this.arc = new Int32Array((depth + 1) * n);
  }

  /** Start without flow, but for that on the edges out of the source and on the last edges. */
  start(pair: Pair, sent: Float64Array, demand: Float64Array): void {
    const { n, words, capacity, open } = this.graph;
    for (let k = 0; k < this.changes; k++) {
      const edge = this.changed[k];
      const node = (edge / n) | 0;
      const q = edge % n;
      this.flow[edge] = 0;
      this.inflow[(node - (node % n) + q) * words + ((node % n) >> 5)] = 0;
      if (capacity[edge] > EPSILON) insert(open, node * words, q);
    }
    this.changes = 0;
    this.pair = pair;
    this.sent = sent;
    this.demand = demand;
  }

  /** Add flow to edge x from u to q. */
  add(x: number, u: number, q: number, amount: number): void {
    const { n, words, capacity, open } = this.graph;
    const node = x * n + u;
    const edge = node * n + q;
    const into = (x * n + q) * words;
    if (!contains(this.inflow, into, u)) {
      insert(this.inflow, into, u);
      if (this.changes === this.changed.length) {
        const longer = new Int32Array(2 * this.changes);
        longer.set(this.changed);
        this.changed = longer;
      }
      this.changed[this.changes++] = edge;
    }
    this.flow[edge] += amount;
    if (capacity[edge] - this.flow[edge] <= EPSILON) remove(open, node * words, q);
  }

  /** Cancel flow on edge x from u to q. */
  private cancel(x: number, u: number, q: number, amount: number): void {
    const { n, words, capacity, open } = this.graph;
    const node = x * n + u;
    const edge = node * n + q;
    this.flow[edge] -= amount;
    if (this.flow[edge] <= EPSILON) remove(this.inflow, (x * n + q) * words, u);
    if (capacity[edge] - this.flow[edge] > EPSILON) insert(open, node * words, q);
  }

  /** Augment the flow until it is maximum; returns how much was added. */
  maximize(): number {
    let added = 0;
    for (let flow = 1; flow > 0 && this.search(); added += flow) flow = this.pushFromSource();
    return added;
  }

  // Search

  /** Search from the sink up; returns whether the source was reached. */
  private search(): boolean {
    const { unreached, reached, latest, pair } = this;
    const { words } = this.graph;
    const { level: top, first, end } = pair;
    fillLevels(unreached, top, words, first, end);
    reached.fill(0, 0, top * words);
    latest.fill(0, 0, top * words);
    for (let steps = 0, found = true; found; steps++) {
      found = false;
      for (let level = 1; level < top; level++) {
        if (this.reachLevel(level, steps)) found = true;
      }
      for (let q = first; q < end; q++) {
        if (contains(latest, (top - 1) * words, q) && pair.row[q] - this.sent[q] > EPSILON) {
          return true;
        }
      }
    }
    return false;
  }

  /** Reach the nodes of a level in this round; returns whether there are any. */
  private reachLevel(level: number, round: number): boolean {
    const { unreached, reached, latest, steps, arc, inflow } = this;
    const { n, words, open } = this.graph;
    const at = level * words;
    let found = false;
    for (let w = 0; w < words; w++) {
      let fresh = 0;
      for (let word = unreached[at + w]; word !== 0; word &= word - 1) {
        const u = firstMember(word, w);
        const node = level * n + u;
        if (
          (level > 1
            ? meet(open, (node - n) * words, latest, at - words, words)
            : round === 0 && this.demand[u] > EPSILON) ||
          (round > 0 &&
            level < this.pair.level - 1 &&
            meet(inflow, node * words, latest, at + words, words))
        ) {
          fresh |= 1 << (u & 31);
          steps[node] = round;
          arc[node] = 0;
        }
      }
      unreached[at + w] &= ~fresh;
      reached[at + w] |= fresh;
      latest[at + w] = fresh;
      if (fresh !== 0) found = true;
    }
    return found;
  }

  // Blocking flow

  private pushFromSource(): number {
    const { pair, sent, reached } = this;
    const top = pair.level - 1;
    let added = 0;
    const { n, words } = this.graph;
    let least = Infinity; // the source's neighbors with fewest steps
    for (let q = pair.first; q < pair.end; q++) {
      if (pair.row[q] - sent[q] > EPSILON && contains(reached, top * words, q)) {
        least = Math.min(least, this.steps[top * n + q]);
      }
    }
    for (let q = pair.first; q < pair.end; q++) {
      const room = pair.row[q] - sent[q];
      if (room <= EPSILON || !contains(reached, top * words, q)) continue;
      if (this.steps[top * n + q] !== least) continue;
      const flow = this.push(room, top, q);
      sent[q] += flow;
      added += flow;
    }
    return added;
  }

  /** Push up to `amount` from (level, u) along shortest paths to the sink; returns how much. */
  private push(amount: number, level: number, u: number): number {
    const { flow, steps, arc, reached, inflow, demand } = this;
    const { n, words, capacity, open } = this.graph;
    const node = level * n + u;
    const step = steps[node];
    const full = amount - EPSILON;
    let total = 0;
    if (level === 1) {
      if (step === 0) {
        total = Math.min(amount, demand[u]);
        demand[u] -= total;
        if (total >= full) return total;
      }
      arc[node] = Math.max(arc[node], n);
    }
    if (arc[node] < n) {
      const [row, below] = [node - n, (level - 1) * n];
      let mask = -1 << (arc[node] & 31);
      for (let w = arc[node] >> 5; w < words; w++, mask = -1) {
        let word = open[row * words + w] & reached[(level - 1) * words + w] & mask;
        for (; word !== 0; word &= word - 1) {
          const q = firstMember(word, w);
          if (steps[below + q] !== step) continue;
          const room = capacity[row * n + q] - flow[row * n + q];
          const sent = this.push(Math.min(amount - total, room), level - 1, q);
          if (sent === 0) continue;
          this.add(level - 1, u, q, sent);
          total += sent;
          if (total < full) continue;
          arc[node] = q;
          return total;
        }
      }
      arc[node] = n;
    }
    if (step > 0 && level < this.pair.level - 1) {
      const above = (level + 1) * n;
      let mask = -1 << ((arc[node] - n) & 31);
      for (let w = (arc[node] - n) >> 5; w < words; w++, mask = -1) {
        let word = inflow[node * words + w] & reached[(level + 1) * words + w] & mask;
        for (; word !== 0; word &= word - 1) {
          const p = firstMember(word, w);
          if (steps[above + p] !== step - 1) continue;
          const most = flow[(node - u + p) * n + u];
          const sent = this.push(Math.min(amount - total, most), level + 1, p);
          if (sent === 0) continue;
          this.cancel(level, p, u, sent);
          total += sent;
          if (total < full) continue;
          arc[node] = n + p;
          return total;
        }
      }
    }
    arc[node] = n + (words << 5);
    remove(reached, level * words, u); // a dead end
    return total;
  }

  // The cut around the nodes that the last search reached

  /** The sum of all capacities over the cut, and of its edges a list, if there is one to fill. */
  cut(list: Amount[] | null = null): number {
    const { reached, unreached } = this;
    const { n, words, capacity } = this.graph;
    const { level: top, source, sink, first, end, row, column } = this.pair;
    let total = 0;
    for (let q = first; q < end; q++) {
      if (!contains(reached, (top - 1) * words, q)) continue;
      total += row[q];
      list?.push({ x: top - 1, u: source, q, amount: row[q] });
    }
    for (let x = top - 2; x > 0; x--) {
      for (let u = first; u < end; u++) {
        if (!contains(unreached, (x + 1) * words, u)) continue;
        const start = (x * n + u) * n;
        for (let w = first >> 5; w < words; w++) {
          for (let word = reached[x * words + w]; word !== 0; word &= word - 1) {
            const q = firstMember(word, w);
            total += capacity[start + q];
            list?.push({ x, u, q, amount: capacity[start + q] });
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
    const { n } = this.graph;
    const { level, source, sink, first, end, column } = this.pair;
    const list: Amount[] = [];
    const note = (x: number, u: number, q: number, amount: number): void => {
      if (amount > NONE) list.push({ x, u, q, amount });
    };
    for (const edge of new Set(this.changed.subarray(0, this.changes))) {
      const node = (edge / n) | 0;
      note((node / n) | 0, node % n, edge % n, this.flow[edge]);
    }
    for (let u = first; u < end; u++) {
      note(level - 1, source, u, this.sent[u]);
      note(0, u, sink, column[u] - this.demand[u]);
    }
    return list;
  }
}

/** Whether two sets have a common member. */
function meet(a: Int32Array, i: number, b: Int32Array, j: number, words: number): boolean {
  for (let w = 0; w < words; w++) if ((a[i + w] & b[j + w]) !== 0) return true;
  return false;
}
