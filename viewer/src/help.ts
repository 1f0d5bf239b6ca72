// The help: what the methods mean, and every key.

import { make } from "./elements.ts";
import { METHODS } from "./format.ts";
import { KEYS, METHOD_MEANING, METHOD_NAMES } from "./phrases.ts";

export function makeHelp(): HTMLDialogElement {
  const close = make("button", { type: "button", class: "tool", testid: "help-close" }, "Close");
  const dialog = make(
    "dialog",
    { testid: "help", "aria-label": "Help and keys" },
    make("h2", {}, "What the methods mean"),
    make(
      "dl",
      {},
      ...METHODS.flatMap((method) => [
        make("dt", {}, METHOD_NAMES[method]),
        make("dd", {}, METHOD_MEANING[method]),
      ]),
    ),
    make("h2", {}, "Keys"),
    make(
      "p",
      {},
      "Arrow keys work once the text or drawing has the focus: press Tab, or click it.",
    ),
    make("dl", {}, ...KEYS.flatMap(([key, does]) => [make("dt", {}, key), make("dd", {}, does)])),
    close,
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
  });
  return dialog;
}
