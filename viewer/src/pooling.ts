// Matrices with more cells than there is room for: each pixel shows the largest of the cells below
// it. Their mean would wash out the few strong weights that one looks for.

/** For each of `count` cells, in which of `side` bins it lies. */
export function binsOf(count: number, side: number): Uint16Array {
  return Uint16Array.from({ length: count }, (_, i) => Math.floor((i * side) / count));
}

/** The cells that lie in one of `side` bins: from the first to before the second. */
export const cellsOf = (bin: number, count: number, side: number): [number, number] => [
  Math.ceil((bin * count) / side),
  Math.ceil(((bin + 1) * count) / side),
];

/**
 * The largest values of the blocks of a matrix.
 * values: [stride, stride]; rows, columns: which of it are taken, in order.
 * Returns [side, side], where side is at most that of the part that is taken.
 */
export function pool(
  values: Float32Array,
  stride: number,
  rows: readonly number[],
  columns: readonly number[],
  room: number,
): { side: number; cells: Float32Array } {
  const side = Math.max(1, Math.min(columns.length, Math.floor(room)));
  const bins = binsOf(columns.length, side);
  const cells = new Float32Array(side * side);
  for (let r = 0; r < rows.length; r++) {
    const from = rows[r] * stride;
    const to = bins[r] * side;
    for (let c = 0; c < columns.length; c++) {
      const value = values[from + columns[c]];
      if (value > cells[to + bins[c]]) cells[to + bins[c]] = value;
    }
  }
  return { side, cells };
}
