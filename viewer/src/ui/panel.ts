// A panel: one example on screen, with its settings, the selected view, the top tokens, and
// progress and errors.

import { fromZero, pick, type Range, rangeOf } from "../data/range.ts";
import type { Scores } from "../data/scores.ts";
import { answerItems, keep, largest, type Snapshot } from "../data/snapshot.ts";
import type { State } from "../data/state.ts";
import { digits, visible } from "../data/text.ts";
import { make, setText } from "../paint/dom.ts";
import type { Painter } from "../paint/painter.ts";
import { PredictionBox, Ranking } from "./ranking.ts";
import { Stage } from "./stage.ts";
import { describeRow, itemLines, settingsOf } from "../views/captions.ts";
import { differenceScene } from "../views/difference.ts";
import { flowScene } from "../views/flow.ts";
import { headsScene } from "../views/heads.ts";
import { imageScene } from "../views/image.ts";
import { mapScene } from "../views/map.ts";
import type { Scene, Target } from "../views/scene.ts";
import { alignmentScene } from "../views/alignment.ts";
import { dialogueLines, DialogueView } from "../views/dialogue.ts";
import { MethodRows, TextView } from "../views/text.ts";

const NARROW = 480;
const LONG = 90; // tokens from which on a text scrolls
const LONG_ANSWER = 250; // with an answer
const LEGEND = 30; // pixels below the text
const BELOW = 12; // pixels to leave free at the end of the window

interface Room {
  width: number;
  height: number;
}

export interface PanelEvents {
  change(change: Partial<State>): void;
  tooltip(lines: string[] | null, event: PointerEvent | null): void;
}

export class Panel {
  readonly element: HTMLElement;
  readonly scores: Scores;
  snapshot: Snapshot | null = null;
  scene: Scene | null = null;
  range: Range = fromZero(0); // of the colors; 0 to 0 if the view has several scales
  private readonly stage: Stage;
  private readonly cue: HTMLElement;
  private readonly text: TextView | DialogueView;
  private readonly methodRows: MethodRows;
  private readonly ranking: Ranking;
  private readonly prediction: PredictionBox;
  private readonly view: HTMLElement;
  private readonly note: HTMLElement;
  private readonly settings: HTMLElement;
  private readonly warnings: HTMLElement;
  private readonly name: HTMLElement;
  private readonly error: ErrorBox;
  private readonly status: HTMLElement;
  private readonly legend: Legend;

  constructor(scores: Scores, events: PanelEvents) {
    const { index, example } = scores;
    const change = (part: Partial<State>): void => events.change({ ...part, example: index });
    this.scores = scores;
    this.stage = new Stage({
      choose: change,
      hover: (target: Target | null, event) => events.tooltip(target?.lines ?? null, event),
    });
    const hover = (item: number | null, event: Event): void =>
      events.tooltip(this.linesOf(item), event as PointerEvent);
    this.text = example.answer
      ? new DialogueView({ change, hover })
      : new TextView((item) => change({ position: this.snapshot?.items.groups[item][0] }), hover);
    this.ranking = new Ranking((token) => change(this.ranked(token)));
    this.prediction = new PredictionBox(example, () => change({ position: example.position }));
    this.name = make("h2", { class: "panel-name", dir: "auto" }, visible(example.name));
    this.note = make("p", { class: "note", testid: "note" });
    this.settings = make("p", { class: "settings", dir: "auto", testid: "settings" });
    this.warnings = make("p", { class: "warnings", dir: "auto", testid: "row-notes" });
    this.error = makeError(() => scores.retry());
    this.status = make("p", { class: "status", testid: "progress" });
    this.legend = makeLegend();
    const methods = example.methods.map((method) => method.name);
    this.methodRows = new MethodRows(methods, (method) => change({ method }));
    this.cue = make("p", { class: "cue", testid: "scroll-cue" });
    const drawn = [
      this.stage.element,
      this.cue,
      this.text.element,
      this.legend.element,
      this.methodRows.element,
    ];
    this.view = make("div", { class: "view" }, ...drawn);
    this.element = this.assemble(`panel-${index}`);
    this.element.addEventListener("focusin", () => {
      if (this.snapshot && this.snapshot.state.example !== index) events.change({ example: index });
    });
  }

  private assemble(testid: string): HTMLElement {
    const { example } = this.scores;
    const aside = make("div", { class: "aside" }, this.ranking.element, this.prediction.element);
    return make(
      "section",
      { class: "panel", testid, "aria-label": visible(example.name) },
      this.name,
      this.settings,
      this.error.element,
      this.warnings,
      this.note,
      make("div", { class: "panel-grid" }, this.view, aside),
      this.status,
    );
  }

  /** What a click on a ranked token changes: it is traced, or if it is in the answer explained. */
  private ranked(token: number): Partial<State> {
    const { snapshot } = this;
    if (snapshot?.reversed) {
      const own = answerItems(snapshot).find(({ item }) => item === snapshot.items.of[token]);
      return { part: own?.part ?? snapshot.part, token: null };
    }
    return { token: snapshot?.chosen && snapshot.token === token ? null : token };
  }

  /** The tooltip of an item of the text view. */
  private linesOf(item: number | null): string[] | null {
    const { snapshot } = this;
    if (item === null || !snapshot) return null;
    return snapshot.example.answer ? dialogueLines(snapshot, item) : itemLines(snapshot, item);
  }

  /** The width and height for a scene: what the window shows without scrolling. */
  get room(): Room {
    const top = this.view.getBoundingClientRect().top + globalThis.scrollY;
    const width = Math.max(260, Math.floor(this.view.clientWidth || 800));
    const least = width < NARROW ? 420 : 300; // narrow pages scroll anyway
    const height = Math.floor(globalThis.innerHeight - top - BELOW);
    return { width, height: Math.max(least, height) };
  }

  show(snapshot: Snapshot, shared: number, several: boolean): void {
    this.snapshot = snapshot;
    const { state, scores } = snapshot;
    const row = snapshot.reversed ? snapshot.reverse : snapshot.row;
    const columns = this.coloredItems(snapshot);
    this.name.hidden = !several;
    this.error.element.hidden = !scores.error;
    setText(this.error.text, scores.error ?? "");
    setText(this.settings, settingsOf(scores.example, state.normalize));
    const max = state.scale === "shared" ? shared : largest(row, columns);
    const common = state.scale === "shared" ? fromZero(shared) : null;
    const range = common ?? rangeOf(pick(row, columns), state.scale);
    const asText = state.view === "text";
    const leaving = asText ? this.stage.element : this.text.element;
    const focused = (this.element.getRootNode() as ShadowRoot).activeElement === leaving;
    this.text.element.hidden = !asText;
    this.stage.element.hidden = asText;
    if (focused) this.focus(); // keep the focus in the view
    const room = this.room;
    this.scene = asText ? null : makeScene(snapshot, room, max);
    this.showNote();
    // The note above may have more or fewer lines than before, which changes the height.
    if (this.scene && this.room.height !== room.height) {
      this.scene = makeScene(snapshot, this.room, max);
    }
    if (this.scene)
      this.stage.show(this.scene, `${describeRow(snapshot)}. Use arrow keys to move.`);
    else {
      this.text.element.classList.toggle("short", scores.n <= 30);
      const long = scores.n > (scores.example.answer ? LONG_ANSWER : LONG);
      this.text.element.classList.toggle("long", long);
      // The answer, at the end of a long text, stays in sight.
      const tall = scores.example.answer && long ? `${this.room.height - LEGEND}px` : "";
      this.text.element.style.maxHeight = tall;
      this.text.show(snapshot, range);
    }
    this.showCue(state.view);
    this.range = this.scene ? fromZero(this.scene.max ?? 0) : range;
    this.legend.show(this.range);
    this.methodRows.show(snapshot, common);
    this.ranking.show(snapshot);
    this.prediction.show(snapshot);
  }

  /** The items whose scores set the range of the colors. */
  private coloredItems(snapshot: Snapshot): number[] {
    const { reversed, state, items, columns, ranked } = snapshot;
    if (reversed) {
      const own = answerItems(snapshot).map(({ item }) => item);
      return own.filter((item) => state.special || !items.special[item]);
    }
    return state.view === "text" ? ranked : columns;
  }

  /** Say that a drawing continues outside of the stage. */
  private showCue(view: State["view"]): void {
    this.cue.hidden = !this.scene || this.scene.width <= this.stage.element.clientWidth + 1;
    const fit = ["flow", "map", "difference", "alignment"].includes(view)
      ? ", or select “Fit to width”"
      : "";
    setText(this.cue, `← Scroll sideways to see all${fit}. →`);
  }

  private showNote(): void {
    const { snapshot, scene } = this;
    setText(this.warnings, snapshot?.notes.join(" ") ?? "");
    this.warnings.hidden = !snapshot?.notes.length;
    const unavailable = snapshot?.state.view !== "heads" && snapshot?.unavailable;
    const parts = unavailable ? [{ text: unavailable }] : (scene?.note ?? []);
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
    const progress = this.scores.progress;
    const { snapshot, scene } = this;
    let text = "";
    if (progress) {
      const { name, done, total } = progress;
      text = total > 1 ? `Computing ${name}: ${done} of ${total}` : `Computing ${name}…`;
    } else if (!this.scores.error && !snapshot?.unavailable) {
      const shown = snapshot?.reversed ? snapshot.reverse : snapshot?.row;
      if ((snapshot && !shown) || scene?.waiting) text = "Loading…";
    }
    setText(this.status, text);
    this.showPartial();
  }

  /** In the text view, shade what is known of flow that is being computed. */
  private showPartial(): void {
    const { snapshot, scores } = this;
    if (!snapshot || snapshot.row || snapshot.reversed || this.scene) return;
    const { state, layer, items, sources } = snapshot;
    if (state.method !== "flow" || state.normalize !== "none") return;
    const row = scores.partialFlow(layer, items, sources);
    if (!row) return;
    const known = this.coloredItems(snapshot).filter((item) => row[item] >= 0);
    const kept = keep(row, known, row.length, state);
    const scale = state.scale === "shared" ? "zero" : state.scale;
    this.text.show({ ...snapshot, row, kept }, rangeOf(pick(row, known), scale));
  }

  /** Move the focus to the view. */
  focus(): void {
    (this.stage.element.hidden ? this.text.element : this.stage.element).focus();
  }

  /** Paint the view for export; return its size. */
  paint(painter: Painter): { width: number; height: number } {
    if (!this.scene) return this.paintText(painter);
    this.scene.paint(painter);
    return { width: this.scene.width, height: this.scene.height };
  }

  /** Paint the text and the rows per method below it. */
  private paintText(painter: Painter): { width: number; height: number } {
    const { width, height } = this.text.paint(painter);
    const left = this.text.element.getBoundingClientRect().left;
    const below = this.methodRows.paint(painter, left, height + 20);
    return { width, height: height + (below ? 20 + below : 0) };
  }
}

function makeScene(snapshot: Snapshot, { width, height }: Room, max: number): Scene | null {
  switch (snapshot.state.view) {
    case "alignment":
      return alignmentScene(snapshot, width, max, height);
    case "map":
      return mapScene(snapshot, width, max, height);
    case "flow":
      return flowScene(snapshot, width, max, height);
    case "heads":
      return headsScene(snapshot, width, height);
    case "difference":
      return differenceScene(snapshot, width, height);
    case "image":
      return imageScene(snapshot, width, max);
    case "text":
      return null;
  }
}

interface ErrorBox {
  element: HTMLElement;
  text: HTMLElement;
}

/** An error message with a button to retry. */
function makeError(retryLoading: () => void): ErrorBox {
  const text = make("span");
  const retry = make("button", { type: "button", class: "tool", testid: "retry" }, "Retry");
  retry.addEventListener("click", retryLoading);
  const element = make("p", { class: "error", role: "alert", testid: "error" }, text, retry);
  return { element, text };
}

interface Legend {
  element: HTMLElement;
  show(range: Range): void;
}

function makeLegend(): Legend {
  const low = make("span");
  const high = make("span");
  const stretched = make("span");
  const ramp = make("i", { "aria-hidden": "true" });
  const element = make("div", { class: "legend", testid: "legend" }, low, ramp, high, stretched);
  return {
    element,
    show: (range) => {
      element.hidden = !range.high;
      ramp.classList.toggle("stretched", range.low > 0);
      setText(low, digits(range.low));
      setText(high, digits(range.high) + (range.exceeded ? " or more" : ""));
      setText(stretched, range.low > 0 ? "(colors start at the lowest score, not at 0)" : "");
    },
  };
}
