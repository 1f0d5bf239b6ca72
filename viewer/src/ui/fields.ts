// Single controls: switch, slider, choice and head selector. Each shows one value of the state and
// changes it.

import type { State } from "../data/state.ts";
import { make, setText } from "../paint/dom.ts";

export type Change = (change: Partial<State>) => void;

export interface Field {
  element: HTMLElement;
  set(state: State): void;
}

interface Common<Value> {
  label: string;
  testid: string;
  value(state: State): Value;
  change(value: Value): Partial<State>;
  when?(state: State): boolean; // whether it is shown; always if not given
}

export interface Range extends Common<number> {
  low: number;
  high: number;
  step: number;
  say(value: number): string;
  wide?: boolean;
}

export function toggle(change: Change, spec: Common<boolean>): Field {
  const input = make("input", { type: "checkbox", testid: spec.testid, role: "switch" });
  input.addEventListener("change", () => change(spec.change(input.checked)));
  const element = make("label", { class: "toggle" }, input, make("span", {}, spec.label));
  return {
    element,
    set: (state) => {
      input.checked = spec.value(state);
      element.hidden = spec.when ? !spec.when(state) : false;
    },
  };
}

export function range(change: Change, spec: Range): Field {
  const { low, high, step, testid } = spec;
  const input = make("input", { type: "range", min: low, max: high, step, testid });
  input.addEventListener("input", () => change(spec.change(Number(input.value))));
  const output = make("output", { class: "value" });
  const label = make("span", {}, `${spec.label}: `, output);
  const element = make("label", { class: spec.wide ? "field wide" : "field" }, label, input);
  return {
    element,
    set: (state) => {
      const value = spec.value(state);
      if (Number(input.value) !== value) input.value = String(value);
      setText(output, spec.say(value));
      element.hidden = spec.when ? !spec.when(state) : false;
    },
  };
}

/** A choice between named values. */
export function choice<Value extends string>(
  change: Change,
  spec: Common<Value> & { names: readonly (readonly [Value, string])[] },
): Field {
  const select = make("select", { testid: spec.testid });
  for (const [value, name] of spec.names) select.append(make("option", { value }, name));
  select.addEventListener("change", () => change(spec.change(select.value as Value)));
  const element = make("label", { class: "toggle" }, spec.label, select);
  return {
    element,
    set: (state) => {
      select.value = spec.value(state);
      element.hidden = spec.when ? !spec.when(state) : false;
    },
  };
}

/** The selector of the enlarged head. */
export function headChoice(change: Change, heads: number): Field {
  const select = make("select", { testid: "head" }, make("option", { value: "" }, "All"));
  for (let head = 0; head < heads; head++) {
    select.append(make("option", { value: head }, String(head)));
  }
  select.addEventListener("change", () =>
    change({ head: select.value ? Number(select.value) : null }),
  );
  const element = make("label", { class: "toggle" }, "Head", select);
  return {
    element,
    set: (state) => {
      select.value = state.head === null ? "" : String(state.head);
      element.hidden = state.view !== "heads" || heads === 0;
    },
  };
}
