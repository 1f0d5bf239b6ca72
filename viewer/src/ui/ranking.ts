// The list beside a view: the tokens with the highest scores as bars, and the prediction of the
// model.

import type { Prediction } from "../data/header.ts";
import { largest, rank, tracedItem, type Snapshot } from "../data/snapshot.ts";
import { digits, labelOf, percent, visible } from "../data/text.ts";
import { isolated, make, setText } from "../paint/dom.ts";
import { describeRow } from "../views/captions.ts";

const LENGTH = 8;
const SAME = 1e-3; // relative difference within float16 rounding

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

  show(snapshot: Snapshot): void {
    const { row, columns, labels, kept, items, state } = snapshot;
    const merged = state.view === "heads" ? ", heads merged" : "";
    setText(this.title, describeRow(snapshot) + merged);
    const shown = row
      ? rank(row, columns)
          .filter((item) => kept[item])
          .slice(0, state.topK || LENGTH)
      : [];
    const max = largest(row, columns);
    const traced = snapshot.chosen ? tracedItem(snapshot) : null;
    shown.forEach((item, i) => {
      const line = this.lines[i] ?? this.addLine();
      const value = row ? row[item] : 0;
      line.token = items.groups[item][0];
      line.element.hidden = false;
      setText(line.name, labels[item]);
      setText(line.number, digits(value));
      line.bar.style.width = `${max > 0 ? (100 * value) / max : 0}%`;
      line.button.classList.toggle("traced", item === traced);
      line.button.setAttribute("aria-pressed", String(item === traced));
    });
    for (const line of this.lines.slice(shown.length)) line.element.hidden = true;
    const note = snapshot.notes.length ? "" : tieNote(snapshot, max);
    this.tie.hidden = !note;
    setText(this.tie, note);
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

/** A note where many tokens have the same highest flow: all that the position receives. */
function tieNote({ row, columns, state, layer }: Snapshot, max: number): string {
  if (!row || state.method !== "flow") return "";
  if (layer < 2) return "";
  const count = columns.filter((item) => row[item] >= max * (1 - SAME)).length;
  if (count < 3 || 3 * count < columns.length) return "";
  return (
    `${count} of ${columns.length} tokens tie for the highest flow, so flow does not rank them. ` +
    "Select a lower layer to separate them."
  );
}

/** The prediction of the model with its most probable outcomes. */
export function predictionBox(prediction: Prediction | null): HTMLElement | null {
  if (!prediction) return null;
  const { kind, target, top } = prediction;
  const outcomes = top.map(({ label, probability }) => {
    const bar = make("i");
    bar.style.width = `${100 * probability}%`;
    return make(
      "li",
      {},
      isolated(labelOf(label)),
      make("span", { class: "track", "aria-hidden": "true" }, bar),
      make("span", { class: "number" }, percent(probability)),
    );
  });
  return make(
    "div",
    { class: "prediction", testid: "prediction" },
    make("h2", {}, `Prediction (${visible(kind)})`),
    make(
      "p",
      { class: "target" },
      isolated(labelOf(target.label)),
      " ",
      make("small", {}, percent(target.probability)),
    ),
    make("ul", { class: "outcomes" }, ...outcomes),
  );
}
