// One small drawing interface for screen and export: a canvas painter here, an SVG one beside it.

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
  turn?: number; // degrees, about the given point
  opacity?: number;
}

/** Cells of equal size; a cell is a packed color 0xAABBGGRR, 0 for none. */
export interface Cells {
  columns: number;
  rows: number;
  cell(column: number, row: number): number;
}

export interface Painter {
  rect(x: number, y: number, width: number, height: number, style: Fill): void;
  circle(x: number, y: number, radius: number, style: Fill): void;
  line(x0: number, y0: number, x1: number, y1: number, style: Stroke): void;
  /** An edge between two levels: leaves and arrives upright. */
  edge(x0: number, y0: number, x1: number, y1: number, style: Stroke): void;
  /** Text on its baseline. */
  text(content: string, x: number, y: number, style: TextStyle): void;
  cells(x: number, y: number, width: number, height: number, cells: Cells): void;
  picture(image: HTMLImageElement, x: number, y: number, width: number, height: number): void;
}

export const FONT =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif';

export const fontOf = (size: number, weight = 400): string => `${weight} ${size}px ${FONT}`;

/** How far an edge's control points reach, as a share of its height. */
export const BEND = 0.45;

const widths = new Map<string, number>();
let ruler: CanvasRenderingContext2D | null | undefined;

/** The width of a text in pixels. */
export function measure(text: string, size: number, weight = 400): number {
  if (typeof document === "undefined") return text.length * size * 0.55;
  if (ruler === undefined) ruler = document.createElement("canvas").getContext("2d");
  if (!ruler) return text.length * size * 0.55;
  const key = `${size} ${weight} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    ruler.font = fontOf(size, weight);
    width = ruler.measureText(text).width;
    if (widths.size > 20000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

/** The part of a text that fits a width, with an ellipsis. */
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

/** Draw cells into a small canvas, one pixel each. */
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
