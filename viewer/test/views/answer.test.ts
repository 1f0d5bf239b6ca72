// Answers: parts as sets of positions, where a token went, the token map, and the text as blocks.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Example } from "../../src/data/header.ts";
import { answerItems, type Snapshot } from "../../src/data/snapshot.ts";
import { changeState, initialState, type State } from "../../src/data/state.ts";
import { alignmentRows, alignmentScene } from "../../src/views/alignment.ts";
import { segmentShares, targetName } from "../../src/views/captions.ts";
import { blocksOf, dialogueLines, ownersOf, pieceOf } from "../../src/views/dialogue.ts";
import { scoresCsv } from "../../src/views/table.ts";
import { makeExample, makeHeader } from "../example.ts";
import { hits, noteOf, settle, svgOf } from "../snapshot.ts";

// A causal graph of four tokens without a residual connection; the last two are the answer.
const A1 = [1, 0, 0, 0, 0.5, 0.5, 0, 0, 0.25, 0.25, 0.5, 0, 0.25, 0.25, 0.25, 0.25];
const A2 = [1, 0, 0, 0, 0.25, 0.75, 0, 0, 0.5, 0.25, 0.25, 0, 0, 0, 0.5, 0.5];
const CHUNKS = { "0/attention/1": A1, "0/attention/2": A2 };

const step = (label: string, probability: number) => {
  const target = { label, probability };
  return { kind: "next token", target, top: [target] };
};

const EXAMPLE: Partial<Example> = {
  tokens: ["<s>", "Ġkey", "Ġis", "Ġhere"],
  labels: ["<s>", "key", "is", "here"],
  special: [true, false, false, false],
  words: {
    texts: ["<s>", "key", "is here"],
    groups: [[0], [1], [2, 3]],
    special: [true, false, false],
  },
  runs: ["", "key", " is", " here"],
  segments: [["answer", 2, 4]],
  answer: {
    first: 2,
    text: "is here",
    whole: [2, 3],
    steps: [step("is", 0.9), step("here", 0.1)],
  },
  position: 1,
  n_heads: 0,
  residual_weights: [0, 0],
};

const draw = <T>(change: Partial<State>, read: (snapshot: Snapshot) => T): Promise<T> =>
  settle(change, read, EXAMPLE, [], CHUNKS);

const near = (row: ArrayLike<number> | null | undefined, expected: number[]): void => {
  assert.ok(row);
  expected.forEach((value, i) => assert.ok(Math.abs(row[i] - value) < 1e-6, `${row[i]} ${value}`));
};

// Rollout at layer 2: position 1 is .25 [1, 0] + .75 [.5, .5] = [.625, .375];
// position 2 is .5 [1, 0, 0] + .25 [.5, .5, 0] + .25 [.25, .25, .5] = [.6875, .1875, .125].
test("the whole answer is explained first, as the mean over its positions", async () => {
  const { row, sources, name } = await draw({}, (s) => ({
    row: s.row,
    sources: s.sources,
    name: targetName(s),
  }));
  near(row, [0.65625, 0.28125, 0.0625, 0]);
  assert.deepEqual([...sources], [1, 2]);
  assert.equal(name, "the answer");
});

test("the flow of a part is one maximum flow, divided by its positions", async () => {
  // From positions 1 and 2 together, layer 2 sends .75 to node 0, 1 to node 1 and .25 to node 2.
  // To token 0: min(.75, 1) + min(1, .5) + min(.25, .25) = 1.5, half of it a position.
  const row = await draw({ method: "flow" }, (s) => s.row);
  near(row, [0.75, 0.375, 0.125, 0]);
  // Alone, position 2 sends .5, .25 and .25: to token 0 .5 + .25 + .25 = 1.
  near(await draw({ method: "flow", part: [3, 3] }, (s) => s.row), [1, 0.5, 0.25, 0]);
});

test("a token of the answer is explained at the position before it", async () => {
  const one = await draw({ part: [3, 3] }, (s) => ({ row: s.row, name: targetName(s), s }));
  near(one.row, [0.6875, 0.1875, 0.125, 0]);
  assert.equal(one.name, "“here”");
  assert.equal(one.s.position, 2);
  assert.deepEqual(one.s.ranked, [0, 1]);
  assert.match(segmentShares(one.s), /answer 13%, prompt 88%/);
});

test("parts are brought into the answer, and follow the position", () => {
  const header = makeHeader([makeExample(EXAMPLE)]);
  const start = initialState(header);
  assert.deepEqual(start.part, [2, 3]);
  assert.deepEqual(changeState(header, start, { part: [9, 0] }).part, [2, 3]);
  assert.deepEqual(changeState(header, start, { position: 2 }).part, [3, 3]);
  assert.equal(changeState(header, start, { position: 0 }).part, null);
  assert.equal(changeState(header, start, { part: [3, 3] }).position, 2);
  const plain = makeHeader([makeExample()]);
  assert.equal(changeState(plain, initialState(plain), { part: [1, 2] }).part, null);
  assert.equal(changeState(plain, initialState(plain), { view: "alignment" }).view, "text");
});

test("a token of the prompt shows where it went", async () => {
  for (const method of ["rollout", "flow"]) {
    const expected = method === "flow" ? [0, 0, 0.5, 0.5] : [0, 0, 0.375, 0.1875];
    near(await draw({ method, token: 1 }, (s) => s.reverse), expected);
  }
  near(await draw({ method: "raw", token: 1, layer: 1 }, (s) => s.reverse), [0, 0, 0.5, 0.25]);
  const lines = await draw({ token: 1 }, (s) => dialogueLines(s, 2));
  assert.deepEqual(lines, ["is", "Probability: 90%", "From “key”: 0.375"]);
  assert.equal(await draw({ token: 1, view: "flow" }, (s) => s.reverse), null);
});

test("the items of the answer are tokens or words", async () => {
  const parts = await draw({ units: "words" }, (s) => answerItems(s).map(({ part }) => part));
  assert.deepEqual(parts, [[2, 3]]);
  near(await draw({ units: "words", token: 1 }, (s) => s.reverse), [0, 0, 0.28125]);
});

test("the token map has a row for each token of the answer", async () => {
  const { rows, scene, csv } = await draw({ view: "alignment" }, (s) => ({
    rows: alignmentRows(s),
    scene: alignmentScene(s, 600, 0, 300),
    csv: scoresCsv([s], () => null),
  }));
  near(rows[0].scores, [0.625, 0.375, 0, 0]);
  near(rows[1].scores, [0.6875, 0.1875, 0.125, 0]);
  const targets = hits(scene);
  assert.deepEqual(targets.get("1/1")?.change, { part: [3, 3], token: 1 });
  assert.match(targets.get("1/1")?.lines.join() ?? "", /key → “here” \(10%\).*0\.188/);
  assert.deepEqual(targets.get("0/-1")?.change, { part: [2, 2], token: null });
  assert.equal(targets.has("1/2"), false); // the answer is no column
  assert.match(noteOf(scene), /Attention rollout at layer 2 of 2/);
  assert.match(svgOf(scene), />here</);
  const [head, , key] = csv.split("\r\n");
  assert.match(head, /answer\/2,answer\/3$/);
  assert.match(key, /,1,key,Ġkey,0.375,0.1875$/);
  const own = await draw({ view: "alignment", own: true }, (s) => alignmentScene(s, 600, 0, 300));
  assert.match(hits(own).get("1/2")?.lines.join() ?? "", /is → “here”.*0\.125/);
});

test("blocks are segments and what is between them", () => {
  const example = makeExample({
    tokens: ["<s>", "Hi", "you", "</s>", "Yes"],
    special: [true, false, false, true, false],
    segments: [
      ["user", 1, 3],
      ["answer", 4, 5],
    ],
  });
  const titles = blocksOf({ example }).map(({ title, first, end }) => [title, first, end]);
  assert.deepEqual(titles, [
    ["", 0, 1],
    ["user", 1, 3],
    ["", 3, 4],
    ["answer", 4, 5],
  ]);
  assert.equal(blocksOf({ example: makeExample(EXAMPLE) })[0].title, "prompt");
});

test("pieces of the text keep spaces and line breaks, and hide nothing", () => {
  assert.deepEqual(pieceOf(" key"), { space: " ", text: "key" });
  assert.deepEqual(pieceOf("\n\n"), { space: "", text: "↵\n↵\n" });
  assert.deepEqual(pieceOf("  "), { space: "", text: "␣␣" });
  assert.match(pieceOf(" a\u202eb").text, /U\+202E/);
  const example = makeExample({
    tokens: ["a", "b", "c", "d"],
    special: [false, false, false, true],
    runs: ["é", "", "", ""],
  });
  assert.deepEqual(ownersOf(example), [0, 0, 0, 3]);
});
