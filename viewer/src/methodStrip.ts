// Below a short text: the same text by every method, small, to compare at a glance. It repeats
// what the table holds, so it is hidden from screen readers; a click chooses the method.

import { make, setText } from "./elements.ts";
import { METHODS, type Method } from "./format.ts";
import type { Painter } from "./painter.ts";
import { METHOD_NAMES } from "./phrases.ts";
import { keep, largest, type Reading } from "./reading.ts";
import { paintChips, shadeChip } from "./textView.ts";
import { digits, shorten } from "./visible.ts";

const LONGEST = 40; // items; longer texts would fill the page

/** Whether a text is short enough for the strip. */
export const hasStrip = ({ state, labels }: Reading): boolean =>
  state.view === "text" && labels.length <= LONGEST;

interface Line {
  element: HTMLElement;
  name: HTMLElement;
  text: HTMLElement;
  chips: HTMLElement[];
}

export class MethodStrip {
  readonly element: HTMLElement;
  private readonly lines: Record<Method, Line>;
  private labels: readonly string[] = [];
  private reading: Reading | null = null;

  constructor(choose: (method: Method) => void) {
    const line = (method: Method): Line => {
      const name = make("span", { class: "strip-name" }, METHOD_NAMES[method]);
      const text = make("div", { class: "strip-text" });
      const element = make("div", { class: "strip-line" }, name, text);
      element.addEventListener("click", () => choose(method));
      return { element, name, text, chips: [] };
    };
    this.lines = { raw: line("raw"), rollout: line("rollout"), flow: line("flow") };
    const elements = METHODS.map((method) => this.lines[method].element);
    this.element = make("div", { class: "strip", "aria-hidden": "true" }, ...elements);
  }

  /** Show a reading; `shared` is the darkest score of a scale for all, 0 for one scale each. */
  show(reading: Reading, shared: number): void {
    this.reading = reading;
    this.element.hidden = !hasStrip(reading);
    if (this.element.hidden) return;
    if (this.labels !== reading.labels) this.build(reading);
    const { columns, labels, state, items, rows } = reading;
    for (const method of METHODS) {
      const { element, name, text, chips } = this.lines[method];
      const row = rows[method];
      const most = shared || largest(row, columns);
      const kept = keep(row, columns, labels.length, state);
      setText(name, `${METHOD_NAMES[method]}, to ${row ? digits(most) : "…"}`);
      element.classList.toggle("current", method === state.method);
      text.dir = reading.rightToLeft ? "rtl" : "ltr";
      chips.forEach((chip, i) => {
        chip.hidden = !state.special && items.special[i];
        shadeChip(chip, reading.theme, row && kept[i] && most > 0 ? row[i] / most : 0);
      });
    }
  }

  private build(reading: Reading): void {
    this.labels = reading.labels;
    for (const line of Object.values(this.lines)) {
      line.chips = reading.labels.map((label) =>
        make("span", { class: "chip", dir: "auto" }, shorten(label, 24)),
      );
      line.text.replaceChildren(
        ...line.chips.flatMap((chip) => [chip, document.createTextNode(" ")]),
      );
    }
  }

  /** Paint it below `top` of a frame that starts at `left` on screen; returns its height. */
  paint(painter: Painter, left: number, top: number): number {
    const { reading } = this;
    if (!reading || this.element.hidden) return 0;
    const frame = this.element.getBoundingClientRect();
    const shift = { x: left, y: frame.top - top };
    for (const method of METHODS) {
      const { name, chips } = this.lines[method];
      const box = name.getBoundingClientRect();
      const { accent, quiet } = reading.theme;
      painter.text(name.textContent ?? "", box.left - shift.x, box.top - shift.y + 15, {
        size: 13,
        fill: method === reading.state.method ? accent : quiet,
      });
      const labels = reading.labels.map((label) => shorten(label, 24));
      paintChips(painter, chips, labels, shift, reading.theme, -1);
    }
    return frame.height;
  }
}
