// One example on screen: its view, the strongest tokens beside it, and what went wrong if anything.

import { make, setText } from "./elements.ts";
import { flowScene } from "./flowView.ts";
import { headsScene } from "./headsView.ts";
import { imageScene } from "./imageView.ts";
import { mapScene } from "./mapView.ts";
import { MethodStrip } from "./methodStrip.ts";
import type { Numbers } from "./numbers.ts";
import type { Painter } from "./painter.ts";
import { makeError, makeLegend, type ErrorBox, type Legend } from "./panelParts.ts";
import { lookingFrom, scoreLines } from "./phrases.ts";
import { predictionBox, Ranking } from "./ranking.ts";
import type { Reading } from "./reading.ts";
import type { Scene, Target } from "./scene.ts";
import { Stage } from "./stage.ts";
import type { State } from "./state.ts";
import { TextView } from "./textView.ts";
import { digits, visible } from "./visible.ts";

const TOO_LARGE =
  "This graph is too large to work out flow in the page. Look from the explained position.";

export interface PanelEvents {
  change(change: Partial<State>): void;
  tooltip(lines: string[] | null, event: PointerEvent | null): void;
}

export class Panel {
  readonly element: HTMLElement;
  readonly numbers: Numbers;
  reading: Reading | null = null;
  scene: Scene | null = null;
  darkest = 0; // the value with the darkest color, if one scale holds for all that is shown
  private readonly stage: Stage;
  private readonly text: TextView;
  private readonly strip: MethodStrip;
  private readonly ranking: Ranking;
  private readonly view: HTMLElement;
  private readonly note: HTMLElement;
  private readonly name: HTMLElement;
  private readonly error: ErrorBox;
  private readonly status: HTMLElement;
  private readonly legend: Legend;

  constructor(numbers: Numbers, events: PanelEvents) {
    const { index, example } = numbers;
    const change = (one: Partial<State>): void => events.change({ ...one, example: index });
    this.numbers = numbers;
    this.stage = new Stage({
      choose: change,
      hover: (target: Target | null, event) => events.tooltip(target?.lines ?? null, event),
    });
    this.text = new TextView(
      (item) => change({ position: this.reading?.items.groups[item][0] }),
      (item, event) => events.tooltip(this.linesOf(item), event as PointerEvent),
    );
    this.ranking = new Ranking((token) =>
      change({ token: this.reading?.chosen && this.reading.token === token ? null : token }),
    );
    this.name = make("h2", { class: "panel-name", dir: "auto" }, visible(example.name));
    this.note = make("p", { class: "note", testid: "note" });
    this.error = makeError(() => numbers.retry());
    this.status = make("p", { class: "status", testid: "progress" });
    this.legend = makeLegend();
    this.strip = new MethodStrip((method) => change({ method }));
    const drawn = [this.stage.element, this.text.element, this.legend.element, this.strip.element];
    this.view = make("div", { class: "view" }, ...drawn);
    this.element = this.assemble(`panel-${index}`);
    this.element.addEventListener("focusin", () => {
      if (this.reading && this.reading.state.example !== index) events.change({ example: index });
    });
  }

  private assemble(testid: string): HTMLElement {
    const { name, prediction } = this.numbers.example;
    const aside = make("div", { class: "aside" }, this.ranking.element, predictionBox(prediction));
    return make(
      "section",
      { class: "panel", testid, "aria-label": visible(name) },
      this.name,
      this.error.element,
      this.note,
      make("div", { class: "panel-grid" }, this.view, aside),
      this.status,
    );
  }

  /** The tooltip of an item of the text. */
  private linesOf(item: number | null): string[] | null {
    const { reading } = this;
    if (item === null || !reading) return null;
    return [reading.labels[item], ...scoreLines(reading, item)];
  }

  /** The width that a scene has. */
  get room(): number {
    return Math.max(260, Math.floor(this.view.clientWidth || 800));
  }

  show(reading: Reading, shared: number, several: boolean): void {
    this.reading = reading;
    const { state, row, columns, numbers } = reading;
    this.name.hidden = !several;
    this.error.element.hidden = !numbers.error;
    setText(this.error.text, numbers.error ?? "");
    const own = row ? Math.max(...columns.map((i) => row[i]), 0) : 0;
    const most = state.scale === "shared" ? shared : own;
    const asText = state.view === "text";
    const leaving = asText ? this.stage.element : this.text.element;
    const focused = (this.element.getRootNode() as ShadowRoot).activeElement === leaving;
    this.text.element.hidden = !asText;
    this.stage.element.hidden = asText;
    if (focused) this.focus(); // else the keyboard would be lost with what it was on
    this.scene = asText ? null : makeScene(reading, this.room, most);
    if (this.scene) this.stage.show(this.scene, `${lookingFrom(reading)}. Arrow keys move.`);
    else {
      this.text.element.classList.toggle("short", reading.labels.length <= 30);
      this.text.element.classList.toggle("long", reading.labels.length > 90);
      this.text.show(reading, most);
    }
    this.darkest = (this.scene ? this.scene.most : most) ?? 0;
    this.legend.element.hidden = !this.darkest;
    setText(this.legend.most, digits(this.darkest));
    this.showNote();
    this.strip.show(reading, state.scale === "shared" ? shared : 0);
    this.ranking.show(reading);
    this.showProgress();
  }

  private showNote(): void {
    const parts = this.scene?.note ?? [];
    this.note.hidden = parts.length === 0;
    const text = parts.map((part) => part.text).join("");
    if (this.note.textContent === text) return;
    this.note.replaceChildren(
      ...parts.map((part) =>
        make(part.strong ? "span" : "bdi", { class: part.strong ? "bottleneck" : null }, part.text),
      ),
    );
  }

  showProgress(): void {
    const progress = this.numbers.progress;
    const missing = (this.reading && !this.reading.row) || this.scene?.waiting;
    const waiting = missing && !this.numbers.error;
    let text = "";
    if (progress) {
      const share = progress.total > 1 ? `: ${progress.done} of ${progress.total}` : "";
      text = `Working out ${progress.what}${share} …`;
    } else if (waiting) text = this.numbers.tooLarge ? TOO_LARGE : "Loading …";
    setText(this.status, text);
  }

  /** Give the keyboard to the view. */
  focus(): void {
    (this.stage.element.hidden ? this.text.element : this.stage.element).focus();
  }

  /** The size of what is on screen, and its painting, for export. */
  paint(painter: Painter): { width: number; height: number } {
    if (!this.scene) return this.paintText(painter);
    this.scene.paint(painter);
    return { width: this.scene.width, height: this.scene.height };
  }

  /** The text, and below it the strip of methods. */
  private paintText(painter: Painter): { width: number; height: number } {
    const { width, height } = this.text.paint(painter);
    const left = this.text.element.getBoundingClientRect().left;
    const below = this.strip.paint(painter, left, height + 20);
    return { width, height: height + (below ? 20 + below : 0) };
  }
}

function makeScene(reading: Reading, width: number, most: number): Scene | null {
  switch (reading.state.view) {
    case "map":
      return mapScene(reading, width, most);
    case "flow":
      return flowScene(reading, width, most);
    case "heads":
      return headsScene(reading, width);
    case "image":
      return imageScene(reading, width, most);
    case "text":
      return null;
  }
}
