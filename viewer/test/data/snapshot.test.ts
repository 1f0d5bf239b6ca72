import assert from "node:assert/strict";
import { test } from "node:test";
import type { Example } from "../../src/data/header.ts";
import type { State } from "../../src/data/state.ts";
import { settle } from "../snapshot.ts";

const NOTES = JSON.stringify({
  texts: ["A sink.", "Try \u202ethis.", "Words.", "Hidden."],
  rows: {
    "rollout/2/none/tokens/show": [0, 1],
    "rollout/2/none/words/show": [2],
    "rollout/2/none/tokens/hide": [3],
  },
});
const NOTED: Partial<Example> = { chunks: { "0/notes": { shape: [], dtype: "json" } } };

const notes = (change: Partial<State>): Promise<string[]> =>
  settle({ layer: 2, ...change }, (snapshot) => snapshot.notes, NOTED, [], { "0/notes": NOTES });

test("notes are those of the explained position, the method, the layer and the options", async () => {
  assert.deepEqual(await notes({}), ["A sink.", "Try ⟨U+202E⟩this."]);
  assert.deepEqual(await notes({ units: "words" }), ["Words."]);
  assert.deepEqual(await notes({ special: false }), ["Hidden."]);
  assert.deepEqual(await notes({ layer: 1 }), []);
  assert.deepEqual(await notes({ method: "raw" }), []);
  assert.deepEqual(await notes({ position: 1 }), []);
  assert.match((await notes({ normalize: "rows" }))[0], /^Before normalization: A sink/);
});

test("scores normalized by the receptive field come from chunks", async () => {
  const shape = { shape: [1, 3], dtype: "float16" };
  const chunks = { "0/normalized/rollout/2": shape };
  const stored = { "0/normalized/rollout/2": [0.25, 0.5, 0.25] };
  const draw = (change: Partial<State>): Promise<[number[], string | null]> =>
    settle(
      { layer: 2, normalize: "receptive_field", ...change },
      ({ row, unavailable }) => [[...(row ?? [])], unavailable],
      { chunks, normalized_rows: [0] },
      [],
      stored,
    );
  assert.deepEqual(await draw({}), [[0.25, 0.5, 0.25], null]);
  assert.deepEqual(await draw({ units: "words" }), [[0.25, 0.75], null]);
  const [row, reason] = await draw({ position: 1 });
  assert.deepEqual(row, []);
  assert.match(reason ?? "", /explained position only/);
});
