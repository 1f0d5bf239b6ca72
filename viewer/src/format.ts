// What the host hands over: the header, its checks, and the keys of binary chunks.

export const METHODS = ["raw", "rollout", "flow"] as const;
export type Method = (typeof METHODS)[number];

export interface Outcome {
  label: string;
  probability: number;
}

export interface Prediction {
  kind: string;
  target: Outcome;
  top: Outcome[];
}

export interface Words {
  texts: string[];
  groups: number[][];
  special: boolean[];
}

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
  special: boolean[];
  words: Words;
  position: number;
  prediction: Prediction | null;
  n_layers: number;
  n_heads: number;
  causal: boolean;
  residual_weights: number[];
  carried: [number, number][];
  image: Picture | null;
  flow_rows?: number[] | null;
  chunks: Record<string, { shape: number[]; dtype: string }>;
}

export interface Header {
  format: number;
  title: string;
  examples: Example[];
  flow_rows?: number[] | null;
}

export interface FlowRequest {
  example: number;
  position: number;
  layer: number;
}

export interface Source {
  header: Header;
  load(key: string): Promise<ArrayBuffer>;
  flow?(request: FlowRequest): Promise<Float32Array>;
}

/** A sentence for the reader about data that cannot be shown. */
export class FormatError extends Error {}

export const attentionKey = (example: number, layer: number): string =>
  `${example}/attention/${layer}`;
/** A itself, of layers where it is not (1 - r) W + r I. */
export const weightsKey = (example: number, layer: number): string => `${example}/weights/${layer}`;
export const flowKey = (example: number, layer: number): string => `${example}/flow/${layer}`;
export const headsKey = (example: number, layer: number): string => `${example}/heads/${layer}`;

/** Check a header and fill in what may be left out; throws FormatError with a sentence. */
export function readHeader(value: unknown): Header {
  const header = value as Header;
  if (!header || typeof header !== "object" || !Array.isArray(header.examples)) {
    throw new FormatError("There is nothing to show: the data has no examples.");
  }
  if (header.format !== 1) {
    throw new FormatError(
      `The data has format ${String(header.format)} and this viewer reads format 1. ` +
        "Make the file again with the same version of attnflow.",
    );
  }
  if (header.examples.length === 0) {
    throw new FormatError("There is nothing to show: the list of examples is empty.");
  }
  const examples = header.examples.map((example, i) =>
    readExample(example, i, header.flow_rows ?? null),
  );
  return { ...header, title: header.title ?? "", examples };
}

function readExample(example: Example, index: number, flowRows: number[] | null): Example {
  const n = Array.isArray(example.tokens) ? example.tokens.length : 0;
  const where = `Example ${index + 1}`;
  if (n === 0) throw new FormatError(`${where} has no tokens, so there is nothing to show.`);
  if (!(example.n_layers >= 1)) throw new FormatError(`${where} has no layers.`);
  const words = example.words ?? {
    texts: example.tokens,
    groups: example.tokens.map((_, i) => [i]),
    special: example.special,
  };
  const position = Math.min(Math.max(0, example.position | 0), n - 1);
  return {
    ...example,
    name: example.name || example.model || where,
    text: example.text ?? "",
    model: example.model ?? "",
    special: example.special ?? example.tokens.map(() => false),
    words,
    position,
    prediction: example.prediction ?? null,
    n_heads: example.n_heads ?? 0,
    residual_weights: example.residual_weights ?? [],
    carried: example.carried ?? [],
    image: example.image ?? null,
    flow_rows: example.flow_rows ?? flowRows,
    chunks: example.chunks ?? {},
  };
}

/** Tokens or words: labels, the tokens of each, and which are special. */
export interface Items {
  labels: string[];
  groups: number[][];
  special: boolean[];
  of: Int32Array; // token -> item
}

export function itemsOf(example: Example, words: boolean): Items {
  const n = example.tokens.length;
  const of = new Int32Array(n);
  if (!words) {
    for (let i = 0; i < n; i++) of[i] = i;
    const groups = example.tokens.map((_, i) => [i]);
    return { labels: example.tokens, groups, special: example.special, of };
  }
  const { texts, groups, special } = example.words;
  groups.forEach((group, word) => group.forEach((token) => (of[token] = word)));
  return { labels: texts, groups, special, of };
}

/** Rows of tokens as one of items: summed over the attended, the mean over the attending. */
export function mergeRows(rows: readonly Float32Array[], items: Items): Float32Array {
  const out = new Float32Array(items.labels.length);
  for (const row of rows) {
    row.forEach((value, token) => (out[items.of[token]] += value / rows.length));
  }
  return out;
}
