// A small example, and a source that serves its chunks.
import {
  readHeader,
  type Example,
  type Header,
  type Method,
  type Source,
} from "../src/data/header.ts";

export function makeExample(change: Partial<Example> = {}): Example {
  return {
    name: "one",
    text: "the cabinets",
    model: "tiny",
    tokens: ["[CLS]", "cabinet", "##s"],
    special: [true, false, false],
    words: { texts: ["[CLS]", "cabinets"], groups: [[0], [1, 2]], special: [true, false] },
    units: {},
    runs: [],
    segments: [],
    answer: null,
    position: 0,
    positions: [],
    prediction: null,
    predictions: {},
    n_layers: 2,
    n_heads: 0,
    causal: false,
    edges: null,
    labels: ["[CLS]", "cabinet", "##s"],
    layer_names: [],
    n_source: 0,
    settings: ["tiny", "edges: attention"],
    residual_weights: [0.5, 0.5],
    carried: [],
    image: null,
    flow_rows: null,
    rounding: null,
    normalized_rows: null,
    methods: [], // set by makeHeader
    chunks: {},
    ...change,
  };
}

/** A method whose scores are stored in the data. */
export const STORED: Method = {
  name: "joint",
  title: "Joint flow",
  summary: "one maximum flow to all tokens.",
  computed: "data",
  check: "",
};

const PAGE: Method[] = readHeader({ format: 1, examples: [makeExample()] }).methods;

/** A checked header of examples; methods: in addition to those of the page. */
export const makeHeader = (examples: Example[] = [makeExample()], methods: Method[] = []): Header =>
  readHeader({ format: 1, title: "test", examples, methods: [...PAGE, ...methods] });

/** Encode numbers of at most 11 significant bits as float16. */
export function encode(values: number[]): ArrayBuffer {
  const out = new Uint16Array(values.length);
  values.forEach((value, i) => {
    if (value === 0) return;
    const exponent = Math.floor(Math.log2(value));
    out[i] = ((exponent + 15) << 10) | Math.round((value / 2 ** exponent - 1) * 1024);
  });
  return out.buffer;
}

export function makeSource(
  header: Header,
  chunks: Record<string, number[] | string>,
): Source & { requested: string[] } {
  const requested: string[] = [];
  return {
    header,
    requested,
    load: (key) => {
      requested.push(key);
      const chunk = chunks[key];
      if (typeof chunk === "string") return Promise.resolve(new TextEncoder().encode(chunk).buffer);
      return chunk
        ? Promise.resolve(encode(chunk))
        : Promise.reject(new Error(`there is no chunk ${key}`));
    },
  };
}
