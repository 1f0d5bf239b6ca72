// Map view: layers × tokens heat-maps of one position, one for each method (paper, figures 2–3).

import { labelStyle, makeAxis, paintLabel, thinLabels, type Axis } from "./axis.ts";
import { METHODS, type Method } from "./format.ts";
import { measure, type Painter } from "./painter.ts";
import { METHOD_NAMES, quoted } from "./phrases.ts";
import { cellsOf } from "./pooling.ts";
import { byWorth, keep, largest, scoresAt, type Reading, type Row } from "./reading.ts";
import type { Scene, Target } from "./scene.ts";
import { shade } from "./theme.ts";
import { digits } from "./visible.ts";

interface HeatMap {
  method: Method;
  axis: Axis;
  top: number; // of the cells
  rows: Row[]; // layer 1 first
  kept: boolean[][]; // which cells are among the top k
  most: number; // the darkest value
  scale: string; // from nothing to that
  scaleEnd: number; // where it ends: the end of the map, or further right if its title is longer
  labelled: boolean; // whether tokens are written below
}

interface Layout {
  axes: Axis[]; // one for each method
  tops: number[]; // of their cells
  beside: boolean; // side by side, or one above the other
  cell: number; // height of a cell
  body: number; // height of all cells of a map
}

const TITLE = 30;
const LEFT = 30;
const GAP = 36;
const TITLED = 176; // room for any title with its scale
const TITLE_SIZE = 14;
const TITLE_WEIGHT = 650;
const SCALE_SIZE = 11;

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

function lay(reading: Reading, width: number): Layout {
  const { labels, columns, rightToLeft, example, state } = reading;
  const third = (width - 3 - 2 * GAP) / 3 - LEFT;
  const beside = third / columns.length >= 14 && third >= TITLED;
  const room = beside ? third : width - LEFT - 3;
  const limits = { least: 13, most: beside ? 44 : 56, fit: state.fit };
  const cell = Math.max(13, Math.min(26, Math.round(240 / example.n_layers)));
  const body = cell * example.n_layers;
  const axes = METHODS.map((_, i) => {
    const left = LEFT + (beside ? i * (third + GAP + LEFT) : 0);
    const axis = makeAxis(labels, columns, rightToLeft, left, room, limits);
    thinLabels(axis, byWorth(reading));
    return axis;
  });
  const tops = METHODS.map((_, i) => TITLE + (beside ? 0 : i * (body + TITLE + 14)));
  return { axes, tops, beside, cell, body };
}

function makeMaps(reading: Reading, layout: Layout, shared: number): HeatMap[] {
  const { columns, labels, state } = reading;
  return METHODS.map((method, i) => {
    const rows = mapRows(reading, method);
    const own = Math.max(...rows.map((row) => largest(row, columns)));
    const most = state.scale === "shared" ? shared : own;
    const scale = most > 0 ? `0 to ${digits(most)}` : "";
    const axis = layout.axes[i];
    const title = measure(METHOD_NAMES[method], TITLE_SIZE, TITLE_WEIGHT);
    const only = { threshold: 0, topK: state.topK };
    return {
      method,
      axis,
      top: layout.tops[i],
      rows,
      kept: rows.map((row) => keep(row, columns, labels.length, only)),
      most,
      scale,
      scaleEnd: axis.left + Math.max(axis.width, title + 10 + measure(scale, SCALE_SIZE)),
      labelled: layout.beside || i === METHODS.length - 1,
    };
  });
}

export function mapScene(reading: Reading, width: number, shared: number): Scene {
  const layout = lay(reading, width);
  const maps = makeMaps(reading, layout, shared);
  const { axes, body, cell } = layout;
  return {
    width: Math.max(...maps.map((map) => map.scaleEnd)) + 2,
    height: Math.max(...layout.tops) + body + axes[0].labelHeight,
    focus: reading.columns.includes(reading.item) ? axes[0].x(reading.item) : null,
    paint: (painter) => {
      for (const map of maps) {
        paintCells(painter, reading, map, layout);
        paintLayers(painter, reading, map, layout);
        if (map.labelled) paintLabels(painter, reading, map.axis, map.top + body);
      }
    },
    hit: (x, y) => hit(reading, maps, layout, x, y),
    paintHover: (painter, target) => {
      const [, layer, item] = target.key.split("/").map(Number);
      for (const { axis, top } of maps) {
        const x = axis.x(item) - axis.step / 2;
        const y = top + body - layer * cell;
        painter.rect(x, y, axis.step, cell, { stroke: reading.theme.bottleneck, width: 2 });
      }
    },
  };
}

function paintCells(painter: Painter, reading: Reading, map: HeatMap, { body }: Layout): void {
  const { theme, state, example } = reading;
  const { axis, top, most } = map;
  const current = map.method === state.method;
  const layers = example.n_layers;
  painter.text(METHOD_NAMES[map.method], axis.left, top - 11, {
    size: TITLE_SIZE,
    weight: TITLE_WEIGHT,
    fill: current ? theme.accent : theme.ink,
  });
  painter.text(map.scale, map.scaleEnd, top - 11, {
    size: SCALE_SIZE,
    align: "right",
    fill: theme.quiet,
  });
  const count = axis.columns.length;
  const side = Math.min(count, Math.max(1, Math.floor(axis.width))); // a pixel shows several
  painter.cells(axis.left, top, axis.width, body, {
    columns: side,
    rows: layers,
    cell: (c, r) => {
      const items = axis.columns.slice(...cellsOf(c, count, side));
      const value = strongest(reading, map, layers - 1 - r, items);
      return value === null ? 0 : theme.ramp.packed[most > 0 ? shade(value / most) : 0];
    },
  });
}

/** The largest score that is shown of some items; 0 if they are all hidden, null if not known. */
function strongest(
  { state }: Reading,
  { rows, kept, most }: HeatMap,
  layer: number,
  items: readonly number[],
): number | null {
  const row = rows[layer];
  if (!row) return null;
  const shown = items.filter((item) => kept[layer][item] && row[item] >= state.threshold * most);
  return shown.reduce((max, item) => Math.max(max, row[item]), 0);
}

/** The numbers of layers, and a frame around the chosen one. */
function paintLayers(painter: Painter, reading: Reading, map: HeatMap, layout: Layout): void {
  const { theme, layer, state } = reading;
  const { axis, top } = map;
  const { body, cell } = layout;
  map.rows.forEach((row, l) => {
    const y = top + body - (l + 0.5) * cell + 4;
    const chosen = l + 1 === layer;
    if (!row) painter.text("…", axis.left + 6, y, { size: 12, fill: theme.quiet });
    painter.text(String(l + 1), axis.left - 8, y, {
      size: 11,
      align: "right",
      fill: chosen ? theme.accent : theme.quiet,
      weight: chosen ? 700 : 400,
    });
  });
  const current = map.method === state.method;
  painter.rect(axis.left - 1, top + body - layer * cell, axis.width + 2, cell, {
    stroke: theme.accent,
    width: current ? 2 : 1,
    opacity: current ? 1 : 0.6,
    radius: 2,
  });
}

function paintLabels(painter: Painter, reading: Reading, axis: Axis, y: number): void {
  const { theme, labels, items, found, chosen, token } = reading;
  const goal = chosen && token !== null ? items.of[token] : null;
  for (const item of axis.columns) {
    const style = labelStyle(theme, {
      chosen: item === reading.item,
      found: found.has(item),
      kept: true,
      token: item === goal,
    });
    paintLabel(painter, axis, labels[item], item, y, style);
  }
}

function hit(
  reading: Reading,
  maps: readonly HeatMap[],
  { cell, body }: Layout,
  x: number,
  y: number,
): Target | null {
  const { labels, items } = reading;
  for (const { axis, top, method, rows } of maps) {
    const item = x >= axis.left ? axis.at(x) : null;
    if (item === null || y < top || y >= top + body) continue;
    const layer = Math.ceil((top + body - y) / cell);
    const value = rows[layer - 1]?.[item];
    return {
      key: `${method}/${layer}/${item}`,
      lines: [
        `${quoted(labels[item])} → ${quoted(labels[reading.item])} at layer ${layer}`,
        `${METHOD_NAMES[method]} ${value === undefined ? "…" : digits(value)}`,
      ],
      change: { method, layer, token: items.groups[item][0] },
    };
  }
  return null;
}
