import assert from "node:assert/strict";
import { test } from "node:test";
import { flowScene } from "../../src/views/flow.ts";
import { findEdges } from "../../src/views/flowEdges.ts";
import { STORED } from "../example.ts";
import { hits, noteOf, settle, svgOf } from "../snapshot.ts";

test("the note names the flow, the bottleneck and its edges", async () => {
  const change = { view: "flow", method: "flow", token: 1 } as const;
  const scene = await settle(change, (snapshot) => flowScene(snapshot, 600, 1));
  // Computed by hand in scores.test.ts: 0.375, limited by 0.125 three times.
  const note = noteOf(scene);
  for (const part of ["“[CLS]”", "layer 2", "“cabinet”", "0.375", "Bottleneck", "3 edges"]) {
    assert.ok(note.includes(part), `${part} in ${note}`);
  }
  assert.equal(
    scene.cut?.reduce((sum, edge) => sum + edge.capacity, 0),
    0.375,
  );
  const svg = svgOf(scene);
  for (const label of ["[CLS]", "cabinet", "##s", "input", "bottleneck"]) {
    assert.ok(svg.includes(`>${label}<`), label);
  }
});

test("a click selects a position at a layer, or an input token", async () => {
  const scene = await settle({ view: "flow" }, (snapshot) => flowScene(snapshot, 600, 1));
  const targets = hits(scene);
  assert.deepEqual(targets.get("2/1")?.change, { layer: 2, position: 1 });
  assert.deepEqual(targets.get("1/0")?.change, { layer: 1, position: 0 });
  assert.deepEqual(targets.get("0/2")?.change, { token: 2 });
  assert.deepEqual(targets.get("0/2")?.lines, [
    "##s",
    "Raw attention: 0.250",
    "Attention rollout: 0.188",
    "Attention flow: 0.250",
  ]);
  assert.equal(targets.size, 9);
});

test("rollout to a selected token: the weights of nodes sum to its score at every level", async () => {
  const change = { view: "flow", method: "rollout", token: 1 } as const;
  const edges = await settle(change, findEdges);
  for (const level of [0, 1, 2]) {
    const sum = edges?.held[level].reduce((total, weight) => total + weight, 0) ?? 0;
    assert.ok(Math.abs(sum - 0.25) < 1e-6, `${level} ${sum}`);
  }
  const scene = await settle(change, (snapshot) => flowScene(snapshot, 600, 1));
  assert.match(hits(scene).get("2/0")?.lines[1] ?? "", /0\.250$/);
});

test("rollout to a selected token: the edges of every layer sum to its score", async () => {
  for (const [token, score] of [
    [null, 1],
    [1, 0.25],
  ] as const) {
    const change = { view: "flow", method: "rollout", token } as const;
    const found = await settle(change, findEdges);
    for (const layer of [1, 2]) {
      const edges = found?.edges.filter((edge) => edge.layer === layer) ?? [];
      const sum = edges.reduce((total, edge) => total + edge.weight, 0);
      assert.ok(Math.abs(sum - score) < 1e-6, `${token} ${layer} ${sum}`);
    }
  }
});

test("a method stored in the data has bars but no edges", async () => {
  const chunks = { "0/scores/joint/2": { shape: [3, 3], dtype: "float16" } };
  const scene = await settle(
    { view: "flow", method: "joint" },
    (snapshot) => flowScene(snapshot, 600, 1),
    { chunks },
    [STORED],
    { "0/scores/joint/2": [0.5, 0.25, 0.125, 0, 0, 0, 0, 0, 0] },
  );
  assert.match(noteOf(scene), /Joint flow has no scores for edges/);
  assert.ok(svgOf(scene).includes(">0.125<"));
  assert.deepEqual(scene.cut, []);
});
