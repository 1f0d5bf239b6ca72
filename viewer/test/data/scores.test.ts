import assert from "node:assert/strict";
import { test } from "node:test";
import { itemsOf, type Example, type Method } from "../../src/data/header.ts";
import { likelyFirst, Scores } from "../../src/data/scores.ts";
import { keep, rank } from "../../src/data/snapshot.ts";
import { makeExample, makeHeader, makeSource, STORED } from "../example.ts";

const W = [0.5, 0.25, 0.25, 0, 1, 0, 0, 0.5, 0.5];
const attention = { "0/attention/1": W, "0/attention/2": W };

function makeScores(
  change: Partial<Example> = {},
  chunks: Record<string, number[]> = attention,
  methods: Method[] = [],
) {
  const header = makeHeader([makeExample(change)], methods);
  const source = makeSource(header, chunks);
  let wake = (): void => {};
  const scores = new Scores(header.examples[0], 0, source, () => wake());
  /** Repeat a query until it has a result, as the viewer does. */
  const wait = async <T>(ask: () => T | null): Promise<T> => {
    for (let i = 0; i < 200; i++) {
      const woken = new Promise<void>((done) => (wake = done));
      scores.beginRequests();
      const answer = ask();
      scores.endRequests();
      if (answer) return answer;
      if (scores.error) throw new Error(scores.error);
      await woken;
    }
    throw new Error("no answer");
  };
  return { scores, wait, source };
}

const near = (found: ArrayLike<number>, wanted: number[]): void =>
  wanted.forEach((value, i) =>
    assert.ok(Math.abs(found[i] - value) < 1e-6, `${[...Array.from(found)]}`),
  );

test("raw attention, rollout and flow by hand", async () => {
  const { scores, wait, source } = makeScores();
  near(await wait(() => scores.row("raw", 2, [0])), [0.5, 0.25, 0.25]);
  assert.deepEqual(source.requested, ["0/attention/2"], "one layer is enough for raw attention");
  // A = [[.75, .125, .125], [0, 1, 0], [0, .25, .75]]; the first row of A² is
  // .75² | .75·.125 + .125 + .125·.25 | .75·.125 + .125·.75.
  near(await wait(() => scores.row("rollout", 2, [0])), [0.5625, 0.25, 0.1875]);
  // Flow: min(.75, .75) | min(.75, .125) + min(.125, 1) + min(.125, .25) | .125 + min(.125, .75).
  const items = itemsOf(scores.example, "tokens");
  assert.equal(scores.partialFlow(2, items, [0]), null);
  near(await wait(() => scores.row("flow", 2, [0])), [0.75, 0.375, 0.25]);
  near(scores.partialFlow(2, items, [0]) ?? [], [0.75, 0.375, 0.25]); // all of it is known
  assert.equal(scores.partialFlow(2, items, [1]), null);
});

test("blocks of neighbors with large scores come first", () => {
  const row = Float32Array.from({ length: 40 }, (_, i) => (i === 35 ? 2 : i === 3 ? 1 : 0));
  const range = (first: number, end: number) => [...Array(end).keys()].slice(first);
  assert.deepEqual(likelyFirst(row), [...range(32, 40), ...range(0, 16), ...range(16, 32)]);
  assert.deepEqual(likelyFirst(new Float32Array(20).fill(NaN)), range(0, 20));
});

test("stored edge weights are used without the residual mix", async () => {
  // The last position of layer 2 is the mean of the other rows of A, like the [MEAN] position of an image.
  const A = [0.75, 0.125, 0.125, 0, 1, 0, 0.375, 0.5625, 0.0625];
  const chunks = { "0/weights/2": { shape: [3, 3], dtype: "float16" as const } };
  const { scores, wait } = makeScores({ chunks }, { ...attention, "0/weights/2": A });
  // .375 · [.75, .125, .125] + .5625 · [0, 1, 0] + .0625 · [0, .25, .75]
  near(await wait(() => scores.row("rollout", 2, [2])), [0.28125, 0.625, 0.09375]);
});

test("words: sum over keys, mean over queries", async () => {
  const { scores, wait } = makeScores();
  const items = itemsOf(scores.example, "words");
  near(await wait(() => scores.itemRow("raw", 1, items, items.groups[0])), [0.5, 0.5]);
  near(await wait(() => scores.itemRow("raw", 1, items, items.groups[1])), [0, 1]);
});

test("stored flow is used; other positions are computed", async () => {
  const chunks = { ...attention, "0/flow/2": [0.125, 0.25, 0.5] };
  const change = { flow_rows: [1], chunks: { "0/flow/2": { shape: [1, 3], dtype: "float16" } } };
  const { scores, wait } = makeScores(change, chunks);
  near(await wait(() => scores.row("flow", 2, [1])), [0.125, 0.25, 0.5]);
  near(await wait(() => scores.row("flow", 2, [0])), [0.75, 0.375, 0.25]); // computed in the page
});

test("a live host computes flow that is not stored", async () => {
  const { scores, wait, source } = makeScores();
  source.flow = ({ position, layer }) =>
    Promise.resolve(Float32Array.from([position, layer, Infinity]));
  assert.deepEqual([...(await wait(() => scores.row("flow", 2, [1])))], [1, 2, 1]);
});

test("the maximum flow of a pair has a cut of the same value", async () => {
  const { scores, wait } = makeScores();
  const path = await wait(() => scores.path(2, itemsOf(scores.example, "tokens"), [0], 1));
  assert.equal(path.value, 0.375);
  assert.equal(path.capacity, 0.375);
});

test("the rollout of a head is its augmented matrix times the rollout below", async () => {
  const one = [1, 0, 0, 0, 1, 0, 0, 0, 1]; // attends to itself: its A is the identity
  const chunks = { ...attention, "0/heads/2": [...W, ...one] };
  const { scores, wait } = makeScores({ n_heads: 2 }, chunks);
  near(await wait(() => scores.headRollout(2, 0)), [0.5625, 0.25, 0.1875]);
  near(await wait(() => scores.headRollout(2, 1)), [0.75, 0.125, 0.125]);
});

test("a chunk that cannot be loaded is an error, and can be retried", async () => {
  const chunks: Record<string, number[]> = {};
  const { scores, wait } = makeScores({}, chunks);
  await assert.rejects(
    wait(() => scores.row("raw", 1, [0])),
    /the attention of layer 1: there is no chunk/,
  );
  chunks["0/attention/1"] = W;
  scores.retry();
  near(await wait(() => scores.row("raw", 1, [0])), [0.5, 0.25, 0.25]);
});

test("a chunk of the wrong size is an error", async () => {
  const { scores, wait } = makeScores({}, { "0/attention/1": [1, 0] });
  await assert.rejects(
    wait(() => scores.row("raw", 1, [0])),
    /4 bytes, expected 18/,
  );
});

test("a method stored in the data: rows from its chunk, or the reason why there is none", async () => {
  const key = "0/scores/joint/2";
  const change = { flow_rows: [1], chunks: { [key]: { shape: [1, 3], dtype: "float16" } } };
  const chunks = { ...attention, [key]: [0.125, 0.25, 0.5] };
  const { scores, wait, source } = makeScores(change, chunks, [STORED]);
  const items = itemsOf(scores.example, "tokens");
  near(await wait(() => scores.row("joint", 2, [1])), [0.125, 0.25, 0.5]);
  assert.deepEqual(source.requested, [key]);
  assert.equal(scores.unavailable("joint", 2, items, [1]), null);
  assert.equal(scores.row("joint", 2, [0]), null);
  assert.match(scores.unavailable("joint", 2, items, [0]) ?? "", /Only the explained position/);
  assert.match(scores.unavailable("joint", 1, items, [1]) ?? "", /not available for this example/);
  for (const method of ["raw", "rollout", "flow"]) {
    assert.equal(scores.unavailable(method, 2, items, [0]), null);
  }
});

test("threshold and top-k", () => {
  const row = Float32Array.from([0.5, 0.1, 0.3, 0.3]);
  assert.deepEqual(keep(row, [0, 1, 2, 3], 4, { threshold: 0.5, topK: 0 }), [
    true,
    false,
    true,
    true,
  ]);
  assert.deepEqual(keep(row, [0, 1, 2, 3], 4, { threshold: 0, topK: 2 }), [
    true,
    false,
    true,
    false,
  ]);
  assert.deepEqual(keep(row, [1, 2, 3], 4, { threshold: 0.5, topK: 0 }), [
    false,
    false,
    true,
    true,
  ]);
  assert.deepEqual(rank(row, [0, 1, 2, 3]), [0, 2, 3, 1]);
});

test("the flow to a word is one maximum flow to its tokens", async () => {
  const words = { texts: ["a", "bc"], groups: [[0], [1, 2]], special: [false, false] };
  const { scores, wait } = makeScores({ words });
  const items = itemsOf(scores.example, "words");
  // All that leaves position 0 at layer 2 is 1; .25 of it must stay with the word at both layers.
  // Flow to "bc": min(.75, .125 + .125) + .125 + .125 = .5, not .375 + .25 = .625.
  near(await wait(() => scores.itemRow("flow", 2, items, [0])), [0.75, 0.5]);
});
