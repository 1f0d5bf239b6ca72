import assert from "node:assert/strict";
import { test } from "node:test";
import type { Example } from "../../src/data/header.ts";
import type { State } from "../../src/data/state.ts";
import {
  announcement,
  describeMethod,
  describeTarget,
  itemLines,
  methodSummary,
  nameOf,
  settingsOf,
  specialDominate,
  viewHint,
} from "../../src/views/captions.ts";
import { flowScene } from "../../src/views/flow.ts";
import { makeExample, STORED } from "../example.ts";
import { settle, svgOf } from "../snapshot.ts";

test("the announcement names the position and its top tokens", async () => {
  assert.equal(
    await settle({ method: "raw", layer: 1 }, announcement),
    "Raw attention for “[CLS]” at layer 1 of 2: [CLS] 0.500, cabinet 0.250, ##s 0.250.",
  );
});

test("a note says what the flow of a word is", async () => {
  const meaning = (change: object): Promise<string> =>
    settle(change, (snapshot) => methodSummary([snapshot]));
  const sum = /one maximum flow to all of them\.$/;
  assert.match(await meaning({ method: "flow", units: "words" }), sum);
  assert.doesNotMatch(await meaning({ method: "flow" }), sum);
  assert.doesNotMatch(await meaning({ method: "rollout", units: "words" }), sum);
  assert.doesNotMatch(await meaning({ method: "flow", units: "words", normalize: "rows" }), sum);
});

test("special tokens dominate the color scale from three times the largest other score", async () => {
  const dimmed = (scores: number[], change = {}): Promise<boolean> =>
    settle(change, (snapshot) => {
      const special = scores.map((_, i) => i === 0);
      const columns = scores.map((_, i) => i).filter((i) => snapshot.state.special || i > 0);
      const items = { ...snapshot.items, special };
      const row = Float32Array.from(scores);
      return specialDominate([{ ...snapshot, items, columns, ranked: columns, row }]);
    });
  const others = new Array<number>(6).fill(0.25);
  for (const view of ["text", "map", "heads"]) {
    assert.equal(await dimmed([0.8, ...others], { view }), true, view);
  }
  assert.equal(await dimmed([0.75, ...others]), false, "three times is not more than that");
  assert.equal(await dimmed([0.8, ...others], { special: false }), false);
  assert.equal(await dimmed([0.8, ...others], { view: "flow" }), false);
  assert.equal(await dimmed([0.8, 0.1]), false, "two tokens");
});

test("the hint names a hidden position", async () => {
  const hint = (change: Partial<State>): Promise<string> =>
    settle(change, (snapshot) => viewHint([snapshot]));
  assert.match(await hint({}), /for the outlined position\./);
  assert.match(await hint({ special: false }), /for “\[CLS\]”, which is hidden\./);
  assert.match(await hint({ special: false, position: 1 }), /for the outlined position\./);
  assert.match(await hint({ special: false, view: "map" }), /^One row per layer/);
});

test("the settings name model, edges and normalization", () => {
  const example = makeExample({ settings: ["tiny", "edges: ALTI", "heads: mean"] });
  assert.equal(
    settingsOf(example, "none"),
    "tiny\u00a0· edges: ALTI\u00a0· heads: mean\u00a0· not normalized",
  );
  assert.match(settingsOf(example, "receptive_field"), /normalized by the receptive field$/);
  assert.match(settingsOf(makeExample({ settings: [] }), "rows"), /^attention weights/);
});

test("titles and summaries of methods come from the data", async () => {
  assert.equal(describeMethod(STORED), "One maximum flow to all tokens.");
  const summary = await settle(
    { method: "joint" },
    (snapshot) => methodSummary([snapshot]),
    { chunks: {} },
    [STORED],
  );
  assert.equal(summary, "One maximum flow to all tokens.");
});

test("equal tokens are numbered, and those of source and target are told apart", async () => {
  const tokens = ["the", "key", "the"];
  const words = { texts: tokens, groups: [[0], [1], [2]], special: [false, false, false] };
  const twice = { tokens, labels: tokens, words, special: words.special };
  const names = (example: Partial<Example>): Promise<string[]> =>
    settle({}, (snapshot) => tokens.map((_, i) => nameOf(snapshot, i)), example);
  assert.deepEqual(await names(twice), ["“the” (1 of 2)", "“key”", "“the” (2 of 2)"]);
  assert.deepEqual(await names({ ...twice, n_source: 2 }), [
    "“the” (source)",
    "“key” (source)",
    "“the” (target)",
  ]);
});

test("layers of an encoder-decoder have names", async () => {
  const example = { layer_names: ["encoder 1", "decoder 1, cross-attention"] };
  assert.equal(
    await settle({ layer: 1 }, describeTarget, example),
    "“[CLS]” at layer 1 of 2 (encoder 1)",
  );
  const scene = await settle({ view: "flow" }, (s) => svgOf(flowScene(s, 600, 1)), example);
  assert.ok(scene.includes(">E1<") && scene.includes(">D1 cross<"), scene);
});

test("the direction and the labels come from readable tokens", async () => {
  const tokens = ["\u00d9\u012a", "\u00d8\u00b5\u00d9\u0126", "x"];
  const example = { tokens, labels: ["\u0648", "\u0635\u0644", "x"] };
  const [labels, rightToLeft] = await settle(
    {},
    (snapshot) => [snapshot.labels, snapshot.rightToLeft] as const,
    example,
  );
  assert.deepEqual(labels, example.labels);
  assert.ok(rightToLeft);
});

test("tooltips name the piece of the vocabulary where it differs from the label", async () => {
  const example = makeExample({
    tokens: ["[CLS]", "\u0120caf\u00c3\u00a9", "##s"],
    labels: ["[CLS]", "caf\u00e9", "##s"],
  });
  const lines = (words: boolean, item: number): Promise<string[]> =>
    settle(
      { units: words ? "words" : "tokens" },
      (snapshot) => itemLines(snapshot, item).slice(0, 2),
      example,
    );
  assert.deepEqual(await lines(false, 1), ["caf\u00e9", "Piece: \u0120caf\u00c3\u00a9"]);
  assert.match((await lines(false, 2))[1], /^Raw attention/);
  assert.match((await lines(true, 1))[1], /^Pieces: \u0120caf\u00c3\u00a9 ##s$/);
});
