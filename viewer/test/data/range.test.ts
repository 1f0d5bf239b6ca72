import assert from "node:assert/strict";
import { test } from "node:test";
import {
  fromZero,
  needOwnRanges,
  pick,
  rangeOf,
  rangeText,
  strength,
  wholeRange,
} from "../../src/data/range.ts";

const FLAT = [1, 0.68, 0.6, 0.5];
const SINK = [0.98, 0.008, 0.001, 0.004];

test("colors start at the lowest score only where scores are close to each other", () => {
  assert.deepEqual(rangeOf(FLAT, "auto"), { low: 0.5, high: 1, exceeded: false });
  assert.deepEqual(rangeOf([...FLAT, 0], "auto"), { low: 0.5, high: 1, exceeded: false });
  assert.deepEqual(rangeOf([0.1, 0.4], "auto"), fromZero(0.4));
  assert.deepEqual(rangeOf([0.5, 0.5], "auto"), fromZero(0.5), "equal scores have one color");
  assert.deepEqual(rangeOf(FLAT, "zero"), fromZero(1));
  assert.deepEqual(rangeOf([0, 0], "auto"), fromZero(0));
});

test("a stretched range leaves out a score that exceeds all others by far", () => {
  assert.deepEqual(rangeOf(SINK, "range"), { low: 0.001, high: 0.008, exceeded: true });
  assert.deepEqual(rangeOf([0.1, 0.4, 0.2], "range"), { low: 0.1, high: 0.4, exceeded: false });
  assert.equal(rangeText(rangeOf(SINK, "range")), "0.00100 to 0.00800 or more");
});

test("the lowest score of a stretched range does not look like 0", () => {
  const range = rangeOf(FLAT, "auto");
  assert.deepEqual(
    [0, 0.5, 1, 2].map((value) => strength(range, value)),
    [0, 0.15, 1, 1],
  );
  assert.ok(strength(range, 0.6) > strength(range, 0.55));
  assert.equal(strength(fromZero(0.5), 0.25), 0.5);
  assert.equal(strength(fromZero(0), 0.25), 0);
});

test("a range is shown as text", () => {
  assert.equal(rangeText(rangeOf(FLAT, "auto")), "0.500 to 1.00");
  assert.equal(rangeText(fromZero(0)), "");
  assert.deepEqual(pick(null, [0, 1]), []);
  assert.deepEqual(pick(Float32Array.from([0.5, 0.25]), [1]), [0.25]);
});

test("rows have their own ranges where half of them would have no contrast", () => {
  const steep = [0.9, 0.1];
  assert.equal(needOwnRanges([FLAT, steep]), true);
  assert.equal(needOwnRanges([FLAT, steep, steep]), false);
  assert.equal(needOwnRanges([[0.1, 0.01], steep]), true, "low compared with other rows");
  assert.equal(needOwnRanges([[0.5, 0.5], steep]), false, "equal scores have no contrast anyway");
  assert.deepEqual(wholeRange([0, 0.1, 0.4]), { low: 0.1, high: 0.4, exceeded: false });
  assert.deepEqual(wholeRange([0.4, 0.4]), fromZero(0.4));
});
