// The difference view: two methods, texts or models, token by token. Above, a heatmap of layers ×
// tokens; below, the differences at the selected layer as bars.

import { type Differences, type Pair, pairsOf, subtract } from "../data/difference.ts";
import { scoresAt, type Snapshot } from "../data/snapshot.ts";
import { digits, shorten, visible } from "../data/text.ts";
import { type Axis, makeAxis, paintLabel, thinLabels } from "../paint/axis.ts";
import { make } from "../paint/dom.ts";
import type { Painter } from "../paint/painter.ts";
import { shade } from "../paint/theme.ts";
import { describeRow, quoted, shortLayer } from "./captions.ts";
import { messageScene, type Scene, type Target } from "./scene.ts";

const TOP = 16;
const LEFT = 30;
const NAMED = 66; // with names of layers
const BARS = 150; // height of both halves together
const GAP = 26; // between heatmap and bars

/** What is compared: two snapshots, and their differences at every layer that both have. */
interface Comparison {
  one: Snapshot;
  other: Snapshot;
  pairs: Pair[];
  labels: string[]; // of the pairs
  current: Differences; // at the selected layer
  layers: Differences[]; // layer 1 first; empty if the numbers of layers differ
  max: number; // the largest difference in either direction
}

function compare(one: Snapshot, other: Snapshot): Comparison {
  const pairs = pairsOf(one, other);
  const current = subtract(pairs, one.row, other.row);
  const count = one.example.n_layers;
  const layers =
    other.example.n_layers === count
      ? Array.from({ length: count }, (_, l) =>
          subtract(
            pairs,
            scoresAt(one, one.state.method, l + 1),
            scoresAt(other, other.state.method, l + 1),
          ),
        )
      : [];
  const all = [current, ...layers].flatMap(({ values }) => values.map((v) => Math.abs(v ?? 0)));
  const labels = pairs.map((pair) => labelOf(one, other, pair));
  return { one, other, pairs, labels, current, layers, max: Math.max(1e-9, ...all) };
}

/** The label of a pair: one label if both are equal. */
function labelOf(one: Snapshot, other: Snapshot, { a, b }: Pair): string {
  const first = a === null ? "–" : one.labels[a];
  const second = b === null ? "–" : other.labels[b];
  return first === second ? first : `${first} | ${second}`;
}

/** What is compared in words: method, position and layer, and the example if there are several. */
function describeSide(snapshot: Snapshot, several: boolean): string {
  const name = several ? ` in ${quoted(shorten(visible(snapshot.example.name), 50))}` : "";
  return describeRow(snapshot) + name;
}

const signed = (value: number): string =>
  value === 0 ? "0" : `${value > 0 ? "+" : "−"}${digits(Math.abs(value))}`;

interface Layout {
  axis: Axis;
  cell: number; // height of a cell; 0 without a heatmap
  bars: number; // the y coordinate of difference 0
  height: number;
}

function lay({ one, layers, labels }: Comparison, width: number, room: number): Layout {
  const left = one.example.layer_names.length ? NAMED : LEFT;
  const items = labels.map((_, i) => i);
  const limits = { min: 13, max: 92, fit: one.state.fit };
  const axis = makeAxis(labels, items, one.rightToLeft, left, width - left - 8, limits);
  const space = room - TOP - GAP - BARS - axis.labelHeight;
  const cell = layers.length ? Math.max(6, Math.min(22, Math.floor(space / layers.length))) : 0;
  const bars = TOP + cell * layers.length + GAP + BARS / 2;
  return { axis, cell, bars, height: bars + BARS / 2 + axis.labelHeight + 4 };
}

/** room: the height in which the drawing should fit. */
export function differenceScene(snapshot: Snapshot, width: number, room = 640): Scene {
  const other = snapshot.versus;
  if (!other) return messageScene(width, "There is nothing to compare with.");
  const comparison = compare(snapshot, other);
  const layout = lay(comparison, width, room);
  const { axis, cell, height, bars } = layout;
  const largest = [...comparison.labels.keys()].sort(
    (i, j) =>
      Math.abs(comparison.current.values[j] ?? 0) - Math.abs(comparison.current.values[i] ?? 0),
  );
  thinLabels(axis, largest);
  return {
    width: axis.left + axis.width + 8,
    height,
    focus: null,
    note: [{ text: noteOf(comparison) }],
    waiting: !comparison.current.a || !comparison.current.b,
    paint: (painter) => {
      paintHeatmap(painter, comparison, layout);
      paintBars(painter, comparison, layout);
    },
    hit: (x, y) => hit(comparison, layout, x, y),
    paintHover: (painter, target) => {
      const [layer, column] = target.key.split("/").map(Number);
      const x = axis.left + column * axis.step;
      const style = { stroke: snapshot.theme.ink, width: 1.5 };
      if (layer) painter.rect(x, rowTop(comparison, layout, layer), axis.step, cell, style);
      else painter.rect(x, bars - BARS / 2, axis.step, BARS, style);
    },
  };
}

function noteOf({ one, other, pairs }: Comparison): string {
  const several = one.example !== other.example;
  const sides = `${describeSide(one, several)} (blue, +) minus ${describeSide(other, several)} (orange, −).`;
  const alone = pairs.filter(({ a, b }) => a === null || b === null).length;
  const unmatched = alone ? ` ${alone} without a counterpart.` : "";
  const depth =
    one.example.n_layers === other.example.n_layers
      ? ""
      : " The models have different numbers of layers, so there is no heatmap of all layers.";
  return `${sides} Scores are shares of their sum.${unmatched}${depth}`;
}

const rowTop = ({ layers }: Comparison, { cell }: Layout, layer: number): number =>
  TOP + (layers.length - layer) * cell;

function paintHeatmap(painter: Painter, comparison: Comparison, layout: Layout): void {
  const { one, layers, max } = comparison;
  const { axis, cell } = layout;
  if (!layers.length) return;
  const { packed } = one.theme.diverging;
  painter.cells(axis.left, TOP, axis.width, cell * layers.length, {
    columns: axis.columns.length,
    rows: layers.length,
    cell: (c, r) => {
      const value = layers[layers.length - 1 - r].values[axis.columns[c]];
      return value === null ? 0 : packed[shade((value / max + 1) / 2)];
    },
  });
  const step = Math.ceil(11 / cell);
  for (let layer = 1; layer <= layers.length; layer++) {
    const chosen = layer === one.layer;
    if (!chosen && (layer % step !== 0 || Math.abs(layer - one.layer) < step)) continue;
    const y = rowTop(comparison, layout, layer) + cell / 2 + 4;
    painter.text(shortLayer(one.example, layer), axis.left - 8, y, {
      size: 11,
      align: "right",
      weight: chosen ? 700 : 400,
      fill: chosen ? one.theme.accent : one.theme.quiet,
    });
  }
  painter.rect(axis.left - 1, rowTop(comparison, layout, one.layer), axis.width + 2, cell, {
    stroke: one.theme.accent,
    width: 2,
    radius: 2,
  });
}

function paintBars(painter: Painter, comparison: Comparison, { axis, bars }: Layout): void {
  const { one, labels, current } = comparison;
  const { theme } = one;
  const most = Math.max(1e-9, ...current.values.map((value) => Math.abs(value ?? 0)));
  const half = BARS / 2 - 14;
  const wide = Math.min(30, axis.step * 0.7);
  painter.line(axis.left, bars, axis.left + axis.width, bars, { stroke: theme.quiet, width: 1 });
  labels.forEach((label, i) => {
    const value = current.values[i] ?? 0;
    const tall = (Math.abs(value) / most) * half;
    const x = axis.x(i);
    const up = value > 0;
    painter.rect(x - wide / 2, up ? bars - tall : bars, wide, Math.max(tall, 0.5), {
      fill: up ? theme.accent : theme.bottleneck,
    });
    if (axis.step >= 38) {
      const y = up ? bars - tall - 4 : bars + tall + 12;
      painter.text(signed(value), x, y, { size: 11, align: "center", fill: theme.quiet });
    }
    const { a, b } = comparison.pairs[i];
    const match = a !== null && one.matches.has(a);
    const fill = match ? theme.match : a === null || b === null ? theme.quiet : theme.ink;
    paintLabel(painter, axis, label, i, bars + BARS / 2, { fill, weight: match ? 700 : 400 });
  });
}

function hit(comparison: Comparison, layout: Layout, x: number, y: number): Target | null {
  const { one, layers, current } = comparison;
  const { axis, cell, bars } = layout;
  const pair = x >= axis.left ? axis.at(x) : null;
  if (pair === null) return null;
  const column = axis.place.get(pair) ?? 0;
  const inMap = y >= TOP && y < TOP + cell * layers.length;
  if (!inMap && (y < bars - BARS / 2 || y > layout.height)) return null;
  const layer = inMap ? layers.length - Math.floor((y - TOP) / cell) : 0;
  const lines = linesOf(comparison, inMap ? layers[layer - 1] : current, pair);
  const { a } = comparison.pairs[pair];
  const token = a === null ? {} : { token: one.items.groups[a][0] };
  return {
    key: `${layer}/${column}`,
    lines: inMap ? [`${lines[0]}, layer ${layer}`, ...lines.slice(1)] : lines,
    change: inMap ? { layer, ...token } : token,
  };
}

function linesOf({ labels }: Comparison, found: Differences, pair: number): string[] {
  const { a, b } = found.pairs[pair];
  const share = (row: Float32Array | null, i: number | null): string =>
    !row ? "…" : i === null ? "none" : digits(row[i]);
  const value = found.values[pair];
  return [
    labels[pair],
    `First: ${share(found.a, a)}`,
    `Second: ${share(found.b, b)}`,
    `Difference: ${value === null ? "…" : signed(value)}`,
  ];
}

/** The shares and differences at the selected layer, as a list of lines for table and CSV. */
export function differenceLines(
  snapshot: Snapshot,
): { label: string; a: number | null; b: number | null; difference: number | null }[] {
  const { versus } = snapshot;
  if (!versus) return [];
  const { labels, current } = compare(snapshot, versus);
  const at = (row: Float32Array | null, i: number | null): number | null =>
    row && i !== null ? row[i] : null;
  return current.pairs.map(({ a, b }, i) => ({
    label: labels[i],
    a: at(current.a, a),
    b: at(current.b, b),
    difference: current.values[i],
  }));
}

/** The same as an HTML table. */
export function differenceTable(snapshot: Snapshot): HTMLTableElement {
  const cell = (key: string, value: number | null, text: string): HTMLElement =>
    make("td", { "data-key": key, "data-value": value }, text);
  const lines = differenceLines(snapshot).map(({ label, a, b, difference }) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", dir: "auto" }, label),
      cell("first", a, a === null ? "–" : digits(a)),
      cell("second", b, b === null ? "–" : digits(b)),
      cell("difference", difference, difference === null ? "–" : signed(difference)),
    ),
  );
  const titles = ["Token", "First", "Second", "Difference"];
  return make(
    "table",
    { testid: "numbers", "data-example": snapshot.scores.index },
    make("caption", {}, snapshot.versus ? noteOf(compare(snapshot, snapshot.versus)) : ""),
    make("thead", {}, make("tr", {}, ...titles.map((t) => make("th", { scope: "col" }, t)))),
    make("tbody", {}, ...lines),
  );
}
