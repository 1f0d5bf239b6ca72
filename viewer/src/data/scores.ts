// The scores of one example. Every query returns its result at once, or null while chunks are
// loading or a computation is running; `changed` is called when a new result is available.

import {
  attentionKey,
  headsKey,
  mergeRows,
  merges,
  methodOf,
  normalizedKey,
  notesKey,
  scoresKey,
  weightsKey,
  type Example,
  type Items,
  type Method,
  type Source,
  itemsOf,
} from "./header.ts";
import { Loader } from "./loader.ts";
import { FlowPool } from "./flowPool.ts";
import { capacitiesOf, type MaxFlow, type Query } from "./maxflow.ts";
import { Queue, type Step, type WorkProgress } from "./queue.ts";
import { ascend, augment, descend, multiply, spread } from "./rollout.ts";

const MAX_EDGES = 6e7; // that the solver of the page takes; it needs about 5 bytes per edge
const FAST_TOKENS = 64; // up to which flow is computed in the page without delay
const MAX_PATHS = 20; // in the cache
const NEIGHBORS = 16; // sinks that are solved one after the other; they share some work
const MAX_STEPS = 3e7; // multiplications of rollouts that are computed at once

/** The notes on the explained position: for each row the indices of its texts. */
interface Notes {
  texts: string[];
  rows: Record<string, number[]>;
}

/** A set of positions as a key. */
export function keyOf(sources: readonly number[]): string {
  const [first, last] = [sources[0], sources[sources.length - 1]];
  if (last - first !== sources.length - 1) return sources.join(" ");
  return first === last ? String(first) : `${first} to ${last}`;
}

/** The key of flow that the page computes; for tokens as in `Scores.row`. */
const flowKey = (layer: number, items: Items, sources: readonly number[]): string =>
  `flow/${merges(items) ? `${items.name}/` : ""}${layer}/${keyOf(sources)}`;

/** The indices of a row, blocks of neighbors with the largest scores first. */
export function likelyFirst(row: Float32Array): number[] {
  const blocks = Array.from({ length: Math.ceil(row.length / NEIGHBORS) }, (_, block) => {
    const first = block * NEIGHBORS;
    const scores = row.subarray(first, first + NEIGHBORS);
    return { most: Math.max(...scores) || 0, items: Array.from(scores, (_, i) => first + i) };
  });
  return blocks.sort((a, b) => b.most - a.most).flatMap(({ items }) => items);
}

/** The mean of rows; null if one is missing. */
function meanOf(rows: readonly (Float32Array | null)[]): Float32Array | null {
  if (rows.includes(null)) return null;
  const known = rows as readonly Float32Array[];
  if (known.length === 1) return known[0];
  return known[0].map((_, i) => known.reduce((sum, row) => sum + row[i], 0) / known.length);
}

/** A column of rows; null if a row is missing. */
export const columnOf = (
  rows: readonly (Float32Array | null)[],
  column: number,
): Float32Array | null =>
  rows.includes(null) ? null : Float32Array.from(rows, (row) => row?.[column] ?? 0);

/** The positions that an example explains. */
const explainedOf = ({ answer, positions, position }: Example): number[] => {
  if (answer) return answer.whole.map((token) => token - 1);
  return positions.length > 1 ? positions : [position];
};

export class Scores {
  readonly example: Example;
  readonly index: number;
  readonly n: number;
  readonly explained: readonly number[]; // the positions that the data explains together
  readonly changed: () => void;
  private readonly loader: Loader;
  private readonly mixed = new Map<number, Float32Array>();
  private readonly rows = new Map<string, Float32Array>();
  private readonly products = new Map<string, Float32Array>();
  private readonly paths = new Map<string, MaxFlow>();
  private readonly queue: Queue;
  private readonly pool: FlowPool;
  private readonly capacities: Float32Array[] = []; // of the first layers
  private partial: { key: string; row: Float32Array } | null = null; // flow being computed

  constructor(
    example: Example,
    index: number,
    source: Source,
    changed: () => void,
    progressed: () => void = () => {},
  ) {
    this.example = example;
    this.index = index;
    this.n = example.tokens.length;
    this.explained = explainedOf(example);
    this.loader = new Loader(source, index, example.chunks, changed);
    this.changed = changed;
    this.queue = new Queue(changed, progressed);
    this.pool = new FlowPool(this.n, example.n_layers);
  }

  /** The message of the last error, or null. */
  get error(): string | null {
    return this.loader.error;
  }

  /** The progress of the running computation, or null. */
  get progress(): WorkProgress | null {
    return this.queue.progress;
  }

  /** Call before a redraw; work that the redraw does not request again is dropped. */
  beginRequests(): void {
    this.queue.begin();
    this.loader.begin();
  }

  /** Call after a redraw. */
  endRequests(): void {
    this.queue.end();
    this.loader.end(this.n);
  }

  /** Whether the graph is too large for the solver of the page. */
  get tooLarge(): boolean {
    return this.example.n_layers * this.n * this.n > MAX_EDGES;
  }

  /** Clear the error and repeat failed requests. */
  retry(): void {
    this.loader.retry();
    this.queue.clear();
    this.changed();
  }

  /** Report an error. */
  fail(message: string): void {
    this.loader.error = message;
    setTimeout(() => this.changed(), 0);
  }

  destroy(): void {
    this.loader.stop();
    this.queue.clear();
    this.pool.destroy();
  }

  /** Attention W of a layer (from 1): [n, n]. */
  attention(layer: number): Float32Array | null {
    return this.loader.chunk(attentionKey(this.index, layer), this.n * this.n);
  }

  /** Attention of every head of a layer: [heads, n, n]. */
  heads(layer: number): Float32Array | null {
    return this.loader.chunk(headsKey(this.index, layer), this.example.n_heads * this.n * this.n);
  }

  /** Attention of one head (from 0): [n, n]. */
  head(layer: number, head: number): Float32Array | null {
    const size = this.n * this.n;
    return this.heads(layer)?.subarray(head * size, (head + 1) * size) ?? null;
  }

  /** Load the heads of a layer that may be needed soon. */
  prefetchHeads(layer: number): void {
    const key = headsKey(this.index, layer);
    const shape = this.example.chunks[key]?.shape;
    if (shape) this.loader.prefetch(key, shape[0] * this.n * this.n);
  }

  /** Edge weights A of a layer: attention with the residual connection. */
  augmented(layer: number): Float32Array | null {
    const cached = this.mixed.get(layer);
    if (cached) return cached;
    const stored = weightsKey(this.index, layer);
    if (stored in this.example.chunks) return this.loader.chunk(stored, this.n * this.n);
    const attention = this.attention(layer);
    if (!attention) return null;
    const mixed = this.mix(attention, layer);
    this.mixed.set(layer, mixed);
    return mixed;
  }

  /** Edge weights A of layers 1 to `layer`. */
  augmentedUpTo(layer: number): Float32Array[] | null {
    const layers = Array.from({ length: layer }, (_, l) => this.augmented(l + 1));
    return layers.includes(null) ? null : (layers as Float32Array[]);
  }

  /** The scores of a set of positions for every token, [n]: the mean of their scores, or for flow
   * one maximum flow from all of them, divided by their number. */
  row(method: string, layer: number, sources: readonly number[]): Float32Array | null {
    const key = `${method}/${layer}/${keyOf(sources)}`;
    const cached = this.rows.get(key);
    if (cached) return cached;
    const row = this.findRow(methodOf(this.example, method), layer, sources);
    if (row) this.rows.set(key, row);
    return row;
  }

  /** The scores of a set of positions, normalized by the receptive field. */
  normalizedRow(
    method: string,
    layer: number,
    items: Items,
    sources: readonly number[],
  ): Float32Array | null {
    if (this.unnormalized(method, layer, items, sources)) return null;
    const { n, index, example } = this;
    const key = normalizedKey(index, method, layer);
    const scores = this.loader.chunk(key, example.chunks[key].shape[0] * n);
    if (!scores) return null;
    const places = this.normalizedPlaces(method, layer, sources);
    const rows = places.map((place) => scores.subarray(place * n, (place + 1) * n));
    return mergeRows(rows, items);
  }

  /** The rows in a chunk of normalized scores whose mean is that of some positions; -1 for those
   * that are not stored. */
  private normalizedPlaces(method: string, layer: number, sources: readonly number[]): number[] {
    const { chunks, normalized_rows: rows } = this.example;
    if (!(normalizedKey(this.index, method, layer) in chunks)) return [-1];
    const whole = this.placeOf(sources, rows);
    if (whole >= 0 || method === "flow") return [whole];
    return sources.map((position) => this.placeOf([position], rows));
  }

  /** Notes on the explained position. key: method, layer and options, such as
   * "rollout/2/none/tokens/show". */
  notes(key: string): string[] {
    const chunk = notesKey(this.index);
    if (!(chunk in this.example.chunks)) return [];
    const notes = this.loader.document(chunk) as Notes | undefined;
    return notes?.rows[key]?.map((i) => notes.texts[i]) ?? [];
  }

  /** Whether positions are those that the data explains: the whole answer, or else one or several
   * positions. */
  isExplained(sources: readonly number[]): boolean {
    return keyOf(sources) === keyOf(this.explained);
  }

  /** Why normalized scores can never be shown, or null if they can. */
  unnormalized(
    method: string,
    layer: number,
    items: Items,
    sources: readonly number[],
  ): string | null {
    if (method === "flow" && merges(items)) {
      return "Flow of words is not normalized by the receptive field in this page. Show tokens instead.";
    }
    if (!this.normalizedPlaces(method, layer, sources).includes(-1)) return null;
    if (!(normalizedKey(this.index, method, layer) in this.example.chunks)) {
      return "Scores normalized by the receptive field are not available at this layer.";
    }
    const what = this.example.answer ? "the whole answer" : "the explained position";
    return `Scores normalized by the receptive field are available for ${what} only.`;
  }

  /** Why scores can never be shown, or null if they can. */
  unavailable(
    method: string,
    layer: number,
    items: Items,
    sources: readonly number[],
  ): string | null {
    const found = methodOf(this.example, method);
    const inData = found.computed === "data";
    if (method === "flow" && merges(items) && !inData) {
      return this.tooLarge
        ? "The graph is too large to compute the flow of words in this page. Show tokens instead."
        : null;
    }
    if (!inData && (method !== "flow" || this.loader.live || !this.tooLarge)) return null;
    if (this.storedRow(found, layer, sources) >= 0) return null;
    if (!inData) {
      return "The graph is too large to compute flow in this page. Select the explained position.";
    }
    if (sources.every((position) => this.storedRow(found, layer, [position]) >= 0)) return null;
    return scoresKey(this.index, found, layer) in this.example.chunks
      ? "Only the explained position is available for this method."
      : "This method is not available for this example.";
  }

  /** Whether a row is available without a long computation. */
  isFast(method: string, layer: number, sources: readonly number[]): boolean {
    if (method !== "flow" || this.n <= FAST_TOKENS) return true;
    if (this.rows.has(`flow/${layer}/${keyOf(sources)}`)) return true;
    return this.storedRow(methodOf(this.example, method), layer, sources) >= 0;
  }

  /** The scores of a set of positions, with the tokens of a word or another item merged. */
  itemRow(
    method: string,
    layer: number,
    items: Items,
    sources: readonly number[],
  ): Float32Array | null {
    if (method === "flow" && merges(items)) return this.flowOf(layer, items, sources);
    const row = this.row(method, layer, sources);
    return row && (merges(items) ? mergeRows([row], items) : row);
  }

  /** The scores of several sets of positions. Many long rollouts are computed in the background. */
  itemRows(
    method: string,
    layer: number,
    items: Items,
    sets: readonly (readonly number[])[],
  ): (Float32Array | null)[] {
    const missing = sets.filter((set) => !this.rows.has(`${method}/${layer}/${keyOf(set)}`));
    const steps = missing.length * layer * this.n * this.n;
    const layers = method === "rollout" && steps > MAX_STEPS ? this.augmentedUpTo(layer) : null;
    if (!layers) return sets.map((set) => this.itemRow(method, layer, items, set));
    this.queue.want(`rollouts/${layer}/${missing.length}`, "rollout of the answer", () =>
      this.findRollouts(layers, missing),
    );
    return sets.map((set) =>
      missing.includes(set) ? null : this.itemRow(method, layer, items, set),
    );
  }

  private *findRollouts(
    layers: Float32Array[],
    sets: readonly (readonly number[])[],
  ): Generator<Step> {
    const { n } = this;
    for (const [i, set] of sets.entries()) {
      const row = descend(layers, n, layers.length, spread(n, set))[0];
      this.rows.set(`rollout/${layers.length}/${keyOf(set)}`, Float32Array.from(row));
      yield [i + 1, sets.length];
    }
  }

  /** The scores of several sets of positions for one item: [sets]. */
  itemColumn(
    method: string,
    layer: number,
    items: Items,
    sets: readonly (readonly number[])[],
    to: number,
  ): Float32Array | null {
    const { n } = this;
    const slow = sets.some((set) => !this.isFast(method, layer, set));
    if (method === "flow" && (slow || merges(items))) {
      return this.flowColumn(layer, items, sets, to);
    }
    if (method !== "rollout") {
      return columnOf(this.itemRows(method, layer, items, sets), to);
    }
    const layers = this.augmentedUpTo(layer);
    if (!layers) return null;
    const columns = items.groups[to].map((token) => ascend(layers, n, layer, token)[layer]);
    const at = (position: number): number => columns.reduce((sum, c) => sum + c[position], 0);
    return Float32Array.from(sets, (set) => set.reduce((sum, p) => sum + at(p), 0) / set.length);
  }

  /** The flow from several sets of positions to one item, computed in the page. */
  private flowColumn(
    layer: number,
    items: Items,
    sets: readonly (readonly number[])[],
    to: number,
  ): Float32Array | null {
    const key = `flow/column/${items.name}/${layer}/${to}`;
    const cached = this.rows.get(key);
    if (cached) return cached;
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    const queries = sets.map((sources) => ({ layer, sources, tokens: items.groups[to] }));
    this.queue.want(key, `flow to the answer at layer ${layer}`, () =>
      this.findFlows(key, capacities, queries, null),
    );
    return null;
  }

  /** The maximum flow from some positions to an item on every edge between tokens, with its minimum
   * cut. The end of an edge to a word at the input is the first token of the word. */
  path(layer: number, items: Items, sources: readonly number[], to: number): MaxFlow | null {
    const tokens = items.groups[to];
    const key = `path/${layer}/${keyOf(sources)}/${tokens}`;
    const cached = this.paths.get(key);
    if (cached) return cached;
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    const query = { layer, sources, tokens };
    this.queue.want(key, "maximum flow", () => this.findPath(key, capacities, query));
    return null;
  }

  /** The rollout of a head to the input (appendix A.1): its A times the rollout below, [n, n]. */
  headRollout(layer: number, head: number): Float32Array | null {
    const key = `head/${layer}/${head}`;
    const cached = this.products.get(key);
    if (cached) return cached;
    const attention = this.head(layer, head);
    if (!attention) return null;
    const top = this.mix(attention, layer);
    if (layer === 1) return top;
    const below = this.rolloutMatrix(layer - 1);
    if (below) this.wantProduct(key, top, below);
    return null;
  }

  /** The rollout of all positions of a layer to the input: [n, n]. */
  private rolloutMatrix(layer: number): Float32Array | null {
    const top = this.augmented(layer);
    if (layer === 1 || !top) return top;
    const key = `rollout/${layer}`;
    const cached = this.products.get(key);
    if (cached) return cached;
    const below = this.rolloutMatrix(layer - 1);
    if (below) this.wantProduct(key, top, below);
    return null;
  }

  private wantProduct(key: string, left: Float32Array, right: Float32Array): void {
    const { n, products } = this;
    this.queue.want(key, "rollout", function* () {
      products.set(key, yield* multiply(left, right, n));
    });
  }

  private findRow(method: Method, layer: number, sources: readonly number[]): Float32Array | null {
    const { n } = this;
    const place = this.storedRow(method, layer, sources); // not rounded, unlike the weights
    if (place >= 0) return this.loadRow(method, layer, place);
    if (method.computed === "data") {
      const places = sources.map((position) => this.storedRow(method, layer, [position]));
      if (places.includes(-1)) return null;
      return meanOf(places.map((one) => this.loadRow(method, layer, one)));
    }
    if (method.name === "raw") {
      const attention = this.attention(layer);
      return attention && meanOf(sources.map((q) => attention.slice(q * n, (q + 1) * n)));
    }
    if (method.name === "rollout") {
      const layers = this.augmentedUpTo(layer);
      return layers && Float32Array.from(descend(layers, n, layer, spread(n, sources))[0]);
    }
    const contiguous = sources[sources.length - 1] - sources[0] === sources.length - 1;
    if (this.loader.live && contiguous) {
      const key = `flow/${layer}/${keyOf(sources)}`; // as in `row`
      const query = { key, layer, position: sources[0], count: sources.length };
      return this.loader.flow(query, n);
    }
    return this.flowOf(layer, itemsOf(this.example, "tokens"), sources);
  }

  /** The row of a set of positions in the chunk of a method; -1 if it is not stored. */
  private storedRow(method: Method, layer: number, sources: readonly number[]): number {
    const { chunks, flow_rows } = this.example;
    if (!(scoresKey(this.index, method, layer) in chunks)) return -1;
    return this.placeOf(sources, flow_rows);
  }

  /** The place of a set of positions among stored rows; the explained set of several is last. */
  private placeOf(sources: readonly number[], rows: readonly number[] | null): number {
    const count = rows ? rows.length : this.n;
    const explainsSet = this.example.answer !== null || this.example.positions.length > 1;
    if (explainsSet && this.isExplained(sources)) return count;
    if (sources.length > 1) return -1;
    return rows ? rows.indexOf(sources[0]) : sources[0];
  }

  private loadRow(method: Method, layer: number, place: number): Float32Array | null {
    const { n } = this;
    const key = scoresKey(this.index, method, layer);
    const scores = this.loader.chunk(key, this.example.chunks[key].shape[0] * n);
    return scores && scores.slice(place * n, (place + 1) * n);
  }

  /** Flow computed in the page. To a word: one maximum flow to all of its tokens, never the sum of
   * their flows. */
  private flowOf(layer: number, items: Items, sources: readonly number[]): Float32Array | null {
    const key = flowKey(layer, items, sources);
    const cached = this.rows.get(key);
    if (cached) return cached;
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    const what = merges(items) ? `flow of ${items.name}` : "flow";
    const queries = items.groups.map((tokens) => ({ layer, sources, tokens }));
    const guess = this.itemRow("rollout", layer, items, sources);
    this.queue.want(key, `${what} at layer ${layer}`, () =>
      this.findFlows(key, capacities, queries, guess),
    );
    return null;
  }

  /** Flow that is being computed, as far as it is known: NaN for other items. Null if it is not. */
  partialFlow(layer: number, items: Items, sources: readonly number[]): Float32Array | null {
    const { partial } = this;
    return partial?.key === flowKey(layer, items, sources) ? partial.row : null;
  }

  private *findFlows(
    key: string,
    capacities: Float32Array[],
    queries: readonly Query[],
    guess: Float32Array | null,
  ): Generator<Step> {
    const row = new Float32Array(queries.length).fill(NaN);
    const order = likelyFirst(guess ?? row);
    const sorted = order.map((i) => queries[i]);
    this.partial = { key, row };
    yield* this.pool.values(capacities, sorted, (i, score) => (row[order[i]] = score));
    this.rows.set(key, row);
  }

  private *findPath(key: string, capacities: Float32Array[], query: Query): Generator<Step> {
    this.paths.set(key, yield* this.pool.path(capacities, query));
    if (this.paths.size > MAX_PATHS) this.paths.delete(this.paths.keys().next().value as string);
  }

  /** Capacities of layers 1 to `layer`; null until they are loaded. Workers get each as it arrives. */
  private capacitiesUpTo(layer: number): Float32Array[] | null {
    const { capacities } = this;
    const layers = Array.from({ length: layer }, (_, l) => this.augmented(l + 1));
    const missing = layers.indexOf(null);
    const known = layers.slice(0, missing < 0 ? layer : missing) as Float32Array[];
    if (capacities.length < known.length) {
      const all = capacitiesOf(known, this.n, this.example.carried);
      capacities.push(...all.slice(capacities.length));
    }
    if (missing < 0) return capacities.slice(0, layer);
    this.pool.prepare(capacities, layer);
    return null;
  }

  /** Attention of a layer with the residual connection mixed in. */
  private mix(attention: Float32Array, layer: number): Float32Array {
    const { residual_weights, carried } = this.example;
    const here = carried.filter(([l]) => l === layer).map(([, position]) => position);
    return augment(attention, this.n, residual_weights[layer - 1] ?? 0.5, here);
  }
}
