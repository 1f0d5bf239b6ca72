// The heatmap view: layers × tokens for the target position, one heatmap per method, as in
// figures 2 and 3 of the paper.

import type { Example } from "../data/header.ts";
import {
  fromZero,
  pick,
  type Range,
  rangeOf,
  rangeText,
  strength,
  needOwnRanges,
  wholeRange,
} from "../data/range.ts";
import {
  byLabelPriority,
  firstTarget,
  keep,
  largest,
  type Snapshot,
  type Row,
  scoresAt,
  tracedItem,
} from "../data/snapshot.ts";
import {
  type Axis,
  labelStyle,
  makeAxis,
  paintLabel,
  paintSides,
  thinLabels,
} from "../paint/axis.ts";
import { cellsOf, measure, type Painter } from "../paint/painter.ts";
import { shade } from "../paint/theme.ts";
import { layerName, nameOf, scoreText, shortLayer, targetName, titleOf } from "./captions.ts";
import type { NotePart, Scene, Target } from "./scene.ts";

interface HeatMap {
  method: string;
  title: string;
  axis: Axis;
  top: number; // of the cells
  rows: Row[]; // layer 1 first
  kept: boolean[][]; // which cells are in the top k
  ranges: Range[]; // of the colors of each layer
  scale: string; // the range of the color scale
  scaleEnd: number; // its right edge: that of the heatmap, or further right for a long title
  labelled: boolean; // whether tokens are labelled below
}

interface Layout {
  axes: Axis[]; // one for each method
  tops: number[]; // of the cells
  across: number; // heatmaps side by side
  cell: number; // height of a cell
  body: number; // height of all cells of a heatmap
}

const TITLE = 30;
const LEFT = 30;
const NAMED = 66; // with names of layers
const MIN_CELL = 6; // height
const LABEL = 11; // height of the number of a layer
const OVERHANG = 8; // of the label of the last column
const GAP = 36;
const TITLE_SIZE = 13;
const TITLE_WEIGHT = 650;
const SCALE_SIZE = 11;
const PER_LAYER = "per layer";
const SCALE = "0 to 0.000"; // a usual scale

/** The width of a title with its scale. */
const titleWidth = (title: string, scale: string): number =>
  measure(title, TITLE_SIZE, TITLE_WEIGHT) + 8 + measure(scale, SCALE_SIZE);

/** The scores of one method at all layers, layer 1 first. */
export function mapRows(snapshot: Snapshot, method: string): Row[] {
  const layers = snapshot.example.n_layers;
  return Array.from({ length: layers }, (_, l) => scoresAt(snapshot, method, l + 1));
}

/** The largest score of all methods and layers, for a shared scale. */
export function mapLargest(snapshot: Snapshot): number {
  return Math.max(
    ...snapshot.example.methods.flatMap(({ name }) =>
      mapRows(snapshot, name).map((row) => largest(row, snapshot.columns)),
    ),
  );
}

/** The number of heatmaps side by side: all, else half of more than three, else one. */
function countAcross(snapshot: Snapshot, width: number): number {
  const { columns, example, state } = snapshot;
  const { methods } = example;
  const scale = state.scale === "auto" || state.scale === "range" ? PER_LAYER : SCALE;
  const titled = Math.max(...methods.map(({ name }) => titleWidth(titleOf(example, name), scale)));
  const fits = (across: number): boolean => {
    const share = shareOf(width, across, leftOf(example));
    return share / columns.length >= 14 && share >= titled;
  };
  const half = methods.length > 3 ? Math.ceil(methods.length / 2) : 1;
  return [methods.length, half].find(fits) ?? 1;
}

/** The width of the names of layers. */
const leftOf = ({ layer_names }: Example): number => (layer_names.length ? NAMED : LEFT);

/** The width of each of several heatmaps side by side. */
const shareOf = (width: number, across: number, left: number): number =>
  (width - 1 - OVERHANG - (across - 1) * GAP) / across - left;

function lay(snapshot: Snapshot, width: number, room: number): Layout {
  const { labels, columns, rightToLeft, example, state } = snapshot;
  const { methods } = example;
  const across = countAcross(snapshot, width);
  const margin = leftOf(example);
  const share = shareOf(width, across, margin);
  const limits = { min: 13, max: across > 1 ? 44 : 56, fit: state.fit };
  const axes = methods.map((_, i) => {
    const left = margin + (i % across) * (share + GAP + margin);
    const axis = makeAxis(labels, columns, rightToLeft, left, share, limits);
    thinLabels(axis, byLabelPriority(snapshot));
    return axis;
  });
  const below = across > 1 ? axes[0].labelHeight : 14; // stacked heatmaps share their labels
  const rows = Math.ceil(methods.length / across);
  const others = rows * TITLE + (rows - 1) * below + axes[0].labelHeight;
  const fitting = Math.floor((room - others) / (rows * example.n_layers));
  const most = Math.min(26, Math.round(240 / example.n_layers));
  const cell = Math.max(MIN_CELL, Math.min(most, fitting));
  const body = cell * example.n_layers;
  const tops = methods.map((_, i) => TITLE + Math.floor(i / across) * (body + TITLE + below));
  return { axes, tops, across, cell, body };
}

function makeMaps(snapshot: Snapshot, layout: Layout, shared: number): HeatMap[] {
  const { columns, labels, state, example } = snapshot;
  return example.methods.map(({ name: method }, i) => {
    const rows = mapRows(snapshot, method);
    const title = titleOf(example, method);
    const { ranges, scale } = colorRanges(snapshot, rows, shared);
    const axis = layout.axes[i];
    const only = { threshold: 0, topK: state.topK };
    return {
      method,
      title,
      axis,
      top: layout.tops[i],
      rows,
      kept: rows.map((row) => keep(row, columns, labels.length, only)),
      ranges,
      scale,
      scaleEnd: axis.left + Math.max(axis.width, titleWidth(title, scale)),
      labelled: layout.across > 1 || i === example.methods.length - 1,
    };
  });
}

/** The color range of each row: one for all, unless they need or the user wants their own.
 * own: how to call that. */
export function colorRanges(
  { state, columns }: Pick<Snapshot, "state" | "columns">,
  rows: readonly Row[],
  shared: number,
  own = PER_LAYER,
): { ranges: Range[]; scale: string } {
  const one = (range: Range): { ranges: Range[]; scale: string } => ({
    ranges: rows.map(() => range),
    scale: rangeText(range),
  });
  if (state.scale === "shared") return one(fromZero(shared));
  const values = rows.map((row) => pick(row, columns));
  const ranges = values.map((row) => rangeOf(row, state.scale));
  if (state.scale === "range" || (state.scale === "auto" && needOwnRanges(values))) {
    const each = state.scale === "auto" ? values.map(wholeRange) : ranges;
    return { ranges: each, scale: own };
  }
  return one(rangeOf(values.flat(), state.scale));
}

/** room: the height in which the heatmaps should fit. */
export function mapScene(snapshot: Snapshot, width: number, shared: number, room = 900): Scene {
  const layout = lay(snapshot, width, room);
  const maps = makeMaps(snapshot, layout, shared);
  const { axes, body, cell } = layout;
  return {
    width: Math.max(...maps.map((map) => map.scaleEnd)) + OVERHANG,
    height: Math.max(...layout.tops) + body + axes[0].labelHeight,
    focus: snapshot.columns.includes(snapshot.item) ? axes[0].x(snapshot.item) : null,
    note: noteOf(maps),
    paint: (painter) => {
      for (const map of maps) {
        paintCells(painter, snapshot, map, layout);
        paintLayers(painter, snapshot, map, layout);
        if (map.labelled) paintLabels(painter, snapshot, map.axis, map.top + body);
        const target = firstTarget(snapshot, map.axis.columns);
        const end = map.top + body;
        if (target !== null) paintSides(painter, map.axis, target, map.top, end, snapshot.theme);
      }
    },
    hit: (x, y) => hit(snapshot, maps, layout, x, y),
    paintHover: (painter, target) => {
      const [, layer, item] = target.key.split("/").map(Number);
      for (const { axis, top } of maps) {
        const x = axis.x(item) - axis.step / 2;
        const y = top + body - layer * cell;
        painter.rect(x, y, axis.step, cell, { stroke: snapshot.theme.bottleneck, width: 2 });
      }
    },
  };
}

/** Which heatmaps have a color range for each layer. */
function noteOf(maps: readonly HeatMap[]): NotePart[] {
  const titles = maps.filter(({ scale }) => scale === PER_LAYER).map(({ title }) => title);
  if (!titles.length) return [];
  const colors = "colors run from the lowest to the highest score of each layer";
  return [{ text: `${titles.join(", ")}: ${colors}, not from 0.` }];
}

function paintCells(painter: Painter, snapshot: Snapshot, map: HeatMap, { body }: Layout): void {
  const { theme, state, example } = snapshot;
  const { axis, top } = map;
  const current = map.method === state.method;
  const layers = example.n_layers;
  painter.text(map.title, axis.left, top - 11, {
    size: TITLE_SIZE,
    weight: TITLE_WEIGHT,
    fill: current ? theme.accent : theme.ink,
  });
  painter.text(map.scale, map.scaleEnd, top - 11, {
    size: SCALE_SIZE,
    align: "right",
    fill: theme.quiet,
  });
  const count = axis.columns.length;
  const side = Math.min(count, Math.max(1, Math.floor(axis.width))); // a pixel shows several columns
  painter.cells(axis.left, top, axis.width, body, {
    columns: side,
    rows: layers,
    cell: (c, r) => {
      const items = axis.columns.slice(...cellsOf(c, count, side));
      const value = largestShown(snapshot, map, layers - 1 - r, items);
      if (value === null) return 0;
      return theme.ramp.packed[shade(strength(map.ranges[layers - 1 - r], value))];
    },
  });
}

/** The largest visible score of some items; 0 if all are hidden, null if unknown. */
function largestShown(
  { state }: Snapshot,
  { rows, kept, ranges }: HeatMap,
  layer: number,
  items: readonly number[],
): number | null {
  const row = rows[layer];
  if (!row) return null;
  const min = state.threshold * ranges[layer].high;
  const shown = items.filter((item) => kept[layer][item] && row[item] >= min);
  return shown.reduce((max, item) => Math.max(max, row[item]), 0);
}

/** The layer numbers, and a frame around the selected layer. */
function paintLayers(painter: Painter, snapshot: Snapshot, map: HeatMap, layout: Layout): void {
  const { theme, layer, state } = snapshot;
  const { axis, top } = map;
  const { body, cell } = layout;
  map.rows.forEach((row, l) => {
    const y = top + body - (l + 0.5) * cell + 4;
    const chosen = l + 1 === layer;
    if (!row) {
      const missing = scoreText(snapshot, map.method, undefined);
      painter.text(missing, axis.left + 6, y, { size: 12, fill: theme.quiet });
    }
    const step = Math.ceil(LABEL / cell); // where rows are narrow, some have no number
    if (!chosen && ((l + 1) % step !== 0 || Math.abs(l + 1 - layer) < step)) return;
    painter.text(shortLayer(snapshot.example, l + 1), axis.left - 8, y, {
      size: 11,
      align: "right",
      fill: chosen ? theme.accent : theme.quiet,
      weight: chosen ? 700 : 400,
    });
  });
  const current = map.method === state.method;
  painter.rect(axis.left - 1, top + body - layer * cell, axis.width + 2, cell, {
    stroke: theme.accent,
    width: current ? 2 : 1,
    opacity: current ? 1 : 0.6,
    radius: 2,
  });
}

function paintLabels(painter: Painter, snapshot: Snapshot, axis: Axis, y: number): void {
  const { theme, labels, matches } = snapshot;
  const traced = snapshot.chosen ? tracedItem(snapshot) : null;
  for (const item of axis.columns) {
    const style = labelStyle(theme, {
      target: item === snapshot.item,
      match: matches.has(item),
      kept: true,
      traced: item === traced,
    });
    paintLabel(painter, axis, labels[item], item, y, style);
  }
}

function hit(
  snapshot: Snapshot,
  maps: readonly HeatMap[],
  { cell, body }: Layout,
  x: number,
  y: number,
): Target | null {
  const { items, example } = snapshot;
  for (const { axis, top, method, title, rows } of maps) {
    const item = x >= axis.left ? axis.at(x) : null;
    if (item === null || y < top || y >= top + body) continue;
    const layer = Math.ceil((top + body - y) / cell);
    const value = rows[layer - 1]?.[item];
    return {
      key: `${method}/${layer}/${item}`,
      lines: [
        `${nameOf(snapshot, item)} → ${targetName(snapshot)} at ${layerName(example, layer)}`,
        `${title}: ${scoreText(snapshot, method, value)}`,
      ],
      change: { method, layer, token: items.groups[item][0] },
    };
  }
  return null;
}
