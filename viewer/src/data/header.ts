// The data that a host passes to the viewer: the JSON header, its validation and defaults, the
// keys of the binary chunks, and the grouping of tokens into items (tokens or words).

import { plainToken } from "./text.ts";

/** An attribution method. computed: by the page from attention, or stored in the data. */
export interface Method {
  name: string;
  title: string;
  summary: string;
  computed: "page" | "data";
  check: string; // how well it did on this model, as a sentence; empty if unknown
}

export interface Outcome {
  label: string;
  probability: number | null; // null: not a number
}

export interface Prediction {
  kind: string;
  target: Outcome;
  top: Outcome[];
}

export interface Words {
  texts: string[];
  groups: number[][]; // token indices of each word
  special: boolean[];
}

/** The text that a model generated after a prompt. */
export interface Answer {
  first: number; // the index of its first token
  text: string;
  whole: number[]; // its tokens without special ones
  steps: Prediction[]; // of each of its tokens
}

/** A named part of the input, such as the message of a role: name, first token, end. */
export type Segment = [string, number, number];

/** What scores are given for. */
export const UNITS = ["tokens", "words", "sentences", "segments"] as const;
export type UnitName = (typeof UNITS)[number];

/** An image and its grid of patches; `first` is the token index of the first patch. */
export interface Picture {
  src: string;
  rows: number;
  columns: number;
  first: number;
  width: number;
  height: number;
}

export interface Example {
  name: string;
  text: string;
  model: string;
  tokens: string[];
  labels: string[]; // of the tokens, to read
  special: boolean[];
  words: Words;
  units: Partial<Record<UnitName, Words>>; // units larger than words
  runs: string[]; // the text in parts, one for each token; empty if unknown
  segments: Segment[];
  answer: Answer | null;
  position: number; // the explained position
  positions: number[]; // explained together, such as those of a mean; empty for one position
  prediction: Prediction | null; // of the explained position
  predictions: Record<number, Prediction>; // of other positions, by token, if they were saved
  n_layers: number;
  layer_names: string[]; // of an encoder-decoder; empty for others
  n_source: number; // tokens of the source of an encoder-decoder, which come first; 0 for others
  n_heads: number; // 0 if heads were not saved
  causal: boolean;
  edges: { name: string; title: string } | null;
  settings: string[]; // model, edges, residual weight and merging of heads, in words
  residual_weights: number[]; // one per layer; empty if they are part of the edges
  carried: [number, number][]; // pairs of layer and position that are copied from below
  image: Picture | null;
  flow_rows: number[] | null; // positions in flow and score chunks; null: all
  rounding: number | null; // largest relative error of the weights; null: they are not rounded
  normalized_rows: number[] | null; // positions in chunks of normalized scores; null: all
  methods: Method[]; // those of the header
  chunks: Record<string, { shape: number[]; dtype: string }>;
}

export interface Header {
  format: number;
  title: string;
  methods: Method[];
  examples: Example[];
  state: Record<string, unknown>; // what to show first; checked by `changeState`
}

export interface FlowRequest {
  example: number;
  position: number;
  count: number; // of positions from this one on, which are one source
  layer: number;
}

export interface Source {
  header: unknown; // checked by `readHeader`
  load(key: string): Promise<ArrayBuffer>;
  flow?(request: FlowRequest): Promise<Float32Array>;
}

/** Data that the viewer cannot show; the message is for the user. */
export class FormatError extends Error {}

/** The methods that the page can compute, as old data without a list of methods has them. */
const PAGE_METHODS: Method[] = [
  ["raw", "Raw attention", "the attention weights of one layer."],
  ["rollout", "Attention rollout", "the product of the layers, with residual connections."],
  ["flow", "Attention flow", "the exact maximum flow through the layers."],
].map(([name, title, summary]) => ({ name, title, summary, computed: "page", check: "" }));

export const attentionKey = (example: number, layer: number): string =>
  `${example}/attention/${layer}`;
/** The edge weights A of a layer, sent only where A is not (1 - r) W + r I. */
export const weightsKey = (example: number, layer: number): string => `${example}/weights/${layer}`;
/** Scores normalized by the receptive field. */
export const normalizedKey = (example: number, method: string, layer: number): string =>
  `${example}/normalized/${method}/${layer}`;
export const notesKey = (example: number): string => `${example}/notes`;
export const headsKey = (example: number, layer: number): string => `${example}/heads/${layer}`;
/** The scores of a method: flow, or a method that the page cannot compute. */
export const scoresKey = (example: number, method: Method, layer: number): string =>
  method.computed === "page"
    ? `${example}/${method.name}/${layer}`
    : `${example}/scores/${method.name}/${layer}`;

/** A header before validation: fields that may be missing. */
type RawExample = Partial<Example> & Pick<Example, "tokens" | "n_layers">;
type RawHeader = Partial<Omit<Header, "examples">> & {
  examples: RawExample[];
  flow_rows?: number[] | null;
  checks?: Record<string, string>; // by method
};

/** Check a header and fill in defaults. Throws FormatError. */
export function readHeader(value: unknown): Header {
  const header = value as RawHeader;
  if (!header || typeof header !== "object" || !Array.isArray(header.examples)) {
    throw new FormatError("The data has no list of examples.");
  }
  if (header.format !== 1) {
    throw new FormatError(
      `Unsupported data format ${String(header.format)}; this viewer reads format 1. ` +
        "Create the file again with the installed version of attnflow.",
    );
  }
  if (header.examples.length === 0) throw new FormatError("The list of examples is empty.");
  const methods = readMethods(header.methods, header.checks ?? {});
  const examples = header.examples.map((example, i) =>
    readExample({ flow_rows: header.flow_rows, ...example, methods }, i),
  );
  return { format: 1, title: header.title ?? "", methods, examples, state: header.state ?? {} };
}

function readMethods(
  methods: Partial<Method>[] | undefined,
  checks: Record<string, string>,
): Method[] {
  const given = Array.isArray(methods) && methods.length ? methods : PAGE_METHODS;
  return given.map(({ name = "", title, summary = "", computed, check }) => {
    const inPage = computed === "page" && PAGE_METHODS.some((known) => known.name === name);
    return {
      name,
      title: title || name,
      summary,
      computed: inPage ? "page" : "data",
      check: checks[name] ?? check ?? "",
    };
  });
}

function readExample(example: RawExample & Pick<Example, "methods">, index: number): Example {
  const { tokens } = example;
  const n = Array.isArray(tokens) ? tokens.length : 0;
  const label = `Example ${index + 1}`;
  if (n === 0) throw new FormatError(`${label} has no tokens.`);
  if (!(example.n_layers >= 1)) throw new FormatError(`${label} has no layers.`);
  const special = example.special ?? tokens.map(() => false);
  return {
    ...example,
    name: example.name || example.model || label,
    text: example.text ?? "",
    model: example.model ?? "",
    labels: example.labels?.length === n ? example.labels : tokens.map(plainToken),
    special,
    words: example.words ?? { texts: tokens, groups: tokens.map((_, i) => [i]), special },
    units: example.units ?? {},
    runs: example.runs?.length === n ? example.runs : [],
    segments: example.segments ?? [],
    answer: readAnswer(example.answer, n),
    position: Math.min(Math.max(0, (example.position ?? 0) | 0), n - 1),
    positions: example.positions ?? [],
    prediction: example.prediction ?? null,
    predictions: example.predictions ?? {},
    layer_names: example.layer_names?.length === example.n_layers ? example.layer_names : [],
    n_source: example.n_source ?? 0,
    n_heads: example.n_heads ?? 0,
    causal: example.causal ?? false,
    edges: example.edges ?? null,
    settings: example.settings ?? (example.model ? [example.model] : []),
    residual_weights: example.residual_weights ?? [],
    carried: example.carried ?? [],
    image: example.image ?? null,
    flow_rows: example.flow_rows ?? null,
    rounding: example.rounding ?? null,
    normalized_rows: example.normalized_rows ?? null,
    chunks: example.chunks ?? {},
  };
}

/** An answer that fits the tokens; null otherwise. */
function readAnswer(answer: Answer | null | undefined, n: number): Answer | null {
  if (!answer || !(answer.first >= 1) || !answer.steps?.length) return null;
  return answer.first + answer.steps.length <= n ? answer : null;
}

/** The method of a name, which the state has checked. */
export const methodOf = (example: Example, name: string): Method =>
  example.methods.find((method) => method.name === name) ?? example.methods[0];

/** Tokens, words or other units: labels, the tokens of each, and which are special. */
export interface Items {
  name: UnitName;
  labels: string[];
  groups: number[][];
  special: boolean[];
  of: Int32Array; // token -> item
}

export function itemsOf(example: Example, name: UnitName): Items {
  const n = example.tokens.length;
  const of = new Int32Array(n);
  const units = name === "words" ? example.words : example.units[name];
  if (!units) {
    for (let i = 0; i < n; i++) of[i] = i;
    const groups = example.tokens.map((_, i) => [i]);
    return { name: "tokens", labels: example.labels, groups, special: example.special, of };
  }
  const { texts, groups, special } = units;
  groups.forEach((group, word) => group.forEach((token) => (of[token] = word)));
  return { name, labels: texts.map(plainToken), groups, special, of };
}

/** Whether some items have several tokens. */
export const merges = ({ groups }: Items): boolean => groups.some((group) => group.length > 1);

/** Merge rows of tokens into a row of items: sum over keys, mean over queries. */
export function mergeRows(rows: readonly Float32Array[], items: Items): Float32Array {
  const out = new Float32Array(items.labels.length);
  for (const row of rows) {
    row.forEach((value, token) => (out[items.of[token]] += value / rows.length));
  }
  return out;
}
