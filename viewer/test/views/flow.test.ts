import assert from "node:assert/strict";
import { test } from "node:test";
import { flowScene } from "../../src/views/flow.ts";
import { mapScene } from "../../src/views/map.ts";
import { findEdges } from "../../src/views/flowEdges.ts";
import type { Edge } from "../../src/views/subgraph.ts";
import type { Snapshot } from "../../src/data/snapshot.ts";
import { STORED } from "../example.ts";
import { random } from "../random.ts";
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

/** Random attention in which edges get thin from the top down, as in long texts. */
function spread(n: number, layers: number): { example: object; chunks: Record<string, number[]> } {
  const next = random(7);
  const chunks: Record<string, number[]> = {};
  for (let layer = 1; layer <= layers; layer++) {
    const rows = Array.from({ length: n }, () => {
      const row = Array.from({ length: n }, () => 2 ** -Math.floor(9 * next()));
      const sum = row.reduce((total, value) => total + value, 0);
      return row.map((value) => value / sum);
    });
    chunks[`0/attention/${layer}`] = rows.flat();
  }
  const tokens = ["[CLS]", ...Array.from({ length: n - 1 }, (_, i) => `word${i}`)];
  const special = tokens.map((_, i) => i === 0 || i === n - 1);
  const words = { texts: tokens, groups: tokens.map((_, i) => [i]), special };
  const residual_weights = tokens.slice(0, layers).map(() => 0.5);
  return { example: { tokens, special, words, n_layers: layers, residual_weights }, chunks };
}

const SPREAD = spread(120, 6);

/** Check that every edge is on a path of edges from the target position to the input. */
function expectConnected(edges: readonly Edge[], top: number, layers: number): void {
  assert.ok(edges.length > 0);
  const from = new Set(edges.map((edge) => `${edge.layer}/${edge.from}`));
  const to = new Set(edges.map((edge) => `${edge.layer - 1}/${edge.to}`));
  for (const edge of edges) {
    const above = `${edge.layer}/${edge.from}`;
    assert.ok(
      edge.layer === layers ? edge.from === top : to.has(above),
      `${above} hangs in the air`,
    );
    const below = `${edge.layer - 1}/${edge.to}`;
    assert.ok(edge.layer === 1 || from.has(below), `${below} ends in the air`);
  }
}

for (const change of [
  { method: "rollout" },
  { method: "rollout", token: 5 },
  { method: "rollout", special: false },
  { method: "rollout", threshold: 0.5 },
  { method: "rollout", topK: 4 },
  { method: "rollout", edges: "all" },
  { method: "flow", token: 5 },
  { method: "flow", token: 5, topK: 2 },
] as const) {
  test(`the edges drawn are connected: ${JSON.stringify(change)}`, async () => {
    const draw = (snapshot: Snapshot) =>
      [findEdges(snapshot), flowScene(snapshot, 900, 1)] as const;
    const state = { view: "flow", ...change } as const;
    const [edges, scene] = await settle(state, draw, SPREAD.example, [], SPREAD.chunks);
    expectConnected(edges?.edges ?? [], 0, 6);
    const drawn = edges?.edges.length ?? 0;
    assert.ok(drawn < (edges?.total ?? 0));
    assert.match(
      noteOf(scene),
      new RegExp(`Drawn: ${drawn.toLocaleString("en")} of [0-9,]+ edges`),
    );
    if ("special" in change) assert.match(noteOf(scene), /hidden tokens/);
  });
}

test("the whole graph is drawn, without a word about edges, where it is small", async () => {
  const scene = await settle({ view: "flow" }, (snapshot) => flowScene(snapshot, 600, 1));
  assert.doesNotMatch(noteOf(scene), /Drawn/);
});

test("the bottleneck of one edge is called one edge, by its ends", async () => {
  const change = { view: "flow", method: "flow", layer: 1, token: 1 } as const;
  const scene = await settle(change, (snapshot) => flowScene(snapshot, 600, 1));
  const note = noteOf(scene);
  assert.match(note, /the edge from “\[CLS\]” to “cabinet” at layer 1/);
  assert.doesNotMatch(note, /\ball\b/);
});

test("the flow to a word is drawn as one maximum flow to its tokens", async () => {
  const change = { view: "flow", method: "flow", units: "words", token: 1 } as const;
  const scene = await settle(change, (snapshot) => flowScene(snapshot, 600, 1));
  // To “cabinets”: 0.5 through the edges from [CLS], all of them but that to itself.
  assert.match(noteOf(scene), /to “cabinets” is 0\.5/);
  const cut = scene.cut?.reduce((sum, edge) => sum + edge.capacity, 0) ?? 0;
  assert.ok(Math.abs(cut - 0.5) < 1e-6, String(cut));
});

test("graph and heatmaps fit the height that there is", async () => {
  for (const scene of [flowScene, mapScene]) {
    const draw = (snapshot: Snapshot): number => scene(snapshot, 900, 1, 420).height;
    const height = await settle({}, draw, SPREAD.example, [], SPREAD.chunks);
    assert.ok(height <= 420, `${scene.name} ${height}`);
  }
});
