// The drawing interface of views and its canvas implementation; svg.ts implements it for export.
// Also text measurement, and max pooling of matrices with more cells than pixels.

export interface Stroke {
  stroke: string;
  width: number;
  opacity?: number;
  dash?: number[];
}

export interface Fill {
  fill?: string;
  stroke?: string;
  width?: number;
  radius?: number;
  opacity?: number;
}

export interface TextStyle {
  size: number;
  fill: string;
  align?: "left" | "center" | "right";
  weight?: number;
  turn?: number; // rotation in degrees about the point
  opacity?: number;
}

/** A grid of cells of equal size. `cell` returns a packed color 0xAABBGGRR, 0 for none. */
export interface Cells {
  columns: number;
  rows: number;
  cell(column: number, row: number): number;
}

export interface Painter {
  rect(x: number, y: number, width: number, height: number, style: Fill): void;
  circle(x: number, y: number, radius: number, style: Fill): void;
  line(x0: number, y0: number, x1: number, y1: number, style: Stroke): void;
  /** A curved edge between two levels, vertical at both ends. */
  edge(x0: number, y0: number, x1: number, y1: number, style: Stroke): void;
  /** Text with its baseline at y. */
  text(content: string, x: number, y: number, style: TextStyle): void;
  cells(x: number, y: number, width: number, height: number, cells: Cells): void;
  picture(image: HTMLImageElement, x: number, y: number, width: number, height: number): void;
}

export const FONT =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif';

export const fontOf = (size: number, weight = 400, family = FONT): string =>
  `${weight} ${size}px ${family}`;

/** Distance of an edge's control points from its ends, as a share of its height. */
export const BEND = 0.45;

const widths = new Map<string, number>();
let ruler: CanvasRenderingContext2D | null | undefined;

/** The width of a text in pixels; an estimate where there is no canvas. */
export function measure(text: string, size: number, weight = 400, family = FONT): number {
  if (typeof document === "undefined") return text.length * size * 0.55;
  if (ruler === undefined) ruler = document.createElement("canvas").getContext("2d");
  if (!ruler) return text.length * size * 0.55;
  const key = `${size} ${weight} ${family} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    ruler.font = fontOf(size, weight, family);
    width = ruler.measureText(text).width;
    if (widths.size > 20000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

/** Shorten a text to a width, with an ellipsis. */
export function fit(text: string, width: number, size: number, weight = 400): string {
  if (measure(text, size, weight) <= width) return text;
  const parts = Array.from(text.slice(0, 400));
  let low = 0;
  let high = parts.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(parts.slice(0, middle).join("") + "…", size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return parts.slice(0, low).join("") + "…";
}

/** Draw cells into a canvas, one pixel each. */
export function cellImage({ columns, rows, cell }: Cells): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  if (!context) return canvas;
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let r = 0, i = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++, i++) pixels[i] = cell(c, r);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

export class CanvasPainter implements Painter {
  private readonly context: CanvasRenderingContext2D;

  constructor(context: CanvasRenderingContext2D) {
    this.context = context;
    context.textBaseline = "alphabetic";
    context.lineCap = "round";
  }

  rect(x: number, y: number, width: number, height: number, style: Fill): void {
    const { context } = this;
    context.beginPath();
    if (style.radius) context.roundRect(x, y, width, height, style.radius);
    else context.rect(x, y, width, height);
    this.paint(style);
  }

  circle(x: number, y: number, radius: number, style: Fill): void {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.paint(style);
  }

  line(x0: number, y0: number, x1: number, y1: number, style: Stroke): void {
    const { context } = this;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    this.stroke(style);
  }

  edge(x0: number, y0: number, x1: number, y1: number, style: Stroke): void {
    const bend = (y1 - y0) * BEND;
    this.context.beginPath();
    this.context.moveTo(x0, y0);
    this.context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    this.stroke(style);
  }

  text(content: string, x: number, y: number, style: TextStyle): void {
    const { context } = this;
    context.save();
    context.font = fontOf(style.size, style.weight);
    context.fillStyle = style.fill;
    context.globalAlpha = style.opacity ?? 1;
    context.textAlign = style.align ?? "left";
    context.direction = "ltr";
    context.translate(x, y);
    if (style.turn) context.rotate((style.turn * Math.PI) / 180);
    context.fillText(content, 0, 0);
    context.restore();
  }

  cells(x: number, y: number, width: number, height: number, cells: Cells): void {
    const { context } = this;
    context.imageSmoothingEnabled = width < cells.columns || height < cells.rows;
    context.drawImage(cellImage(cells), x, y, width, height);
  }

  picture(image: HTMLImageElement, x: number, y: number, width: number, height: number): void {
    this.context.imageSmoothingEnabled = true;
    this.context.drawImage(image, x, y, width, height);
  }

  private paint(style: Fill): void {
    const { context } = this;
    context.globalAlpha = style.opacity ?? 1;
    if (style.fill) {
      context.fillStyle = style.fill;
      context.fill();
    }
    if (style.stroke) {
      context.strokeStyle = style.stroke;
      context.lineWidth = style.width ?? 1;
      context.setLineDash([]);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  private stroke(style: Stroke): void {
    const { context } = this;
    context.globalAlpha = style.opacity ?? 1;
    context.strokeStyle = style.stroke;
    context.lineWidth = style.width;
    context.setLineDash(style.dash ?? []);
    context.stroke();
    context.globalAlpha = 1;
  }
}

/** For each of `count` cells, the index of its bin out of `side`. */
export function binsOf(count: number, side: number): Uint16Array {
  return Uint16Array.from({ length: count }, (_, i) => Math.floor((i * side) / count));
}

/** The range of cells [from, to) in one of `side` bins. */
export const cellsOf = (bin: number, count: number, side: number): [number, number] => [
  Math.ceil((bin * count) / side),
  Math.ceil(((bin + 1) * count) / side),
];

/**
 * Max-pool a matrix to at most `room` pixels a side. The mean would hide single large weights.
 * values: [stride, stride]; rows, columns: the indices to use, in order.
 * Returns cells [side, side].
 */
export function pool(
  values: Float32Array,
  stride: number,
  rows: readonly number[],
  columns: readonly number[],
  room: number,
): { side: number; cells: Float32Array } {
  const side = Math.max(1, Math.min(columns.length, Math.floor(room)));
  const bins = binsOf(columns.length, side);
  const cells = new Float32Array(side * side);
  for (let r = 0; r < rows.length; r++) {
    const from = rows[r] * stride;
    const to = bins[r] * side;
    for (let c = 0; c < columns.length; c++) {
      const value = values[from + columns[c]];
      if (value > cells[to + bins[c]]) cells[to + bins[c]] = value;
    }
  }
  return { side, cells };
}
