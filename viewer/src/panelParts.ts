// The small parts of a panel: what went wrong, and the scale of colors.

import { make } from "./elements.ts";

export interface ErrorBox {
  element: HTMLElement;
  text: HTMLElement;
}

/** A sentence about what went wrong, with a button to try again. */
export function makeError(again: () => void): ErrorBox {
  const text = make("span");
  const retry = make("button", { type: "button", class: "tool", testid: "retry" }, "Try again");
  retry.addEventListener("click", again);
  const element = make("p", { class: "error", role: "alert", testid: "error" }, text, retry);
  return { element, text };
}

export interface Legend {
  element: HTMLElement;
  most: HTMLElement; // the value with the darkest color
}

export function makeLegend(): Legend {
  const most = make("span");
  const element = make(
    "div",
    { class: "legend", testid: "legend" },
    make("span", {}, "0"),
    make("i", { "aria-hidden": "true" }),
    most,
  );
  return { element, most };
}
