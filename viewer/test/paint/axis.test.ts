import assert from "node:assert/strict";
import { test } from "node:test";
import { makeAxis, thinLabels } from "../../src/paint/axis.ts";

test("right-to-left texts start at the right, and narrow columns are labelled by priority", () => {
  const labels = Array.from({ length: 100 }, (_, i) => `t${i}`);
  const items = labels.map((_, i) => i);
  const axis = makeAxis(labels, items, true, 0, 300, { min: 13, max: 50, fit: true });
  assert.equal(axis.step, 3);
  assert.ok(axis.x(0) > axis.x(99));
  assert.equal(axis.at(1), 99);
  thinLabels(axis, [7, 8, 50]);
  assert.deepEqual([...axis.labelled], [7, 50], "8 is too close to 7");
  const scrolled = makeAxis(labels, items, false, 0, 300, { min: 13, max: 50, fit: false });
  assert.equal(scrolled.width, 1300);
});
