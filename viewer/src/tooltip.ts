// The tooltip: a few lines beside the pointer, kept inside the viewer and the window.

import { make } from "./elements.ts";
import { shorten } from "./visible.ts";

const LONGEST = 100; // characters of a line, so that a long token does not push the numbers away

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
        make("b", { dir: "auto" }, shorten(title, LONGEST)),
        ...rest.map((line) => make("span", { dir: "auto" }, shorten(line, LONGEST))),
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
