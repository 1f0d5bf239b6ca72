// The difference between two rows of scores: which tokens of two texts correspond, and by how much
// their shares of the scores differ.

import type { Row, Snapshot } from "./snapshot.ts";

/** Items of two texts that correspond; null where one of them has none. */
export interface Pair {
  a: number | null;
  b: number | null;
}

/**
 * Align two lists: a longest common subsequence, and between its members runs of equal length item
 * by item. Other items have no counterpart.
 */
export function align(a: readonly string[], b: readonly string[]): Pair[] {
  const pairs: Pair[] = [];
  let i = 0;
  let j = 0;
  for (const [x, y] of [...commonItems(a, b), [a.length, b.length] as const]) {
    const equal = x - i === y - j;
    while (equal && i < x) pairs.push({ a: i++, b: j++ });
    while (i < x) pairs.push({ a: i++, b: null });
    while (j < y) pairs.push({ a: null, b: j++ });
    if (x < a.length && y < b.length) pairs.push({ a: i++, b: j++ });
  }
  return pairs;
}

/** The places of a longest common subsequence. */
function commonItems(a: readonly string[], b: readonly string[]): [number, number][] {
  const wide = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * wide); // of the rest of both lists
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * wide + j] =
        a[i] === b[j]
          ? lengths[(i + 1) * wide + j + 1] + 1
          : Math.max(lengths[(i + 1) * wide + j], lengths[i * wide + j + 1]);
    }
  }
  const common: [number, number][] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) common.push([i++, j++]);
    else if (lengths[(i + 1) * wide + j] >= lengths[i * wide + j + 1]) i++;
    else j++;
  }
  return common;
}

/** Scores as shares of their sum; null while they are missing. */
export function sharesOf(row: Row): Float32Array | null {
  if (!row) return null;
  const sum = row.reduce((total, value) => total + value, 0);
  return sum > 0 ? row.map((value) => value / sum) : row;
}

export interface Differences {
  pairs: Pair[]; // those shown
  a: Float32Array | null; // shares of the first
  b: Float32Array | null;
  values: (number | null)[]; // of each pair: share of the first minus share of the second
}

const cache = new WeakMap<readonly string[], WeakMap<readonly string[], Pair[]>>();

/** The pairs of two snapshots, without hidden items. */
export function pairsOf(one: Snapshot, other: Snapshot): Pair[] {
  let known = cache.get(one.labels);
  if (!known) cache.set(one.labels, (known = new WeakMap()));
  let pairs = known.get(other.labels);
  if (!pairs) known.set(other.labels, (pairs = align(one.labels, other.labels)));
  const [first, second] = [new Set(one.columns), new Set(other.columns)];
  return pairs.filter(({ a, b }) => (a !== null && first.has(a)) || (b !== null && second.has(b)));
}

/** The differences of two rows. An item without a counterpart counts as 0 there. */
export function subtract(pairs: Pair[], one: Row, other: Row): Differences {
  const [a, b] = [sharesOf(one), sharesOf(other)];
  const values = pairs.map((pair) => {
    if (!a || !b) return null;
    return (pair.a === null ? 0 : a[pair.a]) - (pair.b === null ? 0 : b[pair.b]);
  });
  return { pairs, a, b, values };
}
