// Exact maximum flow on the layered attention graph, and its minimum cut (paper §3), for a set of
// positions as the source and a set of tokens as the sink. A greedy flow comes first; where it is
// not maximum, Dinic's algorithm augments it. Every value is proved: all edges of the source or of
// the sink are saturated, or a cut found by search has the same capacity.

import { Greedy } from "./greedy.ts";
import { EPSILON, LayeredGraph, type Pair } from "./layered.ts";
import { Residual, type Amount } from "./residual.ts";

export interface Edge {
  layer: number;
  position: number; // the first of the source's positions stands for all
  below: number; // and the first token of the sink
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

/** A source and a sink: positions above a layer, and tokens. */
export interface Query {
  layer: number;
  sources: readonly number[];
  tokens: readonly number[];
}

const PROOF = 1e-9; // a cut proves a flow that is smaller by no more than this

export class LayeredFlow {
  private readonly graph: LayeredGraph;
  private readonly greedy: Greedy;
  private residual: Residual | null = null;
  private key = ""; // of the last source
  private row: Float64Array | null = null; // its edges
  private tails: Float64Array | null = null; // sums of the edges out of its chain

  /** depth: how many layers can be added. */
  constructor(n: number, depth: number) {
    this.graph = new LayeredGraph(n, depth);
    this.greedy = new Greedy(this.graph);
  }

  get layers(): number {
    return this.graph.added;
  }

  /** Add the capacities [n, n] of the next layer; Infinity for unlimited edges. */
  add(capacities: ArrayLike<number>): void {
    this.graph.add(capacities);
    this.key = "";
  }

  /** The maximum flow, Infinity if it is unlimited. Sinks near the last one take less time. */
  value(query: Query): number {
    const { graph, greedy } = this;
    const pair = this.pairOf(query);
    if (pair.first >= pair.end) return 0;
    if (pair.level === 1) return graph.finite(sum(query.tokens.map((t) => pair.row[t])));
    greedy.run(pair);
    if (greedy.unmet <= EPSILON) return graph.finite(sum(pair.column, pair));
    const bound = this.chainCut(pair);
    if (bound - sum(greedy.sent, pair) <= EPSILON * graph.n) return graph.finite(bound);
    return graph.finite(this.maximize(pair));
  }

  /** The maximum flow on every edge and a minimum cut. */
  solve(query: Query): MaxFlow {
    const { layer, sources, tokens } = query;
    const pair = this.pairOf(query);
    const ends = { layer, position: sources[0], below: tokens[0] };
    if (pair.first >= pair.end) return { value: 0, edges: [], cut: [], capacity: 0 };
    if (layer === 1) {
      const value = this.value(query);
      const edges =
        value > 0 && value < Infinity ? [{ ...ends, flow: value, capacity: value }] : [];
      return { value, edges, cut: edges, capacity: value };
    }
    this.greedy.run(pair);
    const value = this.graph.finite(this.maximize(pair));
    if (value === Infinity) return { value, edges: [], cut: [], capacity: value };
    const residual = this.residual as Residual;
    const edge = ({ x, u, q }: Amount): Edge => ({
      layer: x + 1,
      position: x === layer - 1 ? ends.position : u,
      below: x === 0 ? ends.below : q,
    });
    const across: Amount[] = [];
    residual.cut(across);
    return {
      value,
      edges: residual.edges().map((one) => ({ ...edge(one), flow: one.amount })),
      cut: across
        .filter(({ amount }) => amount > 0)
        .map((one) => ({ ...edge(one), capacity: one.amount })),
      capacity: value,
    };
  }

  /** Augment the greedy flow; returns the capacity of a cut, which proves it, or throws. */
  private maximize(pair: Pair): number {
    const { greedy } = this;
    const residual = (this.residual ??= new Residual(this.graph));
    residual.start(pair, greedy);
    greedy.visitFlow((x, u, q, flow, capacity) => residual.add(x, u, q, flow, capacity));
    const value = sum(greedy.sent, pair) + residual.maximize();
    const capacity = residual.cut();
    if (Math.abs(capacity - value) > PROOF * (1 + value)) {
      throw new Error(`A flow of ${value} has a cut of ${capacity}; they must be equal.`);
    }
    return capacity;
  }

  /** The smallest cut around the source and a part of the chain below it. */
  private chainCut({ level, source, row, first, end }: Pair): number {
    const { n, chain } = this.graph;
    const tails = (this.tails ??= this.tailsOf(source, level));
    let least = sum(row, { first, end });
    let above = least - row[source]; // the edges that leave the chain
    for (let x = level - 2; x > 0; x--) {
      above += tails[x * n + first];
      least = Math.min(least, above);
      above -= chain[x * n + source];
    }
    return least;
  }

  /** [x, q]: the sum of the edges from a position to q and those after it. */
  private tailsOf(source: number, level: number): Float64Array {
    const { n, capacity } = this.graph;
    const tails = new Float64Array(level * n);
    for (let x = 1; x < level - 1; x++) {
      let total = 0;
      for (let q = n - 1; q >= 0; q--) {
        total += capacity[(x * n + source) * n + q];
        tails[x * n + q] = total;
      }
    }
    return tails;
  }

  private pairOf({ layer, sources, tokens }: Query): Pair {
    const pair = this.graph.pair(layer, sources, tokens);
    const key = `${layer}/${sources}`;
    if (key === this.key && this.row) pair.row = this.row;
    else this.tails = null;
    [this.key, this.row] = [key, pair.row];
    return pair;
  }
}

/** The score of a flow: divided by the number of its sources, and 1 for a carried position. */
export function flowScore(value: number, sources: readonly number[]): number {
  return value === Infinity ? 1 : value / sources.length;
}

/** The sum of numbers, or of those of the positions that paths of a pair visit. */
function sum(
  numbers: ArrayLike<number>,
  { first, end } = { first: 0, end: numbers.length },
): number {
  let total = 0;
  for (let i = first; i < end; i++) total += numbers[i];
  return total;
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
