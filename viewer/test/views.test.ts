// Views by what they draw and what is under the pointer, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeAxis, thinLabels } from "../src/axis.ts";
import { fileName } from "../src/exporting.ts";
import { findEdges } from "../src/flowEdges.ts";
import { flowScene } from "../src/flowView.ts";
import { headColumns } from "../src/headMaps.ts";
import { headsScene } from "../src/headsView.ts";
import { mapScene } from "../src/mapView.ts";
import { Numbers } from "../src/numbers.ts";
import { areDimmed, hintOf, meaningOf, spoken } from "../src/phrases.ts";
import { read } from "../src/reading.ts";
import type { Scene } from "../src/scene.ts";
import { changeState, initialState, type State } from "../src/state.ts";
import { SvgPainter } from "../src/svgPainter.ts";
import { LIGHT } from "../src/theme.ts";
import { makeExample, makeHeader, makeSource } from "./example.ts";
import { CHUNKS, settle } from "./reading.ts";

const svgOf = (scene: Scene): string => {
  const painter = new SvgPainter();
  scene.paint(painter);
  return painter.finish(scene.width, scene.height, "t");
};

const noteOf = (scene: Scene): string => scene.note?.map((part) => part.text).join("") ?? "";

/** Everything that can be hit on a grid of points. */
function hits(scene: Scene): Map<string, { lines: string[]; change: unknown }> {
  const found = new Map<string, { lines: string[]; change: unknown }>();
  for (let y = 0; y < scene.height; y += 6) {
    for (let x = 0; x < scene.width; x += 6) {
      const target = scene.hit(x, y);
      if (target) found.set(target.key, target);
    }
  }
  return found;
}

test("the flow view names the flow, the bottleneck and its edges", async () => {
  const change = { view: "flow", method: "flow", token: 1 } as const;
  const scene = await settle(change, (reading) => flowScene(reading, 600, 1));
  // By hand in numbers.test.ts: 0.375, limited by 0.125 three times.
  assert.match(
    noteOf(scene),
    /from “\[CLS\]” at layer 2 to “cabinet” is 0\.375\. Here is the bottleneck: 3 edges/,
  );
  assert.equal(
    scene.cut?.reduce((sum, edge) => sum + edge.capacity, 0),
    0.375,
  );
  const svg = svgOf(scene);
  assert.match(svg, />here is the bottleneck</);
  for (const label of ["[CLS]", "cabinet", "##s", "input"]) assert.ok(svg.includes(`>${label}<`));
});

test("clicking in the flow view chooses a position at a layer, or a token of the input", async () => {
  const scene = await settle({ view: "flow" }, (reading) => flowScene(reading, 600, 1));
  const targets = hits(scene);
  assert.deepEqual(targets.get("2/1")?.change, { layer: 2, position: 1 });
  assert.deepEqual(targets.get("1/0")?.change, { layer: 1, position: 0 });
  assert.deepEqual(targets.get("0/2")?.change, { token: 2 });
  assert.deepEqual(targets.get("0/2")?.lines, [
    "##s",
    "Raw attention 0.250",
    "Rollout 0.188",
    "Flow 0.250",
  ]);
  assert.equal(targets.size, 9);
});

test("rollout to a chosen token: what passes adds up to its score at every level", async () => {
  const change = { view: "flow", method: "rollout", token: 1 } as const;
  const scene = await settle(change, (reading) => flowScene(reading, 600, 1));
  const passing = (level: number): number =>
    [0, 1, 2]
      .map((item) => hits(scene).get(`${level}/${item}`)?.lines[1] ?? "")
      .map((line) => Number(/^([\d.e−]+) passes/.exec(line)?.[1].replace("−", "-") ?? 0))
      .reduce((a, b) => a + b);
  assert.ok(Math.abs(passing(2) - 0.25) < 1e-3);
  assert.ok(Math.abs(passing(1) - 0.25) < 1e-3);
});

test("rollout to a chosen token: the edges of every layer add up to its score", async () => {
  for (const [token, score] of [
    [null, 1],
    [1, 0.25],
  ] as const) {
    const change = { view: "flow", method: "rollout", token } as const;
    const found = await settle(change, (reading) => findEdges(reading));
    for (const layer of [1, 2]) {
      const edges = found?.edges.filter((edge) => edge.layer === layer) ?? [];
      const sum = edges.reduce((total, edge) => total + edge.weight, 0);
      assert.ok(Math.abs(sum - score) < 1e-6, `${token} ${layer} ${sum}`);
    }
  }
});

test("the map has a cell for each method, layer and token", async () => {
  const scene = await settle({ view: "map" }, (reading) => mapScene(reading, 900, 0));
  const targets = hits(scene);
  assert.equal(targets.size, 3 * 2 * 3);
  assert.deepEqual(targets.get("rollout/2/1")?.lines, [
    "“cabinet” → “[CLS]” at layer 2",
    "Rollout 0.250",
  ]);
  assert.deepEqual(targets.get("raw/1/2")?.change, { method: "raw", layer: 1, token: 2 });
});

test("hidden special tokens and merged words leave their columns", async () => {
  const change = { view: "map", words: true, special: false } as const;
  const scene = await settle(change, (reading) => mapScene(reading, 900, 0));
  assert.deepEqual([...hits(scene).keys()].sort().slice(0, 2), ["flow/1/1", "flow/2/1"]);
  assert.ok(svgOf(scene).includes(">cabinets<"));
});

test("heads: small maps, one enlarged, and rows for the table", async () => {
  const small = await settle({ view: "heads" }, (reading) => headsScene(reading, 600));
  assert.deepEqual(hits(small).get("1/0/1")?.lines.slice(0, 2), [
    "Head 1",
    "“[CLS]” looks at “cabinet”: 0.250",
  ]);
  assert.deepEqual(hits(small).get("2/0/0")?.change, { head: 2 });
  assert.equal(hits(small).get("2/0/1")?.lines[1], "“[CLS]” looks at “cabinet”: 0");
  const large = await settle({ view: "heads", head: 1 }, (reading) => headsScene(reading, 600));
  assert.deepEqual(hits(large).get("1/2/1")?.change, { position: 2 });
  assert.deepEqual(hits(large).get("back")?.change, { head: null });
  const rows = await settle({ view: "heads", headsOf: "rollout" }, (reading) =>
    headColumns(reading),
  );
  assert.deepEqual([...(rows?.[1].row ?? [])], [0.75, 0.125, 0.125]);
});

test("without heads there is a sentence", async () => {
  const draw = (reading: Parameters<typeof headsScene>[0]): Scene => headsScene(reading, 600);
  const scene = await settle({ view: "heads" }, draw, { n_heads: 0 });
  assert.match(noteOf(scene), /not kept/);
});

test("what is spoken names the position and its strongest tokens", async () => {
  assert.equal(
    await settle({ method: "raw", layer: 1 }, spoken),
    "What reaches “[CLS]” at layer 1, by raw attention: [CLS] 0.500, cabinet 0.250, ##s 0.250.",
  );
});

test("right-to-left texts run from the right, and narrow columns are labelled by worth", () => {
  const labels = Array.from({ length: 100 }, (_, i) => `t${i}`);
  const items = labels.map((_, i) => i);
  const axis = makeAxis(labels, items, true, 0, 300, { least: 13, most: 50, fit: true });
  assert.equal(axis.step, 3);
  assert.ok(axis.x(0) > axis.x(99));
  assert.equal(axis.at(1), 99);
  thinLabels(axis, [7, 8, 50]);
  assert.deepEqual([...axis.labelled], [7, 50], "8 stands too close to 7");
  const scrolled = makeAxis(labels, items, false, 0, 300, { least: 13, most: 50, fit: false });
  assert.equal(scrolled.width, 1300);
});

test("the flow of words is said to be a sum, where there are words of several tokens", async () => {
  const meaning = (change: object): Promise<string> =>
    settle(change, (reading) => meaningOf([reading]));
  const sum = /sum of their flows, which can exceed 1\.$/;
  assert.match(await meaning({ method: "flow", words: true }), sum);
  assert.doesNotMatch(await meaning({ method: "flow" }), sum);
  assert.doesNotMatch(await meaning({ method: "rollout", words: true }), sum);
  assert.doesNotMatch(await meaning({ method: "flow", words: true, normalize: "rows" }), sum);
});

test("the heads of the layers beside are loaded before they are asked for", async () => {
  const keys = ["0/attention/1", "0/attention/2", "0/heads/1", "0/heads/2"];
  const chunks = Object.fromEntries(
    keys.map((key) => [key, { shape: [key.includes("heads") ? 2 : 1, 3, 3], dtype: "float16" }]),
  );
  const header = makeHeader(makeExample({ n_heads: 2, chunks }));
  const source = makeSource(header, CHUNKS);
  const state = changeState(header, initialState(header), { view: "heads", layer: 2 });
  const later = (): Promise<void> => new Promise((done) => setTimeout(done, 5));
  let drawn = 0;
  const numbers = new Numbers(header.examples[0], 0, source, () => drawn++);
  const draw = (layer: number): boolean =>
    headsScene(read(numbers, { ...state, layer }, LIGHT), 600).waiting ?? false;
  assert.equal(draw(2), true);
  await later();
  assert.ok(!source.asked.includes("0/heads/1"), "what is on screen comes first");
  assert.equal(draw(2), false);
  const before = drawn;
  await later();
  assert.ok(source.asked.includes("0/heads/1"));
  assert.equal(drawn, before, "nothing new is on screen");
  assert.equal(draw(1), false);
  assert.equal(source.asked.filter((key) => key === "0/heads/1").length, 1);
});

test("heads that could not be loaded beforehand are asked for again, and then said", async () => {
  const chunks = { "0/heads/1": { shape: [2, 3, 3], dtype: "float16" } };
  const header = makeHeader(makeExample({ n_heads: 2, chunks }));
  const source = makeSource(header, {}); // which has nothing
  const numbers = new Numbers(header.examples[0], 0, source, () => {});
  const later = (): Promise<void> => new Promise((done) => setTimeout(done, 5));
  numbers.expectHeads(1);
  numbers.expectHeads(3); // there is no such layer
  await later();
  assert.equal(numbers.error, null);
  assert.equal(numbers.heads(1), null);
  await later();
  assert.match(numbers.error ?? "", /The heads of layer 1 could not be loaded/);
  assert.deepEqual(source.asked, ["0/heads/1", "0/heads/1"]);
});

test("hiding special tokens is offered where they take the colors", async () => {
  const dimmed = (scores: number[], change = {}): Promise<boolean> =>
    settle(change, (reading) => {
      const special = scores.map((_, i) => i === 0);
      const columns = scores.map((_, i) => i).filter((i) => reading.state.special || i > 0);
      const items = { ...reading.items, special };
      return areDimmed([{ ...reading, items, columns, row: Float32Array.from(scores) }]);
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

test("a position that is hidden is named", async () => {
  const hint = (change: Partial<State>): Promise<string> =>
    settle(change, (reading) => hintOf([reading]));
  assert.match(await hint({}), /reaches the outlined position\./);
  assert.match(await hint({ special: false }), /reaches “\[CLS\]”, which is hidden\./);
  assert.match(await hint({ special: false, position: 1 }), /reaches the outlined position\./);
  assert.match(await hint({ special: false, view: "map" }), /^One row a layer/);
});

test("pictures are named by view, method and text", () => {
  const text = "The keys, to the <old> cabinet in the kitchen";
  assert.equal(fileName({ view: "map", method: "flow" }, text), "attnflow-map-the-keys-to-the-old");
  assert.equal(fileName({ view: "text", method: "raw" }, "../Ä 1"), "attnflow-text-raw-ä-1");
  assert.equal(fileName({ view: "flow", method: "flow" }, "?"), "attnflow-flow-graph-flow");
  assert.equal(fileName({ view: "heads", method: "raw" }, "x".repeat(99)).length, 15 + 23);
});
