// The PDF implementation of Painter, for export. Drawings and Latin text are vectors, the text in
// Helvetica, which every reader has, stretched to the width on screen. Other scripts are drawn as
// images, because a PDF would need their fonts.

import {
  BEND,
  CanvasPainter,
  cellImage,
  type Cells,
  type Fill,
  measure,
  type Painter,
  type Stroke,
  type TextStyle,
} from "./painter.ts";

const POINTS = 0.75; // a pixel
const KAPPA = 0.5523; // of a Bézier curve that is a quarter of a circle
const TEXT_SCALE = 4; // pixels of an image of text, per pixel on screen
const CELL_SIDE = 8; // pixels of a cell, because some readers smooth small images
const MAX_SIDE = 4000; // pixels of an image
const SPECIAL = "€\0‚ƒ„…†‡ˆ‰Š‹Œ\0Ž\0\0‘’“”•–—˜™š›œ\0žŸ"; // 0x80 to 0x9f of the encoding WinAnsi
const HELVETICA = 'Helvetica, Arial, "Liberation Sans", sans-serif'; // fonts of equal widths

type Bytes = Uint8Array<ArrayBuffer>;

/** A text in WinAnsi, as hexadecimal digits, − as a dash; null if it has other characters. */
export function winAnsi(text: string): string | null {
  let digits = "";
  for (const character of text.replaceAll("−", "–")) {
    let code = character.codePointAt(0) ?? 0;
    if (SPECIAL.includes(character) && code) code = 0x80 + SPECIAL.indexOf(character);
    else if (code < 0x20 || code > 0xff || (code >= 0x7f && code < 0xa0)) return null;
    digits += code.toString(16);
  }
  return digits;
}

/** Numbers as PDF writes them. */
const join = (...values: number[]): string =>
  values.map((value) => Math.round(value * 100) / 100 || 0).join(" ");

/** The red, green and blue of a color such as #fff, #aabbcc or rgb(1,2,3), from 0 to 1. */
function rgb(color: string): string {
  const digits = color.slice(1).replace(/^(.)(.)(.)$/, "$1$1$2$2$3$3");
  const parts = color.startsWith("#")
    ? [0, 2, 4].map((i) => parseInt(digits.slice(i, i + 2), 16))
    : (color.match(/\d+/g) ?? []).map(Number);
  return [0, 1, 2].map((i) => ((parts[i] ?? 0) / 255).toFixed(3)).join(" ");
}

interface Image {
  width: number;
  height: number;
  colors: Bytes; // red, green, blue
  alphas: Bytes;
}

export class PdfPainter implements Painter {
  private readonly parts: string[] = [];
  private readonly images: Image[] = [];
  private readonly opacities: number[] = [];

  /** Set the origin of everything drawn afterwards. */
  moveTo(x: number, y: number): void {
    this.parts.push(`Q q 1 0 0 1 ${join(x, y)} cm`);
  }

  rect(x: number, y: number, width: number, height: number, style: Fill): void {
    const radius = Math.min(style.radius ?? 0, width / 2, height / 2);
    if (radius) this.paint(rounded(x, y, width, height, radius), style);
    else this.paint(`${join(x, y, width, height)} re`, style);
  }

  circle(x: number, y: number, radius: number, style: Fill): void {
    this.paint(rounded(x - radius, y - radius, 2 * radius, 2 * radius, radius), style);
  }

  line(x0: number, y0: number, x1: number, y1: number, style: Stroke): void {
    this.stroke(`${join(x0, y0)} m ${join(x1, y1)} l`, style);
  }

  edge(x0: number, y0: number, x1: number, y1: number, style: Stroke): void {
    const bend = (y1 - y0) * BEND;
    this.stroke(`${join(x0, y0)} m ${join(x0, y0 + bend, x1, y1 - bend, x1, y1)} c`, style);
  }

  text(content: string, x: number, y: number, style: TextStyle): void {
    const { size, fill, weight = 400, align = "left", turn = 0, opacity } = style;
    const width = measure(content, size, weight);
    const start = -width * { left: 0, center: 0.5, right: 1 }[align];
    const angle = (turn * Math.PI) / 180;
    const [cos, sin, back] = [Math.cos(angle), Math.sin(angle), -Math.sin(angle)];
    this.begin(
      `${[cos, sin, back, cos].map((v) => v.toFixed(4)).join(" ")} ${join(x, y)} cm`,
      opacity,
    );
    const digits = winAnsi(content);
    if (digits !== null) {
      const font = weight > 500 ? "B" : "R";
      const stretch = (100 * width) / (measure(content, size, weight, HELVETICA) || 1);
      this.parts.push(
        `BT ${rgb(fill)} rg /${font} ${join(size)} Tf ${join(stretch)} Tz`,
        `1 0 0 -1 ${join(start)} 0 Tm <${digits}> Tj ET`,
      );
    } else {
      const [above, height] = [1.25 * size, 1.75 * size];
      const image = raster(width * TEXT_SCALE, height * TEXT_SCALE, (context) => {
        context.scale(TEXT_SCALE, TEXT_SCALE);
        new CanvasPainter(context).text(content, 0, above, { size, weight, fill });
      });
      this.place(image, start, -above, image.width / TEXT_SCALE, image.height / TEXT_SCALE);
    }
    this.parts.push("Q");
  }

  cells(x: number, y: number, width: number, height: number, cells: Cells): void {
    const { columns, rows } = cells;
    const side = Math.max(1, Math.min(CELL_SIDE, Math.floor(MAX_SIDE / Math.max(columns, rows))));
    const image = raster(columns * side, rows * side, (context) => {
      context.imageSmoothingEnabled = false;
      context.drawImage(cellImage(cells), 0, 0, columns * side, rows * side);
    });
    this.begin();
    this.place(image, x, y, width, height);
    this.parts.push("Q");
  }

  picture(image: HTMLImageElement, x: number, y: number, width: number, height: number): void {
    const share = Math.min(1, MAX_SIDE / Math.max(image.naturalWidth, image.naturalHeight));
    const pixels = raster(image.naturalWidth * share, image.naturalHeight * share, (context) =>
      context.drawImage(image, 0, 0, context.canvas.width, context.canvas.height),
    );
    this.begin();
    this.place(pixels, x, y, width, height);
    this.parts.push("Q");
  }

  /** Return the document, of one page. */
  async finish(width: number, height: number, title: string): Promise<Blob> {
    const size = join(width * POINTS, height * POINTS);
    const start = `${POINTS} 0 0 -${POINTS} 0 ${join(height * POINTS)} cm 1 J q`;
    const content = new TextEncoder().encode([start, ...this.parts, "Q"].join("\n"));
    const images = this.images.map((_, i) => `/I${i} ${7 + 2 * i} 0 R`).join(" ");
    const states = this.opacities.map((a, i) => `/G${i} <</ca ${a} /CA ${a}>>`).join(" ");
    const fonts = Object.entries({ R: "Helvetica", B: "Helvetica-Bold" }).map(
      ([name, font]) =>
        `/${name} <</Type /Font /Subtype /Type1 /BaseFont /${font} /Encoding /WinAnsiEncoding>>`,
    );
    const units = Array.from({ length: title.length }, (_, i) => title.charCodeAt(i));
    const utf16 = units.map((unit) => unit.toString(16).padStart(4, "0")).join("");
    const objects: [string, Bytes?][] = [
      ["/Type /Catalog /Pages 2 0 R"],
      ["/Type /Pages /Kids [3 0 R] /Count 1"],
      [
        `/Type /Page /Parent 2 0 R /MediaBox [0 0 ${size}] /Contents 4 0 R /Resources <</Font ` +
          `<<${fonts.join(" ")}>> /XObject <<${images}>> /ExtGState <<${states}>>>>`,
      ],
      ["", content],
      [`/Title <feff${utf16}> /Producer (attnflow)`],
    ];
    for (const { width: columns, height: rows, colors, alphas } of this.images) {
      const image = `/Type /XObject /Subtype /Image /Width ${columns} /Height ${rows}`;
      objects.push([`${image} /BitsPerComponent 8 /ColorSpace /DeviceGray`, alphas]);
      const mask = `/SMask ${objects.length} 0 R`;
      objects.push([`${image} /BitsPerComponent 8 /ColorSpace /DeviceRGB ${mask}`, colors]);
    }
    return assemble(objects);
  }

  private begin(transform = "", opacity = 1): void {
    this.parts.push(`q ${transform}`);
    if (opacity === 1) return;
    const value = Math.round(opacity * 100) / 100;
    if (!this.opacities.includes(value)) this.opacities.push(value);
    this.parts.push(`/G${this.opacities.indexOf(value)} gs`);
  }

  private paint(path: string, { fill, stroke, width = 1, opacity }: Fill): void {
    this.begin("", opacity);
    if (fill) this.parts.push(`${rgb(fill)} rg`);
    if (stroke) this.parts.push(`${rgb(stroke)} RG ${join(width)} w`);
    this.parts.push(`${path} ${stroke ? (fill ? "B" : "S") : fill ? "f" : "n"} Q`);
  }

  private stroke(path: string, { stroke, width, opacity, dash = [] }: Stroke): void {
    this.begin("", opacity);
    this.parts.push(`${rgb(stroke)} RG ${join(width)} w [${join(...dash)}] 0 d ${path} S Q`);
  }

  private place(image: Image, x: number, y: number, width: number, height: number): void {
    const name = `/I${this.images.push(image) - 1}`;
    this.parts.push(`${join(width)} 0 0 ${join(-height, x, y + height)} cm ${name} Do`);
  }
}

/** The path of a rectangle with rounded corners, or of a circle. */
function rounded(x: number, y: number, width: number, height: number, r: number): string {
  const [right, bottom, k] = [x + width, y + height, r * (1 - KAPPA)];
  return [
    `${join(x + r, y)} m ${join(right - r, y)} l`,
    `${join(right - k, y, right, y + k, right, y + r)} c ${join(right, bottom - r)} l`,
    `${join(right, bottom - k, right - k, bottom, right - r, bottom)} c ${join(x + r, bottom)} l`,
    `${join(x + k, bottom, x, bottom - k, x, bottom - r)} c ${join(x, y + r)} l`,
    `${join(x, y + k, x + k, y, x + r, y)} c h`,
  ].join(" ");
}

function raster(
  width: number,
  height: number,
  draw: (context: CanvasRenderingContext2D) => void,
): Image {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.ceil(width));
  canvas.height = Math.max(1, Math.ceil(height));
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw on a canvas. Save as SVG instead.");
  draw(context);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Uint8Array((data.length / 4) * 3);
  const alphas = new Uint8Array(data.length / 4);
  for (let i = 0; i < alphas.length; i++) {
    for (let c = 0; c < 3; c++) colors[3 * i + c] = data[4 * i + c];
    alphas[i] = data[4 * i + 3];
  }
  return { width: canvas.width, height: canvas.height, colors, alphas };
}

/** Write objects, some of them with a stream, as a file; the first is the root, the fifth the title. */
async function assemble(objects: readonly [string, Bytes?][]): Promise<Blob> {
  const parts: (string | Bytes)[] = ["%PDF-1.4\n"];
  const rows = ["0000000000 65535 f \n"];
  const sizeOf = (): number => parts.reduce((sum, part) => sum + part.length, 0); // all ASCII
  for (const [entries, stream] of objects) {
    rows.push(`${String(sizeOf()).padStart(10, "0")} 00000 n \n`);
    parts.push(`${rows.length - 1} 0 obj\n`);
    if (stream) {
      const packed = new Blob([stream]).stream().pipeThrough(new CompressionStream("deflate"));
      const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
      parts.push(`<<${entries} /Filter /FlateDecode /Length ${bytes.length}>>\nstream\n`);
      parts.push(bytes, "\nendstream\nendobj\n");
    } else parts.push(`<<${entries}>>\nendobj\n`);
  }
  const table = sizeOf();
  parts.push(`xref\n0 ${rows.length}\n${rows.join("")}trailer\n<</Size ${rows.length} `);
  parts.push(`/Root 1 0 R /Info 5 0 R>>\nstartxref\n${table}\n%%EOF\n`);
  return new Blob(parts, { type: "application/pdf" });
}
