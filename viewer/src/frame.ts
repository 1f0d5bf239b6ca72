// The frame of the viewer: the elements around the panels, without what they do.

import { make } from "./elements.ts";
import { visible } from "./visible.ts";

export interface Frame {
  app: HTMLElement;
  panels: HTMLElement; // where the examples go
  table: HTMLDetailsElement; // to be opened and closed
  tables: HTMLElement; // where tables of numbers go
  live: HTMLElement; // read aloud when it changes
}

/** above, below: what stands before and after the panels. */
export function makeFrame(
  title: string,
  above: readonly HTMLElement[],
  below: readonly HTMLElement[],
): Frame {
  const live = make("div", {
    class: "live",
    role: "status",
    "aria-live": "polite",
    testid: "live",
  });
  const tables = make("div", {
    class: "tables",
    tabindex: "0",
    role: "region",
    "aria-label": "Numbers",
  });
  const summary = make("summary", {}, "Numbers as a table");
  const table = make("details", { class: "table" }, summary, tables);
  const panels = make("div", { class: "panels", role: "tabpanel", "aria-label": "View" });
  const label = `attnflow: ${visible(title || "attention")}`;
  const app = make(
    "div",
    { class: "app", role: "region", "aria-label": label },
    ...above,
    panels,
    table,
    live,
    ...below,
  );
  return { app, panels, table, tables, live };
}
