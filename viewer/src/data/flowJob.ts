// Maximum flows of many pairs, as the page and its workers compute them.

import { contract, LayeredFlow, type MaxFlow } from "./maxflow.ts";

export interface Pair {
  sources: readonly number[]; // positions above the layer
  sink: number; // a token, or an item
  tokens: readonly number[]; // of the item
}

export interface FlowJob {
  layer: number;
  of: ArrayLike<number> | null; // the item of each token; null: tokens
  pairs: readonly Pair[];
}

/** Solves jobs on one graph. Pairs with the same source share most of their work. */
export class FlowSolver {
  readonly layers: Float32Array[] = []; // capacities [n, n], layer 1 first
  readonly n: number;
  private key = "";
  private solver: LayeredFlow | null = null;

  constructor(n: number) {
    this.n = n;
  }

  /** The flow of a pair, divided by the number of its sources; 1 for a carried position. */
  value(job: Pick<FlowJob, "layer" | "of">, pair: Pair): number {
    const solver = this.solverOf(job, pair.sources);
    const value = solver.value(pair.sources[0], pair.sink, pair.tokens, pair.sources);
    return value === Infinity ? 1 : value / pair.sources.length;
  }

  path(job: Pick<FlowJob, "layer" | "of">, pair: Pair): MaxFlow {
    const solver = this.solverOf(job, pair.sources);
    return solver.solve(pair.sources[0], pair.sink, pair.tokens, pair.sources);
  }

  private solverOf({ layer, of }: Pick<FlowJob, "layer" | "of">, sources: readonly number[]) {
    const items = of ? Array.from(of) : null;
    const key = `${layer}/${sources}/${items}`;
    if (this.key !== key || !this.solver) {
      const layers = this.layers.slice(0, layer);
      const joined =
        items ?? (sources.length > 1 ? Array.from({ length: this.n }, (_, i) => i) : null);
      const graph = joined ? contract(layers, this.n, { of: joined }, sources) : layers;
      this.solver = new LayeredFlow(graph, this.n);
      this.key = key;
    }
    return this.solver;
  }
}
