// Flow computed by workers: here they run on this thread, and count what they are asked for.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FlowPool } from "../../src/data/flowPool.ts";
import { serve, type Reply, type Request } from "../../src/data/flowWorker.ts";
import { LayeredFlow, type Query } from "../../src/data/maxflow.ts";
import type { Step } from "../../src/data/queue.ts";
import { augment } from "../../src/data/rollout.ts";
import { random, randomAttention } from "../random.ts";

const N = 64;
const LAYERS = 100; // so many that the pool uses workers
const next = random(5);
const shared = augment(randomAttention(N, next), N, 0.5);
const layers = Array.from({ length: LAYERS }, () => shared);
const queries = Array.from({ length: N }, (_, token) => ({
  layer: LAYERS,
  sources: [40],
  tokens: [token],
}));

/** A pool whose workers answer one request at a time, and what they were sent: batches and layers. */
function makePool(): { pool: FlowPool; batches: () => number; sent: number[][] } {
  let batches = 0;
  const sent: number[][] = []; // sizes of batches by worker, 0 for a layer
  const spawn = (): Worker => {
    type Scope = Parameters<typeof serve>[0];
    const worker = { onmessage: null as ((event: object) => void) | null };
    const scope: Scope = {
      onmessage: null,
      postMessage: (reply: Reply) => worker.onmessage?.({ data: reply }),
    };
    serve(scope);
    const own: number[] = [];
    sent.push(own);
    const postMessage = (data: Request): void => {
      if ("queries" in data) batches++;
      own.push("queries" in data ? data.queries.length : 0);
      setTimeout(() => scope.onmessage?.({ data } as MessageEvent<Request>), 0);
    };
    return Object.assign(worker, { postMessage, terminate: () => {} }) as unknown as Worker;
  };
  return { pool: new FlowPool(N, LAYERS, spawn), batches: () => batches, sent };
}

/** The scores of queries, in order. */
function* scoresOf(pool: FlowPool, asked: readonly Query[]): Generator<Step, number[]> {
  const scores: number[] = [];
  yield* pool.values(layers, asked, (i, score) => (scores[i] = score));
  return scores;
}

const pause = (): Promise<void> => new Promise((done) => setTimeout(done, 1));

async function finish<T>(work: Generator<Step, T>): Promise<T> {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    await pause();
  }
}

test("workers return what the solver returns", async () => {
  const solver = new LayeredFlow(N, LAYERS);
  for (const layer of layers) solver.add(layer);
  const { pool, batches } = makePool();
  const values = await finish(scoresOf(pool, queries));
  assert.deepEqual(
    values,
    queries.map((query) => solver.value(query)),
  );
  assert.ok(batches() > 1);
  const path = await finish(pool.path(layers, queries[3]));
  assert.ok(Math.abs(path.value - values[3]) < 1e-12);
});

test("a computation that ends early gives no more work to the workers", async () => {
  const { pool, batches } = makePool();
  const work = scoresOf(pool, queries);
  while (work.next().value && batches() === 0);
  work.return([]);
  const before = batches();
  for (let i = 0; i < 40; i++) await pause();
  assert.equal(batches(), before);
  // The next computation gets its own values, not late ones of the last.
  const other = [{ layer: LAYERS, sources: [7], tokens: [9] }];
  const solver = new LayeredFlow(N, LAYERS);
  for (const layer of layers) solver.add(layer);
  assert.deepEqual(await finish(scoresOf(pool, other)), [solver.value(other[0])]);
});

test("without workers the page computes, one pair at a time", async () => {
  const pool = new FlowPool(N, LAYERS, () => {
    throw new Error("no workers");
  });
  const work = scoresOf(pool, queries.slice(0, 3));
  assert.deepEqual(work.next().value, [1, 3]);
  assert.deepEqual(work.next().value, [2, 3]);
  assert.equal((await finish(work)).length, 3);
});

test("layers are sent as they are loaded, and once", async () => {
  const { pool, sent } = makePool();
  pool.prepare([], LAYERS);
  assert.equal(sent.length, 0);
  pool.prepare(layers.slice(0, 30), LAYERS);
  pool.prepare(layers.slice(0, 40), LAYERS);
  assert.ok(sent.length > 0);
  for (const own of sent) assert.deepEqual(own, Array(40).fill(0));
  const solver = new LayeredFlow(N, LAYERS);
  for (const layer of layers) solver.add(layer);
  assert.deepEqual(
    await finish(scoresOf(pool, queries)),
    queries.map((query) => solver.value(query)),
  );
  for (const own of sent) assert.equal(own.filter((size) => size === 0).length, LAYERS);
  assert.deepEqual(
    sent.flat().reduce((sum, size) => sum + size),
    N,
  );
});

test("the last batches are small, so that workers end at about the same time", async () => {
  const { pool, sent } = makePool();
  await finish(scoresOf(pool, queries));
  const batches = sent.flat().filter((size) => size > 0);
  assert.ok(Math.max(...batches) > 1);
  for (const own of sent) assert.equal(own[own.length - 1], 1);
});
