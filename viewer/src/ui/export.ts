// Export of the view on screen as SVG, PDF or PNG: headings, panels and color scales.

import { type Range, strength } from "../data/range.ts";
import type { State } from "../data/state.ts";
import { digits, percent, shorten, visible } from "../data/text.ts";
import { CanvasPainter, measure, type Painter } from "../paint/painter.ts";
import { PdfPainter } from "../paint/pdf.ts";
import { SvgPainter } from "../paint/svg.ts";
import { shade, type Theme } from "../paint/theme.ts";
import type { Panel } from "./panel.ts";
import { describeRow, nameOf, quoted, settingsOf, VIEW_NAMES } from "../views/captions.ts";

const MARGIN = 24;
const LINE = 19;
const GAP = 40;
const SCALE = 34; // height of the color scale below a panel
const MAX_SIDE = 16000; // pixels that browsers draw on one side

interface Place {
  panel: Panel;
  x: number;
  y: number;
  lines: string[];
}

interface Sheet {
  width: number;
  height: number;
  places: Place[];
}

const headingHeight = (lines: readonly string[]): number => 24 + LINE * lines.length + 12;

function arrange(panels: readonly Panel[], beside: boolean): Sheet {
  const silent = new SvgPainter();
  const places: Place[] = [];
  let x = MARGIN;
  let y = MARGIN;
  let width = 360;
  let height = 0;
  for (const panel of panels) {
    const size = panel.paint(silent);
    const lines = captionOf(panel).flatMap((text) => wrap(text, Math.max(size.width, 300)));
    const tall = headingHeight(lines) + size.height + (panel.range.high ? SCALE : 0);
    places.push({ panel, x, y, lines });
    width = Math.max(width, x + size.width + MARGIN);
    height = Math.max(height, y + tall + MARGIN);
    if (beside) x += size.width + GAP;
    else y += tall + GAP;
  }
  return { width, height, places };
}

/** The caption of a panel: settings, what is shown, notes on it, and the prediction. */
function captionOf({ snapshot, scene }: Panel): string[] {
  if (!snapshot) return [];
  const note = scene?.note?.map((part) => part.text).join("");
  const { example } = snapshot;
  const { prediction } = example;
  const settings = settingsOf(example, snapshot.state.normalize);
  const sentences = [settings, note || `${describeRow(snapshot)}.`, ...snapshot.notes];
  if (prediction) {
    const { label, probability } = prediction.target;
    const at = nameOf(snapshot, snapshot.items.of[example.position]);
    sentences.push(`Prediction at ${at}: ${quoted(visible(label))} (${percent(probability)}).`);
  }
  return sentences;
}

/** Break a text into lines of a width. */
export function wrap(text: string, width: number, size = 13): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of shorten(text, 600).split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (line && measure(longer, size) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  return line ? [...lines, line] : lines;
}

function paintHeading(painter: Painter, { panel, lines }: Place, theme: Theme): void {
  if (!panel.snapshot) return;
  const name = shorten(visible(panel.snapshot.example.name), 80);
  painter.text(name, 0, 14, { size: 15, weight: 650, fill: theme.ink });
  lines.forEach((line, i) => painter.text(line, 0, 38 + i * LINE, { size: 13, fill: theme.quiet }));
}

function paintScale(painter: Painter, range: Range, y: number, theme: Theme): void {
  const style = { size: 12, fill: theme.quiet };
  const { low, high, exceeded } = range;
  const left = measure(digits(low), 12) + 7;
  painter.text(digits(low), 0, y + 9, style);
  painter.cells(left, y, 120, 9, {
    columns: 60,
    rows: 1,
    cell: (c) => theme.ramp.packed[shade(strength(range, low + (c / 59) * (high - low)))],
  });
  painter.text(digits(high) + (exceeded ? " or more" : ""), left + 128, y + 9, style);
}

type SheetPainter = Painter & { moveTo(x: number, y: number): void };

/** Paint a sheet with its background. */
function paintVectors(painter: SheetPainter, sheet: Sheet, theme: Theme): void {
  painter.rect(0, 0, sheet.width, sheet.height, { fill: theme.ground });
  paintSheet(painter, sheet, theme, (x, y) => painter.moveTo(x, y));
}

/** Paint a sheet; `move` sets the origin of everything painted afterwards. */
function paintSheet(
  painter: Painter,
  sheet: Sheet,
  theme: Theme,
  move: (x: number, y: number) => void,
): void {
  for (const place of sheet.places) {
    const { panel, x, y, lines } = place;
    move(x, y);
    paintHeading(painter, place, theme);
    move(x, y + headingHeight(lines));
    const { height } = panel.paint(painter);
    if (panel.range.high) paintScale(painter, panel.range, height + 18, theme);
  }
}

export function paintSvg(
  panels: readonly Panel[],
  theme: Theme,
  beside: boolean,
  title: string,
): string {
  const sheet = arrange(panels, beside);
  const painter = new SvgPainter();
  paintVectors(painter, sheet, theme);
  return painter.finish(sheet.width, sheet.height, visible(title));
}

export function paintPdf(
  panels: readonly Panel[],
  theme: Theme,
  beside: boolean,
  title: string,
): Promise<Blob> {
  const sheet = arrange(panels, beside);
  const painter = new PdfPainter();
  paintVectors(painter, sheet, theme);
  return painter.finish(sheet.width, sheet.height, visible(title));
}

/** The view as an SVG element, to print it. */
export function svgElement(text: string): Element {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  return document.importNode(parsed.documentElement, true);
}

export function paintPng(panels: readonly Panel[], theme: Theme, beside: boolean): Blob {
  const sheet = arrange(panels, beside);
  const ratio = Math.min(2, MAX_SIDE / sheet.width, MAX_SIDE / sheet.height);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(sheet.width * ratio);
  canvas.height = Math.ceil(sheet.height * ratio);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw on a canvas. Save as SVG instead.");
  context.fillStyle = theme.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  paintSheet(new CanvasPainter(context), sheet, theme, (x, y) =>
    context.setTransform(ratio, 0, 0, ratio, x * ratio, y * ratio),
  );
  return pngOf(canvas);
}

/** The canvas as a file. `toBlob` can take seconds on a busy or hidden page. */
function pngOf(canvas: HTMLCanvasElement): Blob {
  const [head, data] = canvas.toDataURL("image/png").split(",");
  if (!head.startsWith("data:image/png") || !data)
    throw new Error("The image is too large to save as PNG. Save as SVG instead.");
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}

/** Letters and digits of a text joined by hyphens: as many words as fit into `max` characters. */
function slug(text: string, max: number): string {
  const words = text.toLowerCase().match(/[\p{L}\p{M}\p{N}]+/gu) ?? [];
  let joined = shorten(words[0] ?? "", max).replace("…", "");
  for (const word of words.slice(1)) {
    if (joined.length + 1 + word.length > max) break;
    joined += `-${word}`;
  }
  return joined;
}

/** A file name without extension: the view, its method if it shows only one, and the text. */
export function fileName({ view, method }: Pick<State, "view" | "method">, text: string): string {
  const methods = view === "map" || view === "heads" ? [] : [method];
  const parts = [
    "attnflow",
    slug(VIEW_NAMES[view], 20),
    ...methods.map((name) => slug(name, 20)),
    slug(text, 24),
  ];
  return parts.filter(Boolean).join("-");
}

/** Download a file. */
export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
