import assert from "node:assert/strict";
import { test } from "node:test";
import { FormatError, itemsOf, readHeader, scoresKey } from "../../src/data/header.ts";
import { describeMethod } from "../../src/views/captions.ts";
import { makeExample, makeHeader, STORED } from "../example.ts";

test("an invalid header is an error that names the problem", () => {
  const rejects = (value: unknown, problem: RegExp): void =>
    assert.throws(
      () => readHeader(value),
      (error) => error instanceof FormatError && problem.test(error.message),
    );
  rejects(null, /no list of examples/);
  rejects({ format: 2, examples: [makeExample()] }, /format 2.*format 1/);
  rejects({ format: 1, examples: [] }, /empty/);
  rejects({ format: 1, examples: [makeExample({ tokens: [] })] }, /Example 1 has no tokens/);
  rejects({ format: 1, examples: [makeExample({ n_layers: 0 })] }, /no layers/);
});

test("words group tokens", () => {
  const items = itemsOf(makeExample(), "words");
  assert.deepEqual(items.labels, ["[CLS]", "cabinets"]);
  assert.deepEqual([...items.of], [0, 1, 1]);
});

test("data without a list of methods has the methods of the page", () => {
  const { methods, examples } = readHeader({ format: 1, examples: [makeExample()] });
  assert.deepEqual(
    methods.map(({ name, computed }) => [name, computed]),
    [
      ["raw", "page"],
      ["rollout", "page"],
      ["flow", "page"],
    ],
  );
  assert.equal(examples[0].methods, methods);
  assert.equal(scoresKey(0, methods[2], 3), "0/flow/3");
});

test("other methods are read from chunks of their name", () => {
  const { methods } = makeHeader([makeExample()], [STORED, { ...STORED, computed: "page" }]);
  assert.equal(methods[3].title, "Joint flow");
  assert.equal(scoresKey(1, methods[3], 2), "1/scores/joint/2");
  assert.equal(methods[4].computed, "data", "the page cannot compute it");
});

test("a check of a method is shown with its summary", () => {
  const checks = { flow: "No better than chance on 50 texts." };
  const { methods } = readHeader({ format: 1, examples: [makeExample()], checks });
  assert.deepEqual(
    methods.map(({ check }) => check),
    ["", "", checks.flow],
  );
  assert.match(describeMethod(methods[2]), /No better than chance/);
});
