// Attention with the residual connection mixed in, and rollout: products of layers (paper §3).
// All matrices are row-major Float32Arrays [n, n]; rows are queries, columns are keys.

/** Return A = (1 - r) W + r I. Carried rows become the identity; rows of zeros are unchanged. */
export function augment(
  attention: Float32Array,
  n: number,
  residual: number,
  carried: readonly number[] = [],
): Float32Array {
  const out = new Float32Array(n * n);
  for (let q = 0; q < n; q++) {
    let sum = 0;
    for (let k = q * n; k < (q + 1) * n; k++) {
      sum += attention[k];
      out[k] = (1 - residual) * attention[k];
    }
    if (sum > 0) out[q * n + q] += residual;
  }
  for (const q of carried) {
    out.fill(0, q * n, (q + 1) * n);
    out[q * n + q] = 1;
  }
  return out;
}

/** Row times matrix: move a distribution over positions one layer down. */
export function pushDown(row: ArrayLike<number>, matrix: Float32Array, n: number): Float64Array {
  const out = new Float64Array(n);
  for (let q = 0; q < n; q++) {
    const weight = row[q];
    if (weight === 0) continue;
    const start = q * n;
    for (let k = 0; k < n; k++) out[k] += weight * matrix[start + k];
  }
  return out;
}

/** Matrix times column: the value of each position, given those one layer below. */
export function pullUp(matrix: Float32Array, column: ArrayLike<number>, n: number): Float64Array {
  const out = new Float64Array(n);
  for (let q = 0; q < n; q++) {
    let sum = 0;
    const start = q * n;
    for (let k = 0; k < n; k++) sum += matrix[start + k] * column[k];
    out[q] = sum;
  }
  return out;
}

/**
 * Rollout from a distribution at `layer` to every level below: [layer + 1] distributions over
 * positions. The last entry is `start`; the first is its rollout to the input.
 * layers: augmented matrices of layers 1 to `layer`.
 */
export function descend(
  layers: readonly Float32Array[],
  n: number,
  layer: number,
  start: ArrayLike<number>,
): Float64Array[] {
  const levels: Float64Array[] = new Array(layer + 1);
  levels[layer] = Float64Array.from(start);
  for (let l = layer; l > 0; l--) levels[l - 1] = pushDown(levels[l], layers[l - 1], n);
  return levels;
}

/** The rollout of each position at each level to one token: [layer + 1] columns. */
export function ascend(
  layers: readonly Float32Array[],
  n: number,
  layer: number,
  token: number,
): Float64Array[] {
  const levels: Float64Array[] = [oneHot(n, token)];
  for (let l = 1; l <= layer; l++) levels.push(pullUp(layers[l - 1], levels[l - 1], n));
  return levels;
}

/** A distribution over positions: equal weights on some of them. */
export function spread(n: number, positions: readonly number[]): Float64Array {
  const out = new Float64Array(n);
  for (const position of positions) out[position] += 1 / positions.length;
  return out;
}

export function oneHot(n: number, index: number): Float64Array {
  const out = new Float64Array(n);
  out[index] = 1;
  return out;
}

/** Rows [from, to) of the product of two [n, n] matrices, into `out`. */
export function multiplyRows(
  left: Float32Array,
  right: Float32Array,
  out: Float32Array,
  n: number,
  from: number,
  to: number,
): void {
  for (let q = from; q < to; q++) {
    const target = out.subarray(q * n, (q + 1) * n);
    for (let m = 0; m < n; m++) {
      const weight = left[q * n + m];
      if (weight === 0) continue;
      const start = m * n;
      for (let k = 0; k < n; k++) target[k] += weight * right[start + k];
    }
  }
}

/** The product of two [n, n] matrices, as a generator that yields its progress. */
export function* multiply(
  left: Float32Array,
  right: Float32Array,
  n: number,
): Generator<[number, number], Float32Array> {
  const out = new Float32Array(n * n);
  const step = Math.max(1, Math.floor(2e6 / (n * n)));
  for (let q = 0; q < n; q += step) {
    multiplyRows(left, right, out, n, q, Math.min(n, q + step));
    yield [q, n];
  }
  return out;
}
