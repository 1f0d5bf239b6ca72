// The state of the viewer as plain JSON, which hosts save in links and notebooks. Every change
// goes through `changeState`, which brings values into the range of the data.

import { UNITS, type Answer, type Example, type Header, type UnitName } from "./header.ts";
import { SCALES, type Scale } from "./range.ts";

export const VIEWS = ["text", "alignment", "flow", "map", "heads", "difference", "image"] as const;
export type ViewName = (typeof VIEWS)[number];

/** rows: scores of a position are divided by their sum; receptive_field: also by the scores under
 * uniform attention (paper §5). */
export const NORMALIZATIONS = ["none", "rows", "receptive_field"] as const;
export type Normalize = (typeof NORMALIZATIONS)[number];

/** The first and last token of a part of an answer. */
export type Part = [number, number];

export interface State {
  view: ViewName;
  method: string;
  layer: number; // from 1; an example with fewer layers shows its last layer
  example: number; // the active example, which `position` and `token` refer to
  shown: number[]; // the examples side by side
  versus: string; // what the difference view compares with, such as "method:raw"; "" for a default
  position: number; // the target position: a token index
  part: Part | null; // the explained part of the answer; null: the target position
  token: number | null; // the traced input token; null: the one with the highest score
  positions: number[]; // `position` of every example
  parts: (Part | null)[]; // `part` of every example
  tokens: (number | null)[]; // `token` of every example
  threshold: number; // minimum score as a share of the maximum, 0 to 1
  topK: number; // number of tokens shown, highest scores first; 0: all
  special: boolean; // whether special tokens are shown
  units: UnitName; // what tokens are merged into
  own: boolean; // whether the answer before the explained part is shown and ranked too
  normalize: Normalize;
  fit: boolean; // whether drawings fit the width or scroll
  edges: "strongest" | "all"; // of the flow graph
  scale: Scale;
  grid: boolean; // whether the heads of all layers are shown
  head: number | null; // the enlarged head, from 0; null: all heads
  headsOf: "attention" | "rollout"; // attention of each head, or its rollout to the input
  opacity: number; // of the scores over the image, 0 to 1
  search: string;
}

export function initialState(header: Header): State {
  const examples = header.examples;
  const first = examples[0];
  return {
    view: first.image ? "image" : "text",
    method: header.methods.some(({ name }) => name === "rollout")
      ? "rollout"
      : header.methods[0].name,
    layer: Math.max(...examples.map((example) => example.n_layers)),
    example: 0,
    shown: examples.length > 1 ? [0, 1] : [0],
    versus: "",
    position: first.position,
    part: first.answer && wholePart(first.answer),
    token: null,
    positions: examples.map((example) => example.position),
    parts: examples.map(({ answer }) => answer && wholePart(answer)),
    tokens: examples.map(() => null),
    threshold: 0,
    topK: 0,
    special: true,
    units: "tokens",
    own: false,
    normalize: "none",
    fit: Math.max(...examples.map((example) => example.tokens.length)) > 100,
    edges: "strongest",
    scale: "auto",
    grid: false,
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

/** The part of an answer without special tokens at its ends. */
export const wholePart = ({ whole }: Answer): Part => [whole[0], whole[whole.length - 1]];

/** A part inside of the answer, brought into order; null if there is none. */
function partOf(value: unknown, { answer }: Example): Part | null {
  if (!answer || !Array.isArray(value) || !value.every(isNumber) || value.length !== 2) return null;
  const ends = value.map((token) =>
    between(Math.round(token), answer.first, answer.first + answer.steps.length - 1, answer.first),
  );
  return [Math.min(...ends), Math.max(...ends)];
}

/** The part that a position predicts: the token after it, if that is in the answer. */
function predictedPart(position: number, { answer }: Example): Part | null {
  const token = position + 1;
  if (!answer || token < answer.first || token >= answer.first + answer.steps.length) return null;
  return [token, token];
}

/** The views of some examples, in the order of their tabs. */
export function viewsOf({ examples }: Header): ViewName[] {
  const images = examples.some(({ image }) => image);
  const answers = examples.some(({ answer }) => answer);
  const others = VIEWS.filter((view) => view !== "image" && (answers || view !== "alignment"));
  return images ? ["image", ...others] : others;
}

/** What the difference view compares with: another example, or another method. */
export type Versus = { example: number } | { method: string };

/** The key of a choice of the difference view, as the state has it. */
export const versusKey = (versus: Versus): string =>
  "method" in versus ? `method:${versus.method}` : `example:${versus.example}`;

/** All that the difference view can compare the current example and method with. */
export function versusChoices({ examples, methods }: Header, state: State): Versus[] {
  const others = examples.map((_, i) => i).filter((i) => i !== state.example);
  const first = others.filter((i) => state.shown.includes(i));
  const rest = others.filter((i) => !state.shown.includes(i));
  const preferred = ["rollout", "flow", "raw"];
  const rank = (name: string): number => (preferred.indexOf(name) + 4) % 4;
  const names = methods.map(({ name }) => name).filter((name) => name !== state.method);
  names.sort((a, b) => rank(a) - rank(b));
  return [
    ...[...first, ...rest].map((example) => ({ example })),
    ...names.map((method) => ({ method })),
  ];
}

/** What the difference view compares with: the choice of the state, else the first possible one. */
export function versusOf(header: Header, state: State): Versus | null {
  const choices = versusChoices(header, state);
  return choices.find((choice) => versusKey(choice) === state.versus) ?? choices[0] ?? null;
}

/** Return the state after a change. Invalid values are brought into range or ignored. */
export function changeState(header: Header, now: State, change: Partial<State>): State {
  const merged: State = { ...now, ...change };
  const { examples } = header;
  const example = between(Math.round(merged.example), 0, examples.length - 1, now.example);
  const positions = examples.map((candidate, i) => {
    const position = Array.isArray(merged.positions) ? merged.positions[i] : undefined;
    return tokenOf(position, candidate) ?? now.positions[i];
  });
  const tokens = examples.map((candidate, i) =>
    Array.isArray(merged.tokens) ? tokenOf(merged.tokens[i], candidate) : null,
  );
  const parts = examples.map((candidate, i) =>
    Array.isArray(merged.parts) ? partOf(merged.parts[i], candidate) : now.parts[i],
  );
  if (change.position !== undefined) {
    positions[example] = tokenOf(change.position, examples[example]) ?? positions[example];
    parts[example] = predictedPart(positions[example], examples[example]);
  }
  if (change.part !== undefined) parts[example] = partOf(change.part, examples[example]);
  parts.forEach((part, i) => {
    if (part) positions[i] = part[0] - 1;
  });
  if (change.token !== undefined) tokens[example] = tokenOf(change.token, examples[example]);
  const deepest = Math.max(...examples.map(({ n_layers }) => n_layers));
  const heads = Math.max(...examples.map(({ n_heads }) => n_heads));
  const methods = header.methods.map((method) => method.name);
  const views = viewsOf(header);
  return {
    view: oneOf(merged.view, views, now.view),
    method: oneOf(merged.method, methods, now.method),
    layer: Math.round(between(merged.layer, 1, deepest, now.layer)),
    example,
    shown: shownOf(merged.shown, examples.length, example, now.shown),
    versus: typeof merged.versus === "string" ? merged.versus.slice(0, 200) : now.versus,
    position: positions[example],
    part: parts[example],
    token: tokens[example],
    positions,
    parts,
    tokens,
    threshold: between(merged.threshold, 0, 1, now.threshold),
    topK: Math.round(between(merged.topK, 0, 1e6, now.topK)),
    special: flag(merged.special, now.special),
    units: oneOf(merged.units, UNITS, now.units),
    own: flag(merged.own, now.own),
    normalize: oneOf(merged.normalize, NORMALIZATIONS, now.normalize),
    fit: flag(merged.fit, now.fit),
    edges: oneOf(merged.edges, ["strongest", "all"] as const, now.edges),
    scale: oneOf(merged.scale, SCALES, now.scale),
    grid: flag(merged.grid, now.grid),
    head: headOf(merged.head, heads),
    headsOf: hasHeadRollout(examples[example])
      ? oneOf(merged.headsOf, ["attention", "rollout"] as const, now.headsOf)
      : "attention",
    opacity: between(merged.opacity, 0, 1, now.opacity),
    search: typeof merged.search === "string" ? merged.search.slice(0, 200) : now.search,
  };
}

/** Whether rollout through one head is defined: the residual connection is not in the edges. */
export const hasHeadRollout = ({ residual_weights }: Example): boolean =>
  residual_weights.length > 0;

const headOf = (value: unknown, heads: number): number | null =>
  isNumber(value) && value >= 0 && value < heads ? Math.floor(value) : null;

/** One or two examples, including the active one. */
function shownOf(value: unknown, count: number, example: number, otherwise: number[]): number[] {
  const wanted = Array.isArray(value) ? value : otherwise;
  const shown = [...new Set(wanted)].filter(
    (index) => Number.isInteger(index) && index >= 0 && index < count,
  );
  if (!shown.includes(example)) return [example];
  return shown.slice(0, 2).includes(example) ? shown.slice(0, 2) : [shown[0], example];
}

/** The layer shown for an example: at most its last. */
export const layerOf = (state: State, example: Example): number =>
  Math.min(state.layer, example.n_layers);
