// A snapshot: what a panel shows for one state, computed once per redraw. Views draw from it and
// do not read chunks for scores themselves.

import type { Theme } from "../paint/theme.ts";
import { itemsOf, type Example, type Items, type UnitName } from "./header.ts";
import { columnOf, type Scores } from "./scores.ts";
import { layerOf, type Part, type State, wholePart } from "./state.ts";
import { runsRightToLeft, visible } from "./text.ts";

export type Row = Float32Array | null; // null: not available yet

export interface Snapshot {
  scores: Scores;
  example: Example;
  state: State;
  theme: Theme;
  items: Items; // tokens, or words
  labels: string[]; // of the items, safe to show
  marks: string[]; // what tells items with the same label apart, such as " (2 of 3)"; else ""
  names: string[]; // of the tokens, safe to show
  rightToLeft: boolean;
  layer: number;
  position: number; // the target position: a token
  item: number; // the item of the target position
  part: Part | null; // the explained part of the answer
  sources: readonly number[]; // the positions that are explained together
  columns: number[]; // the items shown, in order
  ranked: number[]; // those that are ranked: of an answer, the prompt unless the state says so
  rows: Record<string, Row>; // method -> [items], at the selected layer
  row: Row; // that of the selected method
  unavailable: string | null; // why that row can never be shown
  kept: boolean[]; // whether each item is shown and passes threshold and top-k
  token: number | null; // the selected token, or the one with the highest score
  chosen: boolean; // whether the user selected it
  matches: Set<number>; // items that match the search
  reverse: Row; // how much of the selected token went to each item of the answer, in the text view
  reversed: boolean; // whether that is shown
  versus: Snapshot | null; // what it is compared with, in the difference view
  notes: string[]; // what the row does not tell; only for what the data explains
}

type Labels = Pick<Snapshot, "items" | "labels" | "marks">;
type Names = Pick<Snapshot, "names" | "rightToLeft">;

const labelCache = new WeakMap<Example, Map<UnitName, Labels>>();
const nameCache = new WeakMap<Example, Names>();

function labelsOf(example: Example, units: UnitName): Labels {
  let cached = labelCache.get(example);
  if (!cached) labelCache.set(example, (cached = new Map()));
  let labels = cached.get(units);
  if (!labels) {
    const items = itemsOf(example, units);
    const shown = items.labels.map(visible);
    cached.set(units, (labels = { items, labels: shown, marks: marksOf(example, items, shown) }));
  }
  return labels;
}

/** Number equal labels; those of an encoder-decoder also say whether they are source or target. */
function marksOf({ n_source }: Example, { groups }: Items, labels: readonly string[]): string[] {
  const side = groups.map(([token]) => (n_source ? (token < n_source ? "source" : "target") : ""));
  const keys = labels.map((label, i) => `${side[i]}\n${label}`);
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  const seen = new Map<string, number>();
  return keys.map((key, i) => {
    const number = (seen.get(key) ?? 0) + 1;
    seen.set(key, number);
    const count = counts.get(key) ?? 1;
    const parts = [side[i], count > 1 ? `${number} of ${count}` : ""].filter(Boolean);
    return parts.length ? ` (${parts.join(", ")})` : "";
  });
}

function namesOf(example: Example): Names {
  let names = nameCache.get(example);
  if (!names) {
    const rightToLeft = runsRightToLeft(example.labels.filter((_, i) => !example.special[i]));
    nameCache.set(example, (names = { names: example.labels.map(visible), rightToLeft }));
  }
  return names;
}

/** The scores of the explained positions by one method at one layer: [items]. */
export function scoresAt(
  { scores, items, sources, state }: Snapshot,
  method: string,
  layer: number,
): Row {
  if (state.normalize === "receptive_field") {
    return scores.normalizedRow(method, layer, items, sources);
  }
  return normalized(scores.itemRow(method, layer, items, sources), state.normalize);
}

/** The scores of several sets of positions by the selected method, as `scoresAt`. */
export function scoresOf(
  { scores, items, state, layer }: Snapshot,
  sets: readonly (readonly number[])[],
): Row[] {
  if (state.normalize === "receptive_field") {
    return sets.map((set) => scores.normalizedRow(state.method, layer, items, set));
  }
  const rows = scores.itemRows(state.method, layer, items, sets);
  return rows.map((row) => normalized(row, state.normalize));
}

/** A token, word or other item of the answer. */
export interface AnswerItem {
  item: number;
  part: Part;
  sources: number[]; // the positions that predict its tokens
}

const answerCache = new WeakMap<Items, AnswerItem[]>();

/** The items of the answer; items that are partly in the prompt count with their part of it. */
export function answerItems({ example, items }: Pick<Snapshot, "example" | "items">): AnswerItem[] {
  const { answer } = example;
  if (!answer) return [];
  const cached = answerCache.get(items);
  if (cached) return cached;
  const list = items.groups.flatMap((group, item) => {
    const own = group.filter((token) => token >= answer.first);
    if (!own.length) return [];
    const part: Part = [own[0], own[own.length - 1]];
    return [{ item, part, sources: own.map((token) => token - 1) }];
  });
  answerCache.set(items, list);
  return list;
}

/** The positions that a part of the answer is predicted at. */
function sourcesOf({ scores, example, items, item, part, position }: Snapshot): readonly number[] {
  if (part && example.answer) {
    const [first, last] = wholePart(example.answer);
    if (part[0] === first && part[1] === last) return scores.explained;
    return Array.from({ length: part[1] - part[0] + 1 }, (_, i) => part[0] - 1 + i);
  }
  const explained = !example.answer && scores.explained.length > 1;
  return explained && position === example.position ? scores.explained : items.groups[item];
}

/** Whether the whole answer is explained. */
export const explainsWhole = ({ part, scores, sources }: Snapshot): boolean =>
  part !== null && scores.isExplained(sources);

/** Why the scores of the target position can never be shown, or null if they can. */
export function missing(snapshot: Snapshot, method: string, layer: number): string | null {
  const { scores, items, sources, state } = snapshot;
  return state.normalize === "receptive_field"
    ? scores.unnormalized(method, layer, items, sources)
    : scores.unavailable(method, layer, items, sources);
}

/** The notes on the row of the selected method. Those on unnormalized rows say so if need be. */
function notesOf(snapshot: Snapshot): string[] {
  const { scores, example, state, items, item, layer, row, sources, part } = snapshot;
  const explained = scores.isExplained(sources) || (!part && item === items.of[example.position]);
  if (!row || !explained || state.view === "heads") return [];
  const shown = state.special || !items.special.includes(true) ? "show" : "hide";
  const normalize = state.normalize === "rows" ? "none" : state.normalize;
  const merged = items.labels.length < scores.n;
  if (merged && items.name !== "words") return [];
  const kind = merged ? "words" : "tokens";
  const notes = scores.notes(`${state.method}/${layer}/${normalize}/${kind}/${shown}`);
  if (!notes.length || normalize === state.normalize) return notes.map(visible);
  return [`Before normalization: ${visible(notes[0])}`, ...notes.slice(1).map(visible)];
}

function normalized(row: Row, normalize: State["normalize"]): Row {
  if (!row || normalize === "none") return row;
  const sum = row.reduce((total, value) => total + value, 0);
  return sum > 0 ? row.map((value) => value / sum) : row;
}

/** Compute what a panel shows. Missing scores are requested and null for now. */
export function takeSnapshot(scores: Scores, state: State, theme: Theme): Snapshot {
  const { example, index } = scores;
  const { items, labels, marks } = labelsOf(example, state.units);
  const position = state.positions[index];
  const item = items.of[position];
  const layer = layerOf(state, example);
  const columns = items.labels.map((_, i) => i).filter((i) => state.special || !items.special[i]);
  const snapshot: Snapshot = {
    scores,
    example,
    state,
    theme,
    items,
    labels,
    marks,
    ...namesOf(example),
    layer,
    position,
    item,
    part: state.parts[index],
    sources: [],
    columns,
    ranked: columns,
    rows: {},
    row: null,
    unavailable: null,
    kept: [],
    token: state.tokens[index],
    chosen: state.tokens[index] !== null,
    matches: search(labels, example, items, state.search),
    reverse: null,
    reversed: state.view === "text" && example.answer !== null && state.tokens[index] !== null,
    versus: null,
    notes: [],
  };
  snapshot.sources = sourcesOf(snapshot);
  if (snapshot.part && !state.own) snapshot.ranked = columns.filter((i) => inPrompt(snapshot, i));
  snapshot.unavailable = missing(snapshot, state.method, layer);
  // The selected method first: it is on screen, the others are in the table.
  // Other flow that takes long to compute waits until it is selected.
  for (const name of [state.method, ...example.methods.map((method) => method.name)]) {
    const stored = state.normalize === "receptive_field";
    const wanted = stored || name === state.method || scores.isFast(name, layer, snapshot.sources);
    snapshot.rows[name] ??= wanted ? scoresAt(snapshot, name, layer) : null;
  }
  snapshot.row = snapshot.rows[state.method];
  const shown = state.view === "text" ? snapshot.ranked : columns;
  snapshot.kept = keep(snapshot.row, shown, items.labels.length, state);
  snapshot.token ??= topToken(snapshot);
  if (snapshot.reversed) snapshot.reverse = reverseOf(snapshot);
  snapshot.notes = snapshot.reversed ? [] : notesOf(snapshot);
  return snapshot;
}

/** How much of the selected token or item went to each item of the answer: [items]. */
function reverseOf(snapshot: Snapshot): Row {
  const { scores, state, layer, items, token } = snapshot;
  const own = answerItems(snapshot);
  const sets = own.map(({ sources }) => sources);
  const to = items.of[token ?? 0];
  const column =
    state.normalize === "none"
      ? scores.itemColumn(state.method, layer, items, sets, to)
      : columnOf(scoresOf(snapshot, sets), to);
  if (!column) return null;
  const row = new Float32Array(items.labels.length);
  own.forEach(({ item }, i) => (row[item] = column[i]));
  return row;
}

/** Whether an item is before the answer. */
export const inPrompt = ({ example, items }: Snapshot, item: number): boolean =>
  !example.answer || items.groups[item][0] < example.answer.first;

/** Which items have at least the threshold's share of the maximum and are among the top k. */
export function keep(
  row: Row,
  columns: readonly number[],
  count: number,
  state: Pick<State, "threshold" | "topK">,
): boolean[] {
  const kept: boolean[] = new Array(count).fill(false);
  if (!row) return kept;
  const min = state.threshold * largest(row, columns);
  const ranked = rank(row, columns);
  const top = state.topK > 0 ? ranked.slice(0, state.topK) : ranked;
  for (const i of top) kept[i] = row[i] >= min;
  return kept;
}

/** Items sorted by score, largest first; ties in order. */
export function rank(row: ArrayLike<number>, columns: readonly number[]): number[] {
  return [...columns].sort((a, b) => row[b] - row[a] || a - b);
}

/** The largest score of some items. */
export const largest = (row: Row, columns: readonly number[]): number =>
  row ? columns.reduce((max, i) => Math.max(max, row[i]), 0) : 0;

/** The first item of the target of an encoder-decoder; null if there is none, or if it is hidden. */
export function firstTarget(
  { example, items }: Snapshot,
  columns: readonly number[],
): number | null {
  if (!example.n_source) return null;
  return columns.find((item) => items.groups[item][0] >= example.n_source) ?? null;
}

/** Items by priority for a label: target position, traced token, matches, then by score. */
export function byLabelPriority(snapshot: Snapshot): number[] {
  const { item, matches, row, columns } = snapshot;
  const traced = tracedItem(snapshot);
  const first = traced === null ? [] : [traced];
  return [item, ...first, ...matches, ...(row ? rank(row, columns) : columns)];
}

/** The item of the traced token: the selected one, or for flow the one with the highest score. */
export function tracedItem({ token, chosen, state, items }: Snapshot): number | null {
  return token !== null && (chosen || state.method === "flow") ? items.of[token] : null;
}

/** The top token that is neither special nor the target position; else the top token. */
function topToken(snapshot: Snapshot): number | null {
  const { scores, state, layer, sources, example, part } = snapshot;
  const row = scores.row(state.method, layer, sources);
  if (!row) return null;
  const all = example.tokens.map((_, i) => i);
  const end = (part && example.answer?.first) ?? all.length;
  const plain = all.filter((i) => !example.special[i] && !sources.includes(i) && i < end);
  return rank(row, plain.length ? plain : all)[0];
}

function search(
  labels: readonly string[],
  example: Example,
  items: Items,
  text: string,
): Set<number> {
  const wanted = text.trim().toLocaleLowerCase();
  const matches = new Set<number>();
  if (!wanted) return matches;
  labels.forEach((label, i) => {
    const own = `${label}\n${items.labels[i]}`.toLocaleLowerCase();
    const tokens = items.groups[i].some((t) => example.tokens[t].toLocaleLowerCase() === wanted);
    if (own.includes(wanted) || tokens) matches.add(i);
  });
  return matches;
}
