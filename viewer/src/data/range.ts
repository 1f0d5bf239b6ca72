// The range of scores that colors stand for, as `color_range` and `color_share` of
// src/attnflow/presentation.py define it. What is colored shows its range.

import { digits } from "./text.ts";

/** auto: from 0, or from the lowest score where scores are close; zero: from 0; range: from the
 * lowest score to the highest that does not exceed all others by far; shared: one for all. */
export const SCALES = ["auto", "zero", "range", "shared"] as const;
export type Scale = (typeof SCALES)[number];

export interface Range {
  low: number; // of the lightest color
  high: number; // of the darkest color
  exceeded: boolean; // whether higher scores have the darkest color too
}

const STRETCH = 0.4; // "auto" starts at the lowest score if it is this share of the highest
const PALE = 0.25; // of the highest score: rows of lower scores only would be nearly blank
const LIGHTEST = 0.15; // strength of the color of the lowest score, which is not 0
const TIMES = 3; // a score that is so many times all others is left out of "range"

export const fromZero = (high: number): Range => ({ low: 0, high, exceeded: false });

/** The range for some scores. Zeros do not count: tokens that a position cannot attend to. */
export function rangeOf(values: readonly number[], scale: Scale): Range {
  const scores = values.filter((value) => value > 0).sort((a, b) => a - b);
  if (!scores.length) return fromZero(0);
  const low = scores[0];
  const high = scores[scores.length - 1];
  if (scale === "range") {
    const next = scores[scores.length - 2] ?? high;
    const exceeded = scores.length > 2 && high > TIMES * next;
    const end = exceeded ? next : high;
    return low < end ? { low, high: end, exceeded } : fromZero(end);
  }
  const close = scale === "auto" && low >= STRETCH * high && low < high;
  return close ? { low, high, exceeded: false } : fromZero(high);
}

/** From the lowest positive score to the highest; from 0 if they are equal. */
export function wholeRange(values: readonly number[]): Range {
  const scores = values.filter((value) => value > 0);
  if (!scores.length) return fromZero(0);
  const low = Math.min(...scores);
  const high = Math.max(...scores);
  return low < high ? { low, high, exceeded: false } : fromZero(high);
}

/** Whether half of the rows would have hardly any contrast on a common range, as `row_ranges` of
 * src/attnflow/presentation.py decides: scores close to each other, or all low. */
export function needOwnRanges(rows: readonly (readonly number[])[]): boolean {
  const tops = rows.map((row) => Math.max(0, ...row));
  const highest = Math.max(...tops);
  const blank = rows.map(
    (row, i) => rangeOf(row, "auto").low > 0 || (tops[i] > 0 && tops[i] < PALE * highest),
  );
  const equal = rows.map((row) => new Set(row.filter((value) => value > 0)).size === 1);
  const needing = rows.filter((_, i) => blank[i] || equal[i]).length;
  return blank.includes(true) && 2 * needing >= rows.length;
}

/** The scores of some items. */
export const pick = (row: Float32Array | null, items: readonly number[]): number[] =>
  row ? items.map((i) => row[i]) : [];

/** The strength of the color of a score, from 0 to 1. */
export function strength({ low, high }: Range, value: number): number {
  if (!(value > 0) || !(high > 0)) return 0;
  if (low <= 0) return Math.min(1, value / high);
  const share = (value - low) / (high - low);
  return LIGHTEST + (1 - LIGHTEST) * Math.min(1, Math.max(0, share));
}

/** A range as text, such as "0 to 0.980". */
export const rangeText = ({ low, high, exceeded }: Range): string =>
  high > 0 ? `${digits(low)} to ${digits(high)}${exceeded ? " or more" : ""}` : "";
