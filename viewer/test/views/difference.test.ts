import assert from "node:assert/strict";
import { test } from "node:test";
import { align } from "../../src/data/difference.ts";
import { takeSnapshot, type Snapshot } from "../../src/data/snapshot.ts";
import { changeState, initialState, versusKey, versusOf } from "../../src/data/state.ts";
import { differenceLines, differenceScene } from "../../src/views/difference.ts";
import { scoresCsv } from "../../src/views/table.ts";
import { makeExample, makeHeader } from "../example.ts";
import { hits, noteOf, settle } from "../snapshot.ts";

const split = (text: string): string[] => text.split(" ");

/** Pairs as text, such as "keys|key" or "old|–". */
function aligned(first: string, second: string): string[] {
  const [a, b] = [split(first), split(second)];
  return align(a, b).map((pair) => {
    const [x, y] = [pair.a === null ? "–" : a[pair.a], pair.b === null ? "–" : b[pair.b]];
    return x === y ? x : `${x}|${y}`;
  });
}

test("texts are aligned word by word", () => {
  assert.deepEqual(aligned("the keys to it", "the key to it"), ["the", "keys|key", "to", "it"]);
  assert.deepEqual(aligned("the old keys", "the keys"), ["the", "old|–", "keys"]);
  assert.deepEqual(aligned("the keys", "the very old keys"), ["the", "–|very", "–|old", "keys"]);
  assert.deepEqual(aligned("a b", "c d"), ["a|c", "b|d"]);
});

/** The snapshot of a method, compared with another one. */
function compared(snapshot: Snapshot, method: string): Snapshot {
  const { scores, state, theme } = snapshot;
  return { ...snapshot, versus: takeSnapshot(scores, { ...state, method }, theme) };
}

test("the difference of two methods is that of their shares, token by token", async () => {
  const change = { view: "difference", method: "rollout", layer: 1 } as const;
  const [lines, scene] = await settle(change, (snapshot) => {
    const both = compared(snapshot, "raw");
    return [differenceLines(both), differenceScene(both, 700)] as const;
  });
  // At layer 1, raw attention is .5 .25 .25 and rollout, half of it plus the residual, .75 .125 .125.
  assert.deepEqual(
    lines.map(({ label, a, b, difference }) => [label, a, b, difference]),
    [
      ["[CLS]", 0.75, 0.5, 0.25],
      ["cabinet", 0.125, 0.25, -0.125],
      ["##s", 0.125, 0.25, -0.125],
    ],
  );
  assert.match(noteOf(scene), /Attention rollout for .* minus Raw attention for/);
  const targets = hits(scene);
  assert.deepEqual(targets.get("0/1")?.lines, [
    "cabinet",
    "First: 0.125",
    "Second: 0.250",
    "Difference: −0.125",
  ]);
  assert.deepEqual(targets.get("2/1")?.change, { layer: 2, token: 1 });
});

test("the difference view compares with the other example, or else with another method", () => {
  const key = (examples: number, change: object): string => {
    const header = makeHeader(Array.from({ length: examples }, () => makeExample()));
    const state = changeState(header, initialState(header), { view: "difference", ...change });
    const versus = versusOf(header, state);
    return versus ? versusKey(versus) : "";
  };
  assert.equal(key(1, {}), "method:flow");
  assert.equal(key(1, { versus: "method:raw" }), "method:raw");
  assert.equal(key(1, { method: "flow", versus: "method:flow" }), "method:rollout");
  assert.equal(key(2, {}), "example:1");
  assert.equal(key(2, { example: 1 }), "example:0");
  assert.equal(key(2, { versus: "method:raw" }), "method:raw");
});

test("the scores on screen become CSV, with tokens as text and as pieces", async () => {
  const none = (): null => null;
  const write = (change: object): Promise<string> =>
    settle(change, (snapshot) => scoresCsv([snapshot], none));
  const [head, first, second] = (await write({ layer: 1 })).split("\r\n");
  assert.equal(head, "example,model,position,layer,normalize,index,token,piece,raw,rollout,flow");
  assert.equal(first, "one,tiny,0,1,none,0,[CLS],[CLS],0.5,0.75,0.75");
  assert.match(second, /,1,cabinet,cabinet,0\.25,/);
  assert.match(await write({ view: "map" }), /^example,.*,raw\/1,raw\/2,rollout\/1/);
  const words = await write({ units: "words" });
  assert.match(words, /,1,cabinets,cabinet ##s,/);
});

test("quotes and commas of tokens are escaped in CSV", async () => {
  const tokens = ['"', ",", "a\nb"];
  const change = { tokens, labels: tokens };
  const text = await settle({}, (snapshot) => scoresCsv([snapshot], () => null), change);
  assert.ok(text.includes(',0,"""",'), text);
  assert.ok(text.includes(',1,",",'), text);
  assert.ok(text.includes(',2,"a\nb",'), text);
});
