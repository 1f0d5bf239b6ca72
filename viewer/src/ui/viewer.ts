// The viewer: a shadow root, its state, and the loop of taking snapshots, drawing them and
// requesting missing scores.

import { type Header, readHeader, type Source } from "../data/header.ts";
import { Scores } from "../data/scores.ts";
import { largest, takeSnapshot, type Snapshot } from "../data/snapshot.ts";
import { changeState, initialState, type State, versusOf, viewsOf } from "../data/state.ts";
import { make, setText } from "../paint/dom.ts";
import { DARK, LIGHT, type Theme } from "../paint/theme.ts";
import { Controls } from "./controls.ts";
import { fileName, paintPdf, paintPng, paintSvg, svgElement } from "./export.ts";
import { makeFrame, makeHelp, makeTopBar, Tooltip } from "./frame.ts";
import { pressed } from "./keyboard.ts";
import { Panel } from "./panel.ts";
import { addStyles } from "./styles.ts";
import { announcement } from "../views/captions.ts";
import { alignmentLargest } from "../views/alignment.ts";
import { differenceTable } from "../views/difference.ts";
import { headColumns } from "../views/heads.ts";
import { mapLargest } from "../views/map.ts";
import { cutTable, scoresCsv, scoreTable, tableSize } from "../views/table.ts";
import { hasMethodRows } from "../views/text.ts";

export interface Options {
  state?: Partial<State>;
  onState?(state: State): void;
}

export interface Viewer {
  setState(state: Partial<State>): void;
  getState(): State;
  destroy(): void;
  exportSvg(): string;
  exportPng(): Promise<Blob>;
}

const SMALL_TABLE = 4000; // cells; larger tables are filled only while open
const SETTLE = 120; // milliseconds after a redraw before tables and live region follow

/** Show an explanation in an element. */
export function mount(root: HTMLElement, source: Source, options: Options = {}): Viewer {
  const shadow = root.shadowRoot ?? root.attachShadow({ mode: "open" });
  shadow.replaceChildren();
  addStyles(shadow);
  let header: Header;
  try {
    header = readHeader(source.header);
  } catch (error) {
    return showError(shadow, error instanceof Error ? error.message : String(error));
  }
  return new Widget(root, shadow, header, source, options);
}

class Widget implements Viewer {
  private state: State;
  private readonly header: Header;
  private readonly options: Options;
  private readonly app: HTMLElement;
  private readonly panelsBox: HTMLElement;
  private readonly panels: Panel[];
  private readonly controls: Controls;
  private readonly live: HTMLElement;
  private readonly table: HTMLDetailsElement;
  private readonly tables: HTMLElement;
  private readonly help: HTMLDialogElement;
  private readonly tooltip: Tooltip;
  private readonly darkness = matchMedia("(prefers-color-scheme: dark)");
  private readonly resizing: ResizeObserver;
  private readonly theming = new MutationObserver(() => this.schedule());
  private readonly root: HTMLElement;
  private readonly shadow: ShadowRoot;
  private frame = 0;
  private reporting = 0;
  private width = 0;
  private destroyed = false;
  private printing = false;
  private readonly sheet: HTMLElement;

  constructor(
    root: HTMLElement,
    shadow: ShadowRoot,
    header: Header,
    source: Source,
    options: Options,
  ) {
    this.root = root;
    this.shadow = shadow;
    this.header = header;
    this.options = options;
    this.state = [header.state, options.state ?? {}].reduce<State>(
      (state, part) => changeState(header, state, part),
      initialState(header),
    );
    const change = (part: Partial<State>): void => this.change(part);
    this.help = makeHelp(header);
    this.controls = new Controls(header, { change, nextMatch: (step) => this.nextMatch(step) });
    const above = [this.makeTop(), this.controls.tabs, this.controls.element];
    const frame = makeFrame(header.title, above, [this.help]);
    this.app = frame.app;
    this.panelsBox = frame.panels;
    this.live = frame.live;
    this.table = frame.table;
    this.tables = frame.tables;
    this.sheet = frame.sheet;
    this.table.addEventListener("toggle", () => this.report());
    this.tooltip = new Tooltip(this.app);
    this.panels = this.makePanels(source, change);
    this.app.addEventListener("keydown", (event) => this.key(event));
    shadow.append(this.app);
    this.darkness.addEventListener("change", this.schedule);
    addEventListener("beforeprint", this.beforePrint);
    addEventListener("afterprint", this.afterPrint);
    this.resizing = new ResizeObserver(() => {
      if (this.app.clientWidth !== this.width) this.schedule();
    });
    this.resizing.observe(this.app);
    this.theming.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
    this.render();
  }

  private makeTop(): HTMLElement {
    return makeTopBar(this.header.title, {
      csv: () => this.exportCsv(),
      svg: () => this.exportSvg(),
      png: () => this.exportPng(),
      pdf: () => this.exportPdf(),
      file: () => fileName(this.state, this.header.examples[this.state.shown[0]].text),
      failed: (message) => setText(this.live, message),
      help: () => this.help.showModal(),
    });
  }

  private makePanels(source: Source, change: (part: Partial<State>) => void): Panel[] {
    return this.header.examples.map((example, i) => {
      const progressed = (): void => this.panels[i].showProgress();
      const scores = new Scores(example, i, source, this.schedule, progressed);
      return new Panel(scores, {
        change,
        tooltip: (lines, event) => this.tooltip.show(lines, event),
      });
    });
  }

  setState(state: Partial<State>): void {
    this.state = changeState(this.header, this.state, state);
    this.schedule();
  }

  getState(): State {
    return structuredClone(this.state);
  }

  destroy(): void {
    this.destroyed = true;
    cancelAnimationFrame(this.frame);
    clearTimeout(this.reporting);
    this.resizing.disconnect();
    this.theming.disconnect();
    this.darkness.removeEventListener("change", this.schedule);
    removeEventListener("beforeprint", this.beforePrint);
    removeEventListener("afterprint", this.afterPrint);
    for (const panel of this.panels) panel.scores.destroy();
    this.shadow.replaceChildren();
  }

  /** The scores on screen as CSV. */
  private exportCsv(): string {
    this.render();
    const snapshots = this.shownPanels().flatMap(({ snapshot }) => snapshot ?? []);
    return scoresCsv(snapshots, headColumns);
  }

  exportSvg(): string {
    this.render();
    return paintSvg(this.shownPanels(), this.theme(), this.beside(), this.header.title);
  }

  async exportPng(): Promise<Blob> {
    this.render();
    return paintPng(this.shownPanels(), this.theme(), this.beside());
  }

  /** The view as PDF, in light colors, as it is printed. */
  private async exportPdf(): Promise<Blob> {
    this.printing = true;
    try {
      this.render();
      return paintPdf(this.shownPanels(), LIGHT, this.beside(), this.header.title);
    } finally {
      this.printing = false;
      this.schedule();
    }
  }

  /** Print in light colors; drawings as vectors that fit the page, text as it wraps there. */
  private readonly beforePrint = (): void => {
    this.printing = true;
    const drawn = this.state.view !== "text";
    this.app.classList.toggle("drawn", drawn);
    if (drawn) this.sheet.replaceChildren(svgElement(this.exportSvg()));
    else this.render();
  };

  private readonly afterPrint = (): void => {
    this.printing = false;
    this.app.classList.remove("drawn");
    this.sheet.replaceChildren();
    this.schedule();
  };

  private change(change: Partial<State>): void {
    const next = changeState(this.header, this.state, change);
    if (JSON.stringify(next) === JSON.stringify(this.state)) return;
    this.state = next;
    this.tooltip.show(null, null); // its scores are those of the earlier position
    this.schedule();
    this.options.onState?.(this.getState());
  }

  private readonly schedule = (): void => {
    if (this.frame || this.destroyed) return;
    this.frame = requestAnimationFrame(() => this.render());
  };

  private theme(): Theme {
    if (this.printing) return LIGHT;
    const wanted = this.root.dataset.theme;
    if (wanted === "dark" || wanted === "light") return wanted === "dark" ? DARK : LIGHT;
    return this.darkness.matches ? DARK : LIGHT;
  }

  /** The panels on screen; the difference view is in that of the active example. */
  private shownPanels(): Panel[] {
    const { view, shown, example } = this.state;
    return (view === "difference" ? [example] : shown).map((i) => this.panels[i]);
  }

  /** A snapshot of what the difference view compares the active example with. */
  private takeVersus(theme: Theme): Snapshot | null {
    const versus = versusOf(this.header, this.state);
    if (!versus) return null;
    const { example } = this.state;
    if ("method" in versus) {
      const state = { ...this.state, method: versus.method };
      return takeSnapshot(this.panels[example].scores, state, theme);
    }
    return takeSnapshot(this.panels[versus.example].scores, this.state, theme);
  }

  private beside(): boolean {
    return this.shownPanels().length > 1 && this.app.clientWidth >= 860;
  }

  private render(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.destroyed) return;
    this.width = this.app.clientWidth;
    this.app.dataset.theme = this.root.dataset.theme ?? "";
    const panels = this.shownPanels();
    const comparing = this.state.view === "difference";
    const elements = panels.map((panel) => panel.element);
    if (
      elements.some((element, i) => this.panelsBox.children[i] !== element) ||
      this.panelsBox.children.length !== elements.length
    ) {
      this.panelsBox.replaceChildren(...elements);
    }
    this.panelsBox.classList.toggle("two", panels.length > 1);
    for (const panel of this.panels) panel.scores.beginRequests();
    const theme = this.theme();
    const snapshots = panels.map((panel) => takeSnapshot(panel.scores, this.state, theme));
    if (comparing) snapshots[0].versus = this.takeVersus(theme);
    // First, because their height is not available to the panels.
    const active =
      snapshots.find(({ scores }) => scores.index === this.state.example) ?? snapshots[0];
    this.controls.fit(this.width >= 760);
    this.controls.update(this.state, active.matches.size, snapshots);
    const shared = Math.max(...snapshots.map((snapshot) => this.largestOf(snapshot)));
    panels.forEach((panel, i) => panel.show(snapshots[i], shared, this.header.examples.length > 1));
    for (const panel of this.panels) {
      panel.scores.endRequests();
      panel.showProgress(); // of what is still wanted
    }
    clearTimeout(this.reporting);
    this.reporting = setTimeout(() => this.report(), SETTLE) as unknown as number;
  }

  /** The maximum of a shared color scale. */
  private largestOf(snapshot: Snapshot): number {
    if (this.state.scale !== "shared") return 0;
    if (this.state.view === "map") return mapLargest(snapshot);
    if (this.state.view === "alignment") return alignmentLargest(snapshot);
    const rows = hasMethodRows(snapshot) ? Object.values(snapshot.rows) : [snapshot.row];
    return Math.max(...rows.map((row) => largest(row, snapshot.columns)));
  }

  /** Fill the table and announce the selection, a moment after the last redraw. */
  private report(): void {
    if (this.destroyed) return;
    const panels = this.shownPanels();
    const tables = panels.flatMap(({ snapshot, scene }) => {
      if (!snapshot || !(this.table.open || tableSize(snapshot) < SMALL_TABLE)) return [];
      if (this.state.view === "difference") return [differenceTable(snapshot)];
      const heads = this.state.view === "heads" ? headColumns(snapshot) : null;
      const table = scoreTable(snapshot, heads);
      return scene?.cut?.length ? [table, cutTable(snapshot, scene.cut)] : [table];
    });
    this.tables.replaceChildren(...tables);
    const { snapshot, scene } = this.panels[this.state.example];
    if (!snapshot) return;
    const cut = scene?.cut?.length ? ` ${scene.note?.map((part) => part.text).join("")}` : "";
    setText(this.live, announcement(snapshot) + cut);
  }

  private nextMatch(step: number): void {
    const snapshot = this.panels[this.state.example].snapshot;
    if (!snapshot || snapshot.matches.size === 0) return;
    const matches = [...snapshot.matches].sort((a, b) => a - b);
    const beyond = matches.filter((item) =>
      step > 0 ? item > snapshot.item : item < snapshot.item,
    );
    const item =
      step > 0 ? (beyond[0] ?? matches[0]) : (beyond.at(-1) ?? matches[matches.length - 1]);
    this.change({ position: snapshot.items.groups[item][0] });
  }

  private key(event: KeyboardEvent): void {
    if (this.frame) this.render(); // an earlier key is not drawn yet
    const snapshot = this.panels[this.state.example].snapshot;
    if (!snapshot || this.help.open) return;
    const done = pressed(event, snapshot, {
      views: viewsOf(this.header),
      change: (part) => this.change(part),
      search: () => this.controls.searchBox.focus(),
      table: () => (this.table.open = !this.table.open),
      help: () => this.help.showModal(),
    });
    if (done) {
      event.preventDefault();
      event.stopPropagation();
    }
  }
}

/** Show an error message instead of the viewer. */
function showError(shadow: ShadowRoot, message: string): Viewer {
  const error = make("p", { class: "error", role: "alert", testid: "error" }, message);
  shadow.append(make("div", { class: "app" }, error));
  return {
    setState: () => {},
    getState: () => ({}) as State,
    destroy: () => shadow.replaceChildren(),
    exportSvg: () => "",
    exportPng: () => Promise.reject(new Error(message)),
  };
}
