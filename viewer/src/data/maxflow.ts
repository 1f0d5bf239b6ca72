// Exact maximum flow on the layered attention graph, and its minimum cut (paper §3).
// Level l holds the positions after layer l; level 0 is the input. An edge connects a position to
// one a layer below; its capacity is the augmented weight. Dinic's algorithm: a breadth-first
// search from the source through edges with residual capacity, then a blocking flow along shortest
// paths, until the sink is unreachable. The nodes still reachable are one side of a minimum cut.

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

/** The large arrays of a solver; another solver can reuse them once they are cleared. */
export interface Room {
  flow: Float64Array[]; // [layer] of [n, n], all 0 between uses
  order: Uint16Array[];
}

const NONE = 1e-12; // residual capacities up to this count as 0

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
  private readonly flow: Float64Array[]; // [layer] of [n, n]
  private readonly touched: number[] = []; // edges with flow, as layer index * n * n + edge
  private readonly distance: Int32Array; // [layer + 1, n]; -1: unreachable, -2: blocked
  private readonly next: Int32Array; // [layer + 1, n]: the edge to try next
  private readonly queue: Int32Array;
  private readonly order: Uint16Array[]; // [layer] of [n, n]: the edges of a node, large ones first
  private readonly ordered: Uint8Array; // [layer + 1, n]
  private readonly firstAbove: Int32Array; // [layer + 1, n] + 1: start of a node's part of `above`
  private above = new Int32Array(0); // positions a layer up that send flow to a node
  private sink = 0;

  /**
   * capacities: [layer] matrices [n, n], layer 1 first; Infinity for unlimited edges.
   * room: arrays to reuse; missing ones are added.
   */
  constructor(
    capacities: readonly ArrayLike<number>[],
    n: number,
    room: Room = { flow: [], order: [] },
  ) {
    const nodes = (capacities.length + 1) * n;
    this.n = n;
    this.layer = capacities.length;
    this.capacities = capacities;
    this.flow = capacities.map((_, l) => (room.flow[l] ??= new Float64Array(n * n)));
    this.order = capacities.map((_, l) => (room.order[l] ??= new Uint16Array(n * n)));
    this.ordered = new Uint8Array(nodes);
    this.distance = new Int32Array(nodes);
    this.next = new Int32Array(nodes);
    this.queue = new Int32Array(nodes);
    this.firstAbove = new Int32Array(nodes + 1);
  }

  /** The maximum flow from a position at the top level to a token. */
  value(source: number, sink: number): number {
    this.clear();
    this.sink = sink;
    if (this.unlimited(source, sink)) return Infinity;
    let total = 0;
    for (;;) {
      this.listAbove();
      if (!this.search(source)) return total;
      this.next.fill(0);
      total += this.push(this.layer, source, Infinity);
    }
  }

  /** The maximum flow on every edge and a minimum cut. Throws if their values differ. */
  solve(source: number, sink: number): MaxFlow {
    const value = this.value(source, sink);
    const edges = this.flowing();
    if (value === Infinity) return { value, edges, cut: [], capacity: Infinity };
    const cut = this.minimumCut();
    const capacity = cut.reduce((sum, edge) => sum + edge.capacity, 0);
    if (Math.abs(capacity - value) > 1e-7 * (1 + value)) {
      throw new Error(`A flow of ${value} has a cut of ${capacity}; they must be equal.`);
    }
    return { value, edges, cut, capacity };
  }

  /** Reset the flow on all edges to 0. */
  clear(): void {
    const size = this.n * this.n;
    for (const edge of this.touched) this.flow[Math.floor(edge / size)][edge % size] = 0;
    this.touched.length = 0;
  }

  /** Whether a path of unlimited edges connects the source to the sink. */
  private unlimited(source: number, sink: number): boolean {
    let level = new Set([source]);
    for (let l = this.layer; l > 0 && level.size; l--) {
      const below = new Set<number>();
      for (const u of level) {
        for (let v = 0; v < this.n; v++) {
          if (this.capacities[l - 1][u * this.n + v] === Infinity) below.add(v);
        }
      }
      level = below;
    }
    return level.has(sink);
  }

  /** List, for each node, the positions above that send flow to it: the residual back edges. */
  private listAbove(): void {
    const { n, firstAbove, touched } = this;
    const size = n * n;
    firstAbove.fill(0);
    for (const edge of touched) firstAbove[Math.floor(edge / size) * n + (edge % n) + 1]++;
    for (let i = 1; i < firstAbove.length; i++) firstAbove[i] += firstAbove[i - 1];
    this.above = new Int32Array(touched.length);
    const fill = firstAbove.slice();
    for (const edge of touched) {
      const node = Math.floor(edge / size) * n + (edge % n);
      this.above[fill[node]++] = Math.floor((edge % size) / n);
    }
  }

  /** Breadth-first search through edges with residual capacity; whether it reaches the sink. */
  private search(source: number): boolean {
    const { n, distance, queue, firstAbove, above } = this;
    distance.fill(-1);
    // Positions of each level without a distance, so that none is visited twice.
    const left = new Int32Array(distance.length);
    const sizes = new Int32Array(this.layer + 1).fill(n);
    for (let i = 0; i < left.length; i++) left[i] = i % n;
    const start = this.layer * n + source;
    distance[start] = 0;
    queue[0] = start;
    let end = 1;
    for (let head = 0; head < end; head++) {
      const node = queue[head];
      const l = (node / n) | 0;
      const u = node - l * n;
      const step = distance[node] + 1;
      const flow = this.flow[l - 1];
      const capacities = this.capacities[l - 1];
      if (l === 1) {
        // Other tokens are dead ends.
        const at = u * n + this.sink;
        if (distance[this.sink] < 0 && capacities[at] - flow[at] > NONE) distance[this.sink] = step;
      } else {
        const base = (l - 1) * n;
        let kept = 0;
        for (let i = 0; i < sizes[l - 1]; i++) {
          const v = left[base + i];
          const at = u * n + v;
          if (distance[base + v] >= 0) continue; // reached from below in the meantime
          if (capacities[at] - flow[at] > NONE) {
            distance[base + v] = step;
            queue[end++] = base + v;
          } else left[base + kept++] = v;
        }
        sizes[l - 1] = kept;
      }
      for (let i = firstAbove[node]; i < firstAbove[node + 1]; i++) {
        const v = (l + 1) * n + above[i];
        if (distance[v] < 0 && this.flow[l][above[i] * n + u] > NONE) {
          distance[v] = step;
          queue[end++] = v;
        }
      }
    }
    return distance[this.sink] >= 0;
  }

  /** Push up to `limit` from a node towards the sink along shortest paths. */
  private push(l: number, u: number, limit: number): number {
    const { n, distance, next, firstAbove, above } = this;
    const node = l * n + u;
    const wanted = distance[node] + 1;
    let pushed = l === 1 ? this.pushLast(u, limit, wanted) : 0;
    if (l > 1) {
      if (!this.ordered[node]) this.sort(l, u);
      const order = this.order[l - 1];
      const flow = this.flow[l - 1];
      const capacities = this.capacities[l - 1];
      const base = (l - 1) * n;
      for (; next[node] < n && limit - pushed > NONE; next[node]++) {
        const v = order[u * n + next[node]];
        if (distance[base + v] !== wanted) continue;
        const at = u * n + v;
        const room = capacities[at] - flow[at];
        if (room <= NONE) continue;
        const got = this.push(l - 1, v, Math.min(limit - pushed, room));
        if (got === 0) continue;
        if (flow[at] === 0) this.touched.push((l - 1) * n * n + at);
        flow[at] += got;
        pushed += got;
        if (limit - pushed <= NONE) return pushed; // this edge may have room left
      }
    }
    // Cancel flow that came from above, which then takes another path.
    for (let i = firstAbove[node]; i < firstAbove[node + 1] && limit - pushed > NONE; i++) {
      const back = this.flow[l];
      const at = above[i] * n + u;
      if (distance[(l + 1) * n + above[i]] !== wanted || back[at] <= NONE) continue;
      const got = this.push(l + 1, above[i], Math.min(limit - pushed, back[at]));
      back[at] -= got;
      pushed += got;
    }
    // The node is blocked for the rest of this phase.
    if (limit - pushed > NONE) distance[node] = -2;
    return pushed;
  }

  /** Push from a position of layer 1 directly to the sink. */
  private pushLast(u: number, limit: number, wanted: number): number {
    if (this.distance[this.sink] !== wanted) return 0;
    const at = u * this.n + this.sink;
    const flow = this.flow[0];
    const got = Math.min(limit, this.capacities[0][at] - flow[at]);
    if (got <= NONE) return 0;
    if (flow[at] === 0) this.touched.push(at);
    flow[at] += got;
    return got;
  }

  /** Sort the edges of a node by size, so that most of its flow uses few edges. */
  private sort(l: number, u: number): void {
    const { n } = this;
    const start = u * n;
    const order = this.order[l - 1];
    const capacities = this.capacities[l - 1];
    let end = start;
    let above = Infinity;
    for (const min of [0.1, 0.02, 0.005, 0.001, -1]) {
      for (let v = 0; v < n; v++) {
        const capacity = capacities[start + v];
        if (capacity > min && capacity <= above) order[end++] = v;
      }
      above = min;
    }
    this.ordered[l * n + u] = 1;
  }

  private flowing(): FlowEdge[] {
    const { n } = this;
    const edges: FlowEdge[] = [];
    for (const edge of new Set(this.touched)) {
      const l = Math.floor(edge / (n * n));
      const at = edge % (n * n);
      const flow = this.flow[l][at];
      if (flow > NONE)
        edges.push({ layer: l + 1, position: Math.floor(at / n), below: at % n, flow });
    }
    return edges;
  }

  /** The edges out of the nodes that the last search reached; other tokens count as reached. */
  private minimumCut(): CutEdge[] {
    const { n, distance, sink } = this;
    const cut: CutEdge[] = [];
    for (let l = this.layer; l > 0; l--) {
      for (let u = 0; u < n; u++) {
        if (distance[l * n + u] < 0) continue;
        for (let v = 0; v < n; v++) {
          const capacity = this.capacities[l - 1][u * n + v];
          const beyond = l === 1 ? v === sink : distance[(l - 1) * n + v] < 0;
          if (capacity > 0 && beyond) cut.push({ layer: l, position: u, below: v, capacity });
        }
      }
    }
    return cut;
  }
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
