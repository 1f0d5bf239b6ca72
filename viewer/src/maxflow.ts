// Exact maximum flow on the layered attention graph, and its minimum cut (paper §3).
// Level l holds the positions after layer l; level 0 is the input. An edge leads from a position
// to one a layer below; its capacity is the augmented weight. Dinic's algorithm: shortest residual
// paths by a search from the sink, then a blocking flow along them, until the sink is out of reach.

export interface CutEdge {
  layer: number;
  position: number;
  below: number;
  capacity: number;
}

export interface MaxFlow {
  value: number; // Infinity if nothing limits it
  edges: Float64Array[]; // [layer] of [n, n]: the flow on every edge, layer 1 first
  cut: CutEdge[]; // highest layer first
  capacity: number; // of the cut; equals the value
}

const NONE = 1e-12; // what is left of a capacity once it counts as used up

export class LayeredFlow {
  readonly n: number;
  readonly layer: number;
  private readonly capacities: readonly ArrayLike<number>[];
  private readonly flow: Float64Array[];
  private readonly touched: number[] = []; // edges with flow, as l * n * n + edge
  private readonly distance: Int32Array; // [layer + 1, n], to the sink; -1 if none
  private readonly next: Int32Array; // [layer + 1, n], the next edge to try
  private readonly queue: Int32Array;
  private sink = 0;

  /** capacities: [layer] matrices [n, n], layer 1 first; Infinity for unlimited edges. */
  constructor(capacities: readonly ArrayLike<number>[], n: number) {
    this.n = n;
    this.layer = capacities.length;
    this.capacities = capacities;
    this.flow = capacities.map(() => new Float64Array(n * n));
    this.distance = new Int32Array((this.layer + 1) * n);
    this.next = new Int32Array((this.layer + 1) * n);
    this.queue = new Int32Array((this.layer + 1) * n);
  }

  /** The maximum flow from a position at the top level to a token. */
  value(source: number, sink: number): number {
    this.reset();
    this.sink = sink;
    if (this.unlimited(source, sink)) return Infinity;
    let total = 0;
    while (this.search(source)) {
      this.next.fill(0);
      const pushed = this.push(this.layer, source, Infinity);
      if (pushed <= NONE) break; // no more than rounding is left
      total += pushed;
    }
    return total;
  }

  /** The same with the flow on every edge and a minimum cut, which is checked against it. */
  solve(source: number, sink: number): MaxFlow {
    const value = this.value(source, sink);
    const edges = this.flow.map((flow) => flow.slice());
    if (value === Infinity) return { value, edges, cut: [], capacity: Infinity };
    const cut = this.minimumCut(source);
    const capacity = cut.reduce((sum, edge) => sum + edge.capacity, 0);
    if (Math.abs(capacity - value) > 1e-7 * (1 + value)) {
      throw new Error(`A flow of ${value} has a cut of ${capacity}; they must be equal.`);
    }
    return { value, edges, cut, capacity };
  }

  private reset(): void {
    const size = this.n * this.n;
    for (const edge of this.touched) this.flow[Math.floor(edge / size)][edge % size] = 0;
    this.touched.length = 0;
  }

  /** Whether unlimited edges alone lead from the source to the sink. */
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

  /** Distances to the sink through edges with room; whether the source has one. */
  private search(source: number): boolean {
    const { n, distance, queue } = this;
    distance.fill(-1);
    // Positions of each level that have no distance yet, so that none is looked at twice.
    const left: Int32Array[] = [];
    const sizes: number[] = [];
    for (let l = 0; l <= this.layer; l++) {
      left.push(Int32Array.from({ length: n }, (_, i) => i));
      sizes.push(l === 0 ? 0 : n); // other tokens lead nowhere
    }
    const goal = this.layer * n + source;
    distance[this.sink] = 0;
    queue[0] = this.sink;
    let end = 1;
    for (let head = 0; head < end; head++) {
      const node = queue[head];
      const l = (node / n) | 0;
      const v = node - l * n;
      const step = distance[node] + 1;
      if (l < this.layer) {
        const room = this.capacities[l];
        const flow = this.flow[l];
        const above = left[l + 1];
        let kept = 0;
        for (let i = 0; i < sizes[l + 1]; i++) {
          const u = above[i];
          if (room[u * n + v] - flow[u * n + v] > NONE) {
            distance[(l + 1) * n + u] = step;
            queue[end++] = (l + 1) * n + u;
          } else above[kept++] = u;
        }
        sizes[l + 1] = kept;
      }
      if (l > 0 && l - 1 > 0) {
        // A position below may send flow back up along an edge that has some.
        const flow = this.flow[l - 1];
        const below = left[l - 1];
        let kept = 0;
        for (let i = 0; i < sizes[l - 1]; i++) {
          const u = below[i];
          if (flow[v * n + u] > NONE) {
            distance[(l - 1) * n + u] = step;
            queue[end++] = (l - 1) * n + u;
          } else below[kept++] = u;
        }
        sizes[l - 1] = kept;
      }
      if (distance[goal] >= 0 && distance[goal] < step) break;
    }
    return distance[goal] >= 0;
  }

  /** Push up to `limit` from a node towards the sink along shortest residual paths. */
  private push(l: number, u: number, limit: number): number {
    if (l === 0) return u === this.sink ? limit : 0;
    const { n, distance, next } = this;
    const node = l * n + u;
    const wanted = distance[node] - 1;
    let pushed = 0;
    // Edges 0 to n - 1 lead down; n to 2n - 1 take back flow that came from above.
    for (; next[node] < 2 * n; next[node]++) {
      const edge = next[node];
      if (edge < n) {
        if (l === 1 && edge !== this.sink) continue;
        if (distance[(l - 1) * n + edge] !== wanted) continue;
        const at = u * n + edge;
        const flow = this.flow[l - 1];
        const room = this.capacities[l - 1][at] - flow[at];
        if (room <= NONE) continue;
        const got = this.push(l - 1, edge, Math.min(limit - pushed, room));
        if (got > 0) {
          if (flow[at] === 0) this.touched.push((l - 1) * n * n + at);
          flow[at] += got;
          pushed += got;
        }
      } else if (l < this.layer) {
        const above = edge - n;
        if (distance[(l + 1) * n + above] !== wanted) continue;
        const at = above * n + u;
        const flow = this.flow[l];
        if (flow[at] <= NONE) continue;
        const got = this.push(l + 1, above, Math.min(limit - pushed, flow[at]));
        flow[at] -= got;
        pushed += got;
      }
      if (limit - pushed <= NONE) return pushed; // this edge may have room left
    }
    return pushed;
  }

  /** The edges that leave what the source still reaches; other tokens count as reached. */
  private minimumCut(source: number): CutEdge[] {
    const { n } = this;
    const reached = new Uint8Array((this.layer + 1) * n);
    const stack = [this.layer * n + source];
    reached[stack[0]] = 1;
    while (stack.length) {
      const node = stack.pop() as number;
      const l = (node / n) | 0;
      const u = node - l * n;
      const visit = (to: number): void => {
        if (!reached[to]) {
          reached[to] = 1;
          stack.push(to);
        }
      };
      for (let v = 0; v < n; v++) {
        // Tokens other than the sink are dead ends; the sink is out of reach.
        if (l > 1 && this.capacities[l - 1][u * n + v] - this.flow[l - 1][u * n + v] > NONE) {
          visit((l - 1) * n + v);
        }
        if (l < this.layer && this.flow[l][v * n + u] > NONE) visit((l + 1) * n + v);
      }
    }
    for (let v = 0; v < n; v++) reached[v] = v === this.sink ? 0 : 1;
    const cut: CutEdge[] = [];
    for (let l = this.layer; l > 0; l--) {
      for (let u = 0; u < n; u++) {
        if (!reached[l * n + u]) continue;
        for (let v = 0; v < n; v++) {
          const capacity = this.capacities[l - 1][u * n + v];
          if (capacity > 0 && !reached[(l - 1) * n + v]) {
            cut.push({ layer: l, position: u, below: v, capacity });
          }
        }
      }
    }
    return cut;
  }
}

/** Capacities from augmented weights: carried positions pass themselves on without limit. */
export function capacitiesOf(
  layers: readonly Float32Array[],
  n: number,
  carried: readonly (readonly [number, number])[],
): Float64Array[] {
  const out = layers.map((layer) => Float64Array.from(layer));
  for (const [layer, position] of carried) {
    if (layer <= out.length) out[layer - 1][position * n + position] = Infinity;
  }
  return out;
}
