import assert from "node:assert/strict";
import { test } from "node:test";
import { FormatError, itemsOf, readHeader } from "../src/format.ts";
import { changeState, initialState, layerOf } from "../src/state.ts";
import { makeExample, makeHeader } from "./example.ts";

const two = makeHeader(
  makeExample(),
  makeExample({ n_layers: 4, residual_weights: [0.5, 0.5, 0.5, 0.5] }),
);

test("the state survives JSON, and is complete", () => {
  const state = initialState(two);
  assert.deepEqual(changeState(two, state, JSON.parse(JSON.stringify(state))), state);
  assert.deepEqual(state.shown, [0, 1]);
  assert.equal(state.layer, 4);
});

test("what does not fit is brought into range or ignored", () => {
  const state = initialState(two);
  const odd = {
    layer: 99,
    position: 77,
    view: "nonsense",
    threshold: -3,
    topK: "many",
    token: -1,
    words: 1,
  };
  const next = changeState(two, state, odd as never);
  assert.equal(next.layer, 4);
  assert.equal(next.position, state.position);
  assert.equal(next.view, "text");
  assert.equal(next.threshold, 0);
  assert.equal(next.topK, 0);
  assert.equal(next.token, null);
  assert.equal(next.words, false);
  assert.equal(changeState(two, state, { view: "image" }).view, "text", "there is no image");
});

test("each example keeps its own position and token", () => {
  let state = changeState(two, initialState(two), { position: 2, token: 1 });
  state = changeState(two, state, { example: 1, position: 1 });
  assert.deepEqual(state.positions, [2, 1]);
  assert.deepEqual(state.tokens, [1, null]);
  assert.equal(state.position, 1);
  assert.equal(changeState(two, state, { example: 0 }).position, 2);
});

test("at most two examples are shown, the current one among them", () => {
  const three = makeHeader(makeExample(), makeExample(), makeExample());
  const state = initialState(three);
  assert.deepEqual(changeState(three, state, { shown: [0, 1, 2] }).shown, [0, 1]);
  assert.deepEqual(changeState(three, state, { shown: [0, 1, 2], example: 2 }).shown, [0, 2]);
  assert.deepEqual(changeState(three, state, { shown: [7] }).shown, [0]);
});

test("a model of fewer layers shows its last", () => {
  const state = initialState(two);
  assert.equal(layerOf(state, two.examples[0]), 2);
});

test("headers that cannot be shown say why", () => {
  const says = (value: unknown, words: RegExp): void =>
    assert.throws(
      () => readHeader(value),
      (error) => error instanceof FormatError && words.test(error.message),
    );
  says(null, /no examples/);
  says({ format: 2, examples: [makeExample()] }, /format 2 .* reads format 1/);
  says({ format: 1, examples: [] }, /empty/);
  says({ format: 1, examples: [makeExample({ tokens: [] })] }, /Example 1 has no tokens/);
  says({ format: 1, examples: [makeExample({ n_layers: 0 })] }, /no layers/);
});

test("words group tokens", () => {
  const items = itemsOf(makeExample(), true);
  assert.deepEqual(items.labels, ["[CLS]", "cabinets"]);
  assert.deepEqual([...items.of], [0, 1, 1]);
});
