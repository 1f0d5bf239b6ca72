// The text of the viewer: names of views, hints, captions, keyboard help and tooltip lines.
// Titles and summaries of methods come from the data.

import { methodOf, type Example, type Method } from "../data/header.ts";
import { explainsWhole, largest, missing, rank, type Snapshot } from "../data/snapshot.ts";
import type { Normalize, Part, ViewName } from "../data/state.ts";
import { digits, percent, shorten, visible } from "../data/text.ts";

export const VIEW_NAMES: Record<ViewName, string> = {
  text: "Text",
  alignment: "Token map",
  flow: "Flow graph",
  map: "Heatmap",
  heads: "Heads",
  difference: "Difference",
  image: "Image",
};

const VIEW_HINTS: Record<ViewName, string> = {
  text: "The stronger the shading, the higher the score for the outlined position. Click a token to select it as target position.",
  alignment:
    "Rows: the answer, columns: the tokens before it. Click a cell or a row to explain that part of the answer.",
  flow: "Input tokens at the bottom, layers above. Click a node to select it as target position, or an input token to trace it.",
  map: "One row per layer, one column per token: the scores for the target position. Click a cell to select its layer and token.",
  heads:
    "All heads of a layer (rows: queries, columns: keys). Click a head to enlarge it, then a row to select it as target position.",
  difference:
    "Two methods, texts or models, token by token. Blue: a higher share for the first; orange: for the second.",
  image:
    "The brighter a patch, the higher its score for the target position. Click a patch to select it as target position.",
};

const ANSWER_HINT =
  "The prompt is shaded by how much of it went into the underlined part of the answer. Click a token of the answer, or drag over several; click a token of the prompt to see where it went. Dotted: probability below 30%.";
const REVERSE_HINT =
  "The answer is shaded by how much of the outlined token went into each part of it. Click the answer to explain it, or press Escape.";

/** How to read the scores that the page computes. */
const METHOD_NOTES: Record<string, string> = {
  raw: "Scores refer to positions one layer below, which already mix several tokens.",
  rollout: "The scores of a position sum to 1 if the edges do.",
  flow: "Edge weights are capacities; the smallest cut between token and position limits the score.",
};

const WORD_FLOW = "The flow to a word of several tokens is one maximum flow to all of them.";

export const KEYS: [string, string][] = [
  ["← →", "Previous or next target position"],
  ["↑ ↓", "Layer up or down (image view: patch above or below)"],
  ["Page ↑ ↓", "Layer up or down in every view"],
  ["Shift ← →", "Previous or next traced token (heads view: head; text with an answer: extend)"],
  ["A", "Explain the whole answer"],
  ["Home End", "First or last position"],
  ["Esc", "Clear selection"],
  ["1 – 9", "Views from left to right"],
  ["M", "Next method"],
  ["S", "Show or hide special tokens"],
  ["W", "Words or tokens"],
  ["/", "Find a token (Enter: next match)"],
  ["T", "Show or hide the score table"],
  ["?", "Show this help"],
];

export const SELECT_HINT = "Click to select as target position";

export const quoted = (label: string): string => `“${label}”`;

/** An item in a sentence, told apart from others with the same label. */
export const nameOf = ({ labels, marks }: Snapshot, item: number): string =>
  quoted(labels[item]) + marks[item];

/** The text of a part of the answer, as far as it is known. */
export function partText({ example }: Snapshot, [first, last]: Part): string {
  const tokens = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const runs = tokens.map((token) => example.runs[token] ?? "").join("");
  const labels = tokens.map((token) => example.labels[token]).join(" ");
  return visible(runs.trim() || labels);
}

/** What is explained, in a sentence: a position, or a part of the answer. */
export function targetName(snapshot: Snapshot): string {
  const { part, sources, item, items } = snapshot;
  if (part) {
    if (explainsWhole(snapshot) && sources.length > 1) return "the answer";
    return quoted(shorten(partText(snapshot, part), 60));
  }
  const several = sources.length > 1 && sources.some((source) => items.of[source] !== item);
  return several ? `the mean of ${sources.length} positions` : nameOf(snapshot, item);
}

/** A layer in a sentence: its number, and its name in an encoder-decoder. */
export const layerName = ({ layer_names }: Example, layer: number): string =>
  layer_names.length ? `layer ${layer} (${visible(layer_names[layer - 1])})` : `layer ${layer}`;

/** A short name of a layer for axes: its number, or E1, D1 self, D1 cross. */
export const shortLayer = ({ layer_names }: Example, layer: number): string =>
  layer_names.length
    ? visible(layer_names[layer - 1])
        .replace("encoder ", "E")
        .replace("decoder ", "D")
        .replace(",", "")
        .replace("-attention", "")
    : String(layer);

export const titleOf = (example: Example, method: string): string =>
  visible(methodOf(example, method).title);

/** The summary of a method as a sentence, with a note for those that the page computes. */
export function describeMethod({ name, summary, computed, check }: Method): string {
  const sentence = summary && visible(summary[0].toUpperCase() + summary.slice(1));
  const note = (computed === "page" && METHOD_NOTES[name]) || "";
  return [sentence, note, check && `Check: ${visible(check)}`].filter(Boolean).join(" ");
}

/** The summary of the selected method, with a note where tokens are merged into words. */
export function methodSummary(snapshots: readonly Snapshot[]): string {
  const { state, example } = snapshots[0];
  const merged = snapshots.some(({ items, columns }) =>
    columns.some((i) => items.groups[i].length > 1),
  );
  const summed =
    state.method === "flow" && state.units !== "tokens" && state.normalize === "none" && merged;
  const text = describeMethod(methodOf(example, state.method));
  return summed ? `${text} ${WORD_FLOW}` : text;
}

/** What the selected view shows and what a click does. */
export function viewHint(snapshots: readonly Snapshot[]): string {
  const { view } = snapshots[0].state;
  if (view === "text" && snapshots.some(({ example }) => example.answer)) {
    return snapshots.some(({ chosen }) => chosen) ? REVERSE_HINT : ANSWER_HINT;
  }
  const hidden = snapshots.find(({ item, columns }) => !columns.includes(item));
  if (view !== "text" || !hidden) return VIEW_HINTS[view];
  const position = `${nameOf(hidden, hidden.item)}, which is hidden`;
  return VIEW_HINTS.text.replace("the outlined position", () => position);
}

export const NORMALIZATION_NAMES: Record<Normalize, string> = {
  none: "not normalized",
  rows: "rows normalized",
  receptive_field: "normalized by the receptive field",
};

/** The settings of an example in one line: model, edges, residual weight, heads, normalization. */
export function settingsOf({ settings, rounding }: Example, normalize: Normalize): string {
  const parts = settings.length ? settings.map(visible) : ["attention weights"];
  if (rounding !== null) {
    const error = `${Number((100 * rounding).toPrecision(1))}%`;
    parts.push(`weights rounded to ${error} (scores of the explained position are not)`);
  }
  return [...parts, NORMALIZATION_NAMES[normalize]].join("\u00a0· "); // no break before the dot
}

const SHADED: readonly ViewName[] = ["text", "map", "heads", "alignment"];
const FEW = 4; // items; with so few, all colors are easy to see
const DOMINANT = 3; // times the largest score of the other tokens

/** Whether special tokens take most of the color scale. */
export const specialDominate = (snapshots: readonly Snapshot[]): boolean =>
  SHADED.includes(snapshots[0].state.view) &&
  snapshots.some(({ row, ranked, items }) => {
    if (ranked.length <= FEW) return false;
    const special = ranked.filter((i) => items.special[i]);
    const others = ranked.filter((i) => !items.special[i]);
    return others.length > 0 && largest(row, special) > DOMINANT * largest(row, others);
  });

/** The selected layer, such as: layer 2 of 6. */
export function describeLayerOf({ layer, example }: Snapshot): string {
  const [number, ...name] = layerName(example, layer).split(" (");
  return [`${number} of ${example.n_layers}`, ...name].join(" (");
}

/** The target position and its layer, such as: “[CLS]” at layer 2 of 6. */
export function describeTarget(snapshot: Snapshot): string {
  return `${targetName(snapshot)} at ${describeLayerOf(snapshot)}`;
}

/** Method and target position, as a caption. */
export const describeRow = (snapshot: Snapshot): string =>
  `${titleOf(snapshot.example, snapshot.state.method)} for ${describeTarget(snapshot)}`;

const ADDITIVE = ["raw", "rollout"]; // scores of tokens that may be added

/** How much of the score of a part of the answer each segment of the text has, as a sentence. */
export function segmentShares(snapshot: Snapshot): string {
  const { scores, example, state, layer, sources, part, reversed } = snapshot;
  const shown = part && !reversed && ADDITIVE.includes(state.method) && state.view !== "heads";
  const row = shown ? scores.row(state.method, layer, sources) : null;
  if (!row || state.normalize === "receptive_field") return "";
  const total = row.reduce((sum, value) => sum + value, 0);
  const shares = example.segments.map(([name, first, end]) => {
    const sum = row.subarray(first, end).reduce((total, value) => total + value, 0);
    return [visible(name), sum / total] as const;
  });
  const rest = 1 - shares.reduce((sum, [, share]) => sum + share, 0);
  const chat = example.segments.some(([name]) => name === "user");
  const others = chat ? "template" : example.segments.length > 1 ? "rest" : "prompt";
  const last = rest > 0.0005 ? [[others, rest] as const] : [];
  const named = [...shares, ...last].map(([name, share]) => `${name} ${percent(share)}`);
  return `Shares: ${named.join(", ")}.`;
}

/** The caption and the top tokens, for screen readers. */
export function announcement(snapshot: Snapshot): string {
  const { row, ranked, labels, marks, unavailable } = snapshot;
  if (!row) return `${describeRow(snapshot)}: ${unavailable ?? "computing…"}`;
  const top = rank(row, ranked)
    .slice(0, 3)
    .map((i) => `${labels[i]}${marks[i]} ${digits(row[i])}`)
    .join(", ");
  return `${describeRow(snapshot)}: ${top}.`;
}

/** A score as text: "…" while it is loading, "–" where it is not available. */
export function scoreText(snapshot: Snapshot, method: string, value: number | undefined): string {
  if (value !== undefined && !Number.isNaN(value)) return digits(value);
  return missing(snapshot, method, snapshot.layer) ? "–" : "…";
}

/** Tooltip lines of an item: its label, the tokens as the vocabulary spells them where that differs,
 * and its scores. */
export const itemLines = (snapshot: Snapshot, item: number): string[] => [
  snapshot.labels[item] + snapshot.marks[item],
  ...pieceLine(snapshot, item),
  ...scoreLines(snapshot, item),
];

function pieceLine({ example, items, labels }: Snapshot, item: number): string[] {
  const pieces = items.groups[item].map((token) => visible(example.tokens[token]));
  const title = pieces.length > 1 ? "Pieces" : "Piece";
  return pieces.length === 1 && pieces[0] === labels[item] ? [] : [`${title}: ${pieces.join(" ")}`];
}

/** Tooltip lines with the scores of an item by every method. */
export const scoreLines = (snapshot: Snapshot, item: number): string[] =>
  snapshot.example.methods.map(({ name, title }) => {
    const score = scoreText(snapshot, name, snapshot.rows[name]?.[item]);
    return `${visible(title)}: ${score}`;
  });
