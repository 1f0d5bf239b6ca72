// Map view: layers × tokens heat-maps of one position, one for each method (paper, figures 2–3).

import { labelStyle, makeAxis, paintLabel, thinLabels, type Axis } from "./axis.ts";
import { METHODS, type Method } from "./format.ts";
import type { Painter } from "./painter.ts";
import { METHOD_NAMES, quoted } from "./phrases.ts";
import { byWorth, keep, largest, scoresAt, type Reading, type Row } from "./reading.ts";
import type { Scene, Target } from "./scene.ts";
import { shade } from "./theme.ts";
import { digits } from "./visible.ts";

interface Map3 {
  method: Method;
  axis: Axis;
  top: number; // of the cells
  rows: Row[]; // layer 1 first
  kept: boolean[][]; // which cells are among the top k
  most: number; // the darkest value
}

const TITLE = 30;
const LEFT = 30;

/** The rows of one method for all layers. */
export function mapRows(reading: Reading, method: Method): Row[] {
  const layers = reading.example.n_layers;
  return Array.from({ length: layers }, (_, l) => scoresAt(reading, method, l + 1));
}

/** The largest value of all that is shown, for one scale. */
export function mapLargest(reading: Reading): number {
  return Math.max(
    ...METHODS.flatMap((method) =>
      mapRows(reading, method).map((row) => largest(row, reading.columns)),
    ),
  );
}

export function mapScene(reading: Reading, width: number, shared: number): Scene {
  const { labels, columns, rightToLeft, example, state, theme } = reading;
  const layers = example.n_layers;
  const gap = 36;
  const third = (width - 3 - 2 * gap) / 3 - LEFT;
  const beside = third / columns.length >= 20;
  const room = beside ? third : width - LEFT - 3;
  const limits = { least: 13, most: beside ? 44 : 56, fit: state.fit };
  const height = Math.max(13, Math.min(26, Math.round(240 / layers)));
  const body = layers * height;
  const axes = METHODS.map((_, i) =>
    makeAxis(labels, columns, rightToLeft, LEFT + (beside ? i * (third + gap + LEFT) : 0), room, limits),
  );
  for (const axis of axes) thinLabels(axis, byWorth(reading));
  const labelHeight = axes[0].labelHeight;
  const maps: Map3[] = METHODS.map((method, i) => {
    const rows = mapRows(reading, method);
    const own = Math.max(...rows.map((row) => largest(row, columns)));
    const top = TITLE + (beside ? 0 : i * (body + TITLE + 14));
    const count = labels.length;
    const kept = rows.map((row) => keep(row, columns, count, { threshold: 0, topK: state.topK }));
    return { method, axis: axes[i], top, rows, kept, most: state.scale === "shared" ? shared : own };
  });
  const last = maps[maps.length - 1];
  const bottom = last.top + body + labelHeight;

  const paintMap = (painter: Painter, map: Map3): void => {
    const { axis, top, rows, most, method } = map;
    const current = method === state.method;
    painter.text(METHOD_NAMES[method], axis.left, top - 11, {
      size: 14,
      weight: 650,
      fill: current ? theme.accent : theme.ink,
    });
    painter.text(`0 to ${digits(most)}`, axis.left + axis.width, top - 11, {
      size: 11,
      align: "right",
      fill: theme.quiet,
    });
    painter.cells(axis.left, top, axis.width, body, {
      columns: axis.columns.length,
      rows: layers,
      cell: (c, r) => {
        const row = rows[layers - 1 - r];
        if (!row) return 0;
        const item = axis.columns[c];
        const value = row[item];
        if (value < state.threshold * most || !map.kept[layers - 1 - r][item]) return theme.ramp.packed[0];
        return theme.ramp.packed[shade(most > 0 ? value / most : 0)];
      },
    });
    rows.forEach((row, l) => {
      const y = top + body - (l + 1) * height;
      const chosen = l + 1 === reading.layer;
      if (!row) painter.text("…", axis.left + 6, y + height / 2 + 4, { size: 12, fill: theme.quiet });
      painter.text(String(l + 1), axis.left - 8, y + height / 2 + 4, {
        size: 11,
        align: "right",
        fill: chosen ? theme.accent : theme.quiet,
        weight: chosen ? 700 : 400,
      });
    });
    const y = top + body - reading.layer * height;
    painter.rect(axis.left - 1, y, axis.width + 2, height, {
      stroke: theme.accent,
      width: current ? 2 : 1,
      opacity: current ? 1 : 0.6,
      radius: 2,
    });
    if (beside || map === last) paintLabels(painter, axis, top + body);
  };

  const paintLabels = (painter: Painter, axis: Axis, y: number): void => {
    for (const item of axis.columns) {
      paintLabel(painter, axis, labels[item], item, y, {
        ...labelStyle(theme, {
          chosen: item === reading.item,
          found: reading.found.has(item),
          kept: true,
          token: reading.chosen && reading.items.of[reading.token ?? -1] === item,
        }),
      });
    }
  };

  const find = (x: number, y: number): { map: Map3; layer: number; item: number } | null => {
    for (const map of maps) {
      const item = x >= map.axis.left ? map.axis.at(x) : null;
      const row = Math.floor((y - map.top) / height);
      if (item === null || row < 0 || row >= layers) continue;
      if (x < map.axis.left + map.axis.width) return { map, layer: layers - row, item };
    }
    return null;
  };

  return {
    width: Math.max(...axes.map((axis) => axis.left + axis.width)) + 2,
    height: bottom,
    focus: columns.includes(reading.item) ? axes[0].x(reading.item) : null,
    paint: (painter) => maps.forEach((map) => paintMap(painter, map)),
    hit: (x, y): Target | null => {
      const found = find(x, y);
      if (!found) return null;
      const { map, layer, item } = found;
      const value = map.rows[layer - 1]?.[item];
      return {
        key: `${map.method}/${layer}/${item}`,
        lines: [
          `${quoted(labels[item])} → ${quoted(labels[reading.item])} at layer ${layer}`,
          `${METHOD_NAMES[map.method]} ${value === undefined ? "…" : digits(value)}`,
        ],
        change: { method: map.method, layer, token: reading.items.groups[item][0] },
      };
    },
    paintHover: (painter, target) => {
      const [, layerText, itemText] = target.key.split("/");
      for (const map of maps) {
        const x = map.axis.x(Number(itemText)) - map.axis.step / 2;
        const y = map.top + body - Number(layerText) * height;
        painter.rect(x, y, map.axis.step, height, { stroke: theme.bottleneck, width: 2 });
      }
    },
  };
}
