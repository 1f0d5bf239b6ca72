// The horizontal axis of drawings: the columns of items (tokens or words), and their labels,
// which are rotated or left out where columns are narrow.

import { fit, measure, type Painter } from "./painter.ts";
import type { Theme } from "./theme.ts";

export interface Axis {
  left: number;
  step: number; // width of one column
  width: number; // of all columns
  columns: number[]; // items from left to right
  place: Map<number, number>; // item -> column
  upright: boolean; // whether labels are rotated by 90 degrees
  labelled: Set<number>; // items with a label: all, or as many as there is room for
  labelHeight: number;
  size: number; // font size
  x(item: number): number; // the center of an item's column
  at(x: number): number | null; // the item at x
}

const GAP = 10;
const LABEL = 12; // pixels that a rotated label needs

export function makeAxis(
  labels: readonly string[],
  items: readonly number[],
  rightToLeft: boolean,
  left: number,
  room: number,
  limits: { min: number; max: number; fit: boolean },
): Axis {
  const columns = rightToLeft ? [...items].reverse() : [...items];
  const count = Math.max(columns.length, 1);
  const size = 12;
  const widest = Math.min(110, Math.max(8, ...columns.map((i) => quick(labels[i], size))));
  const level = Math.min(room / count, limits.max) >= Math.min(1.2 * widest, 84) + GAP;
  const wanted = Math.min(room / count, limits.max);
  const step = limits.fit ? wanted : Math.max(limits.min, wanted);
  const place = new Map(columns.map((item, column) => [item, column]));
  return {
    left,
    step,
    width: step * columns.length,
    columns,
    place,
    upright: !level,
    labelled: new Set(columns),
    labelHeight: level ? 26 : Math.ceil(1.1 * widest) + 14,
    size: level ? 13 : step < 13 ? 11 : size,
    x: (item) => left + (place.get(item) ?? 0) * step + step / 2,
    at: (x) => columns[Math.floor((x - left) / step)] ?? null,
  };
}

/** Where columns are narrow, label only the first of these items that fit.
 * room: pixels that a label needs. */
export function thinLabels(axis: Axis, first: readonly number[], room = LABEL): void {
  if (axis.step >= room) return;
  const taken: number[] = [];
  axis.labelled = new Set();
  for (const item of first) {
    const x = axis.x(item);
    if (!axis.place.has(item) || taken.some((other) => Math.abs(other - x) < room)) continue;
    axis.labelled.add(item);
    taken.push(x);
  }
}

/** The width of a label; long labels are shortened anyway. */
const quick = (text: string, size: number): number =>
  text.length > 40 ? 110 : measure(text, size);

/** Draw the label of an item below y. */
export function paintLabel(
  painter: Painter,
  axis: Axis,
  label: string,
  item: number,
  y: number,
  style: { fill: string; weight?: number },
): void {
  if (!axis.labelled.has(item)) return;
  const x = axis.x(item);
  if (axis.upright) {
    const text = fit(label, axis.labelHeight - 10, axis.size, style.weight);
    painter.text(text, x + axis.size * 0.36, y + 6, {
      ...style,
      size: axis.size,
      align: "right",
      turn: -90,
    });
  } else {
    const text = fit(label, axis.step - 4, axis.size, style.weight);
    painter.text(text, x, y + 18, { ...style, size: axis.size, align: "center" });
  }
}

/** The color and font weight of an item's label. */
export function labelStyle(
  theme: Theme,
  is: { target: boolean; match: boolean; kept: boolean; traced: boolean },
): { fill: string; weight: number } {
  const fill = is.traced
    ? theme.bottleneck
    : is.target
      ? theme.accent
      : is.match
        ? theme.match
        : is.kept
          ? theme.ink
          : theme.quiet;
  return { fill, weight: is.target || is.match || is.traced ? 700 : 400 };
}

/** A line between the columns of the source and the target of an encoder-decoder, with their names.
 * first: the first item of the target; from, to: the ends of the line. */
export function paintSides(
  painter: Painter,
  axis: Axis,
  first: number,
  from: number,
  to: number,
  theme: Theme,
): void {
  const x = axis.x(first) - axis.step / 2;
  painter.line(x, from, x, to, { stroke: theme.quiet, width: 1, dash: [4, 4] });
  painter.text("source ", x - 4, from + 4, { size: 11, align: "right", fill: theme.quiet });
  painter.text("target", x + 4, from + 4, { size: 11, fill: theme.quiet });
}
