// Text view: the sentence as real text with shaded words. Drawn with elements, so that it wraps,
// can be selected and read aloud; for export it is painted where the elements stand.

import { fit, type Painter } from "./painter.ts";
import type { Reading } from "./reading.ts";
import { shade, type Theme } from "./theme.ts";
import { digits, shorten } from "./visible.ts";

const LONGEST = 60; // characters of a token

export class TextView {
  readonly element: HTMLElement;
  private chips: HTMLElement[] = [];
  private labels: readonly string[] = [];
  private reading: Reading | null = null;
  private position = -1;

  constructor(choose: (item: number) => void, hover: (item: number | null, at: Event) => void) {
    this.element = document.createElement("div");
    this.element.className = "sentence";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "listbox");
    this.element.dataset.testid = "sentence";
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

  /** Show a reading; `most` is the score with the darkest color. */
  show(reading: Reading, most: number): void {
    this.reading = reading;
    if (this.labels !== reading.labels) this.build(reading);
    const { row, kept, theme, state, items, item } = reading;
    this.element.dir = reading.rightToLeft ? "rtl" : "ltr";
    this.element.setAttribute(
      "aria-label",
      `Tokens, shaded by what reaches ${reading.labels[item]}. Arrow keys choose a position.`,
    );
    this.chips.forEach((chip, i) => {
      const hidden = !state.special && items.special[i];
      chip.hidden = hidden;
      if (hidden) return;
      shadeChip(chip, theme, row && kept[i] && most > 0 ? row[i] / most : 0);
      chip.classList.toggle("chosen", i === item);
      chip.classList.toggle("found", reading.found.has(i));
      chip.classList.toggle("special", items.special[i]);
      chip.classList.toggle("goal", reading.chosen && items.of[reading.token ?? -1] === i);
      chip.setAttribute("aria-selected", String(i === item));
      chip.setAttribute("aria-label", `${reading.labels[i]}, ${row ? digits(row[i]) : "…"}`);
    });
    this.element.setAttribute("aria-activedescendant", this.chips[item].id);
    if (this.position !== item) this.keepInSight(this.chips[item]);
    this.position = item;
  }

  /** Scroll long texts, and nothing else, to a chip. */
  private keepInSight(chip: HTMLElement): void {
    const { scrollHeight, clientHeight } = this.element;
    if (scrollHeight <= clientHeight + 4) return;
    const frame = this.element.getBoundingClientRect();
    const box = chip.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) {
      this.element.scrollTop += box.top - frame.top - frame.height / 2;
    }
  }

  private build(reading: Reading): void {
    this.labels = reading.labels;
    this.chips = reading.labels.map((label, i) => {
      const chip = document.createElement("span");
      chip.id = `chip-${reading.numbers.index}-${i}`;
      chip.className = "chip";
      chip.dir = "auto";
      chip.dataset.item = String(i);
      chip.dataset.testid = "token";
      chip.setAttribute("role", "option");
      chip.textContent = shorten(label, LONGEST);
      return chip;
    });
    const parts: Node[] = this.chips.flatMap((chip) => [chip, document.createTextNode(" ")]);
    this.element.replaceChildren(...parts);
  }

  /** Paint the text as it stands on screen, scrolled-away parts too; returns its size. */
  paint(painter: Painter): { width: number; height: number } {
    const { element, reading } = this;
    const frame = element.getBoundingClientRect();
    const height = Math.max(frame.height, element.scrollHeight);
    if (reading) {
      const labels = reading.labels.map((label) => shorten(label, LONGEST));
      const shift = { x: frame.left, y: frame.top - element.scrollTop };
      paintChips(painter, this.chips, labels, shift, reading.theme, reading.item);
    }
    return { width: frame.width, height };
  }
}

/** Give a chip the color of a share from 0 to 1, and letters that can be read on it. */
export function shadeChip(chip: HTMLElement, theme: Theme, share: number): void {
  const level = shade(share);
  chip.style.backgroundColor = level ? theme.ramp.css[level] : "";
  chip.style.color = level ? theme.ramp.ink[level] : "";
}

/** Paint chips where they stand on screen, less a shift. */
export function paintChips(
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
    // A label that fills several lines on screen has one here.
    const label = fit(labels[i], box.width, size);
    painter.text(label, x + box.width / 2, y + box.height / 2 + size * 0.35, {
      size,
      align: "center",
      fill: chip.style.color || theme.ink,
    });
  });
}
