// The SVG implementation of Painter, for export: collects elements as text.
// All text and attribute values are escaped.

import {
  BEND,
  cellImage,
  type Cells,
  type Fill,
  FONT,
  type Painter,
  type Stroke,
  type TextStyle,
} from "./painter.ts";

const MAX_CELLS = 20000; // larger grids are embedded as PNG

const ESCAPES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;",
};

/** Escape text for XML and replace characters that XML does not allow. */
export function escapeXml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd")
    .replace(/[&<>"']/g, (character) => ESCAPES[character]);
}

const short = (value: number): string => String(Math.round(value * 100) / 100);

export class SvgPainter implements Painter {
  private readonly parts: string[] = [];
  private shiftX = 0;
  private shiftY = 0;

  /** Set the origin of everything drawn afterwards. */
  moveTo(x: number, y: number): void {
    this.shiftX = x;
    this.shiftY = y;
  }

  rect(x: number, y: number, width: number, height: number, style: Fill): void {
    const round = style.radius ? ` rx="${short(style.radius)}"` : "";
    this.parts.push(
      `<rect x="${this.x(x)}" y="${this.y(y)}" width="${short(width)}" height="${short(height)}"` +
        `${round}${fillOf(style)}/>`,
    );
  }

  circle(x: number, y: number, radius: number, style: Fill): void {
    this.parts.push(
      `<circle cx="${this.x(x)}" cy="${this.y(y)}" r="${short(radius)}"${fillOf(style)}/>`,
    );
  }

  line(x0: number, y0: number, x1: number, y1: number, style: Stroke): void {
    this.parts.push(
      `<line x1="${this.x(x0)}" y1="${this.y(y0)}" x2="${this.x(x1)}" y2="${this.y(y1)}"` +
        `${strokeOf(style)}/>`,
    );
  }

  edge(x0: number, y0: number, x1: number, y1: number, style: Stroke): void {
    const bend = (y1 - y0) * BEND;
    const points = [this.x(x0), this.y(y0 + bend), this.x(x1), this.y(y1 - bend)].join(" ");
    this.parts.push(
      `<path d="M${this.x(x0)} ${this.y(y0)}C${points} ${this.x(x1)} ${this.y(y1)}" fill="none"` +
        `${strokeOf(style)}/>`,
    );
  }

  text(content: string, x: number, y: number, style: TextStyle): void {
    const anchor = { left: "start", center: "middle", right: "end" }[style.align ?? "left"];
    const turn = style.turn ? ` transform="rotate(${style.turn} ${this.x(x)} ${this.y(y)})"` : "";
    const weight = style.weight && style.weight !== 400 ? ` font-weight="${style.weight}"` : "";
    const faint = style.opacity === undefined ? "" : ` opacity="${short(style.opacity)}"`;
    this.parts.push(
      `<text x="${this.x(x)}" y="${this.y(y)}" font-size="${short(style.size)}"` +
        ` fill="${escapeXml(style.fill)}" text-anchor="${anchor}"${weight}${turn}${faint}>` +
        `${escapeXml(content)}</text>`,
    );
  }

  cells(x: number, y: number, width: number, height: number, cells: Cells): void {
    if (cells.columns * cells.rows > MAX_CELLS) {
      this.embed(cellImage(cells).toDataURL("image/png"), x, y, width, height, true);
      return;
    }
    const w = width / cells.columns;
    const h = height / cells.rows;
    // One path per color makes a much smaller file than one element per cell.
    const paths = new Map<number, string[]>();
    for (let r = 0; r < cells.rows; r++) {
      for (let c = 0; c < cells.columns; c++) {
        const color = cells.cell(c, r);
        if (color >>> 24 === 0) continue;
        const squares = paths.get(color) ?? [];
        squares.push(
          `M${this.x(x + c * w)} ${this.y(y + r * h)}h${short(w)}v${short(h)}h-${short(w)}z`,
        );
        paths.set(color, squares);
      }
    }
    this.parts.push(`<g shape-rendering="crispEdges">`);
    for (const [color, squares] of paths) {
      const fill = `rgb(${color & 255},${(color >> 8) & 255},${(color >> 16) & 255})`;
      const opacity = (color >>> 24) / 255;
      this.parts.push(`<path d="${squares.join("")}"${fillOf({ fill, opacity })}/>`);
    }
    this.parts.push("</g>");
  }

  picture(image: HTMLImageElement, x: number, y: number, width: number, height: number): void {
    this.embed(image.src, x, y, width, height, false);
  }

  /** Return the SVG document. */
  finish(width: number, height: number, title: string): string {
    const size = `width="${short(width)}" height="${short(height)}"`;
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" ${size}` +
      ` viewBox="0 0 ${short(width)} ${short(height)}" font-family="${escapeXml(FONT)}">` +
      `<title>${escapeXml(title)}</title>${this.parts.join("")}</svg>`
    );
  }

  private embed(
    href: string,
    x: number,
    y: number,
    width: number,
    height: number,
    crisp: boolean,
  ): void {
    this.parts.push(
      `<image x="${this.x(x)}" y="${this.y(y)}" width="${short(width)}" height="${short(height)}"` +
        ` preserveAspectRatio="none"${crisp ? ' image-rendering="pixelated"' : ""}` +
        ` xlink:href="${escapeXml(href)}"/>`,
    );
  }

  private x(value: number): string {
    return short(value + this.shiftX);
  }

  private y(value: number): string {
    return short(value + this.shiftY);
  }
}

function fillOf(style: Fill): string {
  const stroke = style.stroke
    ? ` stroke="${escapeXml(style.stroke)}" stroke-width="${short(style.width ?? 1)}"`
    : "";
  const faint =
    style.opacity === undefined || style.opacity === 1 ? "" : ` opacity="${short(style.opacity)}"`;
  return ` fill="${escapeXml(style.fill ?? "none")}"${stroke}${faint}`;
}

function strokeOf(style: Stroke): string {
  const dash = style.dash?.length ? ` stroke-dasharray="${style.dash.join(" ")}"` : "";
  const faint = style.opacity === undefined ? "" : ` opacity="${short(style.opacity)}"`;
  return (
    ` stroke="${escapeXml(style.stroke)}" stroke-width="${short(style.width)}"` +
    ` stroke-linecap="round"${dash}${faint}`
  );
}
