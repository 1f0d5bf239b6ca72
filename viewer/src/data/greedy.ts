// The greedy flow: a blocking flow, built from the source down, and often already maximum.
//
// Flow that arrives at a position u first goes to the sink t directly: down the chain of u, over an
// entry edge into the chain of t, highest first, or down to level 1 and over the last edge of u. The
// rest hops over edges to other positions, lowest levels first, and continues in the same way, depth
// first. A position that could not send on all it received is blocked, and receives nothing more.
// The order of the source's edges follows one rule: use first what others cannot use.
//
// This is `maxflow/greedy.py` and `maxflow/direct_flow.py` of the library; docs/flow-algorithm.md
// explains it. There is no residual graph. Hops out of a position are used in order, so a cursor
// describes the flow on them, and the flow on a chain is stored as differences.

import {
  EPSILON,
  fillLevels,
  firstMember,
  remove,
  type LayeredGraph,
  type Pair,
} from "./layered.ts";

const TIGHT = 0.3; // an edge of the source is tight if it exceeds this part of what leaves the chain
const SHALLOW = 8; // from higher levels, flow first uses large edges alone, in causal graphs
const TOGETHER = 16; // sinks whose entry edges are gathered at once
const PATIENCE = 256; // hops that are tried for each position, before the search takes over

/** Called with an edge from u to q, the flow on it and its capacity. */
type Visit = (x: number, u: number, q: number, flow: number, capacity: number) => void;

const makeLog = (size: number) => ({
  edge: new Int32Array(size),
  flow: new Float64Array(size),
  capacity: new Float64Array(size),
});

export class Greedy {
  unmet = 0; // what the last edges can still carry
  readonly sent: Float64Array; // [u]: flow on each edge out of the source
  readonly demand: Float64Array; // [u]: residual capacity of each last edge
  private readonly graph: LayeredGraph;
  private pair!: Pair;
  private readonly free: Float64Array; // [u]: lower bound of the residual capacity of each chain
  private readonly entry: Float64Array; // [x, u]: residual capacity of the edge from u to the sink
  private readonly steps: Float64Array; // [x, u]: flow on edge x of a chain, less that on x + 1
  private readonly rows: Float64Array; // [x, q]: flow from the source's own position by whole rows
  private readonly cursor: Int32Array; // [x, u]: the hop that may have capacity
  private readonly used: Float64Array; // [x, u]: the flow on it
  private readonly lowest: Int32Array; // [u]: hops of edges below this are saturated
  private readonly unblocked: Int32Array; // [level]: positions that may still reach the sink
  private readonly offer: Float64Array; // what each position may send, of a whole row
  private readonly enter: Float64Array; // the part of it over entry edges
  private readonly reach: Float64Array; // the sum of the entry edges of each position
  private readonly order: Int32Array; // the positions below the source, tightest edge first
  private readonly gathered: Float32Array; // [sink, x, u]: entry edges
  private block = -1; // of sinks whose entry edges are gathered
  private sets = 1; // of hops in use: in causal graphs, 1 for those at large edges, 2 for all
  private patience = 0;
  private logged = 0;
  private log = makeLog(1 << 14);

  constructor(graph: LayeredGraph) {
    const { n, depth, words } = graph;
    const floats = (size: number): Float64Array => new Float64Array(size);
    this.graph = graph;
    [this.sent, this.demand, this.free] = [floats(n), floats(n), floats(n)];
    [this.offer, this.enter, this.reach] = [floats(n), floats(n), floats(n)];
    [this.entry, this.steps, this.rows] = [floats(depth * n), floats(depth * n), floats(depth * n)];
    this.cursor = new Int32Array(depth * n);
    this.used = floats(depth * n);
    this.unblocked = new Int32Array((depth + 1) * words);
    this.order = new Int32Array(n);
    this.lowest = new Int32Array(n);
    this.gathered = new Float32Array(TOGETHER * depth * n);
  }

  /** Build the flow of a pair from level 3 or higher. The sink is full if nothing is unmet. */
  run(pair: Pair): void {
    const { n, causal } = this.graph;
    this.start(pair);
    const { row, level, source, sink } = pair;
    const sets = causal ? 2 : 1;
    this.sets = level <= SHALLOW ? sets : 1;
    const defer = !this.isTight(source);
    let again = false; // whether positions have sent what needs no hops
    for (let k = 0; this.unmet > EPSILON && this.patience > 0;) {
      if (k === n || row[this.order[k]] <= EPSILON) {
        if (this.sets === sets) return;
        this.sets = sets;
        again = true;
        k = 0;
        this.unblock();
      } else if (defer && !again && !this.isTight(this.order[k])) {
        this.pushSourceRow();
        again = true;
        k = 0;
      } else {
        const u = this.order[k++];
        if (!causal || u >= sink) this.pushSourceEdge(u, again);
      }
    }
  }

  /** Capacities of the edges into the sink, by level and position. */
  get entryEdges(): Float32Array {
    const { n, depth } = this.graph;
    const start = (this.pair.sink % TOGETHER) * depth * n;
    return this.gathered.subarray(start, start + this.pair.level * n);
  }

  /** Visit the flow on all edges but the source's and the last, with their capacities. */
  visitFlow(visit: Visit): void {
    const { n, capacity, chain: chains } = this.graph;
    const { level, source, sink, first, end } = this.pair;
    const { edge: edges, flow: flows, capacity: capacities } = this.log;
    for (let k = 0; k < this.logged; k++) {
      const edge = edges[k];
      const node = (edge / n) | 0;
      visit((node / n) | 0, node % n, edge % n, flows[k], capacities[k]);
    }
    const entryEdges = this.entryEdges;
    for (let u = first; u < end; u++) {
      let chain = 0;
      for (let x = level - 2; x > 0; x--) {
        const at = x * n + u;
        chain += this.steps[at];
        if (chain > 0) visit(x, u, u, chain, chains[at]);
        const row = this.rows[at];
        if (row > 0) visit(x, source, u, row, capacity[(x * n + source) * n + u]);
        const entered = u === sink ? 0 : entryEdges[at] - this.entry[at];
        if (entered > 0) visit(x, u, sink, entered, entryEdges[at]);
      }
    }
  }

  private start(pair: Pair): void {
    const { graph, entry, demand, free, sent } = this;
    const { n, chainLeast } = graph;
    const { level, sink, first, end, column } = pair;
    if (pair.row !== this.pair?.row) this.sort(pair);
    this.pair = pair;
    this.gather(Math.floor(sink / TOGETHER), level);
    entry.set(this.entryEdges);
    for (let x = 1; x < level; x++) entry[x * n + sink] = 0;
    this.steps.fill(0);
    this.rows.fill(0);
    this.cursor.fill(0);
    this.used.fill(0);
    sent.fill(0);
    let total = 0;
    for (let u = first; u < end; u++) {
      demand[u] = column[u];
      total += column[u];
      free[u] = chainLeast[level * n + u];
    }
    this.unmet = total - EPSILON * n; // rounding may leave some demand
    this.unblock();
    this.logged = 0;
    this.patience = PATIENCE * n;
  }

  /** Copy the edges into some neighboring sinks, which lie side by side in memory. */
  private gather(block: number, level: number): void {
    if (this.block === block * this.graph.depth + level) return;
    this.block = block * this.graph.depth + level;
    const { n, depth, capacity } = this.graph;
    const from = block * TOGETHER;
    const count = Math.min(TOGETHER, n - from);
    for (let x = 1; x < level - 1; x++) {
      for (let u = 0; u < n; u++) {
        const row = (x * n + u) * n + from;
        for (let t = 0; t < count; t++) {
          this.gathered[(t * depth + x) * n + u] = capacity[row + t];
        }
      }
    }
  }

  /** Order the source's edges: those first that bring most flow where least can be passed on. */
  private sort({ row, level }: Pair): void {
    const { n, offChain } = this.graph;
    const tightness = row.map((edge, u) =>
      edge > EPSILON ? edge / (offChain[level * n + u] + EPSILON) : 0,
    );
    for (let u = 0; u < n; u++) this.order[u] = u;
    this.order.sort((u, v) => tightness[v] - tightness[u] || u - v);
  }

  private isTight(u: number): boolean {
    const { row, level } = this.pair;
    return row[u] > TIGHT * this.graph.offChain[level * this.graph.n + u];
  }

  private unblock(): void {
    const { level, first, end } = this.pair;
    fillLevels(this.unblocked, level, this.graph.words, first, end);
    this.lowest.fill(1);
  }

  // Direct flow of one position

  /** Push up to `amount` from (level, u) to the sink without hops; returns the rest. */
  private pushDirect(amount: number, level: number, u: number): number {
    const rest = this.pushEntryEdges(amount, level, u);
    return rest - this.pushLastEdge(rest, level, u);
  }

  private pushLastEdge(amount: number, level: number, u: number): number {
    const flow = this.limit(Math.min(amount, this.demand[u]), u, 1, level - 1);
    if (flow <= 0) return 0;
    this.demand[u] -= flow;
    this.unmet -= flow;
    this.pushChain(flow, u, 1, level - 1);
    return flow;
  }

  /** Push up to `amount` from the chain of u into that of the sink, highest edges first. */
  private pushEntryEdges(amount: number, level: number, u: number): number {
    const { entry, steps, free, demand } = this;
    const { n } = this.graph;
    const t = this.pair.sink;
    const most = Math.min(amount, demand[t]);
    if (u === t || most <= EPSILON) return amount;
    if (amount > free[u] || most > free[t]) return this.pushCheckedEntryEdges(amount, level, u);
    let left = most;
    for (let x = level - 1, at = x * n + u; x > 0; x--, at -= n) {
      const room = entry[at];
      if (room === 0) continue;
      const flow = room < left ? room : left;
      entry[at] = room - flow;
      steps[at] -= flow;
      steps[(x - 1) * n + t] += flow;
      left -= flow;
      if (left === 0) break;
    }
    const flow = most - left;
    steps[(level - 1) * n + u] += flow;
    steps[t] -= flow;
    free[u] -= flow;
    free[t] -= flow;
    demand[t] -= flow;
    this.unmet -= flow;
    return amount - flow;
  }

  /** Do the same where one of the chains may limit the flow. */
  private pushCheckedEntryEdges(amount: number, level: number, u: number): number {
    const { entry, demand } = this;
    const t = this.pair.sink;
    for (let x = level - 1; x > 0 && amount > EPSILON; x--) {
      const at = x * this.graph.n + u;
      let flow = Math.min(amount, entry[at], demand[t]);
      if (flow <= EPSILON) continue;
      flow = this.limit(this.limit(flow, t, 1, x - 1), u, x + 1, level - 1);
      if (flow <= EPSILON) continue;
      entry[at] -= flow;
      demand[t] -= flow;
      this.unmet -= flow;
      this.pushChain(flow, t, 1, x - 1);
      this.pushChain(flow, u, x + 1, level - 1);
      amount -= flow;
    }
    return amount;
  }

  // Chains

  /** The part of `amount` that fits through edges low … high of the chain of u. */
  private limit(amount: number, u: number, low: number, high: number): number {
    if (low > high || amount <= this.free[u]) return amount;
    const { n, chain } = this.graph;
    let flow = 0;
    for (let x = this.pair.level - 2; x >= low; x--) {
      flow += this.steps[x * n + u];
      if (x <= high) amount = Math.min(amount, chain[x * n + u] - flow);
    }
    return amount;
  }

  private pushChain(amount: number, u: number, low: number, high: number): void {
    if (low > high) return;
    const { n } = this.graph;
    this.steps[high * n + u] += amount;
    this.steps[(low - 1) * n + u] -= amount;
    this.free[u] -= amount;
  }

  // Hops

  private pushSourceEdge(child: number, again: boolean): void {
    const level = this.pair.level - 1;
    const offer = this.pair.row[child] - (again ? this.sent[child] : 0);
    let rest = again ? offer : this.pushDirect(offer, level, child);
    if (rest > EPSILON && this.unmet > EPSILON) rest = this.hop(rest, level, child);
    this.sent[child] += offer - rest;
  }

  /** Push up to `amount` from (level, u) over hops and on to the sink; returns the rest. */
  private hop(amount: number, level: number, u: number): number {
    const { graph, pair, used, lowest } = this;
    const { n } = graph;
    let left = amount;
    if (level === pair.level - 1 && u === pair.source) left -= this.pushOwnRows(left);
    for (
      let x = lowest[u];
      x < level && left > EPSILON && this.unmet > EPSILON && this.patience > 0;
    ) {
      const room = this.limit(left, u, x + 1, level - 1);
      if (room <= EPSILON) {
        x++;
        continue;
      }
      let rest = room;
      if (x === 1) {
        rest = this.pushLowestHops(room, u);
      } else {
        const q = this.nextHop(x, u);
        if (q >= 0) {
          this.patience--;
          const capacity = this.hopCapacity(x, u, q);
          const offer = Math.min(room, capacity - used[x * n + u]);
          rest = this.pushDirect(offer, x, q);
          if (rest > EPSILON && this.unmet > EPSILON) rest = this.hop(rest, x, q);
          const flow = offer - rest;
          if (flow > 0) {
            used[x * n + u] += flow;
            this.note(flow, capacity, x, u, q);
            this.pushChain(flow, u, x + 1, level - 1);
            left -= flow;
          }
          continue;
        }
      }
      this.pushChain(room - rest, u, x + 1, level - 1);
      left -= room - rest;
      if (rest > EPSILON) {
        if (lowest[u] === x) lowest[u]++;
        if (this.free[u] > EPSILON) remove(this.unblocked, (x + 1) * graph.words, u);
        x++;
      }
    }
    if (left > EPSILON) remove(this.unblocked, level * graph.words, u);
    return left;
  }

  /** The capacity of edge x from u to q, less what was pushed by whole rows. */
  private hopCapacity(x: number, u: number, q: number): number {
    const { n, capacity } = this.graph;
    const edge = capacity[(x * n + u) * n + q];
    return u === this.pair.source ? edge - this.rows[x * n + q] : edge;
  }

  // The hops of a node are two sets of positions, one behind the other: those at large edges, then
  // the others. In graphs that are not causal, all are in the first.

  /** Word w of set 0 or 1 of the hops of (x + 1, u), without blocked positions. */
  private hopsIn(set: number, x: number, u: number, w: number): number {
    const { n, words, causal, large, small } = this.graph;
    const at = (x * n + u) * words + w;
    const hops = causal ? (set === 0 ? large : small)[at] : large[at] | small[at];
    return hops & this.unblocked[x * words + w];
  }

  /** Move the cursor of (x + 1, u) to its first hop that is not saturated; returns its end, or -1. */
  private nextHop(x: number, u: number): number {
    const { cursor, used } = this;
    const { n, words, causal } = this.graph;
    const { sink, first } = this.pair;
    const at = x * n + u;
    const start = cursor[at];
    const until = causal ? (u >> 5) + 1 : words;
    for (let set = start >> 5 < words ? 0 : 1; set < this.sets; set++) {
      const base = set * (words << 5);
      let w = (start - base) >> 5;
      let mask = -1 << (start & 31);
      if (w < first >> 5) [w, mask] = [first >> 5, -1];
      for (; w < until; w++, mask = -1) {
        for (let word = this.hopsIn(set, x, u, w) & mask; word !== 0; word &= word - 1) {
          const q = firstMember(word, w);
          if (base + q !== start) used[at] = 0;
          if (q === sink || this.hopCapacity(x, u, q) - used[at] <= EPSILON) continue;
          cursor[at] = base + q;
          return q;
        }
      }
    }
    cursor[at] = this.sets * (words << 5);
    used[at] = 0;
    return -1;
  }

  /** Push up to `amount` from (2, u) over hops to level 1 and last edges; returns the rest. */
  private pushLowestHops(amount: number, u: number): number {
    const { cursor, demand, unblocked } = this;
    const { n, words, causal } = this.graph;
    const { sink, first } = this.pair;
    const at = n + u;
    const start = cursor[at];
    const until = causal ? (u >> 5) + 1 : words;
    for (let set = start >> 5 < words ? 0 : 1; set < this.sets; set++) {
      const base = set * (words << 5);
      let w = (start - base) >> 5;
      let mask = -1 << (start & 31);
      if (w < first >> 5) [w, mask] = [first >> 5, -1];
      for (; w < until; w++, mask = -1) {
        for (let word = this.hopsIn(set, 1, u, w) & mask; word !== 0; word &= word - 1) {
          const q = firstMember(word, w);
          if (demand[q] <= EPSILON) {
            remove(unblocked, words, q);
            continue;
          }
          if (q === sink) continue;
          const used = base + q === start ? this.used[at] : 0;
          const capacity = this.hopCapacity(1, u, q);
          const flow = Math.min(capacity - used, demand[q], amount);
          if (flow <= EPSILON) continue;
          demand[q] -= flow;
          this.unmet -= flow;
          this.note(flow, capacity, 1, u, q);
          amount -= flow;
          if (amount <= EPSILON) {
            cursor[at] = base + q;
            this.used[at] = used + flow;
            return amount;
          }
        }
      }
    }
    cursor[at] = this.sets * (words << 5);
    this.used[at] = 0;
    return amount;
  }

  private note(flow: number, capacity: number, x: number, u: number, q: number): void {
    const { n } = this.graph;
    if (this.logged === this.log.edge.length) {
      const longer = makeLog(2 * this.logged);
      longer.edge.set(this.log.edge);
      longer.flow.set(this.log.flow);
      longer.capacity.set(this.log.capacity);
      this.log = longer;
    }
    this.log.edge[this.logged] = (x * n + u) * n + q;
    this.log.capacity[this.logged] = capacity;
    this.log.flow[this.logged++] = flow;
  }

  // Whole rows: to all positions at once, and from each of them directly to the sink

  /** Push from the source to every position what it can send directly to the sink. */
  private pushSourceRow(): void {
    const { offer, reach, sent, entry } = this;
    const { n } = this.graph;
    const { row, level, sink, first, end } = this.pair;
    for (let q = first; q < end; q++) {
      offer[q] = row[q] - sent[q];
      reach[q] = 0;
      for (let x = 1; x < level - 1; x++) reach[q] += entry[x * n + q];
    }
    offer[sink] = 0;
    this.pushRow(Infinity, level - 1);
    for (let q = first; q < end; q++) sent[q] += offer[q];
    sent[sink] += this.pushLastEdge(row[sink] - sent[sink], level - 1, sink);
  }

  /** Push up to `amount` from the source's own position to others, lowest rows first. */
  private pushOwnRows(amount: number): number {
    const { offer, reach, rows, entry } = this;
    const { n, capacity } = this.graph;
    const { level, source, sink, first, end } = this.pair;
    let total = 0;
    reach.fill(0);
    for (let x = 1; x < level - 1; x++) {
      if (x > 1) for (let q = first; q < end; q++) reach[q] += entry[(x - 1) * n + q];
      const room = this.limit(amount - total, source, x + 1, level - 2);
      const at = x * n + source;
      if (room <= EPSILON || this.cursor[at] > 0 || this.used[at] > 0) continue;
      for (let q = first; q < end; q++) offer[q] = capacity[at * n + q] - rows[x * n + q];
      offer[source] = offer[sink] = 0;
      const flow = x === 1 ? this.pushLowestRow(room) : this.pushRow(room, x);
      for (let q = first; q < end; q++) rows[x * n + q] += offer[q];
      this.pushChain(flow, source, x + 1, level - 2);
      total += flow;
    }
    return total;
  }

  /**
   * Push up to `amount` over what a row offers to the positions of a level, and on to the sink. Each
   * sends what it can over entry edges, then over its last edge. If there is not enough for all, each
   * gets the same share. Leaves the flow of each in `offer`; returns the sum.
   */
  private pushRow(amount: number, level: number): number {
    const { offer, enter, reach, demand, free, steps, entry } = this;
    const { n } = this.graph;
    const { sink: t, first, end } = this.pair;
    const room = Math.max(Math.min(demand[t], free[t]), 0);
    let entering = 0;
    for (let q = first; q < end; q++) {
      offer[q] = Math.max(Math.min(offer[q], free[q]), 0);
      enter[q] = room > 0 ? Math.min(offer[q], reach[q]) : 0;
      entering += enter[q];
    }
    const share = entering > room ? room / entering : 1;
    let last = 0;
    for (let q = first; q < end; q++) {
      enter[q] *= share;
      offer[q] = Math.min(offer[q] - enter[q], demand[q]);
      last += offer[q];
    }
    const total = share * entering + last;
    const part = total > amount ? amount / total : 1;
    const top = (level - 1) * n;
    for (let q = first; q < end; q++) {
      enter[q] *= part;
      const flow = offer[q] * part;
      demand[q] -= flow;
      steps[q] -= flow;
      offer[q] = flow + enter[q];
      steps[top + q] += offer[q];
      free[q] -= offer[q];
      reach[q] -= enter[q];
    }
    const entered = share * part * entering;
    for (let x = level - 1, missing = entered; x > 0 && missing > EPSILON; x--) {
      let sum = 0;
      for (let q = first, at = x * n + first; q < end; q++, at++) {
        const flow = Math.min(enter[q], entry[at]);
        enter[q] -= flow;
        entry[at] -= flow;
        steps[at] -= flow;
        sum += flow;
      }
      steps[(x - 1) * n + t] += sum;
      missing -= sum;
    }
    demand[t] -= entered;
    steps[t] -= entered;
    free[t] -= entered;
    const flow = Math.min(total, amount);
    this.unmet -= flow;
    return flow;
  }

  /** The same for positions of level 1, which have only their last edges. */
  private pushLowestRow(amount: number): number {
    const { offer, demand } = this;
    const { first, end } = this.pair;
    let total = 0;
    for (let q = first; q < end; q++) {
      offer[q] = Math.max(Math.min(offer[q], demand[q]), 0);
      total += offer[q];
    }
    const part = total > amount ? amount / total : 1;
    for (let q = first; q < end; q++) {
      offer[q] *= part;
      demand[q] -= offer[q];
    }
    const flow = Math.min(total, amount);
    this.unmet -= flow;
    return flow;
  }
}
