// The viewer: one shadow root, its state, and the round of reading, drawing and asking for more.

import { Controls } from "./controls.ts";
import { make, setText } from "./elements.ts";
import { fileName, paintPng, paintSvg } from "./exporting.ts";
import { readHeader, type Header, type Source } from "./format.ts";
import { makeFrame } from "./frame.ts";
import { headColumns } from "./headMaps.ts";
import { makeHelp } from "./help.ts";
import { pressed } from "./keyboard.ts";
import { mapLargest } from "./mapView.ts";
import { hasStrip } from "./methodStrip.ts";
import { Numbers } from "./numbers.ts";
import { Panel } from "./panel.ts";
import { spoken } from "./phrases.ts";
import { largest, read, type Reading } from "./reading.ts";
import { changeState, initialState, type State } from "./state.ts";
import { addStyles } from "./styles.ts";
import { cutTable, numbersTable, tableSize } from "./table.ts";
import { DARK, LIGHT, type Theme } from "./theme.ts";
import { Tooltip } from "./tooltip.ts";
import { makeTopBar } from "./topBar.ts";

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

const SMALL_TABLE = 4000; // cells; larger ones are only filled in when they are open

/** Show an explanation in an element. */
export function mount(root: HTMLElement, source: Source, options: Options = {}): Viewer {
  const shadow = root.shadowRoot ?? root.attachShadow({ mode: "open" });
  shadow.replaceChildren();
  addStyles(shadow);
  let header: Header;
  try {
    header = readHeader(source.header);
  } catch (reason) {
    return sorry(shadow, reason instanceof Error ? reason.message : String(reason));
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
  private telling = 0;
  private width = 0;
  private destroyed = false;

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
    this.state = changeState(header, initialState(header), options.state ?? {});
    const change = (one: Partial<State>): void => this.change(one);
    this.help = makeHelp();
    this.controls = new Controls(header, { change, nextFound: (step) => this.nextFound(step) });
    const above = [this.makeTop(), this.controls.tabs, this.controls.element];
    const frame = makeFrame(header.title, above, [this.help]);
    this.app = frame.app;
    this.panelsBox = frame.panels;
    this.live = frame.live;
    this.table = frame.table;
    this.tables = frame.tables;
    this.table.addEventListener("toggle", () => this.tell());
    this.tooltip = new Tooltip(this.app);
    this.panels = this.makePanels(source, change);
    this.app.addEventListener("keydown", (event) => this.key(event));
    shadow.append(this.app);
    this.darkness.addEventListener("change", this.schedule);
    this.resizing = new ResizeObserver(() => {
      if (this.app.clientWidth !== this.width) this.schedule();
    });
    this.resizing.observe(this.app);
    this.theming.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
    this.render();
  }

  private makeTop(): HTMLElement {
    return makeTopBar(this.header.title, {
      svg: () => this.exportSvg(),
      png: () => this.exportPng(),
      file: () => fileName(this.state, this.header.examples[this.state.shown[0]].text),
      failed: (sentence) => setText(this.live, sentence),
      help: () => this.help.showModal(),
    });
  }

  private makePanels(source: Source, change: (one: Partial<State>) => void): Panel[] {
    return this.header.examples.map((example, i) => {
      const progressed = (): void => this.panels[i].showProgress();
      const numbers = new Numbers(example, i, source, this.schedule, progressed);
      return new Panel(numbers, {
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
    clearTimeout(this.telling);
    this.resizing.disconnect();
    this.theming.disconnect();
    this.darkness.removeEventListener("change", this.schedule);
    for (const panel of this.panels) panel.numbers.destroy();
    this.shadow.replaceChildren();
  }

  exportSvg(): string {
    this.render();
    return paintSvg(this.shownPanels(), this.theme(), this.beside(), this.header.title);
  }

  async exportPng(): Promise<Blob> {
    this.render();
    return paintPng(this.shownPanels(), this.theme(), this.beside());
  }

  private change(change: Partial<State>): void {
    const next = changeState(this.header, this.state, change);
    if (JSON.stringify(next) === JSON.stringify(this.state)) return;
    this.state = next;
    this.schedule();
    this.options.onState?.(this.getState());
  }

  private readonly schedule = (): void => {
    if (this.frame || this.destroyed) return;
    this.frame = requestAnimationFrame(() => this.render());
  };

  private theme(): Theme {
    const wanted = this.root.dataset.theme;
    if (wanted === "dark" || wanted === "light") return wanted === "dark" ? DARK : LIGHT;
    return this.darkness.matches ? DARK : LIGHT;
  }

  private shownPanels(): Panel[] {
    return this.state.shown.map((i) => this.panels[i]);
  }

  private beside(): boolean {
    return this.state.shown.length > 1 && this.app.clientWidth >= 860;
  }

  private render(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.destroyed) return;
    this.width = this.app.clientWidth;
    this.app.dataset.theme = this.root.dataset.theme ?? "";
    const panels = this.shownPanels();
    const elements = panels.map((panel) => panel.element);
    if (
      elements.some((one, i) => this.panelsBox.children[i] !== one) ||
      this.panelsBox.children.length !== elements.length
    ) {
      this.panelsBox.replaceChildren(...elements);
    }
    this.panelsBox.classList.toggle("two", panels.length > 1);
    for (const panel of panels) panel.numbers.beginAsking();
    const theme = this.theme();
    const readings = panels.map((panel) => read(panel.numbers, this.state, theme));
    const shared = Math.max(...readings.map((reading) => this.largestOf(reading)));
    panels.forEach((panel, i) => panel.show(readings[i], shared, this.header.examples.length > 1));
    for (const panel of panels) panel.numbers.endAsking();
    const current = readings.find((one) => one.numbers.index === this.state.example) ?? readings[0];
    this.controls.fit(this.width >= 760);
    this.controls.update(this.state, current.found.size, readings);
    clearTimeout(this.telling);
    this.telling = setTimeout(() => this.tell(), 120) as unknown as number;
  }

  /** The value with the darkest color when there is one scale for all that is shown. */
  private largestOf(reading: Reading): number {
    if (this.state.scale === "own") return 0;
    if (this.state.view === "map") return mapLargest(reading);
    const rows = hasStrip(reading) ? Object.values(reading.rows) : [reading.row];
    return Math.max(...rows.map((row) => largest(row, reading.columns)));
  }

  /** After things have settled: fill the table, and say what is chosen. */
  private tell(): void {
    if (this.destroyed) return;
    const panels = this.shownPanels();
    const tables = panels.flatMap(({ reading, scene }) => {
      if (!reading || !(this.table.open || tableSize(reading) < SMALL_TABLE)) return [];
      const heads = this.state.view === "heads" ? headColumns(reading) : null;
      const numbers = numbersTable(reading, heads);
      return scene?.cut?.length ? [numbers, cutTable(reading, scene.cut)] : [numbers];
    });
    this.tables.replaceChildren(...tables);
    const { reading, scene } = this.panels[this.state.example];
    if (!reading) return;
    const cut = scene?.cut?.length ? ` ${scene.note?.map((part) => part.text).join("")}` : "";
    setText(this.live, spoken(reading) + cut);
  }

  private nextFound(step: number): void {
    const reading = this.panels[this.state.example].reading;
    if (!reading || reading.found.size === 0) return;
    const found = [...reading.found].sort((a, b) => a - b);
    const later = found.filter((item) => (step > 0 ? item > reading.item : item < reading.item));
    const item =
      step > 0 ? (later[0] ?? found[0]) : (later[later.length - 1] ?? found[found.length - 1]);
    this.change({ position: reading.items.groups[item][0] });
  }

  private key(event: KeyboardEvent): void {
    if (this.frame) this.render(); // a key before it was not drawn yet
    const reading = this.panels[this.state.example].reading;
    if (!reading || this.help.open) return;
    const done = pressed(event, reading, {
      change: (one) => this.change(one),
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

/** A sentence in place of a viewer that cannot be. */
function sorry(shadow: ShadowRoot, sentence: string): Viewer {
  const error = make("p", { class: "error", role: "alert", testid: "error" }, sentence);
  shadow.append(make("div", { class: "app" }, error));
  return {
    setState: () => {},
    getState: () => ({}) as State,
    destroy: () => shadow.replaceChildren(),
    exportSvg: () => "",
    exportPng: () => Promise.reject(new Error(sentence)),
  };
}
