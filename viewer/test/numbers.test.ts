import assert from "node:assert/strict";
import { test } from "node:test";
import { itemsOf, type Example } from "../src/format.ts";
import { Numbers } from "../src/numbers.ts";
import { keep, rank } from "../src/reading.ts";
import { makeExample, makeHeader, makeSource } from "./example.ts";

const W = [0.5, 0.25, 0.25, 0, 1, 0, 0, 0.5, 0.5];
const attention = { "0/attention/1": W, "0/attention/2": W };

function makeNumbers(change: Partial<Example> = {}, chunks: Record<string, number[]> = attention) {
  const example = makeExample(change);
  const source = makeSource(makeHeader(example), chunks);
  let wake = (): void => {};
  const numbers = new Numbers(example, 0, source, () => wake());
  /** Ask until there is an answer, as the viewer does. */
  const wait = async <T>(ask: () => T | null): Promise<T> => {
    for (let i = 0; i < 200; i++) {
      const woken = new Promise<void>((done) => (wake = done));
      numbers.beginAsking();
      const answer = ask();
      numbers.endAsking();
      if (answer) return answer;
      if (numbers.error) throw new Error(numbers.error);
      await woken;
    }
    throw new Error("no answer");
  };
  return { numbers, wait, source };
}

const near = (found: ArrayLike<number>, wanted: number[]): void =>
  wanted.forEach((value, i) =>
    assert.ok(Math.abs(found[i] - value) < 1e-6, `${[...Array.from(found)]}`),
  );

test("raw attention, rollout and flow by hand", async () => {
  const { numbers, wait, source } = makeNumbers();
  near(await wait(() => numbers.row("raw", 2, 0)), [0.5, 0.25, 0.25]);
  assert.deepEqual(source.asked, ["0/attention/2"], "one layer is enough for raw attention");
  // A = [[.75, .125, .125], [0, 1, 0], [0, .25, .75]]; the first row of A² is
  // .75² | .75·.125 + .125 + .125·.25 | .75·.125 + .125·.75.
  near(await wait(() => numbers.row("rollout", 2, 0)), [0.5625, 0.25, 0.1875]);
  // Flow: min(.75, .75) | min(.75, .125) + min(.125, 1) + min(.125, .25) | .125 + min(.125, .75).
  near(await wait(() => numbers.row("flow", 2, 0)), [0.75, 0.375, 0.25]);
});

test("layers whose weights come along are not mixed again", async () => {
  // The last position of layer 2 is the mean of the others' rows of A, as [MEAN] of an image is.
  const A = [0.75, 0.125, 0.125, 0, 1, 0, 0.375, 0.5625, 0.0625];
  const chunks = { "0/weights/2": { shape: [3, 3], dtype: "float16" as const } };
  const { numbers, wait } = makeNumbers({ chunks }, { ...attention, "0/weights/2": A });
  // .375 · [.75, .125, .125] + .5625 · [0, 1, 0] + .0625 · [0, .25, .75]
  near(await wait(() => numbers.row("rollout", 2, 2)), [0.28125, 0.625, 0.09375]);
});

test("words: summed over attended tokens, averaged over attending ones", async () => {
  const { numbers, wait } = makeNumbers();
  const items = itemsOf(numbers.example, true);
  near(await wait(() => numbers.itemRow("raw", 1, items, 0)), [0.5, 0.5]);
  near(await wait(() => numbers.itemRow("raw", 1, items, 1)), [0, 1]);
});

test("the host's flow is used where there is one", async () => {
  const chunks = { ...attention, "0/flow/2": [0.125, 0.25, 0.5] };
  const change = { flow_rows: [1], chunks: { "0/flow/2": { shape: [1, 3], dtype: "float16" } } };
  const { numbers, wait } = makeNumbers(change, chunks);
  near(await wait(() => numbers.row("flow", 2, 1)), [0.125, 0.25, 0.5]);
  near(await wait(() => numbers.row("flow", 2, 0)), [0.75, 0.375, 0.25]); // worked out here
});

test("a live host is asked for flow it did not send", async () => {
  const { numbers, wait, source } = makeNumbers();
  source.flow = ({ position, layer }) =>
    Promise.resolve(Float32Array.from([position, layer, Infinity]));
  assert.deepEqual([...(await wait(() => numbers.row("flow", 2, 1)))], [1, 2, 1]);
});

test("a pair's maximum flow comes with its cut", async () => {
  const { numbers, wait } = makeNumbers();
  const path = await wait(() => numbers.path(2, 0, 1));
  assert.equal(path.value, 0.375);
  assert.equal(path.capacity, 0.375);
});

test("a head's rollout is its augmented matrix on the rollout below", async () => {
  const one = [1, 0, 0, 0, 1, 0, 0, 0, 1]; // looks at itself: its A is the identity
  const chunks = { ...attention, "0/heads/2": [...W, ...one] };
  const { numbers, wait } = makeNumbers({ n_heads: 2 }, chunks);
  near(await wait(() => numbers.headRollout(2, 1)), [0.5625, 0.25, 0.1875]);
  near(await wait(() => numbers.headRollout(2, 2)), [0.75, 0.125, 0.125]);
});

test("a chunk that cannot be loaded becomes a sentence, and can be tried again", async () => {
  const chunks: Record<string, number[]> = {};
  const { numbers, wait } = makeNumbers({}, chunks);
  await assert.rejects(
    wait(() => numbers.row("raw", 1, 0)),
    /The attention of layer 1 could not be loaded: there is no chunk/,
  );
  chunks["0/attention/1"] = W;
  numbers.retry();
  near(await wait(() => numbers.row("raw", 1, 0)), [0.5, 0.25, 0.25]);
});

test("a chunk of the wrong size is refused", async () => {
  const { numbers, wait } = makeNumbers({}, { "0/attention/1": [1, 0] });
  await assert.rejects(
    wait(() => numbers.row("raw", 1, 0)),
    /4 bytes where 18 were expected/,
  );
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
