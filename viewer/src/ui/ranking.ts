// The list beside a view: the tokens with the highest scores as bars, and the prediction of the
// model.

import type { Example, Outcome, Prediction } from "../data/header.ts";
import { answerItems, keep, largest, rank, tracedItem, type Snapshot } from "../data/snapshot.ts";
import type { Part } from "../data/state.ts";
import { digits, percent, visible } from "../data/text.ts";
import { isolated, make, setText } from "../paint/dom.ts";
import { describeRow, nameOf, segmentShares, targetName } from "../views/captions.ts";
import { describeReverse } from "../views/dialogue.ts";

const LENGTH = 8;
const NEAR = 0.01; // relative difference from the highest flow of tokens that are hardly ranked

interface Line {
  element: HTMLLIElement;
  button: HTMLButtonElement;
  name: HTMLElement;
  mark: HTMLElement;
  bar: HTMLElement;
  number: HTMLElement;
  token: number;
}

export class Ranking {
  readonly element: HTMLElement;
  private readonly title: HTMLElement;
  private readonly list: HTMLOListElement;
  private readonly tie: HTMLElement;
  private readonly shares: HTMLElement;
  private readonly lines: Line[] = [];
  private readonly choose: (token: number) => void;

  constructor(choose: (token: number) => void) {
    this.choose = choose;
    this.title = make("h2", { dir: "auto" });
    this.list = make("ol", { class: "ranking", testid: "ranking" });
    this.tie = make("p", { class: "tie", testid: "tie" });
    this.shares = make("p", { class: "tie", testid: "shares" });
    const parts = [this.title, this.list, this.tie, this.shares];
    this.element = make("div", { class: "readout" }, ...parts);
  }

  show(snapshot: Snapshot): void {
    const { labels, marks, items, state, reversed } = snapshot;
    const merged = state.view === "heads" ? ", heads merged" : "";
    setText(this.title, reversed ? describeReverse(snapshot) : describeRow(snapshot) + merged);
    const row = reversed ? snapshot.reverse : snapshot.row;
    const columns = reversed ? ownItems(snapshot) : snapshot.ranked;
    const kept = keep(row, columns, labels.length, state);
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
      setText(line.mark, marks[item]);
      line.button.title = labels[item] + marks[item];
      setText(line.number, digits(value));
      line.bar.style.width = `${max > 0 ? (100 * value) / max : 0}%`;
      line.button.classList.toggle("traced", item === traced);
      line.button.setAttribute("aria-pressed", String(item === traced));
    });
    for (const line of this.lines.slice(shown.length)) line.element.hidden = true;
    const note = snapshot.notes.length ? "" : tieNote(snapshot, max);
    this.tie.hidden = !note;
    setText(this.tie, note);
    const shares = segmentShares(snapshot);
    this.shares.hidden = !shares;
    setText(this.shares, shares);
  }

  private addLine(): Line {
    const name = isolated("");
    name.dir = "auto";
    const bar = make("i");
    const number = make("span", { class: "number" });
    const track = make("span", { class: "track", "aria-hidden": "true" }, bar);
    const mark = make("small", { class: "mark" });
    const label = make("span", { class: "name" }, name, mark);
    const button = make("button", { type: "button" }, label, track, number);
    const element = make("li", {}, button);
    const line: Line = { element, button, name, mark, bar, number, token: 0 };
    button.addEventListener("click", () => this.choose(line.token));
    this.lines.push(line);
    this.list.append(element);
    return line;
  }
}

/** The items of the answer that are shown. */
function ownItems(snapshot: Snapshot): number[] {
  const { state, items } = snapshot;
  const own = answerItems(snapshot).map(({ item }) => item);
  return own.filter((item) => state.special || !items.special[item]);
}

/** A note where many tokens have nearly the highest flow: all that the position receives. */
function tieNote(snapshot: Snapshot, max: number): string {
  const { row, ranked: columns, state, layer, reversed } = snapshot;
  if (!row || reversed || state.method !== "flow") return "";
  if (layer < 2) return "";
  const reached = columns.filter((item) => row[item] > 0);
  const count = reached.filter((item) => row[item] >= max * (1 - NEAR)).length;
  if (count < 3 || 4 * count < reached.length) return "";
  return (
    `${count} of ${reached.length} tokens have a flow within 1% of the highest, so flow hardly ranks ` +
    "them. Select a lower layer to separate them."
  );
}

/** The prediction of the model with its most probable outcomes: that of the selected position, or
 * else that of the explained one, which says so. */
export class PredictionBox {
  readonly element: HTMLElement;
  private readonly title: HTMLElement;
  private readonly elsewhere: HTMLElement;
  private readonly where: HTMLElement;
  private readonly back: HTMLButtonElement;
  private readonly body: HTMLElement;
  private shown: unknown = null;

  /** back: selects the explained position. */
  constructor({ prediction }: Example, back: () => void) {
    this.title = make("h2");
    this.where = make("span");
    this.back = make("button", { type: "button", class: "tool", testid: "explained-position" });
    this.back.addEventListener("click", back);
    this.elsewhere = make("p", { class: "elsewhere", testid: "elsewhere" }, this.where, this.back);
    this.body = make("div", { class: "body" });
    const parts = [this.title, this.elsewhere, this.body];
    this.element = make("div", { class: "prediction", testid: "prediction" }, ...parts);
    this.element.hidden = !prediction;
  }

  show(snapshot: Snapshot): void {
    const { example, items, item } = snapshot;
    if (!example.prediction) return;
    if (snapshot.part) return this.showPart(snapshot, snapshot.part);
    const own = items.of[example.position];
    const last = items.groups[item][items.groups[item].length - 1]; // predicts what follows
    const other = item === own ? null : (example.predictions[last] ?? null);
    const prediction = other ?? example.prediction;
    if (this.shown !== prediction) this.body.replaceChildren(...outcomes(prediction));
    this.shown = prediction;
    const elsewhere = item !== own && !other;
    const at = item === own ? "" : ` at ${nameOf(snapshot, other ? item : own)}`;
    setText(this.title, `Prediction (${visible(prediction.kind)})${at}`);
    this.element.classList.toggle("other", elsewhere);
    this.elsewhere.hidden = !elsewhere;
    if (!elsewhere) return;
    const where = `This is the prediction of position ${example.position} only. `;
    const scores = `The scores are those of ${nameOf(snapshot, item)}. `;
    setText(this.where, where + scores);
    setText(this.back, `Select ${nameOf(snapshot, own)}`);
  }

  /** The prediction of a token of the answer, or the probabilities of several. */
  private showPart(snapshot: Snapshot, [first, last]: Part): void {
    const { answer, labels } = snapshot.example;
    if (!answer) return;
    const own = answer.steps.slice(first - answer.first, last - answer.first + 1);
    // As a part of the text, the label of a token can tell more than alone.
    const steps = own.map((step, i) => ({
      ...step,
      target: { ...step.target, label: labels[first + i] },
    }));
    const key = `${first} to ${last}`;
    if (this.shown !== key) {
      const parts = steps.length === 1 ? outcomes(steps[0]) : likelihoods(steps);
      this.body.replaceChildren(...parts);
    }
    this.shown = key;
    const kind = visible(steps[0].kind);
    const title =
      steps.length === 1 ? `Prediction (${kind})` : `Probability of ${targetName(snapshot)}`;
    setText(this.title, title);
    this.element.classList.remove("other");
    this.elsewhere.hidden = true;
  }
}

/** The probability of each of several tokens. */
function likelihoods(steps: readonly Prediction[]): HTMLElement[] {
  const all = steps.reduce((product, { target }) => product * (target.probability ?? 0), 1);
  const each = all ** (1 / steps.length);
  const summary = `${steps.length} tokens, ${percent(each)} each (geometric mean)`;
  const list = make(
    "ul",
    { class: "outcomes many" },
    ...steps.map(({ target }) => barLine(target)),
  );
  return [make("p", { class: "tie" }, summary), list];
}

function barLine({ label, probability }: Outcome): HTMLElement {
  const bar = make("i");
  bar.style.width = `${100 * (probability ?? 0)}%`;
  return make(
    "li",
    {},
    isolated(visible(label)),
    make("span", { class: "track", "aria-hidden": "true" }, bar),
    make("span", { class: "number" }, percent(probability)),
  );
}

function outcomes({ target, top }: Prediction): HTMLElement[] {
  return [
    make(
      "p",
      { class: "target" },
      isolated(visible(target.label)),
      " ",
      make("small", {}, percent(target.probability)),
    ),
    make("ul", { class: "outcomes" }, ...top.map(barLine)),
  ];
}
