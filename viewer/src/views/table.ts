// The scores on screen as an HTML table, for screen readers, copying and tests, and a second one
// for the edges of the minimum cut.

import type { CutEdge } from "../data/maxflow.ts";
import type { Snapshot, Row } from "../data/snapshot.ts";
import { digits } from "../data/text.ts";
import { make } from "../paint/dom.ts";
import { describeTarget, layerName, scoreText, targetName, titleOf } from "./captions.ts";
import { differenceLines } from "./difference.ts";
import { alignmentRows } from "./alignment.ts";
import { mapRows } from "./map.ts";

const MAX_CUT = 500; // edges
const UNIT_TITLES = { tokens: "Token", words: "Word", sentences: "Sentence", segments: "Segment" };

export interface Column {
  title: string;
  key: string; // identifies the column in tests
  row: Row;
  missing?: string; // the text of missing scores; "…" if not given
}

/** A table with a row per token shown and a column per list of scores. */
export function scoreTable(snapshot: Snapshot, heads: Column[] | null): HTMLTableElement {
  const { state } = snapshot;
  const columns = scoreColumns(snapshot, heads);
  if (state.view === "map") return makeTable(snapshot, mapCaption(snapshot), columns);
  if (state.view === "alignment") {
    const title = titleOf(snapshot.example, state.method);
    return makeTable(snapshot, `${title} for each part of the answer`, columns);
  }
  if (state.view === "heads" && heads) return makeTable(snapshot, headsCaption(snapshot), columns);
  return makeTable(snapshot, `Scores for ${describeTarget(snapshot)}`, columns);
}

/** The lists of scores of a view; heads: those of the heads view, if heads were saved. */
function scoreColumns(snapshot: Snapshot, heads: Column[] | null): Column[] {
  const { state, example, rows } = snapshot;
  if (state.view === "map") return mapColumns(snapshot);
  if (state.view === "alignment") return alignmentLists(snapshot);
  if (state.view === "heads" && heads) return heads;
  const reverse = { title: "From this token to the answer", key: "reverse", row: snapshot.reverse };
  return [
    ...(snapshot.reversed ? [reverse] : []),
    ...example.methods.map(({ name }) => methodColumn(snapshot, name, rows[name])),
  ];
}

const methodColumn = (snapshot: Snapshot, name: string, row: Row): Column => ({
  title: titleOf(snapshot.example, name),
  key: name,
  row,
  missing: scoreText(snapshot, name, undefined),
});

/** A list of scores for each part of the answer. */
function alignmentLists(snapshot: Snapshot): Column[] {
  const rows = alignmentRows(snapshot);
  return rows.map(({ label, item, part, scores }) => ({
    title: label + snapshot.marks[item],
    key: `answer/${part[0]}`,
    row: scores,
  }));
}

const field = (value: string | number | null | undefined): string => {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const csv = (lines: readonly (readonly (string | number | null | undefined)[])[]): string =>
  lines.map((line) => line.map(field).join(",") + "\r\n").join("");

/** The scores on screen as CSV: a line per token, a column per list of scores. Tokens are
 * text; their piece is the spelling of the vocabulary. Scores are not rounded. */
export function scoresCsv(
  snapshots: readonly Snapshot[],
  headsOf: (snapshot: Snapshot) => Column[] | null,
): string {
  if (snapshots[0].state.view === "difference") return differenceCsv(snapshots[0]);
  const keys = [
    ...new Set(snapshots.flatMap((s) => scoreColumns(s, headsOf(s)).map((c) => c.key))),
  ];
  const head = [
    "example",
    "model",
    "position",
    "layer",
    "normalize",
    "index",
    "token",
    "piece",
    ...keys,
  ];
  const lines = snapshots.flatMap((snapshot) => {
    const { example, items, columns, sources, position, layer, state } = snapshot;
    const last = sources[sources.length - 1];
    const where = last === position ? position : `${sources[0]}-${last}`;
    const lists = new Map(scoreColumns(snapshot, headsOf(snapshot)).map((c) => [c.key, c.row]));
    const about = [example.name, example.model, where, layer, state.normalize];
    const piece = (item: number): string =>
      items.groups[item].map((token) => example.tokens[token]).join(" ");
    return columns.map((item) => [
      ...about,
      items.groups[item][0],
      items.labels[item],
      piece(item),
      ...keys.map((key) => lists.get(key)?.[item]),
    ]);
  });
  return csv([head, ...lines]);
}

function differenceCsv(snapshot: Snapshot): string {
  const head = ["token", "first", "second", "difference"];
  const lines = differenceLines(snapshot);
  return csv([head, ...lines.map(({ label, a, b, difference }) => [label, a, b, difference])]);
}

/** The number of cells of the table. */
export function tableSize({ state, columns, example }: Snapshot): number {
  const methods = example.methods.length;
  const lists =
    {
      map: methods * example.n_layers,
      heads: example.n_heads,
      alignment: example.answer?.steps.length ?? 0,
    }[state.view as string] ?? methods;
  return columns.length * lists;
}

const mapCaption = (snapshot: Snapshot): string =>
  `Scores for ${targetName(snapshot)} at each layer`;

function headsCaption(snapshot: Snapshot): string {
  const what = snapshot.state.headsOf === "rollout" ? "Rollout to the input" : "Attention";
  return `${what} of ${describeTarget(snapshot)}, by head`;
}

function mapColumns(snapshot: Snapshot): Column[] {
  const { example } = snapshot;
  return example.methods.flatMap(({ name }) =>
    mapRows(snapshot, name).map((row, l) => ({
      title: `${titleOf(example, name)}, ${layerName(example, l + 1)}`,
      key: `${name}/${l + 1}`,
      row,
      missing: scoreText(snapshot, name, undefined),
    })),
  );
}

function makeTable(snapshot: Snapshot, caption: string, columns: Column[]): HTMLTableElement {
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, UNIT_TITLES[snapshot.items.name]),
    ...columns.map((column) => make("th", { scope: "col" }, column.title)),
  );
  const { labels, marks } = snapshot;
  const labelled = (item: number): string => labels[item] + marks[item];
  const body = make("tbody");
  for (const item of snapshot.columns) {
    const line = make("tr", { "data-item": item });
    line.append(make("th", { scope: "row", dir: "auto" }, labelled(item)));
    for (const { row, key, missing = "…" } of columns) {
      const value = row?.[item];
      line.append(
        make(
          "td",
          { "data-key": key, "data-value": value ?? null },
          value === undefined ? missing : digits(value),
        ),
      );
    }
    body.append(line);
  }
  return make(
    "table",
    { testid: "numbers", "data-example": snapshot.scores.index },
    make("caption", {}, caption),
    make("thead", {}, head),
    body,
  );
}

/** A table of the edges of a minimum cut. */
export function cutTable(snapshot: Snapshot, cut: readonly CutEdge[]): HTMLTableElement {
  const { labels, marks, items } = snapshot;
  const labelled = (token: number): string => labels[items.of[token]] + marks[items.of[token]];
  const lines = cut
    .slice(0, MAX_CUT)
    .map((edge) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, String(edge.layer)),
        make("td", { dir: "auto" }, labelled(edge.position)),
        make("td", { dir: "auto" }, labelled(edge.below)),
        make("td", { "data-value": edge.capacity }, digits(edge.capacity)),
      ),
    );
  const titles = ["Layer", "From", "To (layer below)", "Capacity"];
  return make(
    "table",
    { testid: "cut", "data-example": snapshot.scores.index },
    make("caption", {}, "Bottleneck: edges of the minimum cut"),
    make(
      "thead",
      {},
      make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))),
    ),
    make("tbody", {}, ...lines),
  );
}
