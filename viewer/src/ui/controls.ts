// The controls above the views: tabs, method, layer, search, examples and options. They show the
// state and change it.

import { UNITS, type Header } from "../data/header.ts";
import type { Snapshot } from "../data/snapshot.ts";
import {
  hasHeadRollout,
  type State,
  versusChoices,
  versusKey,
  versusOf,
  viewsOf,
} from "../data/state.ts";
import { shorten, visible } from "../data/text.ts";
import { make, setText } from "../paint/dom.ts";
import { type Change, choice, type Field, headChoice, range, toggle } from "./fields.ts";
import { methodSummary, specialDominate, VIEW_NAMES, viewHint } from "../views/captions.ts";

export interface ControlEvents {
  change: Change;
  nextMatch(step: number): void;
}

let groups = 0; // several viewers must not share a radio group

export class Controls {
  readonly tabs: HTMLElement;
  readonly element: HTMLElement;
  readonly searchBox: HTMLInputElement;
  private readonly count: HTMLElement;
  private readonly searching: HTMLElement;
  private readonly summary: HTMLElement;
  private readonly hint: HTMLElement;
  private readonly dominated: HTMLElement;
  private readonly options: Options;
  private readonly fields: Field[];

  constructor(header: Header, { change, nextMatch }: ControlEvents) {
    const tabs = makeTabs(header, change);
    const methods = makeMethods(header, change);
    const layer = makeLayer(header, change);
    const examples = makeExamples(header, change);
    this.summary = make("p", { class: "summary", testid: "explanation" });
    this.hint = make("span");
    this.dominated = makeDominated(change);
    this.tabs = tabs.element;
    this.searchBox = makeSearch(change, nextMatch);
    this.count = make("output", { class: "count", testid: "search-count" });
    this.options = makeOptions(header, change);
    const search = make("label", { class: "field" }, "Find token", this.searchBox);
    this.searching = make("div", { class: "searching" }, search, this.count);
    this.element = make(
      "div",
      { class: "controls" },
      make("p", { class: "hint", testid: "hint" }, this.hint, " ", this.dominated),
      make("div", { class: "main-row" }, methods.element, layer.element, this.searching),
      this.summary,
      examples.element,
      this.options.element,
    );
    this.fields = [tabs, methods, layer, examples, this.options];
  }

  /** Open the options on wide screens; narrow screens can fold them. */
  fit(wide: boolean): void {
    if (wide) this.options.element.open = true;
  }

  /** Show a state. matches: number of search matches. */
  update(state: State, matches: number, snapshots: readonly Snapshot[]): void {
    for (const field of this.fields) field.set(state);
    if (this.searchBox.value !== state.search) this.searchBox.value = state.search;
    this.summary.hidden = state.view === "heads";
    this.searching.hidden = state.view === "image"; // which marks no matches
    setText(this.summary, methodSummary(snapshots));
    setText(this.hint, viewHint(snapshots));
    this.dominated.hidden = !specialDominate(snapshots);
    setText(this.count, state.search.trim() ? countMatches(matches) : "");
  }
}

const countMatches = (count: number): string => `${count} match${count === 1 ? "" : "es"}`;

/** A button to hide special tokens, shown where they take most of the color scale. */
function makeDominated(change: Change): HTMLElement {
  const button = make(
    "button",
    { type: "button", class: "tool", testid: "hide-special" },
    "Hide special tokens",
  );
  button.addEventListener("click", () => {
    change({ special: false });
    // The button disappears: move the focus to the switch that shows the tokens again.
    const root = button.getRootNode() as ShadowRoot;
    root.querySelector<HTMLElement>('[data-testid="special"]')?.focus();
  });
  return make("span", {}, "Special tokens dominate the color scale. ", button);
}

function makeTabs(header: Header, change: Change): Field {
  const views = viewsOf(header);
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

function makeMethods({ methods }: Header, change: Change): Field {
  const name = `method-${++groups}`;
  const inputs = methods.map((method) =>
    make("input", { type: "radio", name, value: method.name, testid: `method-${method.name}` }),
  );
  inputs.forEach((input, i) =>
    input.addEventListener("change", () => change({ method: methods[i].name })),
  );
  const labels = inputs.map((input, i) => {
    const { title, check, name: method } = methods[i];
    const mark = make("small", { class: "check", testid: `check-${method}` }, " ✓");
    const known = visible(check);
    return make(
      "label",
      check ? { title: known } : {},
      input,
      make("span", {}, visible(title), check ? mark : null),
    );
  });
  const segments = make("div", { class: "segments" }, ...labels);
  const element = make("fieldset", { class: "field" }, make("legend", {}, "Method"), segments);
  return {
    element,
    set: (state) => {
      inputs.forEach((input, i) => (input.checked = methods[i].name === state.method));
      element.hidden = state.view === "heads"; // which has its own choice of scores
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
    say: (value) => describeLayer(header, value, layers),
    wide: true,
  });
}

/** The number of a layer, and its name if the examples are encoder-decoders of one shape. */
function describeLayer({ examples }: Header, layer: number, layers: number): string {
  const names = new Set(examples.map(({ layer_names }) => layer_names[layer - 1] ?? ""));
  const [name] = names.size === 1 ? [...names] : [""];
  return `${layer} of ${layers}${name ? `: ${visible(name)}` : ""}`;
}

function makeSearch(change: Change, nextMatch: (step: number) => void): HTMLInputElement {
  const input = make("input", {
    type: "search",
    testid: "search",
    spellcheck: "false",
    autocomplete: "off",
    dir: "auto",
  });
  input.addEventListener("input", () => change({ search: input.value }));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
  });
  return input;
}

/** With several examples: buttons for the one or two that are shown. */
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
      const others = shown.filter((other) => other !== i);
      if (!shown.includes(i)) change({ shown: [...others.slice(-1), i], example: i });
      else if (others.length) change({ shown: others, example: others[0] });
    }),
  );
  const label = "Examples shown";
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

const asPercent = (value: number): string => `${Math.round(100 * value)}%`;

interface Options extends Field {
  element: HTMLDetailsElement;
}

function makeOptions(header: Header, change: Change): Options {
  const heads = Math.max(...header.examples.map((example) => example.n_heads));
  const fields = [
    versusChoice(header, change),
    ...limits(header, change),
    ...tokens(header, change),
    ...drawing(change),
  ];
  fields.push(headChoice(change, heads), headGrid(heads, change), headScores(header, change));
  const element = make(
    "details",
    { class: "options", testid: "options" },
    make("summary", {}, "Options"),
    make("div", { class: "option-row" }, ...fields.map((field) => field.element)),
  );
  return { element, set: (state) => fields.forEach((field) => field.set(state)) };
}

function limits(header: Header, change: Change): Field[] {
  const longest = Math.max(...header.examples.map((example) => example.tokens.length));
  return [
    range(change, {
      label: "Minimum score",
      testid: "threshold",
      low: 0,
      high: 1,
      step: 0.01,
      value: (state) => state.threshold,
      change: (threshold) => ({ threshold }),
      say: (value) => (value ? `${asPercent(value)} of maximum` : "off"),
      when: (state) => state.view !== "difference",
    }),
    range(change, {
      label: "Top tokens",
      testid: "top-k",
      low: 0,
      high: Math.min(longest, 50),
      step: 1,
      value: (state) => state.topK,
      change: (topK) => ({ topK }),
      say: (value) => (value ? String(value) : "all"),
      when: (state) => !["heads", "image", "difference"].includes(state.view),
    }),
    range(change, {
      label: "Patch opacity",
      testid: "opacity",
      low: 0,
      high: 1,
      step: 0.05,
      value: (state) => state.opacity,
      change: (opacity) => ({ opacity }),
      say: asPercent,
      when: (state) => state.view === "image",
    }),
  ];
}

/** Options for tokens, except those that would change nothing. */
function tokens({ examples }: Header, change: Change): Field[] {
  const special = examples.some((example) => example.special.includes(true));
  const texts = examples.some(({ image }) => !image);
  const chat = examples.some(({ segments }) => segments.some(([name]) => name === "user"));
  return [
    toggle(change, {
      label: "Show special tokens",
      testid: "special",
      value: (state) => state.special,
      change: (shown) => ({ special: shown }),
      when: () => special,
    }),
    choice(change, {
      label: "Units",
      testid: "units",
      names: UNITS.filter(
        (name) =>
          name === "tokens" || name === "words" || examples.some(({ units }) => units[name]),
      ).map((name) => [name, name === "segments" && chat ? "messages" : name] as const),
      value: (state) => state.units,
      change: (units) => ({ units }),
      when: (state) => texts && state.view !== "image",
    }),
    toggle(change, {
      label: "Include the answer",
      testid: "own",
      value: (state) => state.own,
      change: (own) => ({ own }),
      when: (state) =>
        examples.some(({ answer }) => answer) && ["text", "alignment"].includes(state.view),
    }),
    choice(change, {
      label: "Normalize",
      testid: "normalize",
      names: [
        ["none", "no"],
        ["rows", "rows"],
        ["receptive_field", "receptive field"],
      ],
      value: (state) => state.normalize,
      change: (normalize) => ({ normalize }),
      when: (state) => state.view !== "heads",
    }),
  ];
}

function drawing(change: Change): Field[] {
  return [
    toggle(change, {
      label: "Fit to width",
      testid: "fit",
      value: (state) => state.fit,
      change: (fit) => ({ fit }),
      when: (state) => ["flow", "map", "difference", "alignment"].includes(state.view),
    }),
    choice(change, {
      label: "Edges",
      testid: "edges",
      names: [
        ["strongest", "strongest"],
        ["all", "all"],
      ],
      value: (state) => state.edges,
      change: (edges) => ({ edges }),
      when: (state) => state.view === "flow",
    }),
    choice(change, {
      label: "Colors",
      testid: "scale",
      names: [
        ["auto", "automatic"],
        ["zero", "from 0"],
        ["range", "row range"],
        ["shared", "shared"],
      ],
      value: (state) => state.scale,
      change: (scale) => ({ scale }),
      when: (state) => state.view !== "flow" && state.view !== "difference",
    }),
  ];
}

/** With what the difference view compares. */
function versusChoice(header: Header, change: Change): Field {
  const names = [
    ...header.methods.map(({ name, title }) => [`method:${name}`, visible(title)] as const),
    ...header.examples.map(({ name }, i) => [`example:${i}`, shorten(visible(name), 60)] as const),
  ];
  const field = choice(change, {
    label: "Compare with",
    testid: "versus",
    names,
    value: (state) => {
      const versus = versusOf(header, state);
      return versus ? versusKey(versus) : "";
    },
    change: (versus) => ({ versus }),
    when: (state) => state.view === "difference",
  });
  const options = [...field.element.querySelectorAll("option")];
  return {
    element: field.element,
    set: (state) => {
      field.set(state);
      const possible = new Set(versusChoices(header, state).map(versusKey));
      for (const option of options) option.hidden = !possible.has(option.value);
    },
  };
}

const headGrid = (heads: number, change: Change): Field =>
  toggle(change, {
    label: "All layers",
    testid: "grid",
    value: (state) => state.grid && state.head === null,
    change: (grid) => ({ grid, head: null }),
    when: (state) => state.view === "heads" && heads > 0,
  });

const headScores = (header: Header, change: Change): Field =>
  toggle(change, {
    label: "Rollout to input",
    testid: "heads-of",
    value: (state) => state.headsOf === "rollout",
    change: (on) => ({ headsOf: on ? "rollout" : "attention" }),
    when: (state) => state.view === "heads" && hasHeadRollout(header.examples[state.example]),
  });
