// A small example and a source that serves it, for tests.
import type { Example, Header, Source } from "../src/format.ts";

export function makeExample(change: Partial<Example> = {}): Example {
  return {
    name: "one",
    text: "the cabinets",
    model: "tiny",
    tokens: ["[CLS]", "cabinet", "##s"],
    special: [true, false, false],
    words: { texts: ["[CLS]", "cabinets"], groups: [[0], [1, 2]], special: [true, false] },
    position: 0,
    prediction: null,
    n_layers: 2,
    n_heads: 0,
    causal: false,
    residual_weights: [0.5, 0.5],
    carried: [],
    image: null,
    chunks: {},
    ...change,
  };
}

export const makeHeader = (...examples: Example[]): Header => ({
  format: 1,
  title: "test",
  examples: examples.length ? examples : [makeExample()],
});

/** Numbers of at most 11 significant bits, as float16 bytes. */
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
  chunks: Record<string, number[]>,
): Source & { asked: string[] } {
  const asked: string[] = [];
  return {
    header,
    asked,
    load: (key) => {
      asked.push(key);
      return key in chunks
        ? Promise.resolve(encode(chunks[key]))
        : Promise.reject(new Error(`there is no chunk ${key}`));
    },
  };
}
