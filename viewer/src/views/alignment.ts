// The token map: a row for each token (or word) of the answer, a column for each token before it.

import { type Range, strength } from "../data/range.ts";
import {
  answerItems,
  type AnswerItem,
  explainsWhole,
  missing,
  type Row,
  scoresOf,
} from "../data/snapshot.ts";
import type { Snapshot } from "../data/snapshot.ts";
import { percent, shorten } from "../data/text.ts";
import { type Axis, labelStyle, makeAxis, thinLabels } from "../paint/axis.ts";
import { cellsOf, fit, measure, type Painter } from "../paint/painter.ts";
import { shade } from "../paint/theme.ts";
import { describeLayerOf, nameOf, scoreText, titleOf } from "./captions.ts";
import { probabilityOf } from "./dialogue.ts";
import { colorRanges } from "./map.ts";
import type { Scene, Sight, Target } from "./scene.ts";

const NAMES = 18; // height of the names of segments
const CELL = 20; // height of a row
const MIN_CELL = 15; // width of a column
const MAX_CELL = 40;
const MOST_LEFT = 150; // width of the labels of rows
const LABEL = 12;
const PER_ROW = "per row";
const TALL = 560; // maps of at most this height do not scroll up and down

/** The rows of the token map. */
export interface AlignedRow extends AnswerItem {
  label: string;
  scores: Row;
}

/** The rows of the map with their scores: [items]. */
export function alignmentRows(snapshot: Snapshot): AlignedRow[] {
  const { items, labels, state } = snapshot;
  const shown = answerItems(snapshot).filter(({ item }) => state.special || !items.special[item]);
  const rows = scoresOf(
    snapshot,
    shown.map(({ sources }) => sources),
  );
  return shown.map((row, i) => ({ ...row, label: labels[row.item], scores: rows[i] }));
}

/** The columns of the map: the prompt, and the answer if the state says so. */
export function alignmentColumns({ example, items, columns, state }: Snapshot): number[] {
  const first = example.answer?.first ?? 0;
  return columns.filter((item) => state.own || items.groups[item][0] < first);
}

interface Layout {
  axis: Axis;
  rows: AlignedRow[];
  ranges: Range[];
  left: number;
  top: number; // of the cells
  height: number;
}

function lay(snapshot: Snapshot, width: number, shared: number): Layout & { scale: string } {
  const { labels, rightToLeft, state } = snapshot;
  const rows = alignmentRows(snapshot);
  const columns = alignmentColumns(snapshot);
  const widest = Math.max(...rows.map(({ label }) => measure(label, LABEL, 700)), 20);
  const left = Math.min(MOST_LEFT, Math.ceil(widest), Math.floor(width / 3)) + 14;
  const limits = { min: MIN_CELL, max: MAX_CELL, fit: state.fit };
  const axis = makeAxis(labels, columns, rightToLeft, left, width - left - 8, limits);
  const sums = new Float64Array(labels.length);
  for (const { scores } of rows) for (const item of columns) sums[item] += scores?.[item] ?? 0;
  thinLabels(
    axis,
    [...columns].sort((a, b) => sums[b] - sums[a]),
  );
  const top = NAMES + axis.labelHeight;
  const lists = rows.map(({ scores }) => scores);
  const { ranges, scale } = colorRanges({ state, columns }, lists, shared, PER_ROW);
  return { axis, rows, ranges, scale, left, top, height: top + rows.length * CELL + 4 };
}

/** The largest score of the map, for a shared scale. */
export function alignmentLargest(snapshot: Snapshot): number {
  const columns = alignmentColumns(snapshot);
  const rows = alignmentRows(snapshot);
  return rows.reduce(
    (max, { scores }) => columns.reduce((most, i) => Math.max(most, scores?.[i] ?? 0), max),
    0,
  );
}

/** room: the height in which the map scrolls. */
export function alignmentScene(
  snapshot: Snapshot,
  width: number,
  shared: number,
  room: number,
): Scene {
  const layout = lay(snapshot, width, shared);
  const { axis, rows, height, top, left } = layout;
  let sight: Sight | undefined;
  const waiting =
    rows.some(({ scores }) => !scores) && !missing(snapshot, snapshot.state.method, 1);
  const chosen = rows.find(({ part }) => snapshot.part && part[0] >= snapshot.part[0]);
  const colors =
    layout.scale === PER_ROW
      ? "Colors run from the lowest to the highest score of each row, not from 0."
      : `Colors: ${layout.scale}.`;
  const title = titleOf(snapshot.example, snapshot.state.method);
  return {
    width: axis.left + axis.width + 8,
    height,
    visible: Math.max(TALL, room),
    focus: null,
    focusY: chosen && !explainsAll(snapshot, rows) ? top + rows.indexOf(chosen) * CELL : null,
    note: [{ text: `${title} at ${describeLayerOf(snapshot)}. ${colors}` }],
    waiting,
    paint: (painter, seen) => {
      sight = seen;
      paintCells(painter, snapshot, layout);
      paintSelection(painter, snapshot, layout);
      paintColumns(painter, snapshot, layout, seen);
      paintRows(painter, snapshot, layout, seen);
    },
    hit: (x, y) => hit(snapshot, layout, sight, x, y),
    paintHover: (painter, { key }) => {
      const [row, column] = key.split("/").map(Number);
      const y = top + row * CELL;
      const style = { stroke: snapshot.theme.bottleneck, width: 2 };
      if (column < 0) painter.rect(left, y, axis.width, CELL, style);
      else painter.rect(axis.x(column) - axis.step / 2, y, axis.step, CELL, style);
    },
  };
}

/** Whether the explained part covers all rows. */
const explainsAll = (snapshot: Snapshot, rows: readonly AlignedRow[]): boolean => {
  const { part } = snapshot;
  if (explainsWhole(snapshot)) return true;
  return part !== null && rows.every((row) => row.part[0] >= part[0] && row.part[1] <= part[1]);
};

function paintCells(painter: Painter, { theme, state }: Snapshot, layout: Layout): void {
  const { axis, rows, ranges, top } = layout;
  const count = axis.columns.length;
  const side = Math.min(count, Math.max(1, Math.floor(axis.width))); // a pixel shows several columns
  painter.cells(axis.left, top, axis.width, rows.length * CELL, {
    columns: side,
    rows: rows.length,
    cell: (c, r) => {
      const { scores } = rows[r];
      if (!scores) return 0;
      const items = axis.columns.slice(...cellsOf(c, count, side));
      const value = items.reduce((max, item) => Math.max(max, scores[item]), 0);
      if (value < state.threshold * ranges[r].high) return theme.ramp.packed[0];
      return theme.ramp.packed[shade(strength(ranges[r], value))];
    },
  });
}

/** A frame around the explained rows. */
function paintSelection(painter: Painter, snapshot: Snapshot, layout: Layout): void {
  const { part, theme } = snapshot;
  const { axis, rows, top } = layout;
  if (!part || explainsAll(snapshot, rows)) return;
  rows.forEach(({ part: own }, i) => {
    if (own[0] < part[0] || own[1] > part[1]) return;
    painter.rect(axis.left, top + i * CELL, axis.width, CELL, { stroke: theme.accent, width: 1.5 });
  });
}

/** The labels of columns, which stay in sight, and the names of segments above them. */
function paintColumns(painter: Painter, snapshot: Snapshot, layout: Layout, sight?: Sight): void {
  const { theme, labels, matches, items, example } = snapshot;
  const { axis, top, left, height } = layout;
  const y = sight?.top ?? 0;
  const traced = snapshot.chosen && snapshot.token !== null ? items.of[snapshot.token] : null;
  painter.rect(sight?.from ?? 0, y, axis.left + axis.width + 8, top, { fill: theme.ground });
  for (const item of axis.columns) {
    const style = labelStyle(theme, {
      target: false,
      match: matches.has(item),
      kept: !items.special[item],
      traced: item === traced,
    });
    paintAbove(painter, axis, labels[item], item, y + top, style);
  }
  for (const [name, first] of example.segments) {
    const start = axis.columns.find((item) => items.groups[item][0] === first);
    if (start === undefined) continue;
    const x = axis.x(start) - axis.step / 2;
    painter.line(x, y, x, height, { stroke: theme.quiet, width: 1, dash: [3, 4] });
    const at = Math.max(x + 4, (sight?.from ?? 0) + left + 4);
    const end = axis.left + axis.width;
    if (at < end)
      painter.text(fit(name, end - at, 11), at, y + 12, { size: 11, fill: theme.quiet });
  }
}

/** The label of a column, above y. */
function paintAbove(
  painter: Painter,
  axis: Axis,
  label: string,
  item: number,
  y: number,
  style: { fill: string; weight?: number },
): void {
  if (!axis.labelled.has(item)) return;
  const { size, upright } = axis;
  const text = fit(label, upright ? axis.labelHeight - 8 : axis.step - 4, size, style.weight);
  if (upright) {
    painter.text(text, axis.x(item) + size * 0.36, y - 6, { ...style, size, turn: -90 });
  } else painter.text(text, axis.x(item), y - 8, { ...style, size, align: "center" });
}

/** The labels of rows, which stay in sight. */
function paintRows(painter: Painter, snapshot: Snapshot, layout: Layout, sight?: Sight): void {
  const { theme, part, matches } = snapshot;
  const { rows, left, top, height } = layout;
  const x = sight?.from ?? 0;
  const above = sight?.top ?? 0;
  painter.rect(x, above, left - 4, height - above, { fill: theme.ground });
  rows.forEach(({ label, part: own, item, scores }, i) => {
    const y = top + i * CELL;
    if (sight && (y < sight.top + top - CELL || y > sight.bottom)) return;
    const inPart = part !== null && own[0] >= part[0] && own[1] <= part[1];
    const style = labelStyle(theme, {
      target: inPart && !explainsAll(snapshot, rows),
      match: matches.has(item),
      kept: true,
      traced: false,
    });
    const text = fit(label, left - 14, LABEL, style.weight);
    painter.text(text, x + left - 10, y + 14, { ...style, size: LABEL, align: "right" });
    if (scores) return;
    const unknown = scoreText(snapshot, snapshot.state.method, undefined);
    painter.text(unknown, x + left + 4, y + 14, { size: LABEL, fill: theme.quiet });
  });
  painter.rect(x, above, left - 4, top, { fill: theme.ground });
}

function hit(
  snapshot: Snapshot,
  { axis, rows, left, top }: Layout,
  sight: Sight | undefined,
  x: number,
  y: number,
): Target | null {
  const row = rows[Math.floor((y - top) / CELL)];
  if (!row || y < top + (sight?.top ?? 0)) return null;
  const { labels, marks, items, state, example } = snapshot;
  const from = nameOf(snapshot, row.item);
  const probability = probabilityOf(snapshot, row.part[0]);
  const likely = row.part[0] === row.part[1] ? ` (${percent(probability)})` : "";
  const index = rows.indexOf(row);
  if (x < (sight?.from ?? 0) + left - 4) {
    const lines = [`${from}${likely}`, "Click to explain this part of the answer"];
    return { key: `${index}/-1`, lines, change: { part: row.part, token: null } };
  }
  const item = axis.at(x);
  if (item === null || x < axis.left) return null;
  const score = scoreText(snapshot, state.method, row.scores?.[item]);
  return {
    key: `${index}/${item}`,
    lines: [
      `${shorten(labels[item], 60)}${marks[item]} → ${from}${likely}`,
      `${titleOf(example, state.method)}: ${score}`,
    ],
    change: { part: row.part, token: items.groups[item][0] },
  };
}
