// What is on screen as a picture: title, caption and the panels, painted as SVG or PNG.

import { CanvasPainter, type Painter } from "./painter.ts";
import type { Panel } from "./panel.ts";
import { lookingFrom } from "./phrases.ts";
import { SvgPainter } from "./svgPainter.ts";
import type { Theme } from "./theme.ts";
import { visible } from "./visible.ts";

const MARGIN = 24;
const HEADING = 62;
const GAP = 40;
const LONGEST = 16000; // pixels that browsers draw on one side

interface Sheet {
  width: number;
  height: number;
  places: { panel: Panel; x: number; y: number }[];
}

function arrange(panels: readonly Panel[], beside: boolean): Sheet {
  const silent = new SvgPainter();
  const places: Sheet["places"] = [];
  let x = MARGIN;
  let y = MARGIN;
  let width = 320;
  let height = 0;
  for (const panel of panels) {
    const size = panel.paint(silent);
    places.push({ panel, x, y });
    width = Math.max(width, x + size.width + MARGIN);
    height = Math.max(height, y + HEADING + size.height + MARGIN);
    if (beside) x += size.width + GAP;
    else y += HEADING + size.height + GAP;
  }
  return { width, height, places };
}

function paintHeading(painter: Painter, panel: Panel, theme: Theme): void {
  const { reading, scene } = panel;
  if (!reading) return;
  const note = scene?.note?.map((part) => part.text).join("") ?? "";
  painter.text(visible(reading.example.name), 0, 14, { size: 15, weight: 650, fill: theme.ink });
  painter.text(note || lookingFrom(reading), 0, 36, { size: 13, fill: theme.quiet });
}

export function paintSvg(
  panels: readonly Panel[],
  theme: Theme,
  beside: boolean,
  title: string,
): string {
  const sheet = arrange(panels, beside);
  const painter = new SvgPainter();
  painter.rect(0, 0, sheet.width, sheet.height, { fill: theme.ground });
  for (const { panel, x, y } of sheet.places) {
    painter.moveTo(x, y);
    paintHeading(painter, panel, theme);
    painter.moveTo(x, y + HEADING);
    panel.paint(painter);
  }
  return painter.finish(sheet.width, sheet.height, visible(title));
}

export async function paintPng(
  panels: readonly Panel[],
  theme: Theme,
  beside: boolean,
): Promise<Blob> {
  const sheet = arrange(panels, beside);
  const ratio = Math.min(2, LONGEST / sheet.width, LONGEST / sheet.height);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(sheet.width * ratio);
  canvas.height = Math.ceil(sheet.height * ratio);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw pictures. Export SVG instead.");
  context.fillStyle = theme.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const painter = new CanvasPainter(context);
  for (const { panel, x, y } of sheet.places) {
    context.setTransform(ratio, 0, 0, ratio, x * ratio, y * ratio);
    paintHeading(painter, panel, theme);
    context.setTransform(ratio, 0, 0, ratio, x * ratio, (y + HEADING) * ratio);
    panel.paint(painter);
  }
  return new Promise((done, failed) =>
    canvas.toBlob(
      (blob) => (blob ? done(blob) : failed(new Error("The picture could not be made."))),
      "image/png",
    ),
  );
}

/** Offer a file to the reader. */
export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
