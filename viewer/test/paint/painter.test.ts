import assert from "node:assert/strict";
import { test } from "node:test";
import { binsOf, cellsOf, pool } from "../../src/paint/painter.ts";

test("a matrix that fits is not pooled", () => {
  const values = Float32Array.from([1, 2, 3, 4]);
  assert.deepEqual(pool(values, 2, [0, 1], [0, 1], 50), { side: 2, cells: values });
  const mirrored = pool(values, 2, [0, 1], [1, 0], 50);
  assert.deepEqual([...mirrored.cells], [2, 1, 4, 3]);
});

test("pooling keeps the largest value of each block", () => {
  const values = new Float32Array(16);
  values[1] = 0.25; // row 0, column 1
  values[2 * 4 + 3] = 0.5; // row 2, column 3
  values[2 * 4 + 2] = 0.125;
  const { side, cells } = pool(values, 4, [0, 1, 2, 3], [0, 1, 2, 3], 2.9);
  assert.equal(side, 2);
  assert.deepEqual([...cells], [0.25, 0, 0, 0.5]);
});

test("pooling uses only the selected rows and columns", () => {
  const values = Float32Array.from([9, 9, 9, 9, 1, 2, 9, 3, 4]);
  assert.deepEqual([...pool(values, 3, [1, 2], [1, 2], 50).cells], [1, 2, 3, 4]);
});

test("bins and their cells agree", () => {
  for (const [count, side] of [
    [512, 190],
    [7, 3],
    [5, 5],
  ]) {
    const bins = binsOf(count, side);
    for (let bin = 0; bin < side; bin++) {
      const [from, to] = cellsOf(bin, count, side);
      assert.ok(to > from);
      assert.ok(bins.subarray(from, to).every((one) => one === bin));
    }
    assert.equal(cellsOf(side - 1, count, side)[1], count);
  }
});
