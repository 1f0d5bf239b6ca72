// The controls above the views: tabs, method, layer, search and options. They read and change
// nothing but the state.

import { make, setText } from "./elements.ts";
import { METHODS, type Header } from "./format.ts";
import { METHOD_MEANING, METHOD_NAMES, VIEW_HINTS, VIEW_NAMES } from "./phrases.ts";
import { VIEWS, type State, type ViewName } from "./state.ts";
import { visible } from "./visible.ts";

export interface ControlEvents {
  change(change: Partial<State>): void;
  nextFound(step: number): void;
}

type Setter = (state: State) => void;

let groups = 0; // radio buttons of several viewers must not share a name

export class Controls {
  readonly tabs: HTMLElement;
  readonly element: HTMLElement;
  readonly searchBox: HTMLInputElement;
  private options: HTMLDetailsElement | null = null;
  private readonly count: HTMLElement;
  private readonly setters: Setter[] = [];
  private readonly events: ControlEvents;
  private readonly header: Header;
  private readonly group = `method-${++groups}`;

  constructor(header: Header, events: ControlEvents) {
    this.header = header;
    this.events = events;
    this.tabs = this.makeTabs();
    this.count = make("output", { class: "count", testid: "search-count" });
    this.searchBox = this.makeSearch();
    const meaning = make("p", { class: "meaning", testid: "explanation" });
    const hint = make("p", { class: "hint", testid: "hint" });
    this.setters.push((state) => {
      meaning.hidden = state.view === "heads";
      setText(meaning, METHOD_MEANING[state.method]);
      setText(hint, VIEW_HINTS[state.view]);
    });
    const search = make("label", { class: "field" }, "Find a token", this.searchBox);
    this.element = make(
      "div",
      { class: "controls" },
      hint,
      make(
        "div",
        { class: "main-row" },
        this.makeMethods(),
        this.makeLayer(),
        make("div", { class: "searching" }, search, this.count),
      ),
      meaning,
      this.makeExamples(),
      this.makeOptions(),
    );
  }

  /** Options are folded away on narrow screens only. */
  fit(wide: boolean): void {
    if (wide && this.options) this.options.open = true;
  }

  update(state: State, found: number): void {
    for (const set of this.setters) set(state);
    setText(this.count, state.search.trim() ? `${found} found` : "");
  }

  private makeTabs(): HTMLElement {
    const images = this.header.examples.some((example) => example.image);
    const views = VIEWS.filter((view) => view !== "image" || images);
    if (images) views.unshift(...views.splice(views.indexOf("image"), 1));
    const tabs = views.map((view) =>
      make("button", { type: "button", role: "tab", testid: `view-${view}` }, VIEW_NAMES[view]),
    );
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => this.events.change({ view: views[i] }));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const next = (i + step + views.length) % views.length;
        this.events.change({ view: views[next] as ViewName });
        tabs[next].focus();
      });
    });
    this.setters.push((state) =>
      tabs.forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(views[i] === state.view));
        tab.tabIndex = views[i] === state.view ? 0 : -1;
      }),
    );
    return make("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...tabs);
  }

  private makeMethods(): HTMLElement {
    const inputs = METHODS.map((method) =>
      make("input", { type: "radio", name: this.group, value: method, testid: `method-${method}` }),
    );
    inputs.forEach((input, i) =>
      input.addEventListener("change", () => this.events.change({ method: METHODS[i] })),
    );
    const field = make("fieldset", { class: "field" }, make("legend", {}, "Method"));
    this.setters.push((state) => {
      inputs.forEach((input, i) => (input.checked = METHODS[i] === state.method));
      field.hidden = state.view === "heads"; // heads have their own choice
    });
    const labels = inputs.map((input, i) =>
      make("label", {}, input, make("span", {}, METHOD_NAMES[METHODS[i]])),
    );
    field.append(make("div", { class: "segments" }, ...labels));
    return field;
  }

  private makeLayer(): HTMLElement {
    const layers = Math.max(...this.header.examples.map((example) => example.n_layers));
    const input = this.slider("layer", 1, layers, 1, (layer) => ({ layer }), (state) => state.layer);
    const output = make("output", { class: "value" });
    this.setters.push((state) => setText(output, `${state.layer} of ${layers}`));
    return make("label", { class: "field wide" }, make("span", {}, "Layer ", output), input);
  }

  private makeSearch(): HTMLInputElement {
    const input = make("input", { type: "search", testid: "search", spellcheck: "false", dir: "auto" });
    input.addEventListener("input", () => this.events.change({ search: input.value }));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.events.nextFound(event.shiftKey ? -1 : 1);
    });
    this.setters.push((state) => {
      if (input.value !== state.search) input.value = state.search;
    });
    return input;
  }

  /** With several examples: which one or two are shown. */
  private makeExamples(): HTMLElement | null {
    const { examples } = this.header;
    if (examples.length < 2) return null;
    const buttons = examples.map((example, i) =>
      make("button", { type: "button", class: "pill", testid: `example-${i}` }, visible(example.name)),
    );
    let shown: number[] = [];
    buttons.forEach((button, i) =>
      button.addEventListener("click", () => {
        const others = shown.filter((one) => one !== i);
        if (!shown.includes(i)) this.events.change({ shown: [...others.slice(-1), i], example: i });
        else if (others.length) this.events.change({ shown: others, example: others[0] });
      }),
    );
    this.setters.push((state) => {
      shown = state.shown;
      buttons.forEach((button, i) =>
        button.setAttribute("aria-pressed", String(shown.includes(i))),
      );
    });
    return make("div", { class: "field examples", role: "group", "aria-label": "Examples side by side" }, ...buttons);
  }

  private makeOptions(): HTMLElement {
    const percent = (value: number): string => `${Math.round(100 * value)} %`;
    const most = Math.max(...this.header.examples.map((example) => example.tokens.length));
    const details = make(
      "details",
      { class: "options", testid: "options" },
      make("summary", {}, "Options"),
      make(
        "div",
        { class: "option-row" },
        this.ranged("Hide below", "threshold", 0, 1, 0.01, (threshold) => ({ threshold }), (s) => s.threshold, (v) => v ? `${percent(v)} of the largest` : "nothing"),
        this.ranged("Strongest only", "top-k", 0, Math.min(most, 50), 1, (topK) => ({ topK }), (s) => s.topK, (v) => v ? `top ${v}` : "all", (s) => s.view !== "heads"),
        this.ranged("Patches", "opacity", 0, 1, 0.05, (opacity) => ({ opacity }), (s) => s.opacity, percent, (s) => s.view === "image"),
        this.toggle("Special tokens", "special", (special) => ({ special }), (s) => s.special),
        this.toggle("Whole words", "words", (words) => ({ words }), (s) => s.words, (s) => s.view !== "image"),
        this.toggle("Scores sum to 1", "normalise", (on) => ({ normalise: on ? "rows" : "none" }), (s) => s.normalise === "rows", (s) => s.view !== "heads"),
        this.toggle("Fit the width", "fit", (fit) => ({ fit }), (s) => s.fit, (s) => s.view === "flow" || s.view === "map"),
        this.toggle("One colour scale", "scale", (on) => ({ scale: on ? "shared" : "own" }), (s) => s.scale === "shared"),
        this.headChoice(),
        this.toggle("Down to the input", "heads-of", (on) => ({ headsOf: on ? "rollout" : "attention" }), (s) => s.headsOf === "rollout", (s) => s.view === "heads"),
      ),
    );
    this.options = details;
    return details;
  }

  /** Which head is enlarged. */
  private headChoice(): HTMLElement | null {
    const heads = Math.max(...this.header.examples.map((example) => example.n_heads));
    if (!heads) return null;
    const select = make("select", { testid: "head" }, make("option", { value: "" }, "all"));
    for (let head = 1; head <= heads; head++) {
      select.append(make("option", { value: head }, String(head)));
    }
    select.addEventListener("change", () =>
      this.events.change({ head: select.value ? Number(select.value) : null }),
    );
    const field = make("label", { class: "toggle" }, "Head", select);
    this.setters.push((state) => {
      select.value = state.head === null ? "" : String(state.head);
      field.hidden = state.view !== "heads";
    });
    return field;
  }

  private toggle(
    label: string,
    testid: string,
    change: (on: boolean) => Partial<State>,
    value: (state: State) => boolean,
    when?: (state: State) => boolean,
  ): HTMLElement {
    const input = make("input", { type: "checkbox", testid, role: "switch" });
    input.addEventListener("change", () => this.events.change(change(input.checked)));
    const field = make("label", { class: "toggle" }, input, make("span", {}, label));
    this.setters.push((state) => {
      input.checked = value(state);
      field.hidden = when ? !when(state) : false;
    });
    return field;
  }

  private ranged(
    label: string,
    testid: string,
    low: number,
    high: number,
    step: number,
    change: (value: number) => Partial<State>,
    value: (state: State) => number,
    say: (value: number) => string,
    when?: (state: State) => boolean,
  ): HTMLElement {
    const output = make("output", { class: "value" });
    const input = this.slider(testid, low, high, step, change, value);
    const field = make("label", { class: "field" }, make("span", {}, `${label} `, output), input);
    this.setters.push((state) => {
      setText(output, say(value(state)));
      field.hidden = when ? !when(state) : false;
    });
    return field;
  }

  private slider(
    testid: string,
    low: number,
    high: number,
    step: number,
    change: (value: number) => Partial<State>,
    value: (state: State) => number,
  ): HTMLInputElement {
    const input = make("input", { type: "range", min: low, max: high, step, testid });
    input.addEventListener("input", () => this.events.change(change(Number(input.value))));
    this.setters.push((state) => {
      if (Number(input.value) !== value(state)) input.value = String(value(state));
    });
    return input;
  }
}
