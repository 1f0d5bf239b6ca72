// The controls above the views: tabs, method, layer, search, examples and options. They read and
// change nothing but the state.

import { make, setText } from "./elements.ts";
import { range, type Change, type Field } from "./fields.ts";
import { METHODS, type Header } from "./format.ts";
import { makeOptions, type Options } from "./options.ts";
import { areDimmed, hintOf, meaningOf, METHOD_NAMES, VIEW_NAMES } from "./phrases.ts";
import type { Reading } from "./reading.ts";
import { VIEWS, type State } from "./state.ts";
import { visible } from "./visible.ts";

export interface ControlEvents {
  change: Change;
  nextFound(step: number): void;
}

let groups = 0; // radio buttons of several viewers must not share a name

export class Controls {
  readonly tabs: HTMLElement;
  readonly element: HTMLElement;
  readonly searchBox: HTMLInputElement;
  private readonly count: HTMLElement;
  private readonly meaning: HTMLElement;
  private readonly hint: HTMLElement;
  private readonly dimmed: HTMLElement;
  private readonly options: Options;
  private readonly fields: Field[];

  constructor(header: Header, { change, nextFound }: ControlEvents) {
    const tabs = makeTabs(header, change);
    const methods = makeMethods(change);
    const layer = makeLayer(header, change);
    const examples = makeExamples(header, change);
    this.meaning = make("p", { class: "meaning", testid: "explanation" });
    this.hint = make("span");
    this.dimmed = makeDimmed(change);
    this.tabs = tabs.element;
    this.searchBox = makeSearch(change, nextFound);
    this.count = make("output", { class: "count", testid: "search-count" });
    this.options = makeOptions(header, change);
    const search = make("label", { class: "field" }, "Find a token", this.searchBox);
    const searching = make("div", { class: "searching" }, search, this.count);
    this.element = make(
      "div",
      { class: "controls" },
      make("p", { class: "hint", testid: "hint" }, this.hint, " ", this.dimmed),
      make("div", { class: "main-row" }, methods.element, layer.element, searching),
      this.meaning,
      examples.element,
      this.options.element,
    );
    this.fields = [tabs, methods, layer, examples, this.options];
  }

  /** Options are folded away on narrow screens only. */
  fit(wide: boolean): void {
    if (wide) this.options.element.open = true;
  }

  /** Show a state; readings: what the panels show of it. */
  update(state: State, found: number, readings: readonly Reading[]): void {
    for (const field of this.fields) field.set(state);
    if (this.searchBox.value !== state.search) this.searchBox.value = state.search;
    this.meaning.hidden = state.view === "heads";
    setText(this.meaning, meaningOf(readings));
    setText(this.hint, hintOf(readings));
    this.dimmed.hidden = !areDimmed(readings);
    setText(this.count, state.search.trim() ? `${found} found` : "");
  }
}

/** What to do where special tokens take most of the colors. */
function makeDimmed(change: Change): HTMLElement {
  const button = make(
    "button",
    { type: "button", class: "tool", testid: "hide-special" },
    "Hide them",
  );
  button.addEventListener("click", () => {
    change({ special: false });
    // The button goes; the keyboard passes to the switch that takes it back.
    const root = button.getRootNode() as ShadowRoot;
    root.querySelector<HTMLElement>('[data-testid="special"]')?.focus();
  });
  return make("span", {}, "Special tokens outshine the others. ", button);
}

function makeTabs(header: Header, change: Change): Field {
  const images = header.examples.some((example) => example.image);
  const views = VIEWS.filter((view) => view !== "image" || images);
  if (images) views.unshift(...views.splice(views.indexOf("image"), 1));
  const tabs = views.map((view) =>
    make("button", { type: "button", role: "tab", testid: `view-${view}` }, VIEW_NAMES[view]),
  );
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => change({ view: views[i] }));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = (i + step + views.length) % views.length;
      change({ view: views[next] });
      tabs[next].focus();
    });
  });
  return {
    element: make("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...tabs),
    set: (state) =>
      tabs.forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(views[i] === state.view));
        tab.tabIndex = views[i] === state.view ? 0 : -1;
      }),
  };
}

function makeMethods(change: Change): Field {
  const name = `method-${++groups}`;
  const inputs = METHODS.map((method) =>
    make("input", { type: "radio", name, value: method, testid: `method-${method}` }),
  );
  inputs.forEach((input, i) =>
    input.addEventListener("change", () => change({ method: METHODS[i] })),
  );
  const labels = inputs.map((input, i) =>
    make("label", {}, input, make("span", {}, METHOD_NAMES[METHODS[i]])),
  );
  const segments = make("div", { class: "segments" }, ...labels);
  const element = make("fieldset", { class: "field" }, make("legend", {}, "Method"), segments);
  return {
    element,
    set: (state) => {
      inputs.forEach((input, i) => (input.checked = METHODS[i] === state.method));
      element.hidden = state.view === "heads"; // heads have their own choice
    },
  };
}

function makeLayer(header: Header, change: Change): Field {
  const layers = Math.max(...header.examples.map((example) => example.n_layers));
  return range(change, {
    label: "Layer",
    testid: "layer",
    low: 1,
    high: layers,
    step: 1,
    value: (state) => state.layer,
    change: (layer) => ({ layer }),
    say: (value) => `${value} of ${layers}`,
    wide: true,
  });
}

function makeSearch(change: Change, nextFound: (step: number) => void): HTMLInputElement {
  const input = make("input", {
    type: "search",
    testid: "search",
    spellcheck: "false",
    autocomplete: "off",
    dir: "auto",
  });
  input.addEventListener("input", () => change({ search: input.value }));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextFound(event.shiftKey ? -1 : 1);
  });
  return input;
}

/** With several examples: which one or two are shown. */
function makeExamples({ examples }: Header, change: Change): Field {
  const buttons = examples.map((example, i) =>
    make(
      "button",
      { type: "button", class: "pill", testid: `example-${i}` },
      visible(example.name),
    ),
  );
  let shown: number[] = [];
  buttons.forEach((button, i) =>
    button.addEventListener("click", () => {
      const others = shown.filter((one) => one !== i);
      if (!shown.includes(i)) change({ shown: [...others.slice(-1), i], example: i });
      else if (others.length) change({ shown: others, example: others[0] });
    }),
  );
  const label = "Examples side by side";
  const element = make(
    "div",
    { class: "examples", role: "group", "aria-label": label },
    ...buttons,
  );
  element.hidden = examples.length < 2;
  return {
    element,
    set: (state) => {
      shown = state.shown;
      buttons.forEach((button, i) =>
        button.setAttribute("aria-pressed", String(shown.includes(i))),
      );
    },
  };
}
