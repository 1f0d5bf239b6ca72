// Where items stand from left to right, and how their labels are written below.

import { fit, measure, type Painter } from "./painter.ts";
import type { Theme } from "./theme.ts";

export interface Axis {
  left: number;
  step: number; // width of one column
  width: number; // from the left edge of the first to the right edge of the last
  columns: number[]; // items from left to right
  place: Map<number, number>; // item -> column
  upright: boolean; // labels are turned by 90 degrees
  labelled: Set<number>; // the items that have a label: all, or as many as there is room for
  labelHeight: number;
  size: number; // of the font
  x(item: number): number; // the middle of an item's column
  at(x: number): number | null; // the item at x
}

const GAP = 10;
const LABEL = 12; // pixels that an upright label needs

export function makeAxis(
  labels: readonly string[],
  items: readonly number[],
  rightToLeft: boolean,
  left: number,
  room: number,
  limits: { least: number; most: number; fit: boolean },
): Axis {
  const columns = rightToLeft ? [...items].reverse() : [...items];
  const count = Math.max(columns.length, 1);
  const size = 12;
  const widest = Math.min(110, Math.max(8, ...columns.map((i) => quick(labels[i], size))));
  const level = Math.min(room / count, limits.most) >= Math.min(1.2 * widest, 84) + GAP;
  const wanted = Math.min(room / count, limits.most);
  const step = limits.fit ? wanted : Math.max(limits.least, wanted);
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

/** Where columns are narrow, label only the first of these items that have room. */
export function thinLabels(axis: Axis, first: readonly number[]): void {
  if (axis.step >= LABEL) return;
  const taken: number[] = [];
  axis.labelled = new Set();
  for (const item of first) {
    const x = axis.x(item);
    if (!axis.place.has(item) || taken.some((other) => Math.abs(other - x) < LABEL)) continue;
    axis.labelled.add(item);
    taken.push(x);
  }
}

/** The width of a label; long ones are cut anyway. */
const quick = (text: string, size: number): number =>
  text.length > 40 ? 110 : measure(text, size);

/** Write a label below y, in its column. */
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

/** The color and weight of an item's label. */
export function labelStyle(
  theme: Theme,
  is: { chosen: boolean; found: boolean; kept: boolean; token: boolean },
): { fill: string; weight: number } {
  const fill = is.token
    ? theme.bottleneck
    : is.chosen
      ? theme.accent
      : is.found
        ? theme.found
        : is.kept
          ? theme.ink
          : theme.quiet;
  return { fill, weight: is.chosen || is.found || is.token ? 700 : 400 };
}
