import assert from "node:assert/strict";
import { test } from "node:test";
import { changeState, initialState, viewsOf, layerOf } from "../../src/data/state.ts";
import { makeExample, makeHeader, STORED } from "../example.ts";

const two = makeHeader([
  makeExample(),
  makeExample({ n_layers: 4, residual_weights: [0.5, 0.5, 0.5, 0.5] }),
]);

test("the state survives JSON and is complete", () => {
  const state = initialState(two);
  assert.deepEqual(changeState(two, state, JSON.parse(JSON.stringify(state))), state);
  assert.deepEqual(state.shown, [0, 1]);
  assert.equal(state.layer, 4);
});

test("invalid values are brought into range or ignored", () => {
  const state = initialState(two);
  const odd = {
    layer: 99,
    position: 77,
    view: "nonsense",
    threshold: -3,
    topK: "many",
    token: -1,
    units: 1,
  };
  const next = changeState(two, state, odd as never);
  assert.equal(next.layer, 4);
  assert.equal(next.position, state.position);
  assert.equal(next.view, "text");
  assert.equal(next.threshold, 0);
  assert.equal(next.topK, 0);
  assert.equal(next.token, null);
  assert.equal(next.units, "tokens");
  assert.equal(changeState(two, state, { view: "image" }).view, "text", "there is no image");
});

test("each example has its own position and token", () => {
  let state = changeState(two, initialState(two), { position: 2, token: 1 });
  state = changeState(two, state, { example: 1, position: 1 });
  assert.deepEqual(state.positions, [2, 1]);
  assert.deepEqual(state.tokens, [1, null]);
  assert.equal(state.position, 1);
  assert.equal(changeState(two, state, { example: 0 }).position, 2);
});

test("at most two examples are shown, including the active one", () => {
  const three = makeHeader([makeExample(), makeExample(), makeExample()]);
  const state = initialState(three);
  assert.deepEqual(changeState(three, state, { shown: [0, 1, 2] }).shown, [0, 1]);
  assert.deepEqual(changeState(three, state, { shown: [0, 1, 2], example: 2 }).shown, [0, 2]);
  assert.deepEqual(changeState(three, state, { shown: [7] }).shown, [0]);
});

test("an example with fewer layers shows its last layer", () => {
  const state = initialState(two);
  assert.equal(layerOf(state, two.examples[0]), 2);
});

test("methods and heads are those of the data; heads count from 0", () => {
  const header = makeHeader([makeExample({ n_heads: 2 })], [STORED]);
  const state = initialState(header);
  assert.equal(state.method, "rollout");
  assert.equal(changeState(header, state, { method: "joint" }).method, "joint");
  assert.equal(changeState(header, state, { method: "other" }).method, "rollout");
  assert.equal(changeState(header, state, { head: 0 }).head, 0);
  assert.equal(changeState(header, state, { head: 1 }).head, 1);
  assert.equal(changeState(header, state, { head: 2 }).head, null);
  const only = { ...header, methods: [STORED] };
  assert.equal(initialState(only).method, "joint");
});

test("the first view of pages with images is the image", () => {
  const image = { src: "", rows: 1, columns: 1, first: 0, width: 1, height: 1 };
  assert.equal(viewsOf(makeHeader())[0], "text");
  assert.ok(!viewsOf(makeHeader()).includes("image"));
  assert.equal(viewsOf(makeHeader([makeExample({ image })]))[0], "image");
});
