// The numbers of the heads view. A head's rollout to the input is its augmented matrix on the
// rollout of the layers below, where heads are merged (paper, appendix A.1).

import { pool } from "./pooling.ts";
import type { Reading } from "./reading.ts";
import type { Column } from "./table.ts";

export interface HeadMap {
  values: Float32Array; // [items, items]
  side: number;
  cells: Float32Array; // [side, side]: what is drawn, from left to right
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

/** What one head shows in a square of `room` pixels, or null while it is missing. */
export function headMap(reading: Reading, head: number, room: number): HeadMap | null {
  const values = headMatrix(reading, head);
  if (!values) return null;
  const { columns, items, rightToLeft } = reading;
  const across = rightToLeft ? [...columns].reverse() : columns;
  const { side, cells } = pool(values, items.labels.length, columns, across, room);
  const most = cells.reduce((max, value) => Math.max(max, value), 0);
  return { values, side, cells, most };
}

export const headNumbers = (reading: Reading): number[] =>
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
