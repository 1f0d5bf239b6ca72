// Snapshots for tests of views: redraws until all scores are available, as the viewer does.
import type { Example, Method } from "../src/data/header.ts";
import { Scores } from "../src/data/scores.ts";
import { takeSnapshot, type Snapshot } from "../src/data/snapshot.ts";
import { changeState, initialState, type State } from "../src/data/state.ts";
import { SvgPainter } from "../src/paint/svg.ts";
import { LIGHT } from "../src/paint/theme.ts";
import type { Scene } from "../src/views/scene.ts";
import { makeExample, makeHeader, makeSource } from "./example.ts";

const W = [0.5, 0.25, 0.25, 0, 1, 0, 0, 0.5, 0.5];
const SELF = [1, 0, 0, 0, 1, 0, 0, 0, 1];

export const CHUNKS: Record<string, number[]> = {
  "0/attention/1": W,
  "0/attention/2": W,
  "0/heads/1": [...W, ...SELF],
  "0/heads/2": [...W, ...SELF],
};

/** Let pending promises and timers run. */
export const tick = (): Promise<void> => new Promise((done) => setTimeout(done, 0));

/** Redraw until nothing new arrives, and return the last drawing. */
export async function settle<T>(
  change: Partial<State>,
  draw: (snapshot: Snapshot) => T,
  example: Partial<Example> = {},
  methods: Method[] = [],
  chunks: Record<string, number[] | string> = {},
): Promise<T> {
  const header = makeHeader([makeExample({ n_heads: 2, ...example })], methods);
  const state = changeState(header, initialState(header), change);
  let changed = true;
  const source = makeSource(header, { ...CHUNKS, ...chunks });
  const scores = new Scores(header.examples[0], 0, source, () => (changed = true));
  let drawn: T | undefined;
  while (changed || scores.progress) {
    changed = false;
    scores.beginRequests();
    drawn = draw(takeSnapshot(scores, state, LIGHT));
    scores.endRequests();
    await tick();
  }
  if (scores.error) throw new Error(scores.error);
  return drawn as T;
}

export function svgOf(scene: Scene): string {
  const painter = new SvgPainter();
  scene.paint(painter);
  return painter.finish(scene.width, scene.height, "t");
}

export const noteOf = (scene: Scene): string => scene.note?.map((part) => part.text).join("") ?? "";

/** All targets on a grid of points, by key. */
export function hits(scene: Scene): Map<string, { lines: string[]; change: unknown }> {
  const targets = new Map<string, { lines: string[]; change: unknown }>();
  for (let y = 0; y < scene.height; y += 6) {
    for (let x = 0; x < scene.width; x += 6) {
      const target = scene.hit(x, y);
      if (target) targets.set(target.key, target);
    }
  }
  return targets;
}
