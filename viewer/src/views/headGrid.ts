// The heads of all layers as a grid of small heatmaps: rows are layers, columns are heads.

import type { Snapshot } from "../data/snapshot.ts";
import { digits } from "../data/text.ts";
import type { Painter } from "../paint/painter.ts";
import { layerName, shortLayer } from "./captions.ts";
import { headMap, type HeadMap, paintMap, paintMatches, paintRow, pixels } from "./heads.ts";
import type { Scene } from "./scene.ts";

const TOP = 20;
const GAP = 6;
const SMALLEST = 30; // side of a heatmap

interface Cell {
  layer: number;
  head: number;
  x: number;
  y: number;
  map: HeadMap | null;
}

interface Grid {
  cells: Cell[];
  size: number; // of a heatmap
  left: number;
  max: number; // of all heatmaps
}

/** The last layer is on top, as in the other views. */
function lay(snapshot: Snapshot, width: number, room: number): Grid {
  const { example } = snapshot;
  const left = example.layer_names.length ? 66 : 30;
  const wide = (width - left) / example.n_heads - GAP;
  const tall = (room - TOP) / example.n_layers - GAP;
  const size = Math.max(SMALLEST, Math.min(120, Math.floor(Math.min(wide, tall))));
  const cells: Cell[] = [];
  for (let layer = example.n_layers; layer > 0; layer--) {
    const shape = example.chunks[`${snapshot.scores.index}/heads/${layer}`]?.shape;
    for (let head = 0; head < (shape?.[0] ?? example.n_heads); head++) {
      const x = left + head * (size + GAP);
      const y = TOP + (example.n_layers - layer) * (size + GAP);
      cells.push({ layer, head, x, y, map: headMap(snapshot, head, pixels(size), layer) });
    }
  }
  return { cells, size, left, max: Math.max(...cells.map(({ map }) => map?.max ?? 0)) };
}

/** Every head of every layer; a click enlarges one. */
export function gridScene(snapshot: Snapshot, width: number, room: number): Scene {
  const { example, theme } = snapshot;
  const grid = lay(snapshot, width, room);
  const { cells, size, left, max } = grid;
  const at = (x: number, y: number): number =>
    cells.findIndex((cell) => x >= cell.x && x < cell.x + size && y >= cell.y && y < cell.y + size);
  const what =
    snapshot.state.headsOf === "rollout" ? "Rollout to the input through" : "Attention of";
  const columns = Math.max(...cells.map(({ head }) => head)) + 1;
  return {
    width: left + columns * (size + GAP),
    height: TOP + example.n_layers * (size + GAP),
    focus: null,
    note: [{ text: `${what} every head. Rows: layers; columns: heads. Click one to enlarge it.` }],
    max: snapshot.state.scale === "shared" ? max : undefined,
    waiting: cells.some(({ map }) => !map),
    paint: (painter) => {
      paintNames(painter, snapshot, grid);
      for (const cell of cells) paintCell(painter, snapshot, cell, grid);
    },
    hit: (x, y) => {
      const i = at(x, y);
      if (i < 0) return null;
      const { layer, head, map } = cells[i];
      return {
        key: String(i),
        lines: [
          `Head ${head} of ${layerName(example, layer)}`,
          map ? `Highest weight: ${digits(map.max)}` : "…",
          "Click to enlarge",
        ],
        change: { layer, head },
      };
    },
    paintHover: (painter, target) => {
      const { x, y } = cells[Number(target.key)];
      const frame = { stroke: theme.accent, width: 2, radius: 3 };
      painter.rect(x - 2, y - 2, size + 4, size + 4, frame);
    },
  };
}

/** The numbers of heads above, and of layers on the left. */
function paintNames(painter: Painter, snapshot: Snapshot, { cells, size, left }: Grid): void {
  const { example, theme, layer } = snapshot;
  for (const cell of cells) {
    if (cell.layer === example.n_layers) {
      const style = { size: 11, align: "center", fill: theme.quiet } as const;
      const name = size < 50 ? String(cell.head) : `Head ${cell.head}`;
      painter.text(name, cell.x + size / 2, TOP - 7, style);
    }
    if (cell.head === 0) {
      const chosen = cell.layer === layer;
      painter.text(shortLayer(example, cell.layer), left - 8, cell.y + size / 2 + 4, {
        size: 11,
        align: "right",
        weight: chosen ? 700 : 400,
        fill: chosen ? theme.accent : theme.quiet,
      });
    }
  }
}

function paintCell(painter: Painter, snapshot: Snapshot, cell: Cell, { size, max }: Grid): void {
  const { map, x, y } = cell;
  if (!map) {
    painter.rect(x, y, size, size, { fill: snapshot.theme.raised });
    return;
  }
  const shared = snapshot.state.scale === "shared";
  paintMap(painter, snapshot, map, x, y, size, shared ? max : map.max);
  paintRow(painter, snapshot, x, y, size);
  paintMatches(painter, snapshot, [x, y], size);
}
