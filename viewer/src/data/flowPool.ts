// Workers that compute flow, so that the page stays responsive and uses several processors. Where the
// host allows no workers, and for small graphs, the page computes in short slices itself.

import { FlowSolver, type FlowJob } from "./flowJob.ts";
import type { Reply, Request } from "./flowWorker.ts";
import type { MaxFlow } from "./maxflow.ts";
import type { Step } from "./queue.ts";

declare const WORKER_SOURCE: string | undefined; // the bundled src/data/flowWorker.ts; see build.mjs

const SMALL = 4e5; // edges up to which the page computes by itself
const MAX_WORKERS = 6;
const MAX_BYTES = 6e8; // of the graph in all workers
const BATCH = 4; // pairs that a worker is given at once

export class FlowPool {
  private readonly solver: FlowSolver; // of the page
  private readonly workers: Worker[] = [];
  private readonly sent: Set<number>[] = []; // layers that each worker has
  private failed = false;
  private jobs = 0;

  constructor(n: number) {
    this.solver = new FlowSolver(n);
  }

  /** The flows of all pairs of a job. layers: capacities, as many as the job needs. */
  *values(layers: readonly Float32Array[], job: FlowJob): Generator<Step, Float64Array> {
    const values = new Float64Array(job.pairs.length);
    if (this.start(layers) && (yield* this.share(layers, job, values))) return values;
    this.solver.layers.splice(0, Infinity, ...layers);
    for (const [i, pair] of job.pairs.entries()) {
      values[i] = this.solver.value(job, pair);
      yield [i + 1, values.length];
    }
    return values;
  }

  /** The flow on every edge of the only pair of a job. */
  *path(layers: readonly Float32Array[], job: FlowJob): Generator<Step, MaxFlow> {
    yield [0, 1]; // redraw before the work starts
    let path: MaxFlow | null = null;
    if (this.start(layers)) {
      yield* this.share(layers, job, new Float64Array(1), (found) => (path = found));
      if (path) return path;
    }
    this.solver.layers.splice(0, Infinity, ...layers);
    return this.solver.path(job, job.pairs[0]);
  }

  destroy(): void {
    for (const worker of this.workers) worker.terminate();
    this.workers.length = this.sent.length = 0;
  }

  /** Start the workers, if the graph needs any; returns whether there are some. */
  private start(layers: readonly Float32Array[]): boolean {
    const size = layers.length * this.solver.n ** 2;
    if (size <= SMALL || this.failed) return false;
    if (this.workers.length) return true;
    if (typeof WORKER_SOURCE === "undefined" || typeof Worker === "undefined") return false;
    const fitting = Math.max(1, Math.floor(MAX_BYTES / (4 * size)));
    const count = Math.min(MAX_WORKERS, navigator.hardwareConcurrency || 2, fitting);
    const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" }));
    try {
      for (let i = 0; i < count; i++) {
        const worker = new Worker(url);
        worker.onerror = () => this.fail();
        this.workers.push(worker);
        this.sent.push(new Set());
      }
    } catch {
      this.fail();
    }
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    return this.workers.length > 0;
  }

  private fail(): void {
    this.failed = true;
    this.destroy();
  }

  /** Compute a job in the workers; returns false if they fail. Ends early if the caller stops. */
  private *share(
    layers: readonly Float32Array[],
    job: FlowJob,
    values: Float64Array,
    take?: (path: MaxFlow) => void,
  ): Generator<Step, boolean> {
    const total = values.length;
    const id = ++this.jobs;
    const workers = take ? this.workers.slice(0, 1) : [...this.workers];
    let next = 0;
    let done = 0;
    let error: string | null = null;
    const give = (worker: Worker): void => {
      if (next >= total || error || id !== this.jobs) return;
      const pairs = job.pairs.slice(next, next + BATCH);
      const full = take !== undefined;
      post(worker, { id, first: next, job: { ...job, pairs }, full });
      next += pairs.length;
    };
    for (const [i, worker] of workers.entries()) {
      for (let l = 1; l <= layers.length; l++) {
        if (this.failed) return false;
        if (this.sent[i].has(l)) continue;
        this.sent[i].add(l);
        post(worker, { n: this.solver.n, layer: l, capacities: layers[l - 1] });
        yield [done, total];
      }
      worker.onmessage = ({ data }: MessageEvent<Reply>) => {
        if (data.id !== id) return;
        values.set(data.values, data.first);
        done += take ? 1 : data.values.length;
        error ??= data.error;
        if (data.path) take?.(data.path);
        give(worker);
      };
      give(worker);
    }
    try {
      while (done < total && !error) {
        if (this.failed) return false;
        yield [done, total, "wait"];
      }
    } finally {
      next = total; // a job that nobody wants any more
    }
    if (error) throw new Error(error);
    return true;
  }
}

function post(worker: Worker, request: Request): void {
  worker.postMessage(request);
}
