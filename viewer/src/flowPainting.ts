// How the flow view is painted: levels, edges, nodes, tokens and the cut.

import { labelStyle, paintLabel, type Axis } from "./axis.ts";
import type { Edge, Edges } from "./flowEdges.ts";
import type { CutEdge } from "./maxflow.ts";
import { measure, type Painter } from "./painter.ts";
import type { Reading } from "./reading.ts";
import type { Target } from "./scene.ts";
import { shade } from "./theme.ts";
import { digits } from "./visible.ts";

export const LEFT = 42;
export const TOP = 22;
export const BARS = 44;

export interface Layout {
  axis: Axis;
  space: number; // between levels
  radius: number;
  y(level: number): number;
  height: number;
}

/** Faint columns and the numbers of layers. */
export function paintGround(painter: Painter, reading: Reading, { axis, y }: Layout): void {
  const { theme, example, layer } = reading;
  for (let l = 0; l <= example.n_layers; l++) {
    painter.line(axis.left, y(l), axis.left + axis.width, y(l), {
      stroke: theme.faint,
      width: 1,
      opacity: l === layer ? 1 : 0.55,
    });
    painter.text(l === 0 ? "input" : String(l), axis.left - 8, y(l) + 4, {
      size: 11,
      align: "right",
      weight: l === layer ? 700 : 400,
      fill: l === layer ? theme.accent : theme.quiet,
    });
  }
}

const widthOf = (layout: Layout, share: number): number =>
  Math.max(0.5, share * Math.max(3, Math.min(11, layout.axis.step * 0.45)));

export function paintEdges(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  { edges, most }: Edges,
  sight?: { from: number; to: number },
): void {
  const { theme } = reading;
  for (const edge of edges) {
    const x0 = layout.axis.x(edge.from);
    const x1 = layout.axis.x(edge.to);
    if (sight && Math.max(x0, x1) < sight.from) continue;
    if (sight && Math.min(x0, x1) > sight.to) continue;
    const share = edge.weight / most;
    painter.edge(x0, layout.y(edge.layer), x1, layout.y(edge.layer - 1), {
      stroke: theme.accent,
      width: widthOf(layout, share),
      opacity: 0.16 + 0.64 * Math.sqrt(share),
    });
  }
}

/** Raw attention ends one layer below; it takes what stands there for the token itself. */
export function paintAssumed(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  found: Edges,
): void {
  if (reading.layer < 2) return;
  for (const { to, weight } of found.edges) {
    painter.line(layout.axis.x(to), layout.y(reading.layer - 1), layout.axis.x(to), layout.y(0), {
      stroke: reading.theme.quiet,
      width: 1,
      opacity: 0.2 + 0.6 * (weight / found.most),
      dash: [2, 5],
    });
  }
}

export function paintNodes(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  found: Edges | null,
): void {
  const { theme, example, layer, item } = reading;
  const { axis, radius, y } = layout;
  for (let l = 0; l <= example.n_layers; l++) {
    const held = found?.held[l];
    const most = held ? held.reduce((max, value) => Math.max(max, value), 0) : 0;
    for (const one of axis.columns) {
      const share = held && most > 0 ? held[one] / most : 0;
      const lit = share > 0.02 && l <= layer;
      if (!lit && axis.step < 5) continue;
      painter.circle(axis.x(one), y(l), lit ? radius : Math.min(radius, 3), {
        fill: lit ? theme.ramp.css[shade(0.25 + 0.75 * share)] : theme.ground,
        stroke: lit ? theme.accent : theme.quiet,
        width: 1,
        opacity: lit ? 1 : l > layer ? 0.35 : 0.6,
      });
    }
  }
  painter.circle(axis.x(item), y(layer), radius + 4.5, { stroke: theme.accent, width: 2.5 });
}

/** Below the input: a bar for each token's score, and its label. */
export function paintTokens(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  most: number,
): void {
  const { theme, row, kept, items, labels } = reading;
  const { axis } = layout;
  const base = layout.y(0) + 12;
  const goal = goalOf(reading);
  const wide = Math.min(26, axis.step * 0.6);
  for (const item of axis.columns) {
    const x = axis.x(item);
    if (row && kept[item] && most > 0) {
      const tall = Math.max(1, Math.min(1, row[item] / most) * BARS * 0.7);
      painter.rect(x - wide / 2, base, wide, tall, {
        fill: item === goal ? theme.bottleneck : theme.accent,
        radius: Math.min(2, tall / 2),
        opacity: 0.85,
      });
      if (axis.step >= 38) {
        painter.text(digits(row[item]), x, base + tall + 12, {
          size: 11,
          align: "center",
          fill: theme.quiet,
        });
      }
    }
    paintLabel(painter, axis, labels[item], item, base + BARS, {
      ...labelStyle(theme, {
        chosen: item === reading.item,
        found: reading.found.has(item),
        kept: kept[item] || items.special[item],
        token: item === goal,
      }),
    });
  }
}

/** The item at the end of the flow: the chosen one, or for flow the strongest. */
function goalOf(reading: Reading): number | null {
  if (reading.token === null) return null;
  if (!reading.chosen && reading.state.method !== "flow") return null;
  return reading.items.of[reading.token];
}

export function paintCut(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  cut: readonly CutEdge[],
  most: number,
): void {
  const { theme, items } = reading;
  const { axis, y } = layout;
  const seen = cut.filter(
    (edge) => axis.place.has(items.of[edge.position]) && axis.place.has(items.of[edge.below]),
  );
  if (!seen.length) return;
  for (const { layer, position, below, capacity } of seen) {
    const share = Math.min(1, capacity / most); // a cut edge is full: its flow is its capacity
    if (share < 0.004 && seen.length > 400) continue;
    const x0 = axis.x(items.of[position]);
    const x1 = axis.x(items.of[below]);
    painter.edge(x0, y(layer), x1, y(layer - 1), {
      stroke: theme.bottleneck,
      width: Math.max(seen.length > 60 ? 0.4 : 0.8, widthOf(layout, share) * 0.7),
      opacity: seen.length > 60 ? 0.55 + 0.35 * share : 0.85,
    });
  }
  paintBadge(painter, reading, layout, seen);
}

/** "here is the bottleneck", beside the widest edge of the cut. */
function paintBadge(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  seen: readonly CutEdge[],
): void {
  const { theme, items } = reading;
  const { axis, y } = layout;
  const widest = seen.reduce((a, b) => (b.capacity > a.capacity ? b : a));
  const text = "here is the bottleneck";
  const width = measure(text, 12, 650) + 16;
  const middle = (axis.x(items.of[widest.position]) + axis.x(items.of[widest.below])) / 2;
  const at = (y(widest.layer) + y(widest.layer - 1)) / 2;
  const right = axis.left + axis.width;
  const x = middle + 14 + width > right ? Math.max(axis.left, middle - 14 - width) : middle + 14;
  painter.rect(x, at - 11, width, 22, {
    fill: theme.ground,
    stroke: theme.bottleneck,
    width: 1.5,
    radius: 11,
  });
  painter.text(text, x + 8, at + 4, { size: 12, weight: 650, fill: theme.bottleneck });
}

export function paintHover(
  painter: Painter,
  reading: Reading,
  layout: Layout,
  found: Edges | null,
  target: Target,
): void {
  const [level, item] = target.key.split("/").map(Number);
  const { theme } = reading;
  const { axis, y } = layout;
  const touching = (edge: Edge): boolean =>
    (edge.layer === level && edge.from === item) || (edge.layer === level + 1 && edge.to === item);
  for (const edge of found?.edges ?? []) {
    if (!touching(edge)) continue;
    painter.edge(axis.x(edge.from), y(edge.layer), axis.x(edge.to), y(edge.layer - 1), {
      stroke: theme.ink,
      width: Math.max(1, widthOf(layout, edge.weight / (found?.most ?? 1))),
      opacity: 0.75,
    });
  }
  painter.circle(axis.x(item), y(level), layout.radius + 3, { stroke: theme.ink, width: 2 });
}
