// The part of the flow computation that runs in workers.

import { flowScore, LayeredFlow, type MaxFlow, type Query } from "./maxflow.ts";

export type Request =
  | { n: number; depth: number; capacities: Float32Array } // of the next layer, of so many
  | { id: number; first: number; queries: readonly Query[]; full: boolean };

export interface Reply {
  id: number;
  first: number; // index of the first query
  values: number[];
  path: MaxFlow | null; // of the only query, if it was asked for in full
  error: string | null;
}

interface Scope {
  onmessage: ((event: MessageEvent<Request>) => void) | null;
  postMessage: (reply: Reply) => void;
}

/** Answer the requests that a worker receives. */
export function serve(scope: Scope): void {
  let solver: LayeredFlow | null = null;
  scope.onmessage = ({ data }) => {
    if ("capacities" in data) {
      solver ??= new LayeredFlow(data.n, data.depth);
      solver.add(data.capacities);
      return;
    }
    const { id, first, queries, full } = data;
    const reply: Reply = { id, first, values: [], path: null, error: null };
    try {
      if (!solver) throw new Error("no graph");
      if (full) {
        reply.path = solver.solve(queries[0]);
        reply.values.push(reply.path.value);
      } else {
        for (const query of queries) {
          reply.values.push(flowScore(solver.value(query), query.sources));
        }
      }
    } catch (error) {
      reply.error = String(error);
    }
    scope.postMessage(reply);
  };
}
