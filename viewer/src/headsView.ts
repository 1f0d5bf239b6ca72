// Heads view: every head of a layer as a small map, rows looking at columns; one can be enlarged.
// A head's rollout to the input is its augmented matrix on the rollout of the layers below, where
// heads are merged (paper, appendix A.1).

import { makeAxis, paintLabel } from "./axis.ts";
import type { Painter } from "./painter.ts";
import { fit } from "./painter.ts";
import { quoted } from "./phrases.ts";
import type { Reading } from "./reading.ts";
import type { Scene, Target } from "./scene.ts";
import type { Column } from "./table.ts";
import { shade } from "./theme.ts";
import { digits } from "./visible.ts";

interface HeadMap {
  head: number;
  values: Float32Array; // [items, items]
  most: number;
}

/** The matrix of one head between items, or null while it is missing. */
function headMatrix(reading: Reading, head: number): Float32Array | null {
  const { numbers, layer, items, state } = reading;
  const { n } = numbers;
  let matrix: Float32Array | null;
  if (state.headsOf === "rollout") matrix = numbers.headRollout(layer, head);
  else matrix = numbers.heads(layer)?.subarray((head - 1) * n * n, head * n * n) ?? null;
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

function headMap(reading: Reading, head: number): HeadMap | null {
  const values = headMatrix(reading, head);
  if (!values) return null;
  const count = reading.items.labels.length;
  let most = 0;
  for (const q of reading.columns) {
    for (const k of reading.columns) most = Math.max(most, values[q * count + k]);
  }
  return { head, values, most };
}

const headNumbers = (reading: Reading): number[] =>
  Array.from({ length: reading.example.n_heads }, (_, i) => i + 1);

/** The chosen position's row of every head, for the table. */
export function headColumns(reading: Reading): Column[] | null {
  const { items, item, example, state } = reading;
  if (!example.n_heads) return null;
  const count = items.labels.length;
  const heads = state.head === null ? headNumbers(reading) : [state.head];
  return heads.map((head) => ({
    title: `Head ${head}`,
    key: `head/${head}`,
    row: headMatrix(reading, head)?.slice(item * count, (item + 1) * count) ?? null,
  }));
}

export function headsScene(reading: Reading, width: number): Scene {
  const { example, state } = reading;
  if (!example.n_heads) {
    return messageScene(
      width,
      "The heads of each layer were merged when this was made, and not kept, so there are none to show. To keep them: explain(..., keep_heads=True), and for a file also to_html(..., keep_heads=True).",
    );
  }
  if (state.head !== null) return enlarged(reading, width, Math.min(state.head, example.n_heads));
  return multiples(reading, width);
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

function multiples(reading: Reading, width: number): Scene {
  const { theme, state, columns } = reading;
  const heads = headNumbers(reading);
  const maps = heads.map((head) => headMap(reading, head));
  const shared = Math.max(...maps.map((map) => map?.most ?? 0));
  const gap = 20;
  const across = Math.max(
    2,
    Math.min(heads.length, Math.floor((width + gap) / (width < 500 ? 150 : 190)), 6),
  );
  const size = Math.floor((width - 4 - (across - 1) * gap) / across);
  const place = (i: number): [number, number] => [
    2 + (i % across) * (size + gap),
    Math.floor(i / across) * (size + 38) + 24,
  ];
  const at = columns.indexOf(reading.item);
  const headAt = (x: number, y: number): number | null => {
    const i = heads.findIndex((_, one) => {
      const [left, top] = place(one);
      return x >= left && x < left + size && y >= top - 22 && y < top + size;
    });
    return i < 0 ? null : i;
  };
  return {
    width,
    height: place(heads.length - 1)[1] + size + 6,
    focus: null,
    note: [{ text: noteOf(reading) }],
    most: state.scale === "shared" ? shared : undefined,
    paint: (painter) =>
      maps.forEach((map, i) => {
        const [x, y] = place(i);
        painter.text(`Head ${i + 1}`, x, y - 8, { size: 12, weight: 600, fill: theme.ink });
        if (!map) {
          painter.rect(x, y, size, size, { fill: theme.raised, radius: 3 });
          painter.text("…", x + size / 2, y + size / 2, { size: 14, fill: theme.quiet });
          return;
        }
        painter.text(`to ${digits(map.most)}`, x + size, y - 8, {
          size: 11,
          align: "right",
          fill: theme.quiet,
        });
        paintMap(painter, reading, map, x, y, size, state.scale === "shared" ? shared : map.most);
        paintRow(painter, reading, at, x, y, size);
      }),
    hit: (x, y) => {
      const i = headAt(x, y);
      if (i === null) return null;
      const [left, top] = place(i);
      return hitMap(
        reading,
        maps[i],
        i + 1,
        x - left,
        y - top,
        size,
        { head: i + 1 },
        "Click to enlarge",
      );
    },
    paintHover: (painter, target) => {
      const [left, top] = place(Number(target.key.split("/")[0]) - 1);
      painter.rect(left - 2, top - 2, size + 4, size + 4, {
        stroke: theme.accent,
        width: 2,
        radius: 3,
      });
    },
  };
}

function enlarged(reading: Reading, width: number, head: number): Scene {
  const { theme, labels, columns, rightToLeft } = reading;
  const map = headMap(reading, head);
  const left = Math.min(120, Math.max(60, width * 0.16));
  const axis = makeAxis(labels, columns, rightToLeft, left, Math.min(width - left, 640), {
    least: 1,
    most: 44,
    fit: true,
  });
  const readable = axis.step >= 9;
  const size = axis.width;
  const top = 34;
  const at = columns.indexOf(reading.item);
  return {
    width: Math.max(left + size + 8, 260),
    height: top + size + (readable ? axis.labelHeight : 0) + 10,
    focus: null,
    note: [
      {
        text: `${noteOf(reading)} Click a row to look from it; click the title or press Esc for all heads.`,
      },
    ],
    most: map?.most,
    paint: (painter) => {
      painter.text(`← all heads`, 0, 16, { size: 13, fill: theme.accent, weight: 600 });
      painter.text(`Head ${head}`, left, 16, { size: 14, fill: theme.ink, weight: 650 });
      if (!map) return;
      paintMap(painter, reading, map, left, top, size, map.most);
      paintRow(painter, reading, at, left, top, size);
      if (!readable) return;
      columns.forEach((item, row) => {
        const bold = item === reading.item;
        const fill = bold ? theme.accent : reading.found.has(item) ? theme.found : theme.ink;
        painter.text(
          fit(labels[item], left - 12, axis.size),
          left - 8,
          top + (row + 0.5) * axis.step + 4,
          {
            size: Math.min(axis.size, axis.step),
            align: "right",
            fill,
            weight: bold ? 700 : 400,
          },
        );
        paintLabel(painter, { ...axis, upright: true }, labels[item], item, top + size, {
          fill,
        });
      });
    },
    hit: (x, y) => {
      if (y < top - 8) return { key: "back", lines: ["All heads"], change: { head: null } };
      return hitMap(reading, map, head, x - left, y - top, size, null, "");
    },
    paintHover: (painter, target) => {
      if (target.key === "back" || !map) return;
      const [, row] = target.key.split("/").map(Number);
      painter.rect(left, top + row * axis.step, size, axis.step, {
        stroke: theme.bottleneck,
        width: 1.5,
      });
    },
  };
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
  const { columns, theme, items, rightToLeft, state } = reading;
  const count = items.labels.length;
  const across = rightToLeft ? [...columns].reverse() : columns;
  const { packed } = theme.ramp;
  const least = state.threshold * most;
  painter.cells(x, y, size, size, {
    columns: across.length,
    rows: columns.length,
    cell: (c, r) => {
      const value = map.values[columns[r] * count + across[c]];
      return packed[value >= least && most > 0 ? shade(value / most) : 0];
    },
  });
  painter.rect(x, y, size, size, { stroke: theme.faint, width: 1 });
}

/** A mark at the row of the chosen position. */
function paintRow(
  painter: Painter,
  reading: Reading,
  at: number,
  x: number,
  y: number,
  size: number,
): void {
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
  change: Target["change"],
  hint: string,
): Target | null {
  const { columns, labels, items, rightToLeft } = reading;
  const step = size / columns.length;
  const row = Math.floor(y / step);
  const column = Math.floor(x / step);
  const title = `Head ${head}`;
  if (!map || row < 0 || row >= columns.length || column < 0 || column >= columns.length) {
    return change && { key: `${head}`, lines: [title], change };
  }
  const query = columns[row];
  const key = columns[rightToLeft ? columns.length - 1 - column : column];
  const value = map.values[query * items.labels.length + key];
  return {
    key: `${head}/${row}/${column}`,
    lines: [
      title,
      `${quoted(labels[query])} looks at ${quoted(labels[key])}: ${digits(value)}`,
      ...(hint ? [hint] : []),
    ],
    change: change ?? { position: items.groups[query][0] },
  };
}
