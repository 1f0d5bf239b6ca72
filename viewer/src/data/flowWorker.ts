// The part of the flow computation that runs in workers. `build.mjs` puts it, as text, into the module.

import { FlowSolver, type FlowJob } from "./flowJob.ts";
import type { MaxFlow } from "./maxflow.ts";

export type Request =
  | { n: number; layer: number; capacities: Float32Array } // of one layer, from 1
  | { id: number; first: number; job: FlowJob; full: boolean };

export interface Reply {
  id: number;
  first: number; // index of the first pair
  values: number[];
  path: MaxFlow | null; // of the only pair, if it was asked for in full
  error: string | null;
}

let solver: FlowSolver | null = null;

const scope = globalThis as unknown as {
  onmessage: (event: { data: Request }) => void;
  postMessage: (reply: Reply) => void;
};

scope.onmessage = ({ data }) => {
  if ("capacities" in data) {
    solver ??= new FlowSolver(data.n);
    solver.layers[data.layer - 1] = data.capacities;
    return;
  }
  const { id, first, job, full } = data;
  const reply: Reply = { id, first, values: [], path: null, error: null };
  try {
    if (!solver) throw new Error("no graph");
    if (full) reply.path = solver.path(job, job.pairs[0]);
    else for (const pair of job.pairs) reply.values.push(solver.value(job, pair));
  } catch (error) {
    reply.error = String(error);
  }
  scope.postMessage(reply);
};
