// What computes flow, in the page and in its workers. `build.mjs` puts it into the module once, as a
// function whose text is also the source of the workers.

export { serve } from "./flowWorker.ts";
export { flowScore, LayeredFlow } from "./maxflow.ts";

export const workerSource: string | null = null; // in the built module, the text
