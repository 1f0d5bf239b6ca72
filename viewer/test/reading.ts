// A reading for tests of views: numbers loaded, as the viewer does it round by round.
import type { Example } from "../src/format.ts";
import { Numbers } from "../src/numbers.ts";
import { read, type Reading } from "../src/reading.ts";
import { changeState, initialState, type State } from "../src/state.ts";
import { LIGHT } from "../src/theme.ts";
import { makeExample, makeHeader, makeSource } from "./example.ts";

const W = [0.5, 0.25, 0.25, 0, 1, 0, 0, 0.5, 0.5];
const SELF = [1, 0, 0, 0, 1, 0, 0, 0, 1];

export const CHUNKS = {
  "0/attention/1": W,
  "0/attention/2": W,
  "0/heads/1": [...W, ...SELF],
  "0/heads/2": [...W, ...SELF],
};

/** Read and draw again until nothing new arrives. */
export async function settle<T>(
  change: Partial<State>,
  draw: (reading: Reading) => T,
  example: Partial<Example> = {},
): Promise<T> {
  const header = makeHeader(makeExample({ n_heads: 2, ...example }));
  const state = changeState(header, initialState(header), change);
  let news = true;
  const numbers = new Numbers(
    header.examples[0],
    0,
    makeSource(header, CHUNKS),
    () => (news = true),
  );
  let drawn: T | undefined;
  for (let i = 0; i < 50 && (news || numbers.progress); i++) {
    news = false;
    numbers.beginAsking();
    drawn = draw(read(numbers, state, LIGHT));
    numbers.endAsking();
    await new Promise((done) => setTimeout(done, 5));
  }
  if (numbers.error) throw new Error(numbers.error);
  return drawn as T;
}
