import assert from "node:assert/strict";
import { test } from "node:test";
import { ascend, augment, descend, multiplyRows, oneHot } from "../../src/data/rollout.ts";
import { random, randomAttention } from "../random.ts";

test("the residual connection by hand", () => {
  const attention = Float32Array.from([0.5, 0.5, 0, 1]);
  assert.deepEqual([...augment(attention, 2, 0.5)], [0.75, 0.25, 0, 1]);
  assert.deepEqual([...augment(attention, 2, 0)], [0.5, 0.5, 0, 1]);
  assert.deepEqual([...augment(attention, 2, 1)], [1, 0, 0, 1]);
});

test("carried rows become the identity, and rows of zeros stay zero", () => {
  const attention = Float32Array.from([0.5, 0.5, 0, 0]);
  assert.deepEqual([...augment(attention, 2, 0.5, [0])], [1, 0, 0, 0]);
});

test("two layers by hand", () => {
  // A = [[0.75, 0.25], [0, 1]] twice: A² = [[0.5625, 0.4375], [0, 1]].
  const layer = Float32Array.from([0.75, 0.25, 0, 1]);
  const levels = descend([layer, layer], 2, 2, oneHot(2, 0));
  assert.deepEqual([...levels[0]], [0.5625, 0.4375]);
  assert.deepEqual([...levels[1]], [0.75, 0.25]);
  assert.deepEqual([...levels[2]], [1, 0]);
  const up = ascend([layer, layer], 2, 2, 1);
  assert.deepEqual([...up[2]], [0.4375, 1]);
});

test("descending, ascending and matrix products agree, and rows sum to 1", () => {
  const n = 7;
  const next = random(5);
  const layers = Array.from({ length: 4 }, () => augment(randomAttention(n, next), n, 0.5));
  let product = layers[0];
  for (const layer of layers.slice(1)) {
    const out = new Float32Array(n * n);
    multiplyRows(layer, product, out, n, 0, 3);
    multiplyRows(layer, product, out, n, 3, n);
    product = out;
  }
  for (let p = 0; p < n; p++) {
    const row = descend(layers, n, 4, oneHot(n, p))[0];
    assert.ok(Math.abs(row.reduce((a, b) => a + b) - 1) < 1e-5);
    for (let t = 0; t < n; t++) {
      assert.ok(Math.abs(row[t] - product[p * n + t]) < 1e-6);
      assert.ok(Math.abs(ascend(layers, n, 4, t)[4][p] - row[t]) < 1e-6);
    }
  }
});
