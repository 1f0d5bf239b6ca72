// Workers that compute flow, so that the page stays responsive and uses several processors. Where the
// host allows no workers, and for small graphs, the page computes in short slices itself.

import type { Reply, Request } from "./flowWorker.ts";
import type { MaxFlow, Query } from "./maxflow.ts";
import type { Step } from "./queue.ts";
import { flowScore, LayeredFlow, workerSource } from "./solver.ts";

const SMALL = 4e5; // edges up to which the page computes by itself
const MAX_WORKERS = 6;
const MAX_BYTES = 1e9; // of the graph in all workers
const BYTES = 5; // for an edge
const AHEAD = 2; // batches that wait in a worker
const BATCH = 4; // neighboring sinks that a worker is given at once; fewer near the end

export class FlowPool {
  private readonly n: number;
  private readonly depth: number;
  private readonly spawn: () => Worker;
  private readonly workers: Worker[] = [];
  private readonly sent: number[] = []; // how many layers each worker has
  private solver: LayeredFlow | null = null; // of the page
  private failed = false;
  private jobs = 0;

  /** n: tokens. depth: layers, of which only the lowest may be needed. spawn: starts a worker. */
  constructor(n: number, depth: number, spawn: () => Worker = startWorker) {
    this.n = n;
    this.depth = depth;
    this.spawn = spawn;
  }

  /** Compute the scores of queries, and note each of them by its index, in any order. */
  *values(
    layers: readonly Float32Array[],
    queries: readonly Query[],
    note: (i: number, score: number) => void,
  ): Generator<Step, void> {
    const take = ({ first, values }: Reply): void => values.forEach((v, k) => note(first + k, v));
    if (this.start(layers.length) && (yield* this.share(layers, queries, false, take))) return;
    const solver = this.own(layers);
    for (const [i, query] of queries.entries()) {
      note(i, flowScore(solver.value(query), query.sources));
      yield [i + 1, queries.length];
    }
  }

  /** The flow on every edge. */
  *path(layers: readonly Float32Array[], query: Query): Generator<Step, MaxFlow> {
    yield [0, 1]; // redraw before the work starts
    let path: MaxFlow | null = null;
    if (this.start(layers.length)) {
      yield* this.share(layers, [query], true, (reply) => (path = reply.path));
      if (path) return path;
    }
    return this.own(layers).solve(query);
  }

  /** Start the workers, and give them layers that are known, while others are still being loaded.
   * needed: how many there will be. */
  prepare(layers: readonly Float32Array[], needed: number): void {
    if (!layers.length || !this.start(needed)) return;
    for (const i of this.workers.keys()) {
      while (this.sent[i] < layers.length) this.sendLayer(i, layers);
    }
  }

  destroy(): void {
    for (const worker of this.workers) worker.terminate();
    this.workers.length = this.sent.length = 0;
  }

  private own(layers: readonly Float32Array[]): LayeredFlow {
    const solver = (this.solver ??= new LayeredFlow(this.n, this.depth));
    while (solver.layers < layers.length) solver.add(layers[solver.layers]);
    return solver;
  }

  /** Start the workers, if the graph needs any; returns whether there are some. */
  private start(needed: number): boolean {
    if (needed * this.n ** 2 <= SMALL || this.failed) return false;
    if (this.workers.length) return true;
    const fitting = Math.max(1, Math.floor(MAX_BYTES / (BYTES * this.depth * this.n ** 2)));
    const count = Math.min(MAX_WORKERS, navigator.hardwareConcurrency || 2, fitting);
    try {
      while (this.workers.length < count) {
        const worker = this.spawn();
        worker.onerror = () => this.fail();
        this.workers.push(worker);
        this.sent.push(0);
      }
    } catch {
      this.fail();
    }
    return this.workers.length > 0;
  }

  /** Send a worker the next layer that it does not have. */
  private sendLayer(i: number, layers: readonly Float32Array[]): void {
    const capacities = layers[this.sent[i]++];
    post(this.workers[i], { n: this.n, depth: this.depth, capacities });
  }

  private fail(): void {
    this.failed = true;
    this.destroy();
  }

  /** Compute a job in the workers; returns false if they fail. Ends early if the caller stops. */
  private *share(
    layers: readonly Float32Array[],
    queries: readonly Query[],
    full: boolean,
    take: (reply: Reply) => void,
  ): Generator<Step, boolean> {
    const total = queries.length;
    const id = ++this.jobs;
    const workers = full ? this.workers.slice(0, 1) : [...this.workers];
    let next = 0;
    let done = 0;
    let error: string | null = null;
    const give = (worker: Worker): void => {
      if (next >= total || error || id !== this.jobs) return;
      const share = Math.ceil((total - next) / (2 * workers.length));
      const batch = queries.slice(next, next + Math.min(BATCH, share));
      post(worker, { id, first: next, queries: batch, full });
      next += batch.length;
    };
    try {
      for (const [l] of layers.entries()) {
        const lacking = [...workers.keys()].filter((i) => this.sent[i] === l);
        if (!lacking.length) continue;
        for (const i of lacking) this.sendLayer(i, layers);
        yield [done, total];
        if (this.failed) return false;
      }
      for (const worker of workers) {
        worker.onmessage = ({ data }: MessageEvent<Reply>) => {
          if (data.id !== id) return;
          take(data);
          done += data.values.length;
          error ??= data.error;
          give(worker);
        };
        for (let k = 0; k < AHEAD; k++) give(worker);
      }
      while (done < total && !error) {
        if (this.failed) return false;
        yield [done, total, "wait"];
      }
    } finally {
      next = total; // nobody wants the rest any more
    }
    if (error) throw new Error(error);
    return true;
  }
}

/** Throws where the host allows no workers. */
function startWorker(): Worker {
  if (!workerSource) throw new Error("the solver was not built");
  const url = URL.createObjectURL(new Blob([workerSource], { type: "text/javascript" }));
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return new Worker(url);
}

function post(worker: Worker, request: Request): void {
  worker.postMessage(request);
}
