// Heads view: every head of a layer as a small map, rows looking at columns; one can be enlarged.

import { makeAxis, paintLabel, type Axis } from "./axis.ts";
import { headMap, headNumbers, type HeadMap } from "./headMaps.ts";
import type { Painter } from "./painter.ts";
import { fit } from "./painter.ts";
import { quoted } from "./phrases.ts";
import type { Reading } from "./reading.ts";
import type { Scene, Target } from "./scene.ts";
import { shade } from "./theme.ts";
import { digits } from "./visible.ts";

export function headsScene(reading: Reading, width: number): Scene {
  const { example, state } = reading;
  if (!example.n_heads) {
    return messageScene(
      width,
      "The heads of each layer were merged when this was made, and not kept, so there are none to show. To keep them: explain(..., keep_heads=True), and for a file also to_html(..., keep_heads=True).",
    );
  }
  const scene =
    state.head === null
      ? multiples(reading, width)
      : enlarged(reading, width, Math.min(state.head, example.n_heads));
  // Heads are large: with the next layers at hand, switching to one of them waits for nothing.
  if (!scene.waiting) for (const step of [1, -1]) reading.numbers.expectHeads(reading.layer + step);
  return scene;
}

/** A sentence in place of a drawing. */
export function messageScene(width: number, text: string): Scene {
  return {
    width: Math.min(width, 300),
    height: 24,
    focus: null,
    note: [{ text }],
    paint: () => {},
    hit: () => null,
    paintHover: () => {},
  };
}

const noteOf = (reading: Reading): string =>
  reading.state.headsOf === "rollout"
    ? `Heads of layer ${reading.layer} followed down to the input: each head's attention on the rollout of the layers below.`
    : `Attention of each head of layer ${reading.layer} to the positions one layer below.`;

const pixels = (size: number): number => size * Math.min(globalThis.devicePixelRatio || 1, 3);

interface Tiles {
  size: number; // of one head's square
  place(i: number): [number, number];
  at(x: number, y: number): number; // which head, from 0; -1 if none
  height: number;
}

/** Where the small maps stand. */
function tile(count: number, width: number): Tiles {
  const gap = 20;
  const fitting = Math.floor((width + gap) / (width < 500 ? 150 : 190));
  const across = Math.max(2, Math.min(count, fitting, 6));
  const size = Math.floor((width - 4 - (across - 1) * gap) / across);
  const place = (i: number): [number, number] => [
    2 + (i % across) * (size + gap),
    Math.floor(i / across) * (size + 38) + 24,
  ];
  const at = (x: number, y: number): number =>
    Array.from({ length: count }, (_, i) => place(i)).findIndex(
      ([left, top]) => x >= left && x < left + size && y >= top - 22 && y < top + size,
    );
  return { size, place, at, height: place(count - 1)[1] + size + 6 };
}

function multiples(reading: Reading, width: number): Scene {
  const { theme, state } = reading;
  const heads = headNumbers(reading);
  const { size, place, at, height } = tile(heads.length, width);
  const maps = heads.map((head) => headMap(reading, head, pixels(size)));
  const shared = Math.max(...maps.map((map) => map?.most ?? 0));
  const one = state.scale === "shared";
  return {
    width,
    height,
    focus: null,
    note: [{ text: noteOf(reading) }],
    most: one ? shared : undefined,
    waiting: maps.includes(null),
    paint: (painter) =>
      maps.forEach((map, i) => paintTile(painter, reading, i, map, place(i), size, one && shared)),
    hit: (x, y) => {
      const i = at(x, y);
      if (i < 0) return null;
      const [left, top] = place(i);
      const click = { change: { head: i + 1 }, hint: "Click to enlarge" };
      return hitMap(reading, maps[i], i + 1, x - left, y - top, size, click);
    },
    paintHover: (painter, target) => {
      const [left, top] = place(Number(target.key.split("/")[0]) - 1);
      const frame = { stroke: theme.accent, width: 2, radius: 3 };
      painter.rect(left - 2, top - 2, size + 4, size + 4, frame);
    },
  };
}

/** One small map under its name. shared: the darkest value of all heads, or false for its own. */
function paintTile(
  painter: Painter,
  reading: Reading,
  i: number,
  map: HeadMap | null,
  [x, y]: [number, number],
  size: number,
  shared: number | false,
): void {
  const { theme } = reading;
  painter.text(`Head ${i + 1}`, x, y - 8, { size: 12, weight: 600, fill: theme.ink });
  if (!map) {
    painter.rect(x, y, size, size, { fill: theme.raised, radius: 3 });
    painter.text("…", x + size / 2, y + size / 2, { size: 14, fill: theme.quiet });
    return;
  }
  const most = { size: 11, align: "right" as const, fill: theme.quiet };
  painter.text(`to ${digits(map.most)}`, x + size, y - 8, most);
  paintMap(painter, reading, map, x, y, size, shared === false ? map.most : shared);
  paintRow(painter, reading, x, y, size);
}

const ENLARGED_TOP = 34;

function enlarged(reading: Reading, width: number, head: number): Scene {
  const { theme, labels, columns, rightToLeft } = reading;
  const left = Math.min(120, Math.max(60, width * 0.16));
  const limits = { least: 1, most: 44, fit: true };
  const axis = makeAxis(labels, columns, rightToLeft, left, Math.min(width - left, 640), limits);
  const map = headMap(reading, head, pixels(axis.width));
  const size = axis.width;
  const top = ENLARGED_TOP;
  const readable = axis.step >= 9;
  const how = "Click a row to look from it; click the title or press Esc for all heads.";
  return {
    width: Math.max(left + size + 8, 260),
    height: top + size + (readable ? axis.labelHeight : 0) + 10,
    focus: null,
    note: [{ text: `${noteOf(reading)} ${how}` }],
    most: map?.most,
    waiting: !map,
    paint: (painter) => {
      painter.text(`← all heads`, 0, 16, { size: 13, fill: theme.accent, weight: 600 });
      painter.text(`Head ${head}`, left, 16, { size: 14, fill: theme.ink, weight: 650 });
      if (!map) return;
      paintMap(painter, reading, map, left, top, size, map.most);
      paintRow(painter, reading, left, top, size);
      if (readable) paintNames(painter, reading, axis);
    },
    hit: (x, y) => {
      if (y < top - 8) return { key: "back", lines: ["All heads"], change: { head: null } };
      return hitMap(reading, map, head, x - left, y - top, size, null);
    },
    paintHover: (painter, target) => {
      if (target.key === "back" || !map) return;
      const [, row] = target.key.split("/").map(Number);
      const frame = { stroke: theme.bottleneck, width: 1.5 };
      painter.rect(left, top + row * axis.step, size, axis.step, frame);
    },
  };
}

/** The tokens beside and below an enlarged head. */
function paintNames(painter: Painter, reading: Reading, axis: Axis): void {
  const { theme, labels, columns, found } = reading;
  const { left, step, size: font, width } = axis;
  columns.forEach((item, row) => {
    const bold = item === reading.item;
    const fill = bold ? theme.accent : found.has(item) ? theme.found : theme.ink;
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

function paintMap(
  painter: Painter,
  reading: Reading,
  map: HeadMap,
  x: number,
  y: number,
  size: number,
  most: number,
): void {
  const { theme, state } = reading;
  const { packed } = theme.ramp;
  const least = state.threshold * most;
  const { side, cells } = map;
  painter.cells(x, y, size, size, {
    columns: side,
    rows: side,
    cell: (c, r) => {
      const value = cells[r * side + c];
      return packed[value >= least && most > 0 ? shade(value / most) : 0];
    },
  });
  painter.rect(x, y, size, size, { stroke: theme.faint, width: 1 });
}

/** A mark at the row of the chosen position. */
function paintRow(painter: Painter, reading: Reading, x: number, y: number, size: number): void {
  const at = reading.columns.indexOf(reading.item);
  if (at < 0) return;
  const step = size / reading.columns.length;
  painter.rect(x - 1, y + at * step - 0.5, size + 2, Math.max(step, 2) + 1, {
    stroke: reading.theme.accent,
    width: 1.5,
  });
}

function hitMap(
  reading: Reading,
  map: HeadMap | null,
  head: number,
  x: number,
  y: number,
  size: number,
  click: { change: Target["change"]; hint: string } | null,
): Target | null {
  const { columns, labels, items, rightToLeft } = reading;
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
      `${quoted(labels[query])} looks at ${quoted(labels[key])}: ${digits(value)}`,
      ...(click ? [click.hint] : []),
    ],
    change: click?.change ?? { position: items.groups[query][0] },
  };
}
