// The options below the main controls: what is left out, how tokens and colors are treated.

import { make } from "./elements.ts";
import { headChoice, range, toggle, type Change, type Field } from "./fields.ts";
import type { Header } from "./format.ts";

const asPercent = (value: number): string => `${Math.round(100 * value)} %`;

export interface Options extends Field {
  element: HTMLDetailsElement;
}

export function makeOptions(header: Header, change: Change): Options {
  const heads = Math.max(...header.examples.map((example) => example.n_heads));
  const fields = [...limits(header, change), ...tokens(change), ...drawing(change)];
  fields.push(headChoice(change, heads), headsDown(change));
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
      label: "Hide below",
      testid: "threshold",
      low: 0,
      high: 1,
      step: 0.01,
      value: (state) => state.threshold,
      change: (threshold) => ({ threshold }),
      say: (value) => (value ? `${asPercent(value)} of the largest` : "nothing"),
    }),
    range(change, {
      label: "Strongest only",
      testid: "top-k",
      low: 0,
      high: Math.min(longest, 50),
      step: 1,
      value: (state) => state.topK,
      change: (topK) => ({ topK }),
      say: (value) => (value ? `top ${value}` : "all"),
      when: (state) => state.view !== "heads",
    }),
    range(change, {
      label: "Patches",
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

function tokens(change: Change): Field[] {
  return [
    toggle(change, {
      label: "Special tokens",
      testid: "special",
      value: (state) => state.special,
      change: (special) => ({ special }),
    }),
    toggle(change, {
      label: "Whole words",
      testid: "words",
      value: (state) => state.words,
      change: (words) => ({ words }),
      when: (state) => state.view !== "image",
    }),
    toggle(change, {
      label: "Scores sum to 1",
      testid: "normalize",
      value: (state) => state.normalize === "rows",
      change: (on) => ({ normalize: on ? "rows" : "none" }),
      when: (state) => state.view !== "heads",
    }),
  ];
}

function drawing(change: Change): Field[] {
  return [
    toggle(change, {
      label: "Fit the width",
      testid: "fit",
      value: (state) => state.fit,
      change: (fit) => ({ fit }),
      when: (state) => state.view === "flow" || state.view === "map",
    }),
    toggle(change, {
      label: "One color scale",
      testid: "scale",
      value: (state) => state.scale === "shared",
      change: (on) => ({ scale: on ? "shared" : "own" }),
    }),
  ];
}

const headsDown = (change: Change): Field =>
  toggle(change, {
    label: "Down to the input",
    testid: "heads-of",
    value: (state) => state.headsOf === "rollout",
    change: (on) => ({ headsOf: on ? "rollout" : "attention" }),
    when: (state) => state.view === "heads",
  });
