import assert from "node:assert/strict";
import { test } from "node:test";
import { fileName } from "../../src/ui/export.ts";

test("file names consist of view, method and text", () => {
  const text = "The keys, to the <old> cabinet in the kitchen";
  assert.equal(
    fileName({ view: "map", method: "flow" }, text),
    "attnflow-heatmap-the-keys-to-the-old",
  );
  assert.equal(fileName({ view: "text", method: "raw" }, "../Ä 1"), "attnflow-text-raw-ä-1");
  assert.equal(fileName({ view: "flow", method: "flow" }, "?"), "attnflow-flow-graph-flow");
  assert.equal(fileName({ view: "heads", method: "raw" }, "x".repeat(99)).length, 15 + 23);
});
