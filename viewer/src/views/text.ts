// The text view: tokens as shaded text, made of DOM elements so that it wraps and can be selected
// and read aloud. Below a short text, one small row per method for comparison.

import { pick, type Range, rangeOf, rangeText, strength } from "../data/range.ts";
import { firstTarget, keep, tracedItem, type Snapshot } from "../data/snapshot.ts";
import { shorten, visible } from "../data/text.ts";
import { make, setText } from "../paint/dom.ts";
import { fit, type Painter } from "../paint/painter.ts";
import { shade, type Theme } from "../paint/theme.ts";
import { scoreText, titleOf } from "./captions.ts";

const MAX_LABEL = 60; // characters of a token
const MAX_ROW_LABEL = 24; // characters of a token in the rows per method
const MAX_ROW_ITEMS = 40; // longer texts have no rows per method

export class TextView {
  readonly element: HTMLElement;
  private chips: HTMLElement[] = [];
  private labels: readonly string[] = [];
  private snapshot: Snapshot | null = null;
  private item = -1;

  constructor(choose: (item: number) => void, hover: (item: number | null, at: Event) => void) {
    this.element = make("div", {
      class: "sentence",
      tabindex: 0,
      role: "listbox",
      testid: "sentence",
    });
    const itemOf = (event: Event): number | null => {
      const chip = (event.target as HTMLElement).closest<HTMLElement>("[data-item]");
      return chip ? Number(chip.dataset.item) : null;
    };
    this.element.addEventListener("click", (event) => {
      const item = itemOf(event);
      if (item !== null) choose(item);
    });
    this.element.addEventListener("pointermove", (event) => hover(itemOf(event), event));
    this.element.addEventListener("pointerleave", (event) => hover(null, event));
  }

  /** Show a snapshot; `range` is that of the colors. */
  show(snapshot: Snapshot, range: Range): void {
    this.snapshot = snapshot;
    if (this.labels !== snapshot.labels) this.build(snapshot);
    const { row, kept, theme, state, items, item, labels, marks } = snapshot;
    const traced = snapshot.chosen ? tracedItem(snapshot) : null;
    this.element.dir = snapshot.rightToLeft ? "rtl" : "ltr";
    this.element.setAttribute(
      "aria-label",
      `Tokens shaded by score for ${labels[item]}${marks[item]}. Use arrow keys to select a position.`,
    );
    this.chips.forEach((chip, i) => {
      const hidden = !state.special && items.special[i];
      chip.hidden = hidden;
      if (hidden) return;
      shadeChip(chip, theme, row && kept[i] ? strength(range, row[i]) : 0);
      chip.classList.toggle("chosen", i === item);
      chip.classList.toggle("match", snapshot.matches.has(i));
      chip.classList.toggle("special", items.special[i]);
      chip.classList.toggle("traced", traced === i);
      chip.setAttribute("aria-selected", String(i === item));
      chip.setAttribute(
        "aria-label",
        `${labels[i]}${marks[i]}, ${scoreText(snapshot, state.method, row?.[i])}`,
      );
    });
    this.element.setAttribute("aria-activedescendant", this.chips[item].id);
    if (this.item !== item) this.scrollTo(this.chips[item]);
    this.item = item;
  }

  /** Scroll a long text, but not the page, to a chip. */
  private scrollTo(chip: HTMLElement): void {
    const { scrollHeight, clientHeight } = this.element;
    if (scrollHeight <= clientHeight + 4) return;
    const frame = this.element.getBoundingClientRect();
    const box = chip.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) {
      this.element.scrollTop += box.top - frame.top - frame.height / 2;
    }
  }

  private build(snapshot: Snapshot): void {
    this.labels = snapshot.labels;
    this.chips = snapshot.labels.map((label, i) => {
      const id = `chip-${snapshot.scores.index}-${i}`;
      const attributes = { id, class: "chip", dir: "auto", role: "option", testid: "token" };
      return make("span", { ...attributes, "data-item": i }, shorten(label, MAX_LABEL));
    });
    fillLine(this.element, this.chips, sidesOf(snapshot));
  }

  /** Paint the text as on screen, including parts scrolled out of view; return its size. */
  paint(painter: Painter): { width: number; height: number } {
    const { element, snapshot } = this;
    const frame = element.getBoundingClientRect();
    const height = Math.max(frame.height, element.scrollHeight);
    if (snapshot) {
      const labels = snapshot.labels.map((label) => shorten(label, MAX_LABEL));
      const shift = { x: frame.left, y: frame.top - element.scrollTop };
      paintChips(painter, this.chips, labels, shift, snapshot.theme, snapshot.item);
    }
    return { width: frame.width, height };
  }
}

/** Whether a text is short enough for rows per method. */
export const hasMethodRows = ({ state, labels, example }: Snapshot): boolean =>
  state.view === "text" && labels.length <= MAX_ROW_ITEMS && !example.answer;

interface MethodRow {
  method: string;
  element: HTMLElement;
  name: HTMLElement;
  text: HTMLElement;
  chips: HTMLElement[];
}

/** The text by every method. The table has the same scores, so screen readers skip these rows. */
export class MethodRows {
  readonly element: HTMLElement;
  private readonly rows: MethodRow[];
  private labels: readonly string[] = [];
  private snapshot: Snapshot | null = null;

  constructor(methods: readonly string[], choose: (method: string) => void) {
    this.rows = methods.map((method) => {
      const name = make("span", { class: "method-name" });
      const text = make("div");
      const element = make("div", { class: "method-row" }, name, text);
      element.addEventListener("click", () => choose(method));
      return { method, element, name, text, chips: [] };
    });
    const elements = this.rows.map((row) => row.element);
    this.element = make("div", { class: "method-rows", "aria-hidden": "true" }, ...elements);
  }

  /** Show a snapshot; `shared` is the range of a shared color scale, null for one per row. */
  show(snapshot: Snapshot, shared: Range | null): void {
    this.snapshot = snapshot;
    this.element.hidden = !hasMethodRows(snapshot);
    if (this.element.hidden) return;
    if (this.labels !== snapshot.labels) this.build(snapshot);
    const { columns, labels, state, items, example, theme } = snapshot;
    for (const { method, element, name, text, chips } of this.rows) {
      const scores = snapshot.rows[method];
      const range = shared ?? rangeOf(pick(scores, columns), state.scale);
      const kept = keep(scores, columns, labels.length, state);
      const ends = scores ? rangeText(range) || "0" : scoreText(snapshot, method, undefined);
      setText(name, `${titleOf(example, method)} (${ends})`);
      element.classList.toggle("current", method === state.method);
      text.dir = snapshot.rightToLeft ? "rtl" : "ltr";
      chips.forEach((chip, i) => {
        chip.hidden = !state.special && items.special[i];
        shadeChip(chip, theme, scores && kept[i] ? strength(range, scores[i]) : 0);
      });
    }
  }

  private build(snapshot: Snapshot): void {
    this.labels = snapshot.labels;
    for (const row of this.rows) {
      row.chips = snapshot.labels.map((label) =>
        make("span", { class: "chip", dir: "auto" }, shorten(label, MAX_ROW_LABEL)),
      );
      fillLine(row.text, row.chips, sidesOf(snapshot));
    }
  }

  /** Paint the rows at `top`, relative to the screen coordinate `left`; return their height. */
  paint(painter: Painter, left: number, top: number): number {
    const { snapshot } = this;
    if (!snapshot || this.element.hidden) return 0;
    const frame = this.element.getBoundingClientRect();
    const shift = { x: left, y: frame.top - top };
    const labels = snapshot.labels.map((label) => shorten(label, MAX_ROW_LABEL));
    const { accent, quiet } = snapshot.theme;
    for (const { method, name, chips } of this.rows) {
      const box = name.getBoundingClientRect();
      painter.text(name.textContent ?? "", box.left - shift.x, box.top - shift.y + 15, {
        size: 13,
        fill: method === snapshot.state.method ? accent : quiet,
      });
      paintChips(painter, chips, labels, shift, snapshot.theme, -1);
    }
    return frame.height;
  }
}

/** The items that start a line of their own, with its title: the source and the target of an
 * encoder-decoder, or the segments of the text. */
function sidesOf(snapshot: Snapshot): Map<number, string> {
  const { example, items, labels } = snapshot;
  const target = firstTarget(snapshot, [...labels.keys()]);
  if (target !== null) {
    return new Map([
      [0, "source"],
      [target, "target"],
    ]);
  }
  return new Map(example.segments.map(([name, first]) => [items.of[first], visible(name)]));
}

/** Put chips into an element, with spaces between them where lines can break. */
function fillLine(
  element: HTMLElement,
  chips: readonly HTMLElement[],
  sides: Map<number, string>,
): void {
  const parts = chips.flatMap((chip, i) => {
    const name = sides.get(i);
    const side = name && make("span", { class: "side", role: "presentation" }, name);
    const start = side ? [...(i ? [make("br")] : []), side] : [];
    return [...start, chip, document.createTextNode(" ")];
  });
  element.replaceChildren(...parts);
}

/** Color a chip by a share from 0 to 1, with readable text. */
function shadeChip(chip: HTMLElement, theme: Theme, share: number): void {
  const level = shade(share);
  chip.style.backgroundColor = level ? theme.ramp.css[level] : "";
  chip.style.color = level ? theme.ramp.ink[level] : "";
}

/** Paint chips at their place on screen minus `shift`. */
function paintChips(
  painter: Painter,
  chips: readonly HTMLElement[],
  labels: readonly string[],
  shift: { x: number; y: number },
  theme: Theme,
  chosen: number,
): void {
  chips.forEach((chip, i) => {
    const box = chip.getBoundingClientRect();
    if (chip.hidden || box.width === 0) return;
    const x = box.left - shift.x;
    const y = box.top - shift.y;
    painter.rect(x, y, box.width, box.height, {
      fill: chip.style.backgroundColor || theme.ground,
      radius: 5,
      ...(i === chosen ? { stroke: theme.accent, width: 2 } : {}),
    });
    const size = parseFloat(getComputedStyle(chip).fontSize) || 19;
    const label = fit(labels[i], box.width, size); // on one line, even if it wraps on screen
    painter.text(label, x + box.width / 2, y + box.height / 2 + size * 0.35, {
      size,
      align: "center",
      fill: chip.style.color || theme.ink,
    });
  });
}
