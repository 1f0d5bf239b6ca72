// The heads view: attention of every head of a layer as a small heatmap (rows: queries, columns:
// keys), or the rollout of each head to the input (paper, appendix A.1). A head can be enlarged.

import { byLabelPriority, type Snapshot } from "../data/snapshot.ts";
import { digits } from "../data/text.ts";
import { type Axis, makeAxis, paintLabel, thinLabels } from "../paint/axis.ts";
import { fit, measure, pool, type Painter } from "../paint/painter.ts";
import { shade } from "../paint/theme.ts";
import { layerName, nameOf } from "./captions.ts";
import { gridScene } from "./headGrid.ts";
import { messageScene, type Scene, type Target } from "./scene.ts";
import type { Column } from "./table.ts";

/** room: the height in which a grid should fit. */
export function headsScene(snapshot: Snapshot, width: number, room = 640): Scene {
  const { example, state } = snapshot;
  if (example.n_heads && state.grid && state.head === null) return gridScene(snapshot, width, room);
  if (!example.n_heads) {
    return messageScene(
      width,
      "Individual heads were not saved. To save them, use explain(..., keep_heads=True) and, for a file, to_html(..., keep_heads=True).",
    );
  }
  const scene =
    state.head === null
      ? multiples(snapshot, width)
      : enlarged(snapshot, width, Math.min(state.head, example.n_heads - 1));
  // Heads are large: load those of the adjacent layers early, so that switching layers is fast.
  if (!scene.waiting)
    for (const step of [1, -1]) snapshot.scores.prefetchHeads(snapshot.layer + step);
  return scene;
}

function noteOf({ state, layer, example }: Snapshot, heads: string): string {
  const which = `${heads} of ${layerName(example, layer)}`;
  return state.headsOf === "rollout"
    ? `Rollout to the input through ${which}; heads of lower layers are merged.`
    : `Attention of ${which} to positions one layer below.`;
}

export const pixels = (size: number): number =>
  size * Math.min(globalThis.devicePixelRatio || 1, 3);

interface Tiles {
  size: number; // of a heatmap
  across: number; // heatmaps side by side
  place(i: number): [number, number];
  at(x: number, y: number): number; // the head at a point; -1 if none
  height: number;
}

/** The places of the small heatmaps; names: the width of labels on the left, and their height. */
function tile(count: number, width: number, names: number): Tiles {
  const gap = 20;
  const left = names + 2;
  const fitting = Math.floor((width - left + gap) / (width < 500 ? 140 : 190));
  const across = Math.max(2, Math.min(count, fitting, 6));
  const size = Math.floor((width - left - 2 - (across - 1) * gap) / across);
  const place = (i: number): [number, number] => [
    left + (i % across) * (size + gap),
    Math.floor(i / across) * (size + 38) + 24,
  ];
  const at = (x: number, y: number): number =>
    Array.from({ length: count }, (_, i) => place(i)).findIndex(
      ([x0, top]) => x >= x0 && x < x0 + size && y >= top - 22 && y < top + size,
    );
  return { size, across, place, at, height: place(count - 1)[1] + size + names + 10 };
}

const NAME_SIZE = 10;

/** The room for the names of tokens beside small heatmaps. */
function nameRoom({ labels, columns }: Snapshot, width: number): number {
  const widest = Math.max(...columns.map((i) => measure(labels[i].slice(0, 20), NAME_SIZE)));
  return Math.ceil(Math.min(widest + 6, width < 500 ? 52 : 84));
}

/** The names of tokens beside the first heatmap of a row and below the last of a column: all, or
 * those with priority where there is no room. */
function paintTileNames(
  painter: Painter,
  snapshot: Snapshot,
  i: number,
  count: number,
  { size, across, place }: Tiles,
  room: number,
): void {
  const { theme, labels, columns, matches, rightToLeft } = snapshot;
  const [left, top] = place(i);
  const limits = { min: 0, max: size, fit: true };
  const axis = makeAxis(labels, columns, rightToLeft, left, size, limits);
  thinLabels(axis, byLabelPriority(snapshot), NAME_SIZE);
  columns.forEach((item, row) => {
    if (!axis.labelled.has(item)) return;
    const strong = item === snapshot.item || matches.has(item);
    const fill = matches.has(item) ? theme.match : strong ? theme.accent : theme.quiet;
    const style = { size: NAME_SIZE, align: "right", fill, weight: strong ? 700 : 400 } as const;
    const name = fit(labels[item], room - 4, NAME_SIZE, style.weight);
    if (i % across === 0) painter.text(name, left - 4, top + (row + 0.5) * axis.step + 3.5, style);
    if (i + across >= count) {
      painter.text(name, axis.x(item) + 3.5, top + size + 5, { ...style, turn: -90 });
    }
  });
}

/** Marks at the edges of a heatmap for the tokens that match the search. */
export function paintMatches(
  painter: Painter,
  { theme, columns, matches, rightToLeft }: Snapshot,
  [x, y]: [number, number],
  size: number,
): void {
  const step = size / columns.length;
  const thick = Math.max(step, 2);
  columns.forEach((item, row) => {
    if (!matches.has(item)) return;
    const column = rightToLeft ? columns.length - 1 - row : row;
    painter.rect(x - 4, y + row * step, 3, thick, { fill: theme.match });
    painter.rect(x + column * step, y + size + 1, thick, 3, { fill: theme.match });
  });
}

function multiples(snapshot: Snapshot, width: number): Scene {
  const { theme, state } = snapshot;
  const heads = headNumbers(snapshot);
  const room = nameRoom(snapshot, width);
  const tiles = tile(heads.length, width, room);
  const { size, place, at, height } = tiles;
  const maps = heads.map((head) => headMap(snapshot, head, pixels(size)));
  const shared = Math.max(...maps.map((map) => map?.max ?? 0));
  const isShared = state.scale === "shared";
  return {
    width,
    height,
    focus: null,
    note: [{ text: noteOf(snapshot, "each head") }],
    max: isShared ? shared : undefined,
    waiting: maps.includes(null),
    paint: (painter) =>
      maps.forEach((map, i) => {
        paintTile(painter, snapshot, i, map, place(i), size, isShared && shared);
        if (!map) return;
        paintMatches(painter, snapshot, place(i), size);
        paintTileNames(painter, snapshot, i, heads.length, tiles, room);
      }),
    hit: (x, y) => {
      const i = at(x, y);
      if (i < 0) return null;
      const [left, top] = place(i);
      const click = { change: { head: i }, hint: "Click to enlarge" };
      return hitMap(snapshot, maps[i], i, x - left, y - top, size, click);
    },
    paintHover: (painter, target) => {
      const [left, top] = place(Number(target.key.split("/")[0]));
      const frame = { stroke: theme.accent, width: 2, radius: 3 };
      painter.rect(left - 2, top - 2, size + 4, size + 4, frame);
    },
  };
}

/** One small heatmap. shared: the maximum of a shared color scale; false: its own maximum. */
function paintTile(
  painter: Painter,
  snapshot: Snapshot,
  i: number,
  map: HeadMap | null,
  [x, y]: [number, number],
  size: number,
  shared: number | false,
): void {
  const { theme } = snapshot;
  painter.text(`Head ${i}`, x, y - 8, { size: 12, weight: 600, fill: theme.ink });
  if (!map) {
    painter.rect(x, y, size, size, { fill: theme.raised, radius: 3 });
    painter.text("…", x + size / 2, y + size / 2, { size: 14, fill: theme.quiet });
    return;
  }
  const style = { size: 11, align: "right" as const, fill: theme.quiet };
  painter.text(`max ${digits(map.max)}`, x + size, y - 8, style);
  paintMap(painter, snapshot, map, x, y, size, shared === false ? map.max : shared);
  paintRow(painter, snapshot, x, y, size);
}

const ENLARGED_TOP = 34;
const BACK = "← All heads";

function enlarged(snapshot: Snapshot, width: number, head: number): Scene {
  const { theme, labels, columns, rightToLeft } = snapshot;
  const left = Math.min(120, Math.max(60, width * 0.16));
  const limits = { min: 1, max: 44, fit: true };
  const axis = makeAxis(
    labels,
    columns,
    rightToLeft,
    left,
    Math.min(width - left - 8, 640),
    limits,
  );
  const map = headMap(snapshot, head, pixels(axis.width));
  const size = axis.width;
  const top = ENLARGED_TOP;
  const readable = axis.step >= 9;
  const how =
    "Click a row to select it as target position. Click the title or press Esc to show all heads.";
  return {
    width: Math.max(left + size + 8, 260),
    height: top + size + (readable ? axis.labelHeight : 0) + 10,
    focus: null,
    note: [{ text: `${noteOf(snapshot, `head ${head}`)} ${how}` }],
    max: map?.max,
    waiting: !map,
    paint: (painter) => {
      painter.text(BACK, 0, 16, { size: 13, fill: theme.accent, weight: 600 });
      const titleLeft = Math.max(left, measure(BACK, 13, 600) + 16);
      painter.text(`Head ${head}`, titleLeft, 16, { size: 14, fill: theme.ink, weight: 650 });
      if (!map) return;
      paintMap(painter, snapshot, map, left, top, size, map.max);
      paintRow(painter, snapshot, left, top, size);
      if (readable) paintNames(painter, snapshot, axis);
    },
    hit: (x, y) => {
      if (y < top - 8) return { key: "back", lines: ["All heads"], change: { head: null } };
      return hitMap(snapshot, map, head, x - left, y - top, size, null);
    },
    paintHover: (painter, target) => {
      if (target.key === "back" || !map) return;
      const [, row] = target.key.split("/").map(Number);
      const frame = { stroke: theme.bottleneck, width: 1.5 };
      painter.rect(left, top + row * axis.step, size, axis.step, frame);
    },
  };
}

/** The tokens beside and below an enlarged head: queries and keys. */
function paintNames(painter: Painter, snapshot: Snapshot, axis: Axis): void {
  const { theme, labels, columns, matches } = snapshot;
  const { left, step, size: font, width } = axis;
  columns.forEach((item, row) => {
    const bold = item === snapshot.item;
    const fill = bold ? theme.accent : matches.has(item) ? theme.match : theme.ink;
    const y = ENLARGED_TOP + (row + 0.5) * step + 4;
    painter.text(fit(labels[item], left - 12, font), left - 8, y, {
      size: Math.min(font, step),
      align: "right",
      fill,
      weight: bold ? 700 : 400,
    });
    paintLabel(painter, { ...axis, upright: true }, labels[item], item, ENLARGED_TOP + width, {
      fill,
    });
  });
}

export function paintMap(
  painter: Painter,
  snapshot: Snapshot,
  map: HeadMap,
  x: number,
  y: number,
  size: number,
  max: number,
): void {
  const { theme, state } = snapshot;
  const { packed } = theme.ramp;
  const min = state.threshold * max;
  const { side, cells } = map;
  painter.cells(x, y, size, size, {
    columns: side,
    rows: side,
    cell: (c, r) => {
      const value = cells[r * side + c];
      return packed[value >= min && max > 0 ? shade(value / max) : 0];
    },
  });
  painter.rect(x, y, size, size, { stroke: theme.faint, width: 1 });
}

/** A frame around the row of the target position. */
export function paintRow(
  painter: Painter,
  snapshot: Snapshot,
  x: number,
  y: number,
  size: number,
): void {
  const at = snapshot.columns.indexOf(snapshot.item);
  if (at < 0) return;
  const step = size / snapshot.columns.length;
  painter.rect(x - 1, y + at * step - 0.5, size + 2, Math.max(step, 2) + 1, {
    stroke: snapshot.theme.accent,
    width: 1.5,
  });
}

function hitMap(
  snapshot: Snapshot,
  map: HeadMap | null,
  head: number,
  x: number,
  y: number,
  size: number,
  click: { change: Target["change"]; hint: string } | null,
): Target | null {
  const { columns, items, rightToLeft } = snapshot;
  const step = size / columns.length;
  const row = Math.floor(y / step);
  const column = Math.floor(x / step);
  const title = `Head ${head}`;
  if (!map || row < 0 || row >= columns.length || column < 0 || column >= columns.length) {
    return click && { key: `${head}`, lines: [title], change: click.change };
  }
  const query = columns[row];
  const key = columns[rightToLeft ? columns.length - 1 - column : column];
  const value = map.values[query * items.labels.length + key];
  return {
    key: `${head}/${row}/${column}`,
    lines: [
      title,
      `Query ${nameOf(snapshot, query)}, key ${nameOf(snapshot, key)}: ${digits(value)}`,
      ...(click ? [click.hint] : []),
    ],
    change: click?.change ?? { position: items.groups[query][0] },
  };
}

export interface HeadMap {
  values: Float32Array; // [items, items]
  side: number;
  cells: Float32Array; // [side, side]: pooled values, as drawn
  max: number;
}

/** The matrix of a head between items: [items, items]. */
function headMatrix(snapshot: Snapshot, head: number, layer = snapshot.layer): Float32Array | null {
  const { scores, items, state } = snapshot;
  const { n } = scores;
  let matrix: Float32Array | null;
  if (state.headsOf === "rollout") matrix = scores.headRollout(layer, head);
  else matrix = scores.head(layer, head);
  if (!matrix || items.labels.length === n) return matrix;
  const count = items.labels.length;
  const out = new Float32Array(count * count);
  for (let q = 0; q < n; q++) {
    const to = items.of[q];
    const share = 1 / items.groups[to].length;
    for (let k = 0; k < n; k++) out[to * count + items.of[k]] += matrix[q * n + k] * share;
  }
  return out;
}

/** The heatmap of a head in a square of `room` pixels. */
export function headMap(
  snapshot: Snapshot,
  head: number,
  room: number,
  layer = snapshot.layer,
): HeadMap | null {
  const values = headMatrix(snapshot, head, layer);
  if (!values) return null;
  const { columns, items, rightToLeft } = snapshot;
  const across = rightToLeft ? [...columns].reverse() : columns;
  const { side, cells } = pool(values, items.labels.length, columns, across, room);
  const max = cells.reduce((max, value) => Math.max(max, value), 0);
  return { values, side, cells, max };
}

const headNumbers = ({ example }: Snapshot): number[] =>
  Array.from({ length: example.n_heads }, (_, head) => head);

/** The row of the target position for every head, for the table. */
export function headColumns(snapshot: Snapshot): Column[] | null {
  const { items, item, example, state } = snapshot;
  if (!example.n_heads) return null;
  const count = items.labels.length;
  const heads =
    state.head === null ? headNumbers(snapshot) : [Math.min(state.head, example.n_heads - 1)];
  return heads.map((head) => ({
    title: `Head ${head}`,
    key: `head/${head}`,
    row: headMatrix(snapshot, head)?.slice(item * count, (item + 1) * count) ?? null,
  }));
}
