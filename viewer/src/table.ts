// The numbers on screen as a real table, for screen readers, copying and tests.

import { make } from "./elements.ts";
import { METHODS, type Method } from "./format.ts";
import { mapRows } from "./mapView.ts";
import type { CutEdge } from "./maxflow.ts";
import { METHOD_NAMES, lookingFrom, quoted } from "./phrases.ts";
import type { Reading, Row } from "./reading.ts";
import { digits } from "./visible.ts";

interface Column {
  title: string;
  key: string; // tells tests which number it is
  row: Row;
}

/** A table with a row for each token shown and a column for each list of scores. */
export function numbersTable(reading: Reading, heads: Column[] | null): HTMLTableElement {
  const { state } = reading;
  if (state.view === "map") return makeTable(reading, mapCaption(reading), mapColumns(reading));
  if (state.view === "heads" && heads) {
    return makeTable(reading, headsCaption(reading), heads);
  }
  const columns = METHODS.map((method) => ({
    title: METHOD_NAMES[method],
    key: method,
    row: reading.rows[method],
  }));
  const caption = lookingFrom(reading).replace(/, by .*/, "");
  return makeTable(reading, caption, columns);
}

/** How many cells the table has. */
export function tableSize({ state, columns, example }: Reading): number {
  const lists = { map: 3 * example.n_layers, heads: example.n_heads }[state.view as string] ?? 3;
  return columns.length * lists;
}

export type { Column };

const mapCaption = (reading: Reading): string =>
  `What reaches ${quoted(reading.labels[reading.item])} at each layer`;

function headsCaption(reading: Reading): string {
  const what = reading.state.headsOf === "rollout" ? "Rollout to the input" : "Attention";
  return `${what} of ${quoted(reading.labels[reading.item])} through each head of layer ${reading.layer}`;
}

function mapColumns(reading: Reading): Column[] {
  return METHODS.flatMap((method: Method) =>
    mapRows(reading, method).map((row, l) => ({
      title: `${METHOD_NAMES[method]}, layer ${l + 1}`,
      key: `${method}/${l + 1}`,
      row,
    })),
  );
}

function makeTable(reading: Reading, caption: string, columns: Column[]): HTMLTableElement {
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, reading.state.words ? "Word" : "Token"),
    ...columns.map((column) => make("th", { scope: "col" }, column.title)),
  );
  const body = make("tbody");
  for (const item of reading.columns) {
    const line = make("tr", { "data-item": item });
    line.append(make("th", { scope: "row", dir: "auto" }, reading.labels[item]));
    for (const { row, key } of columns) {
      const value = row?.[item];
      line.append(
        make(
          "td",
          { "data-key": key, "data-value": value ?? null },
          value === undefined ? "…" : digits(value),
        ),
      );
    }
    body.append(line);
  }
  return make(
    "table",
    { testid: "numbers", "data-example": reading.numbers.index },
    make("caption", {}, caption),
    make("thead", {}, head),
    body,
  );
}

/** The edges of a minimum cut. */
export function cutTable(reading: Reading, cut: readonly CutEdge[]): HTMLTableElement {
  const { names } = reading;
  const lines = cut
    .slice(0, 500)
    .map((edge) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, String(edge.layer)),
        make("td", { dir: "auto" }, names[edge.position]),
        make("td", { dir: "auto" }, names[edge.below]),
        make("td", { "data-value": edge.capacity }, digits(edge.capacity)),
      ),
    );
  const titles = ["Layer", "Position", "Below", "Capacity"];
  return make(
    "table",
    { testid: "cut", "data-example": reading.numbers.index },
    make("caption", {}, "The bottleneck: the edges of the minimum cut"),
    make(
      "thead",
      {},
      make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))),
    ),
    make("tbody", {}, ...lines),
  );
}
