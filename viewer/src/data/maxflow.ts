// Exact maximum flow on the layered attention graph, and its minimum cut (paper §3).
// Level l holds the positions after layer l; level 0 is the input. An edge connects a position to
// one a layer below; its capacity is the augmented weight.
//
// The graph is dense, but a maximum flow needs few of its edges: it is limited around the source and
// around the sink, and the graph between them is far wider. So the solver starts with the largest
// edges of each position, all edges of the source's positions, and all edges into the positions of
// the sink's token (its chain). Dinic's algorithm finds a maximum flow there: a search from the sink
// counts how many edges must be cancelled on a path to it, then flow is pushed along paths that
// cancel fewest, until the source is not found any more. The capacities of all edges of the graph
// over the cut that remains are then summed. If they exceed the flow, the missing ones are added, and
// the search goes on. If not, the cut proves that the flow is maximum in the whole graph.

export interface Edge {
  layer: number;
  position: number;
  below: number;
}

export interface CutEdge extends Edge {
  capacity: number;
}

export interface FlowEdge extends Edge {
  flow: number;
}

export interface MaxFlow {
  value: number; // Infinity if unlimited edges connect source and sink
  edges: FlowEdge[]; // with nonzero flow
  cut: CutEdge[]; // highest layer first
  capacity: number; // of the cut; equals the value
}

const NONE = 1e-12; // residual capacities up to this count as 0
const PROOF = 1e-9; // a cut proves a flow that is smaller by no more than this
const KEPT = 12; // the largest edges of a position, with which the solver starts
const MAX_ARCS = 3e6; // to start with; they take 36 bytes each
const WIDE = 64; // a sink of more tokens starts without all edges into their chains

/**
 * Capacities [layer] of [n, n] in which the tokens of each item are one sink, with the index of the
 * item, and some positions of the top layer are one source, the first of them. A maximum flow to a
 * set of tokens, with unlimited edges to a sink behind them, is one in this graph.
 */
export function contract(
  capacities: readonly Float32Array[],
  n: number,
  { of }: { of: ArrayLike<number> },
  sources: readonly number[],
): Float32Array[] {
  const bottom = new Float32Array(n * n);
  for (let q = 0; q < n; q++) {
    for (let t = 0; t < n; t++) bottom[q * n + of[t]] += capacities[0][q * n + t];
  }
  const layers = [bottom, ...capacities.slice(1)];
  const last = layers.length - 1;
  const top = layers[last].slice();
  for (const source of sources.slice(1)) {
    for (let t = 0; t < n; t++) top[sources[0] * n + t] += top[source * n + t];
  }
  layers[last] = top;
  return layers;
}

export class LayeredFlow {
  readonly n: number;
  readonly layer: number;
  private readonly capacities: readonly ArrayLike<number>[];
  private readonly causal: boolean;
  private readonly unlimited: number; // stands for Infinity: more than any finite cut
  // Nodes are level * n + position.
  private readonly firstOut: Int32Array;
  private readonly firstIn: Int32Array;
  private readonly nextOut: Int32Array; // the arc of a node to try next
  private readonly nextIn: Int32Array;
  private readonly steps: Int32Array; // cancelled edges on the way to the sink; -1: unknown, blocked
  private readonly queue: Int32Array;
  private readonly later: Int32Array;
  private readonly known: Int32Array; // [n]: positions marked by `addMissing`
  private mark = 0;
  private source = -1;
  private sink = 0;
  private end = 0; // paths visit no position from here on
  private total = 0; // what can leave the source
  // Arcs: those of the source, then those of the sink.
  private own = 0; // the number of the former
  private count = 0;
  private from = new Int32Array(1024);
  private to = new Int32Array(1024);
  private otherOut = new Int32Array(1024); // the next arc out of the same node
  private otherIn = new Int32Array(1024);
  private capacity = new Float64Array(1024);
  private flow = new Float64Array(1024);

  /** capacities: [layer] matrices [n, n], layer 1 first; Infinity for unlimited edges. */
  constructor(capacities: readonly ArrayLike<number>[], n: number) {
    const nodes = (capacities.length + 1) * n;
    this.n = n;
    this.layer = capacities.length;
    this.capacities = capacities;
    this.causal = isCausal(capacities, n);
    this.unlimited = 1 + capacities.reduce((most, layer) => Math.max(most, finiteSum(layer)), 0);
    this.firstOut = new Int32Array(nodes).fill(-1);
    this.firstIn = new Int32Array(nodes).fill(-1);
    this.nextOut = new Int32Array(nodes);
    this.nextIn = new Int32Array(nodes);
    this.steps = new Int32Array(nodes);
    this.queue = new Int32Array(nodes);
    this.later = new Int32Array(nodes);
    this.known = new Int32Array(n);
  }

  /**
   * The maximum flow from a position at the top level to a column of layer 1; Infinity if it is
   * unlimited. The next sink of the same source takes less time.
   * chains: the tokens of the column. near: positions joined to the source.
   */
  value(
    source: number,
    sink: number,
    chains: readonly number[] = [sink],
    near: readonly number[] = [source],
  ): number {
    if (source !== this.source) this.startAt(source, near);
    const wanted = this.endAt(sink, chains);
    const most = Math.min(wanted, this.total);
    let value = 0;
    // Without flow left to push, one more search is needed only for the cut.
    while (most - value > NONE) {
      if (this.search()) value += this.pushFromSource(most - value);
      else if (!this.addCut(value)) break;
    }
    return value >= this.unlimited ? Infinity : value;
  }

  /** The maximum flow on every edge and a minimum cut. Throws if their values differ. */
  solve(
    source: number,
    sink: number,
    chains: readonly number[] = [sink],
    near: readonly number[] = [source],
  ): MaxFlow {
    const value = this.value(source, sink, chains, near);
    if (value === Infinity) return { value, edges: [], cut: [], capacity: Infinity };
    let cut: CutEdge[];
    let capacity: number;
    do {
      while (this.search()) if (this.pushFromSource(Infinity) === 0) break; // rounding
      cut = this.minimumCut();
      capacity = cut.reduce((sum, edge) => sum + edge.capacity, 0);
    } while (capacity - value > PROOF && this.addCut(value));
    if (Math.abs(capacity - value) > 1e-7 * (1 + value)) {
      throw new Error(`A flow of ${value} has a cut of ${capacity}; they must be equal.`);
    }
    return { value, edges: this.flowing(), cut, capacity };
  }

  private edge(l: number, u: number, v: number): number {
    const capacity = this.capacities[l - 1][u * this.n + v];
    return capacity === Infinity ? this.unlimited : capacity;
  }

  // Arcs

  /** Start with the arcs of a source: all of its positions and of those near, of others the largest. */
  private startAt(source: number, near: readonly number[]): void {
    const { n, layer } = this;
    this.source = source;
    this.own = this.count = 0;
    this.firstOut.fill(-1);
    this.firstIn.fill(-1);
    this.end = this.causal ? Math.max(source, ...near) + 1 : n;
    this.total = 0;
    for (let v = 0; v < n; v++) this.total += this.edge(layer, source, v);
    const whole = new Uint8Array(n);
    for (const u of [source, ...near]) whole[u] = 1;
    const large = new Int32Array(KEPT);
    for (let l = layer; l > 1; l--) {
      for (let u = 0; u < this.end; u++) {
        if (l === layer && u !== source) continue;
        const below = (l - 1) * n;
        if (l === layer || (whole[u] && this.count < MAX_ARCS)) {
          for (let v = 0; v < this.end; v++) this.add(l * n + u, below + v, this.edge(l, u, v));
        } else {
          const size = this.findLargest(l, u, large);
          for (let k = 0; k < size; k++) {
            this.add(l * n + u, below + large[k], this.edge(l, u, large[k]));
          }
        }
      }
    }
    this.own = this.count;
  }

  /** Replace the arcs of the last sink; returns the sum of the last edges. */
  private endAt(sink: number, chains: readonly number[]): number {
    const { n, causal, end, layer } = this;
    while (this.count > this.own) {
      const arc = --this.count;
      this.firstOut[this.from[arc]] = this.otherOut[arc];
      this.firstIn[this.to[arc]] = this.otherIn[arc];
    }
    this.flow.fill(0, 0, this.count);
    this.sink = sink;
    let wanted = 0;
    for (let u = 0; u < end; u++) {
      if (layer === 1 && u !== this.source) continue;
      const capacity = this.edge(1, u, sink);
      wanted += capacity;
      this.add(n + u, sink, capacity);
    }
    for (let l = 2; l < layer && chains.length <= WIDE; l++) {
      for (const v of chains) if (v < end) this.addMissing(l, v, causal ? v : 0, () => true);
    }
    return wanted;
  }

  /** Find the largest edges of a position, smallest first; returns how many there are. */
  private findLargest(l: number, u: number, large: Int32Array): number {
    const start = u * this.n;
    const row = this.capacities[l - 1];
    let size = 0;
    let least = 0;
    for (let v = 0; v < this.end; v++) {
      const capacity = row[start + v];
      if (capacity <= least) continue;
      let k = size;
      if (size < KEPT) {
        for (size++; k > 0 && row[start + large[k - 1]] > capacity; k--) large[k] = large[k - 1];
      } else {
        for (k = 0; k + 1 < KEPT && row[start + large[k + 1]] < capacity; k++) {
          large[k] = large[k + 1];
        }
      }
      large[k] = v;
      if (size === KEPT) least = row[start + large[0]];
    }
    return size;
  }

  private add(from: number, to: number, capacity: number): void {
    if (!(capacity > NONE)) return;
    if (this.count === this.from.length) this.grow();
    const arc = this.count++;
    this.from[arc] = from;
    this.to[arc] = to;
    this.capacity[arc] = capacity;
    this.flow[arc] = 0;
    this.otherOut[arc] = this.firstOut[from];
    this.firstOut[from] = arc;
    this.otherIn[arc] = this.firstIn[to];
    this.firstIn[to] = arc;
  }

  private grow(): void {
    const size = 2 * this.from.length;
    const longer = <T extends Int32Array | Float64Array>(old: T, out: T): T => {
      out.set(old);
      return out;
    };
    this.from = longer(this.from, new Int32Array(size));
    this.to = longer(this.to, new Int32Array(size));
    this.otherOut = longer(this.otherOut, new Int32Array(size));
    this.otherIn = longer(this.otherIn, new Int32Array(size));
    this.capacity = longer(this.capacity, new Float64Array(size));
    this.flow = longer(this.flow, new Float64Array(size));
  }

  /** Add the missing arcs of layer l to position v, from positions that are asked for. */
  private addMissing(l: number, v: number, first: number, asked: (u: number) => boolean): void {
    const { n, known, end } = this;
    const target = (l - 1) * n + v;
    const mark = ++this.mark;
    for (let arc = this.firstIn[target]; arc >= 0; arc = this.otherIn[arc]) {
      known[this.from[arc] - l * n] = mark;
    }
    for (let u = first; u < end; u++) {
      if (known[u] !== mark && asked(u)) this.add(l * n + u, target, this.edge(l, u, v));
    }
  }

  // Augmenting paths

  /** Count the steps from each node to the sink, fewest first; returns whether it found the source. */
  private search(): boolean {
    const { steps, queue, later, from, to, flow, capacity, otherIn, otherOut } = this;
    const start = this.layer * this.n + this.source;
    steps.fill(-1);
    steps[this.sink] = 0;
    queue[0] = this.sink;
    for (let step = 0, end = 1; end > 0; step++) {
      for (let head = 0; head < end; head++) {
        for (let arc = this.firstIn[queue[head]]; arc >= 0; arc = otherIn[arc]) {
          const above = from[arc];
          if (steps[above] >= 0 || capacity[arc] - flow[arc] <= NONE) continue;
          steps[above] = step;
          queue[end++] = above;
        }
      }
      if (steps[start] >= 0) return true;
      let waiting = 0;
      for (let head = 0; head < end; head++) {
        for (let arc = this.firstOut[queue[head]]; arc >= 0; arc = otherOut[arc]) {
          const below = to[arc];
          if (steps[below] >= 0 || flow[arc] <= NONE) continue;
          steps[below] = step + 1;
          later[waiting++] = below;
        }
      }
      queue.set(later.subarray(0, waiting));
      end = waiting;
    }
    return false;
  }

  private pushFromSource(limit: number): number {
    this.nextOut.set(this.firstOut);
    this.nextIn.set(this.firstIn);
    return this.push(this.layer * this.n + this.source, limit);
  }

  /** Push up to `limit` from a node towards the sink, over paths with fewest steps. */
  private push(node: number, limit: number): number {
    if (node === this.sink) return limit;
    const { steps, flow } = this;
    const step = steps[node];
    let left = limit;
    for (let arc = this.nextOut[node]; arc >= 0; arc = this.otherOut[arc]) {
      const below = this.to[arc];
      const room = this.capacity[arc] - flow[arc];
      if (steps[below] !== step || room <= NONE) continue;
      const arrived = this.push(below, room < left ? room : left);
      flow[arc] += arrived;
      left -= arrived;
      if (left <= NONE) {
        this.nextOut[node] = arc; // it may have room left
        return limit - left;
      }
    }
    this.nextOut[node] = -1;
    for (let arc = this.nextIn[node]; arc >= 0; arc = this.otherIn[arc]) {
      const above = this.from[arc];
      if (steps[above] !== step - 1 || flow[arc] <= NONE) continue;
      const arrived = this.push(above, flow[arc] < left ? flow[arc] : left);
      flow[arc] -= arrived;
      left -= arrived;
      if (left <= NONE) {
        this.nextIn[node] = arc;
        return limit - left;
      }
    }
    this.nextIn[node] = -1;
    steps[node] = -1; // blocked
    return limit - left;
  }

  // Proofs

  /**
   * Unless the cut around the nodes that the last search found proves the flow, add the edges over it
   * that are missing; returns whether there are any.
   */
  private addCut(value: number): boolean {
    const { n, steps, causal } = this;
    if (this.cutCapacity() - value <= PROOF) return false;
    const before = this.count;
    for (let l = 2; l < this.layer; l++) {
      for (let v = 0; v < this.end; v++) {
        if (steps[(l - 1) * n + v] < 0) continue;
        this.addMissing(l, v, causal ? v : 0, (u) => steps[l * n + u] < 0);
      }
    }
    return this.count > before;
  }

  private cutCapacity(): number {
    let cut = 0;
    this.visitCut((l, u, beyond) => {
      for (const v of beyond) cut += this.edge(l, u, v);
    });
    return cut;
  }

  /** Visit the positions on the source's side of the cut, with those beyond it one level below. */
  private visitCut(visit: (l: number, u: number, beyond: readonly number[]) => void): void {
    const { n, steps, end, layer } = this;
    for (let l = layer; l > 0; l--) {
      const beyond = l === 1 ? [this.sink] : [];
      for (let v = 0; v < end && l > 1; v++) if (steps[(l - 1) * n + v] >= 0) beyond.push(v);
      if (!beyond.length) continue;
      for (let u = 0; u < end; u++) {
        if (l === layer ? u === this.source : steps[l * n + u] < 0) visit(l, u, beyond);
      }
    }
  }

  private minimumCut(): CutEdge[] {
    const cut: CutEdge[] = [];
    this.visitCut((layer, position, beyond) => {
      for (const below of beyond) {
        const capacity = this.edge(layer, position, below);
        if (capacity > 0) cut.push({ layer, position, below, capacity });
      }
    });
    return cut;
  }

  private flowing(): FlowEdge[] {
    const { n } = this;
    const edges: FlowEdge[] = [];
    for (let arc = 0; arc < this.count; arc++) {
      const flow = this.flow[arc];
      if (flow <= NONE) continue;
      const layer = Math.floor(this.from[arc] / n);
      edges.push({ layer, position: this.from[arc] % n, below: this.to[arc] % n, flow });
    }
    return edges;
  }
}

/** Whether there are several positions and no edge leads to a later one. */
function isCausal(layers: readonly ArrayLike<number>[], n: number): boolean {
  return layers.every((layer) => {
    for (let u = 0; u < n; u++) {
      for (let v = u + 1; v < n; v++) if (layer[u * n + v] > 0) return false;
    }
    return true;
  });
}

/** The sum of the finite capacities of a layer. */
function finiteSum(layer: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < layer.length; i++) if (layer[i] < Infinity) sum += layer[i];
  return sum;
}

/** Capacities from augmented weights; the self edges of carried positions are unlimited. */
export function capacitiesOf(
  layers: readonly Float32Array[],
  n: number,
  carried: readonly (readonly [number, number])[],
): Float32Array[] {
  return layers.map((layer, l) => {
    const here = carried.filter(([number]) => number === l + 1);
    if (!here.length) return layer;
    const out = layer.slice();
    for (const [, position] of here) out[position * n + position] = Infinity;
    return out;
  });
}
