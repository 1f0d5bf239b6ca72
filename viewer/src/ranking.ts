// The strongest tokens of a position as a list of bars, and what the model predicts.

import { isolated, make, setText } from "./elements.ts";
import type { Prediction } from "./format.ts";
import { lookingFrom } from "./phrases.ts";
import { largest, rank, type Reading } from "./reading.ts";
import { digits, percent, visible } from "./visible.ts";

const LENGTH = 8;
const SAME = 1e-3; // flows this close are equal, given how they are sent

interface Line {
  element: HTMLLIElement;
  button: HTMLButtonElement;
  name: HTMLElement;
  bar: HTMLElement;
  number: HTMLElement;
  token: number;
}

export class Ranking {
  readonly element: HTMLElement;
  private readonly title: HTMLElement;
  private readonly list: HTMLOListElement;
  private readonly tie: HTMLElement;
  private readonly lines: Line[] = [];
  private readonly choose: (token: number) => void;

  constructor(choose: (token: number) => void) {
    this.choose = choose;
    this.title = make("h2", { dir: "auto" });
    this.list = make("ol", { class: "ranking", testid: "ranking" });
    this.tie = make("p", { class: "tie", testid: "tie" });
    this.element = make("div", { class: "readout" }, this.title, this.list, this.tie);
  }

  show(reading: Reading): void {
    const { row, columns, labels, kept, items, state } = reading;
    const merged = state.view === "heads" ? "All heads merged: " : "";
    setText(this.title, merged + lookingFrom(reading));
    const shown = row
      ? rank(row, columns)
          .filter((item) => kept[item])
          .slice(0, state.topK || LENGTH)
      : [];
    const most = largest(row, columns);
    shown.forEach((item, i) => {
      const line = this.lines[i] ?? this.addLine();
      const value = row ? row[item] : 0;
      line.token = items.groups[item][0];
      line.element.hidden = false;
      setText(line.name, labels[item]);
      setText(line.number, digits(value));
      line.bar.style.width = `${most > 0 ? (100 * value) / most : 0}%`;
      const goal = reading.chosen && items.of[reading.token ?? -1] === item;
      line.button.classList.toggle("goal", goal);
      line.button.setAttribute("aria-pressed", String(goal));
    });
    for (const line of this.lines.slice(shown.length)) line.element.hidden = true;
    const tied = tieOf(reading, most);
    this.tie.hidden = !tied;
    setText(this.tie, tied);
  }

  private addLine(): Line {
    const name = isolated("");
    name.dir = "auto";
    const bar = make("i");
    const number = make("span", { class: "number" });
    const track = make("span", { class: "track", "aria-hidden": "true" }, bar);
    const button = make("button", { type: "button" }, name, track, number);
    const element = make("li", {}, button);
    const line: Line = { element, button, name, bar, number, token: 0 };
    button.addEventListener("click", () => this.choose(line.token));
    this.lines.push(line);
    this.list.append(element);
    return line;
  }
}

/** Flow has an upper limit, what leaves the position at all; tokens at it are not told apart. */
function tieOf({ row, columns, state, layer }: Reading, most: number): string {
  if (!row || state.method !== "flow") return "";
  const summed = state.words && most > 1.001; // flows of words have no such limit
  if (layer < 2 || summed) return "";
  const count = columns.filter((item) => row[item] >= most * (1 - SAME)).length;
  if (count < 3 || 3 * count < columns.length) return "";
  return (
    `${count} of ${columns.length} tie for the most that can arrive here at all, so flow does not ` +
    "rank them. A lower layer tells them apart."
  );
}

/** What the model predicts, with its strongest outcomes. */
export function predictionBox(prediction: Prediction | null): HTMLElement | null {
  if (!prediction) return null;
  const { kind, target, top } = prediction;
  const outcomes = top.map(({ label, probability }) => {
    const bar = make("i");
    bar.style.width = `${100 * probability}%`;
    return make(
      "li",
      {},
      isolated(visible(label)),
      make("span", { class: "track", "aria-hidden": "true" }, bar),
      make("span", { class: "number" }, percent(probability)),
    );
  });
  return make(
    "div",
    { class: "prediction", testid: "prediction" },
    make("h2", {}, `The model predicts (${visible(kind)})`),
    make(
      "p",
      { class: "target" },
      isolated(visible(target.label)),
      " ",
      make("small", {}, percent(target.probability)),
    ),
    make("ul", { class: "outcomes" }, ...outcomes),
  );
}
