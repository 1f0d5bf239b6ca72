import assert from "node:assert/strict";
import { test } from "node:test";
import { mapScene } from "../../src/views/map.ts";
import { STORED } from "../example.ts";
import { hits, noteOf, settle, svgOf } from "../snapshot.ts";

test("the heatmap has a cell for each method, layer and token", async () => {
  const scene = await settle({ view: "map" }, (snapshot) => mapScene(snapshot, 900, 0));
  const targets = hits(scene);
  assert.equal(targets.size, 3 * 2 * 3);
  assert.deepEqual(targets.get("rollout/2/1")?.lines, [
    "“cabinet” → “[CLS]” at layer 2",
    "Attention rollout: 0.250",
  ]);
  assert.deepEqual(targets.get("raw/1/2")?.change, { method: "raw", layer: 1, token: 2 });
});

test("hidden special tokens and merged words have no columns", async () => {
  const change = { view: "map", units: "words", special: false } as const;
  const scene = await settle(change, (snapshot) => mapScene(snapshot, 900, 0));
  assert.deepEqual([...hits(scene).keys()].sort().slice(0, 2), ["flow/1/1", "flow/2/1"]);
  assert.ok(svgOf(scene).includes(">cabinets<"));
});

test("every method of the data has a heatmap; missing scores are marked", async () => {
  const chunks = { "0/scores/joint/2": { shape: [1, 3], dtype: "float16" } };
  const stored = { "0/scores/joint/2": [0.5, 0.25, 0.125] };
  const draw = (position: number): Promise<string[]> =>
    settle(
      { view: "map", position },
      (snapshot) => hits(mapScene(snapshot, 900, 0)).get("joint/2/1")?.lines ?? [],
      { chunks, flow_rows: [0] },
      [STORED],
      stored,
    );
  assert.equal((await draw(0))[1], "Joint flow: 0.250");
  assert.equal((await draw(1))[1], "Joint flow: –");
});

test("flat layers have their own color range, and the view says so", async () => {
  const even = [0.25, 0.375, 0.375, 0.5, 0.25, 0.25, 0.25, 0.5, 0.25];
  const chunks = { "0/attention/1": even, "0/attention/2": even };
  const draw = (scale: "auto" | "zero"): Promise<[string, string]> =>
    settle(
      { view: "map", scale },
      (snapshot) => {
        const scene = mapScene(snapshot, 900, 0);
        return [noteOf(scene), svgOf(scene)];
      },
      {},
      [],
      chunks,
    );
  const [note, drawn] = await draw("auto");
  assert.match(note, /^Raw attention.*each layer, not from 0\.$/);
  assert.ok(drawn.includes(">per layer<"));
  const [none, from0] = await draw("zero");
  assert.equal(none, "");
  assert.ok(!from0.includes(">per layer<"));
  assert.ok(from0.includes(">0 to 0.375<"));
});
