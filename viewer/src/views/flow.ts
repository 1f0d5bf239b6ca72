// The flow graph view: input tokens at the bottom, layers above, and the edges from the target
// position down to the input. For flow: the maximum flow to one token and its minimum cut.

import { methodOf } from "../data/header.ts";
import type { CutEdge, MaxFlow } from "../data/maxflow.ts";
import { byLabelPriority, firstTarget, tracedItem, type Snapshot } from "../data/snapshot.ts";
import { digits, percent } from "../data/text.ts";
import {
  type Axis,
  labelStyle,
  makeAxis,
  paintLabel,
  paintSides,
  thinLabels,
} from "../paint/axis.ts";
import { measure, type Painter } from "../paint/painter.ts";
import { shade } from "../paint/theme.ts";
import {
  describeTarget,
  targetName,
  layerName,
  nameOf,
  itemLines,
  SELECT_HINT,
  shortLayer,
  titleOf,
} from "./captions.ts";
import { type Edges, findEdges, startsOf } from "./flowEdges.ts";
import type { Edge } from "./subgraph.ts";
import type { NotePart, Scene, Sight, Target } from "./scene.ts";

const LEFT = 42;
const NAMED = 70; // with names of layers
const TOP = 22;
const MIN_SPACE = 18; // between levels
const MOST_LIT = 150; // edges of the node under the pointer
const BARS = 44; // height of the score bars

interface Layout {
  axis: Axis;
  space: number; // between levels
  radius: number;
  y(level: number): number;
  height: number;
}

function lay(snapshot: Snapshot, width: number, room: number): Layout {
  const { labels, columns, rightToLeft, example } = snapshot;
  const shown = [...new Set([...columns, ...startsOf(snapshot)])].sort((a, b) => a - b);
  const limits = { min: 13, max: 92, fit: snapshot.state.fit };
  const left = example.layer_names.length ? NAMED : LEFT;
  const axis = makeAxis(labels, shown, rightToLeft, left, width - left - 6, limits);
  thinLabels(axis, byLabelPriority(snapshot));
  const layers = example.n_layers;
  const below = 14 + BARS + axis.labelHeight + 6; // the input level
  const space = Math.max(MIN_SPACE, Math.min(78, (room - TOP - below) / layers));
  const bottom = TOP + layers * space;
  return {
    axis,
    space,
    radius: Math.max(1, Math.min(6, axis.step * 0.22)),
    y: (level) => bottom - level * space,
    height: bottom + below,
  };
}

/** room: the height in which the graph should fit. */
export function flowScene(snapshot: Snapshot, width: number, max: number, room = 640): Scene {
  const layout = lay(snapshot, width, room);
  const edges = findEdges(snapshot);
  const cut = edges?.path?.cut ?? [];
  return {
    width: Math.max(layout.axis.left + layout.axis.width + 6, Math.min(width, 360)),
    height: layout.height,
    focus: layout.axis.x(snapshot.item),
    note: [...noteOf(snapshot, edges), ...leftOut(snapshot, edges)],
    cut,
    paint: (painter, sight) => {
      paintGround(painter, snapshot, layout);
      const target = firstTarget(snapshot, layout.axis.columns);
      if (target !== null) {
        paintSides(painter, layout.axis, target, 4, layout.height - 4, snapshot.theme);
      }
      if (edges) paintEdges(painter, snapshot, layout, edges, sight);
      if (edges && snapshot.state.method === "raw") paintDotted(painter, snapshot, layout, edges);
      paintNodes(painter, snapshot, layout, edges);
      paintTokens(painter, snapshot, layout, max);
      if (edges && cut.length) paintCut(painter, snapshot, layout, cut, edges);
    },
    hit: (x, y) => hit(snapshot, layout, edges, x, y),
    paintHover: (painter, target) => paintHover(painter, snapshot, layout, edges, target),
  };
}

/** The sentence above the graph. */
function noteOf(snapshot: Snapshot, edges: Edges | null): NotePart[] {
  const { state, items, layer, token, example } = snapshot;
  const target = describeTarget(snapshot);
  if (methodOf(example, state.method).computed === "data") {
    const title = titleOf(example, state.method);
    return [{ text: `${title} has no scores for edges. The bars show its scores for ${target}.` }];
  }
  if (state.method === "raw") {
    const end = layer > 1 ? " Layers below are ignored (dotted lines)." : "";
    const what =
      (example.edges?.name ?? "attention") === "attention" ? "Attention" : "Edge weights";
    return [{ text: `${what} of ${target} to positions one layer below.${end}` }];
  }
  if (state.method === "rollout") {
    const end =
      snapshot.chosen && token !== null
        ? ` to ${nameOf(snapshot, items.of[token])}`
        : " to the input";
    return [{ text: `The width of an edge is its share of the rollout from ${target}${end}.` }];
  }
  return flowNote(snapshot, edges);
}

const counted = (count: number): string => count.toLocaleString("en");

/** Which edges are not drawn, and how to see them. */
function leftOut(snapshot: Snapshot, edges: Edges | null): NotePart[] {
  const { state, items, columns } = snapshot;
  if (!edges) return [];
  const { total, shares } = edges;
  const drawn = edges.edges.length;
  const hidden =
    columns.length < items.labels.length ? " Paths through hidden tokens are left out." : "";
  if (drawn >= total) return hidden ? [{ text: hidden }] : [];
  const low = percent(Math.min(...shares));
  const high = percent(Math.max(...shares));
  const share = low === high ? low : `${low} to ${high}`;
  const limited = state.topK > 0 || state.threshold > 0;
  const more = limited
    ? " “Minimum score” and “Top tokens” leave out the others."
    : state.edges === "strongest"
      ? " To draw more, set “Edges” to “all”."
      : " The page cannot draw more.";
  const which = `Drawn: ${counted(drawn)} of ${counted(total)} edges, the strongest and their paths`;
  return [{ text: ` ${which}, with ${share} of the weight of a layer.${more}${hidden}` }];
}

function flowNote(snapshot: Snapshot, edges: Edges | null): NotePart[] {
  const { example, items, sources, layer, token, scores } = snapshot;
  if (scores.tooLarge) {
    return [{ text: "The graph is too large to compute the flow of each edge in this page." }];
  }
  if (token === null || !edges?.path) return [{ text: "Computing the maximum flow…" }];
  const { path } = edges;
  const to = items.of[token];
  const ends = `from ${targetName(snapshot)} at ${layerName(example, layer)} to ${nameOf(snapshot, to)}`;
  if (path.value === Infinity) {
    return [{ text: `The flow ${ends} is unlimited: the position is a copy of the token.` }];
  }
  const width = sources.length; // flow out of several positions is a mean over them
  const value = scores.itemRow("flow", layer, items, sources)?.[to] ?? path.value / width;
  const of = width > 1 ? ` (the flow times ${width} positions)` : "";
  return [
    { text: `The maximum flow ${ends} is ${digits(value)}. ` },
    { text: "Bottleneck:", strong: true },
    { text: ` ${describeCut(snapshot, path)}, total capacity ${digits(path.capacity)}${of}.` },
  ];
}

/** The edges of a minimum cut in words. */
function describeCut(snapshot: Snapshot, { cut }: MaxFlow): string {
  const { example, items, item, sources, layer, scores } = snapshot;
  const count = cut.length;
  const layers = [...new Set(cut.map((edge) => edge.layer))];
  const where = layers.length === 1 ? layerName(example, layers[0]) : `layers ${layers.join(", ")}`;
  if (count === 1) {
    const [from, to] = [cut[0].position, cut[0].below].map((i) => nameOf(snapshot, items.of[i]));
    return `the edge from ${from} to ${to} at ${where}`;
  }
  const own = cut.every((edge) => edge.layer === layer && items.of[edge.position] === item);
  const { n } = scores;
  const weights = scores.augmented(layer);
  const leaving = new Set(
    sources.flatMap((position) =>
      Array.from({ length: n }, (_, k) => k).filter((k) => (weights?.[position * n + k] ?? 0) > 0),
    ),
  );
  const all = own && count === leaving.size ? "all " : "";
  const from = own ? ` from ${targetName(snapshot)}` : "";
  return `${all}${count} edges${from} at ${where}`;
}

function hit(
  snapshot: Snapshot,
  layout: Layout,
  edges: Edges | null,
  x: number,
  y: number,
): Target | null {
  const { axis } = layout;
  const item = x >= axis.left ? axis.at(x) : null;
  if (item === null) return null;
  const level = Math.round((layout.y(0) - y) / layout.space);
  if (level > snapshot.example.n_layers || y > layout.height) return null;
  const group = snapshot.items.groups[item];
  if (level <= 0) {
    return {
      key: `0/${item}`,
      lines: itemLines(snapshot, item),
      change: { token: group[0] },
    };
  }
  const held = level <= snapshot.layer ? edges?.held[level]?.[item] : undefined;
  const through = held === undefined ? [] : [`Through this node: ${digits(held)}`];
  return {
    key: `${level}/${item}`,
    lines: [
      `${nameOf(snapshot, item)} at ${layerName(snapshot.example, level)}`,
      ...through,
      SELECT_HINT,
    ],
    change: { layer: level, position: group[0] },
  };
}

/** A line per level, with the number of its layer. */
function paintGround(painter: Painter, snapshot: Snapshot, { axis, y }: Layout): void {
  const { theme, example, layer } = snapshot;
  for (let l = 0; l <= example.n_layers; l++) {
    painter.line(axis.left, y(l), axis.left + axis.width, y(l), {
      stroke: theme.faint,
      width: 1,
      opacity: l === layer ? 1 : 0.55,
    });
    painter.text(l === 0 ? "input" : shortLayer(example, l), axis.left - 8, y(l) + 4, {
      size: 11,
      align: "right",
      weight: l === layer ? 700 : 400,
      fill: l === layer ? theme.accent : theme.quiet,
    });
  }
}

const widthOf = (layout: Layout, share: number): number =>
  Math.max(0.5, share * Math.max(3, Math.min(11, layout.axis.step * 0.45)));

function paintEdges(
  painter: Painter,
  snapshot: Snapshot,
  layout: Layout,
  { edges, max }: Edges,
  sight?: Sight,
): void {
  const { theme } = snapshot;
  for (const edge of edges) {
    const x0 = layout.axis.x(edge.from);
    const x1 = layout.axis.x(edge.to);
    if (sight && Math.max(x0, x1) < sight.from) continue;
    if (sight && Math.min(x0, x1) > sight.to) continue;
    const share = edge.weight / max;
    painter.edge(x0, layout.y(edge.layer), x1, layout.y(edge.layer - 1), {
      stroke: theme.accent,
      width: widthOf(layout, share),
      opacity: 0.16 + 0.64 * Math.sqrt(share),
    });
  }
}

/** Dotted lines below raw attention, which ignores the layers below. */
function paintDotted(painter: Painter, snapshot: Snapshot, layout: Layout, edges: Edges): void {
  if (snapshot.layer < 2) return;
  for (const { to, weight } of edges.edges) {
    painter.line(layout.axis.x(to), layout.y(snapshot.layer - 1), layout.axis.x(to), layout.y(0), {
      stroke: snapshot.theme.quiet,
      width: 1,
      opacity: 0.2 + 0.6 * (weight / edges.max),
      dash: [2, 5],
    });
  }
}

function paintNodes(
  painter: Painter,
  snapshot: Snapshot,
  layout: Layout,
  edges: Edges | null,
): void {
  const { theme, example, layer } = snapshot;
  const { axis, radius, y } = layout;
  const touched = new Set(
    edges?.edges.flatMap(({ layer: l, from, to }) => [`${l}/${from}`, `${l - 1}/${to}`]),
  );
  for (let l = 0; l <= example.n_layers; l++) {
    const held = edges?.held[l];
    const max = held ? held.reduce((max, value) => Math.max(max, value), 0) : 0;
    for (const column of axis.columns) {
      const share = held && max > 0 ? held[column] / max : 0;
      const lit = share > 0 && touched.has(`${l}/${column}`);
      if (!lit && axis.step < 5) continue;
      painter.circle(axis.x(column), y(l), lit ? radius : Math.min(radius, 3), {
        fill: lit ? theme.ramp.css[shade(0.25 + 0.75 * share)] : theme.ground,
        stroke: lit ? theme.accent : theme.quiet,
        width: 1,
        opacity: lit ? 1 : l > layer ? 0.35 : 0.6,
      });
    }
  }
  for (const start of startsOf(snapshot)) {
    painter.circle(axis.x(start), y(layer), radius + 4.5, { stroke: theme.accent, width: 2.5 });
  }
}

/** Below the input: a bar for the score of each token, and its label. */
function paintTokens(painter: Painter, snapshot: Snapshot, layout: Layout, max: number): void {
  const { theme, row, kept, items, labels } = snapshot;
  const { axis } = layout;
  const base = layout.y(0) + 12;
  const traced = tracedItem(snapshot);
  const wide = Math.min(26, axis.step * 0.6);
  for (const item of axis.columns) {
    const x = axis.x(item);
    if (row && kept[item] && max > 0) {
      const tall = Math.max(1, Math.min(1, row[item] / max) * BARS * 0.7);
      painter.rect(x - wide / 2, base, wide, tall, {
        fill: item === traced ? theme.bottleneck : theme.accent,
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
        target: item === snapshot.item,
        match: snapshot.matches.has(item),
        kept: kept[item] || items.special[item],
        traced: item === traced,
      }),
    });
  }
}

function paintCut(
  painter: Painter,
  snapshot: Snapshot,
  layout: Layout,
  cut: readonly CutEdge[],
  { edges, max }: Edges,
): void {
  const { theme, items } = snapshot;
  const { axis, y } = layout;
  const drawn = new Set(edges.map(({ layer, from, to }) => `${layer}/${from}/${to}`));
  const seen = cut.filter(({ layer, position, below }) =>
    drawn.has(`${layer}/${items.of[position]}/${items.of[below]}`),
  );
  if (!seen.length) return;
  for (const { layer, position, below, capacity } of seen) {
    const share = Math.min(1, capacity / max); // the flow of a cut edge is its capacity
    if (share < 0.004 && seen.length > 400) continue;
    const x0 = axis.x(items.of[position]);
    const x1 = axis.x(items.of[below]);
    painter.edge(x0, y(layer), x1, y(layer - 1), {
      stroke: theme.bottleneck,
      width: Math.max(seen.length > 60 ? 0.4 : 0.8, widthOf(layout, share) * 0.7),
      opacity: seen.length > 60 ? 0.55 + 0.35 * share : 0.85,
    });
  }
  paintBadge(painter, snapshot, layout, seen);
}

/** The label "bottleneck" beside the widest edge of the cut. */
function paintBadge(
  painter: Painter,
  snapshot: Snapshot,
  layout: Layout,
  seen: readonly CutEdge[],
): void {
  const { theme, items } = snapshot;
  const { axis, y } = layout;
  const widest = seen.reduce((a, b) => (b.capacity > a.capacity ? b : a));
  const text = "bottleneck";
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

function paintHover(
  painter: Painter,
  snapshot: Snapshot,
  layout: Layout,
  edges: Edges | null,
  target: Target,
): void {
  const [level, item] = target.key.split("/").map(Number);
  const { theme } = snapshot;
  const { axis, y } = layout;
  const touching = (edge: Edge): boolean =>
    (edge.layer === level && edge.from === item) || (edge.layer === level + 1 && edge.to === item);
  // The strongest come last. Drawing thousands of edges would take longer than a frame.
  for (const edge of (edges?.edges ?? []).filter(touching).slice(-MOST_LIT)) {
    painter.edge(axis.x(edge.from), y(edge.layer), axis.x(edge.to), y(edge.layer - 1), {
      stroke: theme.ink,
      width: Math.max(1, widthOf(layout, edge.weight / (edges?.max ?? 1))),
      opacity: 0.75,
    });
  }
  painter.circle(axis.x(item), y(level), layout.radius + 3, { stroke: theme.ink, width: 2 });
}
