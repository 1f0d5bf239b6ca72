// Flow view: tokens at the bottom, layers upward, and what runs from the chosen position down to
// the input. For flow, the maximum flow to one token and the cut that limits it.

import { makeAxis, thinLabels } from "./axis.ts";
import { findEdges, type Edges } from "./flowEdges.ts";
import {
  BARS,
  LEFT,
  paintAssumed,
  paintCut,
  paintEdges,
  paintGround,
  paintHover,
  paintNodes,
  paintTokens,
  TOP,
  type Layout,
} from "./flowPainting.ts";
import { quoted, scoreLines } from "./phrases.ts";
import { byWorth, type Reading } from "./reading.ts";
import type { NotePart, Scene, Target } from "./scene.ts";
import { digits } from "./visible.ts";

function lay(reading: Reading, width: number): Layout {
  const { labels, columns, item, rightToLeft, example } = reading;
  const shown = columns.includes(item) ? columns : [...columns, item].sort((a, b) => a - b);
  const limits = { least: 13, most: 92, fit: reading.state.fit };
  const axis = makeAxis(labels, shown, rightToLeft, LEFT, width - LEFT - 6, limits);
  thinLabels(axis, byWorth(reading));
  const layers = example.n_layers;
  const space = Math.max(30, Math.min(78, 520 / layers));
  const bottom = TOP + layers * space;
  return {
    axis,
    space,
    radius: Math.max(1, Math.min(6, axis.step * 0.22)),
    y: (level) => bottom - level * space,
    height: bottom + 14 + BARS + axis.labelHeight + 6,
  };
}

export function flowScene(reading: Reading, width: number, most: number): Scene {
  const layout = lay(reading, width);
  const found = findEdges(reading);
  const cut = found?.path?.cut ?? [];
  return {
    width: Math.max(layout.axis.left + layout.axis.width + 6, Math.min(width, 360)),
    height: layout.height,
    focus: layout.axis.x(reading.item),
    note: noteOf(reading, found),
    cut,
    most: undefined,
    paint: (painter, sight) => {
      paintGround(painter, reading, layout);
      if (found) paintEdges(painter, reading, layout, found, sight);
      if (found && reading.state.method === "raw") paintAssumed(painter, reading, layout, found);
      paintNodes(painter, reading, layout, found);
      paintTokens(painter, reading, layout, most);
      if (found && cut.length) paintCut(painter, reading, layout, cut, found.most);
    },
    hit: (x, y) => hit(reading, layout, found, x, y),
    paintHover: (painter, target) => paintHover(painter, reading, layout, found, target),
  };
}

function noteOf(reading: Reading, found: Edges | null): NotePart[] {
  const { state, names, layer, position, token, numbers, labels, item } = reading;
  if (state.method === "raw") {
    const end = layer > 1 ? " It says nothing of the layers below (dotted)." : "";
    return [
      {
        text: `Raw attention of ${quoted(labels[item])} at layer ${layer}, one layer down.${end}`,
      },
    ];
  }
  if (state.method === "rollout") {
    const to = reading.chosen && token !== null ? ` and ends in ${quoted(names[token])}` : "";
    return [
      {
        text: `Every edge is as wide as the share that passes through it on the way from ${quoted(labels[item])} at layer ${layer} down to the input${to}.`,
      },
    ];
  }
  if (numbers.tooLarge) {
    return [{ text: "The graph is too large to work out in the page how the flow runs." }];
  }
  if (token === null || !found?.path) return [{ text: "The maximum flow is being worked out …" }];
  const { path } = found;
  const ends = `from ${quoted(names[position])} at layer ${layer} to ${quoted(names[token])}`;
  if (path.value === Infinity) {
    return [{ text: `Nothing limits the flow ${ends}: it is still the token itself.` }];
  }
  const known = numbers.row("flow", layer, position)?.[token] ?? path.value;
  const layers = [...new Set(path.cut.map((edge) => edge.layer))];
  const where = layers.length === 1 ? `at layer ${layers[0]}` : `at layers ${layers.join(", ")}`;
  const count = path.cut.length;
  const edges = count === 1 ? "one edge" : `${count} edges`;
  const whole = path.cut.every((edge) => edge.layer === layer && edge.position === position);
  const what = whole
    ? `all that leaves ${quoted(names[position])}, ${edges} ${where}`
    : `${edges} ${where}`;
  return [
    { text: `The most that can run ${ends} is ${digits(known)}. ` },
    { text: "Here is the bottleneck:", strong: true },
    { text: ` ${what} with a capacity of ${digits(path.capacity)} together.` },
  ];
}

function hit(
  reading: Reading,
  layout: Layout,
  found: Edges | null,
  x: number,
  y: number,
): Target | null {
  const { axis } = layout;
  const item = x >= axis.left ? axis.at(x) : null;
  if (item === null) return null;
  const level = Math.round((layout.y(0) - y) / layout.space);
  if (level > reading.example.n_layers || y > layout.height) return null;
  const group = reading.items.groups[item];
  if (level <= 0) {
    return {
      key: `0/${item}`,
      lines: [reading.labels[item], ...scoreLines(reading, item)],
      change: { token: group[0] },
    };
  }
  const held = level <= reading.layer ? found?.held[level]?.[item] : undefined;
  const passes = held === undefined ? [] : [`${digits(held)} passes through here`];
  return {
    key: `${level}/${item}`,
    lines: [
      `${quoted(reading.labels[item])} at layer ${level}`,
      ...passes,
      "Click to look from here",
    ],
    change: { layer: level, position: group[0] },
  };
}
