import assert from "node:assert/strict";
import { test } from "node:test";
import { Scores } from "../../src/data/scores.ts";
import { takeSnapshot } from "../../src/data/snapshot.ts";
import { changeState, initialState } from "../../src/data/state.ts";
import { LIGHT } from "../../src/paint/theme.ts";
import { headColumns, headsScene } from "../../src/views/heads.ts";
import type { Scene } from "../../src/views/scene.ts";
import { makeExample, makeHeader, makeSource } from "../example.ts";
import { CHUNKS, hits, noteOf, settle, svgOf, tick } from "../snapshot.ts";

test("small heatmaps, an enlarged head, and rows for the table", async () => {
  const small = await settle({ view: "heads" }, (snapshot) => headsScene(snapshot, 600));
  assert.deepEqual(hits(small).get("0/0/1")?.lines.slice(0, 2), [
    "Head 0",
    "Query “[CLS]”, key “cabinet”: 0.250",
  ]);
  assert.deepEqual(hits(small).get("1/0/0")?.change, { head: 1 });
  assert.equal(hits(small).get("1/0/1")?.lines[1], "Query “[CLS]”, key “cabinet”: 0");
  const large = await settle({ view: "heads", head: 0 }, (snapshot) => headsScene(snapshot, 600));
  assert.deepEqual(hits(large).get("0/2/1")?.change, { position: 2 });
  assert.deepEqual(hits(large).get("back")?.change, { head: null });
  const rows = await settle({ view: "heads", headsOf: "rollout" }, (snapshot) =>
    headColumns(snapshot),
  );
  assert.deepEqual([...(rows?.[1].row ?? [])], [0.75, 0.125, 0.125]);
});

test("without saved heads there is a message", async () => {
  const draw = (snapshot: Parameters<typeof headsScene>[0]): Scene => headsScene(snapshot, 600);
  const scene = await settle({ view: "heads" }, draw, { n_heads: 0 });
  assert.match(noteOf(scene), /not saved.*keep_heads=True/);
});

test("the heads of adjacent layers are prefetched", async () => {
  const keys = ["0/attention/1", "0/attention/2", "0/heads/1", "0/heads/2"];
  const chunks = Object.fromEntries(
    keys.map((key) => [key, { shape: [key.includes("heads") ? 2 : 1, 3, 3], dtype: "float16" }]),
  );
  const header = makeHeader([makeExample({ n_heads: 2, chunks })]);
  const source = makeSource(header, CHUNKS);
  const state = changeState(header, initialState(header), { view: "heads", layer: 2 });
  let drawn = 0;
  const scores = new Scores(header.examples[0], 0, source, () => drawn++);
  const draw = (layer: number): boolean =>
    headsScene(takeSnapshot(scores, { ...state, layer }, LIGHT), 600).waiting ?? false;
  assert.equal(draw(2), true);
  await tick();
  assert.ok(!source.requested.includes("0/heads/1"), "the layer on screen comes first");
  assert.equal(draw(2), false);
  const before = drawn;
  await tick();
  assert.ok(source.requested.includes("0/heads/1"));
  assert.equal(drawn, before, "prefetching does not redraw");
  assert.equal(draw(1), false);
  assert.equal(source.requested.filter((key) => key === "0/heads/1").length, 1);
});

test("a failed prefetch is repeated when the heads are needed, and then reported", async () => {
  const chunks = { "0/heads/1": { shape: [2, 3, 3], dtype: "float16" } };
  const header = makeHeader([makeExample({ n_heads: 2, chunks })]);
  const source = makeSource(header, {}); // no chunks
  const scores = new Scores(header.examples[0], 0, source, () => {});
  scores.prefetchHeads(1);
  scores.prefetchHeads(3); // there is no such layer
  await tick();
  assert.equal(scores.error, null);
  assert.equal(scores.heads(1), null);
  await tick();
  assert.match(scores.error ?? "", /the heads of layer 1/);
  assert.deepEqual(source.requested, ["0/heads/1", "0/heads/1"]);
});

test("small heatmaps have the names of tokens, and mark those that match the search", async () => {
  const draw = (search: string): Promise<string> =>
    settle({ view: "heads", search }, (snapshot) => svgOf(headsScene(snapshot, 600)));
  const svg = await draw("");
  // Two heads side by side: queries on the left of the first, keys below both.
  assert.equal(svg.split(">cabinet<").length - 1, 3);
  const marks = (text: string): number => text.split(`fill="${LIGHT.match}"/>`).length - 1;
  assert.equal(marks(svg), 0);
  assert.equal(marks(await draw("cabinet")), 4, "a row and a column of each head");
});

test("the heads of all layers form a grid that fits the height", async () => {
  const draw = (snapshot: Parameters<typeof headsScene>[0]): Scene =>
    headsScene(snapshot, 900, 200);
  const scene = await settle({ view: "heads", grid: true }, draw);
  const targets = hits(scene);
  assert.deepEqual(
    [...targets.values()].map(({ change }) => change),
    [
      { layer: 2, head: 0 },
      { layer: 2, head: 1 },
      { layer: 1, head: 0 },
      { layer: 1, head: 1 },
    ],
  );
  assert.match(targets.get("2")?.lines[0] ?? "", /Head 0 of layer 1/);
  assert.ok(scene.height <= 200, String(scene.height));
  const large = await settle({ view: "heads", grid: true, head: 1 }, draw);
  assert.match(noteOf(large), /head 1 of layer 2/);
});
