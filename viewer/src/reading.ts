// One reading of the numbers: what a panel shows for a state. Views draw from it and never
// look into chunks for scores themselves.

import { itemsOf, METHODS, type Example, type Items, type Method } from "./format.ts";
import type { Numbers } from "./numbers.ts";
import { layerOf, type State } from "./state.ts";
import type { Theme } from "./theme.ts";
import { runsRightToLeft, visible } from "./visible.ts";

export type Row = Float32Array | null;

export interface Reading {
  numbers: Numbers;
  example: Example;
  state: State;
  theme: Theme;
  items: Items;
  labels: string[]; // of the items, safe to show
  names: string[]; // of the tokens, safe to show
  rightToLeft: boolean;
  layer: number;
  position: number; // a token
  item: number; // the item that holds it
  columns: number[]; // the items that are shown, in order
  rows: Record<Method, Row>; // [items], at the chosen layer
  row: Row; // that of the chosen method
  kept: boolean[]; // whether each item passes threshold and top-k, and is shown
  token: number | null; // the chosen token, or the strongest one
  chosen: boolean; // whether the reader chose it
  found: Set<number>; // items that match the search
}

const cache = new WeakMap<Example, Map<boolean, Pick<Reading, "items" | "labels">>>();
const names = new WeakMap<Example, { names: string[]; rightToLeft: boolean }>();

function labelled(example: Example, words: boolean): Pick<Reading, "items" | "labels"> {
  let known = cache.get(example);
  if (!known) cache.set(example, (known = new Map()));
  let one = known.get(words);
  if (!one) {
    const items = itemsOf(example, words);
    known.set(words, (one = { items, labels: items.labels.map(visible) }));
  }
  return one;
}

function named(example: Example): { names: string[]; rightToLeft: boolean } {
  let known = names.get(example);
  if (!known) {
    const rightToLeft = runsRightToLeft(example.tokens.filter((_, i) => !example.special[i]));
    names.set(example, (known = { names: example.tokens.map(visible), rightToLeft }));
  }
  return known;
}

/** The scores of the chosen position by one method at one layer: [items]. */
export function scoresAt(reading: Reading, method: Method, layer: number): Row {
  const { numbers, items, item, state } = reading;
  return scaled(numbers.itemRow(method, layer, items, item), state.normalize);
}

function scaled(row: Row, normalize: State["normalize"]): Row {
  if (!row || normalize === "none") return row;
  const sum = row.reduce((total, value) => total + value, 0);
  return sum > 0 ? row.map((value) => value / sum) : row;
}

/** Work out what a panel shows. Numbers that are not there yet are asked for, and null. */
export function read(numbers: Numbers, state: State, theme: Theme): Reading {
  const { example, index } = numbers;
  const { items, labels } = labelled(example, state.words);
  const position = state.positions[index];
  const layer = layerOf(state, example);
  const columns = items.labels.map((_, i) => i).filter((i) => state.special || !items.special[i]);
  const reading: Reading = {
    numbers,
    example,
    state,
    theme,
    items,
    labels,
    ...named(example),
    layer,
    position,
    item: items.of[position],
    columns,
    rows: { raw: null, rollout: null, flow: null },
    row: null,
    kept: [],
    token: state.tokens[index],
    chosen: state.tokens[index] !== null,
    found: search(labels, example, items, state.search),
  };
  // The chosen method first: what is on screen is loaded before what is in the table.
  // Flow that would take long to work out waits until it is asked for.
  for (const method of [state.method, ...METHODS]) {
    const wanted = method === state.method || numbers.quick(method, layer, position);
    if (wanted) reading.rows[method] ??= scoresAt(reading, method, layer);
  }
  reading.row = reading.rows[state.method];
  reading.kept = keep(reading.row, columns, items.labels.length, state);
  reading.token ??= strongestToken(reading);
  return reading;
}

/** Which items pass: at least the threshold's share of the largest, and among the top k. */
export function keep(
  row: Row,
  columns: readonly number[],
  count: number,
  state: Pick<State, "threshold" | "topK">,
): boolean[] {
  const kept: boolean[] = new Array(count).fill(false);
  if (!row) return kept;
  const most = Math.max(...columns.map((i) => row[i]), 0);
  const least = state.threshold * most;
  const ranked = rank(row, columns);
  const passing = state.topK > 0 ? ranked.slice(0, state.topK) : ranked;
  for (const i of passing) kept[i] = row[i] >= least;
  return kept;
}

/** Items by score, largest first; equal ones in order. */
export function rank(row: ArrayLike<number>, columns: readonly number[]): number[] {
  return [...columns].sort((a, b) => row[b] - row[a] || a - b);
}

/** Items in the order in which they deserve a label: chosen, found, then by score. */
export function byWorth(reading: Reading): number[] {
  const { item, items, token, chosen, found, row, columns } = reading;
  const goal =
    token !== null && (chosen || reading.state.method === "flow") ? [items.of[token]] : [];
  return [item, ...goal, ...found, ...(row ? rank(row, columns) : columns)];
}

/** The strongest token that is neither special nor the position itself, else any. */
function strongestToken(reading: Reading): number | null {
  const { numbers, state, layer, position, example } = reading;
  const row = numbers.row(state.method, layer, position);
  if (!row) return null;
  const all = example.tokens.map((_, i) => i);
  const plain = all.filter((i) => !example.special[i] && i !== position);
  return rank(row, plain.length ? plain : all)[0];
}

function search(
  labels: readonly string[],
  example: Example,
  items: Items,
  text: string,
): Set<number> {
  const wanted = text.trim().toLocaleLowerCase();
  const found = new Set<number>();
  if (!wanted) return found;
  labels.forEach((label, i) => {
    const own = `${label}\n${items.labels[i]}`.toLocaleLowerCase();
    const parts = items.groups[i].some((t) => example.tokens[t].toLocaleLowerCase() === wanted);
    if (own.includes(wanted) || parts) found.add(i);
  });
  return found;
}

/** The largest score shown by a panel, which gets the darkest color. */
export const largest = (row: Row, columns: readonly number[]): number =>
  row ? columns.reduce((most, i) => Math.max(most, row[i]), 0) : 0;
