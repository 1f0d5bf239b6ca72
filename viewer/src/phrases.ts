// The words of the viewer: what methods are, what a view shows, what one can do, what is chosen.

import type { Method } from "./format.ts";
import { largest, rank, type Reading } from "./reading.ts";
import type { State, ViewName } from "./state.ts";
import { digits } from "./visible.ts";

export const METHOD_NAMES: Record<Method, string> = {
  raw: "Raw attention",
  rollout: "Rollout",
  flow: "Flow",
};

export const METHOD_MEANING: Record<Method, string> = {
  raw: "How strongly the position looks at each position one layer below. Those are already mixtures of tokens, which raw attention ignores.",
  rollout:
    "Attention multiplied down through all layers: the share of each input token that arrives. The shares add up to 1.",
  flow: "Attention as pipes: the most that could run from each input token through all layers. The narrowest cut on the way limits it.",
};

export const VIEW_NAMES: Record<ViewName, string> = {
  text: "Text",
  flow: "Flow graph",
  map: "Map",
  heads: "Heads",
  image: "Image",
};

export const VIEW_HINTS: Record<ViewName, string> = {
  text: "The stronger a word is shaded, the more of it reaches the outlined position. Click a word to look from it.",
  flow: "Tokens at the bottom, layers upward. Click a dot to look from it; click a token to see what runs to it.",
  map: "One row a layer, one column a token: how much reaches the position at each layer. Click a cell to choose its layer and token.",
  heads:
    "Every head of the layer: rows look, columns are looked at. Click a head to enlarge it, a row to look from it.",
  image:
    "The brighter a patch, the more of it reaches the position. Click a patch to look from it.",
};

const FEW = 4; // items; with so few one sees at a glance what takes the color
const FAR = 3; // times the highest other score

/** What the chosen method is, and what its scores are where tokens were merged to words. */
export function meaningOf(readings: readonly Reading[]): string {
  const { method, words, normalize } = readings[0].state;
  const merged = readings.some(({ items, columns }) =>
    columns.some((i) => items.groups[i].length > 1),
  );
  const summed = method === "flow" && words && normalize === "none" && merged;
  const sum = " A word of several tokens has the sum of their flows, which can exceed 1.";
  return METHOD_MEANING[method] + (summed ? sum : "");
}

/** What a view shows, and what one can do there. */
export function hintOf(readings: readonly Reading[]): string {
  const { view } = readings[0].state;
  const hidden = readings.find(({ item, columns }) => !columns.includes(item));
  if (view !== "text" || !hidden) return VIEW_HINTS[view];
  const position = `${quoted(hidden.labels[hidden.item])}, which is hidden`;
  return VIEW_HINTS.text.replace("the outlined position", () => position);
}

const SHADED: readonly ViewName[] = ["text", "map", "heads"];

/** Whether special tokens take most of the colors, so that the others are hard to see. */
export const areDimmed = (readings: readonly Reading[]): boolean =>
  SHADED.includes(readings[0].state.view) && readings.some(isDimmed);

/** Whether a special token that is shown is far above all others. */
function isDimmed({ row, columns, items }: Reading): boolean {
  if (columns.length <= FEW) return false;
  const special = columns.filter((i) => items.special[i]);
  const others = columns.filter((i) => !items.special[i]);
  return others.length > 0 && largest(row, special) > FAR * largest(row, others);
}

export const KEYS: [string, string][] = [
  ["← →", "the position one looks from"],
  ["↑ ↓", "the layer; in the image view, the patch above or below"],
  ["Page ↑ ↓", "the layer, in every view"],
  ["Shift ← →", "the token at the end of the flow; in the heads view, the head"],
  ["Home End", "the first or the last position"],
  ["Esc", "give up the chosen token or head"],
  ["1 – 5", "text, flow graph, map, heads, image"],
  ["M", "next method"],
  ["S", "special tokens on or off"],
  ["W", "words or subwords"],
  ["/", "search for a token; Enter goes to the next"],
  ["T", "open the numbers as a table"],
  ["?", "this help"],
];

export const quoted = (label: string): string => `“${label}”`;

/** What is looked at, in one sentence. */
export function lookingFrom(reading: Reading): string {
  const { labels, item, layer, example, state } = reading;
  const name = METHOD_NAMES[state.method].toLowerCase();
  const top = layer === example.n_layers && layer > 1 ? ", the last" : "";
  return `What reaches ${quoted(labels[item])} at layer ${layer}${top}, by ${name}`;
}

/** The position and its strongest tokens, for the live region. */
export function spoken(reading: Reading): string {
  const { row, columns, labels } = reading;
  if (!row) return `${lookingFrom(reading)}: being worked out.`;
  const top = rank(row, columns)
    .slice(0, 3)
    .map((i) => `${labels[i]} ${digits(row[i])}`)
    .join(", ");
  return `${lookingFrom(reading)}: ${top}.`;
}

/** Tooltip lines with the three scores of an item. */
export function scoreLines(reading: Reading, item: number): string[] {
  const { rows } = reading;
  return (Object.keys(METHOD_NAMES) as Method[]).map((method) => {
    const row = rows[method];
    return `${METHOD_NAMES[method]} ${row ? digits(row[item]) : "…"}`;
  });
}

export const isToggled = (state: State): string =>
  state.special ? "" : "Special tokens are hidden.";
