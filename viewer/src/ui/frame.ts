// The elements around the panels: title bar with buttons, help dialog, score table, tooltip and
// the live region for screen readers.

import type { Header } from "../data/header.ts";
import { shorten, visible } from "../data/text.ts";
import { isolated, make } from "../paint/dom.ts";
import { describeMethod, KEYS } from "../views/captions.ts";
import { download } from "./export.ts";

const HELP_LABEL = "Help and keyboard shortcuts";
const MAX_LINE = 100; // characters of a tooltip line

export interface Frame {
  app: HTMLElement;
  panels: HTMLElement; // contains the panels of the examples
  table: HTMLDetailsElement; // can be opened and closed
  tables: HTMLElement; // contains the score tables
  sheet: HTMLElement; // what is printed instead of the panels of a drawing
  live: HTMLElement; // read aloud when it changes
}

/** Make the frame. above, below: elements before and after the panels. */
export function makeFrame(
  title: string,
  above: readonly HTMLElement[],
  below: readonly HTMLElement[],
): Frame {
  const live = make("div", {
    class: "live",
    role: "status",
    "aria-live": "polite",
    testid: "live",
  });
  const tables = make("div", {
    class: "tables",
    tabindex: "0",
    role: "region",
    "aria-label": "Score table",
  });
  const table = make(
    "details",
    { class: "table", testid: "table" },
    make("summary", {}, "Score table"),
    tables,
  );
  const panels = make("div", { class: "panels", role: "tabpanel", "aria-label": "View" });
  const sheet = make("div", { class: "sheet", "aria-hidden": "true", testid: "sheet" });
  const label = `attnflow: ${visible(title || "attention")}`;
  const app = make(
    "div",
    { class: "app", role: "region", "aria-label": label },
    ...above,
    panels,
    sheet,
    table,
    live,
    ...below,
  );
  return { app, panels, table, tables, sheet, live };
}

export interface TopBarEvents {
  csv(): string;
  svg(): string;
  png(): Promise<Blob>;
  pdf(): Promise<Blob>;
  file(): string; // the file name without extension
  failed(message: string): void;
  help(): void;
}

function toolButton(text: string, testid: string, label: string, act: () => void): HTMLElement {
  const button = make(
    "button",
    { type: "button", class: "tool", testid, "aria-label": label, title: label },
    text,
  );
  button.addEventListener("click", act);
  return button;
}

/** Make the title bar, with buttons for export and help. */
export function makeTopBar(title: string, events: TopBarEvents): HTMLElement {
  const saveCsv = (): void =>
    download(new Blob([events.csv()], { type: "text/csv;charset=utf-8" }), `${events.file()}.csv`);
  const saveSvg = (): void =>
    download(new Blob([events.svg()], { type: "image/svg+xml" }), `${events.file()}.svg`);
  const save = (paint: () => Promise<Blob>, extension: string): void => {
    const file = events.file();
    paint().then(
      (blob) => download(blob, `${file}.${extension}`),
      (error: unknown) => events.failed(error instanceof Error ? error.message : String(error)),
    );
  };
  const savePng = (): void => save(events.png, "png");
  const savePdf = (): void => save(events.pdf, "pdf");
  const shown = title ? shorten(visible(title), 160) : "Attention flow";
  return make(
    "div",
    { class: "top" },
    make("h1", { class: "title", dir: "auto" }, isolated(shown)),
    make(
      "div",
      { class: "tools" },
      toolButton("CSV", "export-csv", "Save the scores on screen as CSV", saveCsv),
      toolButton("SVG", "export-svg", "Save this view as SVG", saveSvg),
      toolButton("PNG", "export-png", "Save this view as PNG", savePng),
      toolButton("PDF", "export-pdf", "Save this view as PDF", savePdf),
      toolButton("?", "help-button", HELP_LABEL, events.help),
    ),
  );
}

/** Make the help dialog: the methods and the keyboard shortcuts. */
export function makeHelp({ methods }: Header): HTMLDialogElement {
  const list = (entries: readonly (readonly [string, string])[]): HTMLElement =>
    make("dl", {}, ...entries.flatMap(([dt, dd]) => [make("dt", {}, dt), make("dd", {}, dd)]));
  const close = make("button", { type: "button", class: "tool", testid: "help-close" }, "Close");
  const dialog = make(
    "dialog",
    { testid: "help", "aria-label": HELP_LABEL, autofocus: true }, // scrolled to the top
    make("h2", {}, "Methods"),
    list(methods.map((method) => [visible(method.title), describeMethod(method)])),
    make("h2", {}, "Keyboard shortcuts"),
    make(
      "p",
      {},
      "Arrow keys work while the text or drawing has the focus: press Tab or click it.",
    ),
    list(KEYS),
    close,
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
  });
  return dialog;
}

/** A few lines beside the pointer, kept inside the viewer and the window. */
export class Tooltip {
  private readonly element: HTMLElement;
  private readonly frame: HTMLElement;
  private text = "";

  constructor(frame: HTMLElement) {
    this.frame = frame;
    this.element = make("div", { class: "tooltip", "aria-hidden": "true", testid: "tooltip" });
    this.element.hidden = true;
    frame.append(this.element);
  }

  show(lines: string[] | null, event: PointerEvent | null): void {
    this.element.hidden = !lines || !event;
    if (!lines || !event) return;
    const text = lines.join("\n");
    if (text !== this.text) {
      this.text = text;
      const [title, ...rest] = lines;
      this.element.replaceChildren(
        make("b", { dir: "auto" }, shorten(title, MAX_LINE)),
        ...rest.map((line) => make("span", { dir: "auto" }, shorten(line, MAX_LINE))),
      );
    }
    const box = this.frame.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const x = Math.min(event.clientX - box.left + 14, box.width - width - 4);
    const below = event.clientY - box.top + 18;
    const end = Math.min(box.height, innerHeight - box.top); // of the viewer, or of the window
    const y = below + height > end ? event.clientY - box.top - height - 12 : below;
    this.element.style.left = `${Math.max(4, x)}px`;
    this.element.style.top = `${Math.max(4, y)}px`;
  }
}
