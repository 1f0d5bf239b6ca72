// What the viewer shows, as plain JSON: it can be saved, sent as a link and given back.

import { METHODS, type Example, type Header, type Method } from "./format.ts";

export const VIEWS = ["text", "flow", "map", "heads", "image"] as const;
export type ViewName = (typeof VIEWS)[number];

export interface State {
  view: ViewName;
  method: Method;
  layer: number; // from 1; a model with fewer layers shows its last
  example: number; // the one that keys and `position` mean
  shown: number[]; // the examples side by side
  position: number; // of that example: where one looks from, an index of a token
  token: number | null; // the input token at the end of the flow; null: the strongest
  positions: number[]; // `position` of every example
  tokens: (number | null)[]; // `token` of every example
  threshold: number; // hide what is below this share of the largest, 0 to 1
  topK: number; // show this many of the strongest; 0: all
  special: boolean; // whether special tokens are shown
  words: boolean; // whether the tokens of a word are merged
  normalize: "none" | "rows"; // "rows": the scores of a position are scaled to sum to 1
  fit: boolean; // whether all tokens are fitted into the width, or scrolled
  scale: "shared" | "own"; // colors by one scale for all maps, or by each map's largest
  head: number | null; // the head that is enlarged, from 1
  headsOf: "attention" | "rollout"; // a head's attention, or its rollout to the input
  opacity: number; // of patches over the image, 0 to 1
  search: string;
}

export function initialState(header: Header): State {
  const examples = header.examples;
  const first = examples[0];
  return {
    view: first.image ? "image" : "text",
    method: "rollout",
    layer: Math.max(...examples.map((example) => example.n_layers)),
    example: 0,
    shown: examples.length > 1 ? [0, 1] : [0],
    position: first.position,
    token: null,
    positions: examples.map((example) => example.position),
    tokens: examples.map(() => null),
    threshold: 0,
    topK: 0,
    special: true,
    words: false,
    normalize: "none",
    fit: Math.max(...examples.map((example) => example.tokens.length)) > 100,
    scale: "own",
    head: null,
    headsOf: "attention",
    opacity: 0.6,
    search: "",
  };
}

const isNumber = (value: unknown): value is number =>
  typeof value === "number" && Number.isFinite(value);

function between(value: unknown, low: number, high: number, otherwise: number): number {
  return isNumber(value) ? Math.min(Math.max(value, low), high) : otherwise;
}

function oneOf<T>(value: unknown, choices: readonly T[], otherwise: T): T {
  return choices.includes(value as T) ? (value as T) : otherwise;
}

const flag = (value: unknown, otherwise: boolean): boolean =>
  typeof value === "boolean" ? value : otherwise;

function tokenOf(value: unknown, example: Example): number | null {
  if (!isNumber(value)) return null;
  const token = Math.round(value);
  return token >= 0 && token < example.tokens.length ? token : null;
}

/** The state after a change. What does not fit the data is brought into range or ignored. */
export function changeState(header: Header, now: State, change: Partial<State>): State {
  const merged: State = { ...now, ...change };
  const { examples } = header;
  const example = between(Math.round(merged.example), 0, examples.length - 1, now.example);
  const positions = examples.map((one, i) => {
    const given = Array.isArray(merged.positions) ? merged.positions[i] : undefined;
    return tokenOf(given, one) ?? now.positions[i];
  });
  const tokens = examples.map((one, i) =>
    Array.isArray(merged.tokens) ? tokenOf(merged.tokens[i], one) : null,
  );
  if (change.position !== undefined) {
    positions[example] = tokenOf(change.position, examples[example]) ?? positions[example];
  }
  if (change.token !== undefined) tokens[example] = tokenOf(change.token, examples[example]);
  const deepest = Math.max(...examples.map((one) => one.n_layers));
  const heads = Math.max(...examples.map((one) => one.n_heads));
  const views = VIEWS.filter((view) => view !== "image" || examples.some((one) => one.image));
  return {
    view: oneOf(merged.view, views, now.view),
    method: oneOf(merged.method, METHODS, now.method),
    layer: Math.round(between(merged.layer, 1, deepest, now.layer)),
    example,
    shown: shownOf(merged.shown, examples.length, example, now.shown),
    position: positions[example],
    token: tokens[example],
    positions,
    tokens,
    threshold: between(merged.threshold, 0, 1, now.threshold),
    topK: Math.round(between(merged.topK, 0, 1e6, now.topK)),
    special: flag(merged.special, now.special),
    words: flag(merged.words, now.words),
    normalize: oneOf(merged.normalize, ["none", "rows"] as const, now.normalize),
    fit: flag(merged.fit, now.fit),
    scale: oneOf(merged.scale, ["shared", "own"] as const, now.scale),
    head: headOf(merged.head, heads),
    headsOf: oneOf(merged.headsOf, ["attention", "rollout"] as const, now.headsOf),
    opacity: between(merged.opacity, 0, 1, now.opacity),
    search: typeof merged.search === "string" ? merged.search.slice(0, 200) : now.search,
  };
}

const headOf = (value: unknown, heads: number): number | null =>
  isNumber(value) && value >= 1 && value <= heads ? Math.round(value) : null;

/** One or two examples, the current one among them. */
function shownOf(value: unknown, count: number, example: number, otherwise: number[]): number[] {
  const given = Array.isArray(value) ? value : otherwise;
  const shown = [...new Set(given)].filter(
    (one) => Number.isInteger(one) && one >= 0 && one < count,
  );
  if (!shown.includes(example)) return [example];
  return shown.slice(0, 2).includes(example) ? shown.slice(0, 2) : [shown[0], example];
}

/** The layer of one example: examples of fewer layers show their last. */
export const layerOf = (state: State, example: Example): number =>
  Math.min(state.layer, example.n_layers);
