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
} from "./header.ts";
import { Loader } from "./loader.ts";
import { capacitiesOf, contract, LayeredFlow, type MaxFlow, type Room } from "./maxflow.ts";
import { Queue, type WorkProgress } from "./queue.ts";
import { augment, descend, multiply, oneHot } from "./rollout.ts";

const MAX_EDGES = 3e7; // that the solver of the page takes; it needs about 10 bytes per edge
const FAST_TOKENS = 64; // up to which flow is computed in the page without delay
const MAX_PATHS = 20; // in the cache

/** The notes on the explained position: for each row the indices of its texts. */
interface Notes {
  texts: string[];
  rows: Record<string, number[]>;
}

/** Replace the index of a word at the input by that of its first token. */
function expand(edge: { layer: number; below: number }, items: Items): void {
  if (edge.layer === 1) edge.below = items.groups[edge.below][0];
}

export class Scores {
  readonly example: Example;
  readonly index: number;
  readonly n: number;
  readonly changed: () => void;
  private readonly loader: Loader;
  private readonly mixed = new Map<number, Float32Array>();
  private readonly rows = new Map<string, Float32Array>();
  private readonly products = new Map<string, Float32Array>();
  private readonly paths = new Map<string, MaxFlow>();
  private readonly queue: Queue;
  private readonly room: Room = { flow: [], order: [] }; // reused, to avoid large allocations
  private capacities: Float32Array[] | null = null;

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
    this.loader = new Loader(source, index, example.chunks, changed);
    this.changed = changed;
    this.queue = new Queue(changed, progressed);
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

  /** The scores of one position for every token: [n]. */
  row(method: string, layer: number, position: number): Float32Array | null {
    const key = `${method}/${layer}/${position}`;
    const cached = this.rows.get(key);
    if (cached) return cached;
    const row = this.findRow(methodOf(this.example, method), layer, position);
    if (row) this.rows.set(key, row);
    return row;
  }

  /** The scores of one item, normalized by the receptive field. */
  normalizedRow(method: string, layer: number, items: Items, item: number): Float32Array | null {
    if (method === "flow" && merges(items)) return null; // flows of tokens do not add up
    const { n, index, example } = this;
    const key = normalizedKey(index, method, layer);
    const places = items.groups[item].map((position) => this.normalizedPlace(key, position));
    if (places.includes(-1)) return null;
    const scores = this.loader.chunk(key, example.chunks[key].shape[0] * n);
    if (!scores) return null;
    return mergeRows(
      places.map((place) => scores.subarray(place * n, (place + 1) * n)),
      items,
    );
  }

  /** The row of a position in a chunk of normalized scores; -1 if it is not stored. */
  private normalizedPlace(key: string, position: number): number {
    const { chunks, normalized_rows: positions } = this.example;
    if (!(key in chunks)) return -1;
    return positions ? positions.indexOf(position) : position;
  }

  /** Notes on the explained position. key: method, layer and options, such as
   * "rollout/2/none/tokens/show". */
  notes(key: string): string[] {
    const chunk = notesKey(this.index);
    if (!(chunk in this.example.chunks)) return [];
    const notes = this.loader.document(chunk) as Notes | undefined;
    return notes?.rows[key]?.map((i) => notes.texts[i]) ?? [];
  }

  /** Why the normalized scores of an item can never be shown, or null if they can. */
  unnormalized(method: string, layer: number, items: Items, item: number): string | null {
    if (method === "flow" && merges(items)) {
      return "Flow of words is not normalized by the receptive field in this page. Show tokens instead.";
    }
    const key = normalizedKey(this.index, method, layer);
    if (items.groups[item].every((position) => this.normalizedPlace(key, position) >= 0)) {
      return null;
    }
    return "Scores normalized by the receptive field are available for the explained position only.";
  }

  /** Why the scores of an item can never be shown, or null if they can. */
  unavailable(method: string, layer: number, items: Items, item: number): string | null {
    const found = methodOf(this.example, method);
    const inData = found.computed === "data";
    if (method === "flow" && merges(items) && !inData) {
      return this.tooLarge
        ? "The graph is too large to compute the flow of words in this page. Show tokens instead."
        : null;
    }
    if (!inData && (method !== "flow" || this.loader.live || !this.tooLarge)) return null;
    if (items.groups[item].every((position) => this.storedRow(found, layer, position) >= 0)) {
      return null;
    }
    if (!inData) {
      return "The graph is too large to compute flow in this page. Select the explained position.";
    }
    return scoresKey(this.index, found, layer) in this.example.chunks
      ? "Only the explained position is available for this method."
      : "This method is not available for this example.";
  }

  /** Whether a row is available without a long computation. */
  isFast(method: string, layer: number, position: number): boolean {
    if (method !== "flow" || this.n <= FAST_TOKENS) return true;
    if (this.rows.has(`flow/${layer}/${position}`)) return true;
    return this.storedRow(methodOf(this.example, method), layer, position) >= 0;
  }

  /** The scores of one item, with the tokens of a word merged. */
  itemRow(method: string, layer: number, items: Items, item: number): Float32Array | null {
    const group = items.groups[item];
    if (method === "flow" && merges(items)) return this.wordFlowRow(layer, items, item);
    const rows = group.map((position) => this.row(method, layer, position));
    if (rows.some((row) => !row)) return null;
    if (items.labels.length === this.n && group.length === 1 && items.of[group[0]] === group[0]) {
      return rows[0];
    }
    return mergeRows(rows as Float32Array[], items);
  }

  /** The maximum flow from an item to another on every edge between tokens, with its minimum cut.
   * The end of an edge to a word at the input is the first token of the word. */
  path(layer: number, items: Items, item: number, to: number): MaxFlow | null {
    const key = `path/${layer}/${items.groups[item]}/${items.groups[to]}`;
    const cached = this.paths.get(key);
    if (cached) return cached;
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    this.queue.want(key, "maximum flow", () => this.findPath(key, capacities, items, item, to));
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

  private findRow(method: Method, layer: number, position: number): Float32Array | null {
    const { n } = this;
    const stored = this.storedRow(method, layer, position) >= 0; // not rounded, unlike the weights
    if (method.computed === "data" || stored) return this.loadRow(method, layer, position);
    if (method.name === "raw") {
      return this.attention(layer)?.slice(position * n, (position + 1) * n) ?? null;
    }
    if (method.name === "rollout") {
      const layers = this.augmentedUpTo(layer);
      return layers && Float32Array.from(descend(layers, n, layer, oneHot(n, position))[0]);
    }
    return this.flowRow(method, layer, position);
  }

  /** The row of a position in the chunk of a method; -1 if it is not stored. */
  private storedRow(method: Method, layer: number, position: number): number {
    const { chunks, flow_rows: positions } = this.example;
    if (!(scoresKey(this.index, method, layer) in chunks)) return -1;
    return positions ? positions.indexOf(position) : position;
  }

  private loadRow(method: Method, layer: number, position: number): Float32Array | null {
    const { n } = this;
    const row = this.storedRow(method, layer, position);
    if (row < 0) return null;
    const key = scoresKey(this.index, method, layer);
    const scores = this.loader.chunk(key, this.example.chunks[key].shape[0] * n);
    return scores && scores.slice(row * n, (row + 1) * n);
  }

  /** Flow from the stored chunk, else from a live host, else computed in the page. */
  private flowRow(method: Method, layer: number, position: number): Float32Array | null {
    const key = `flow/${layer}/${position}`; // as in `row`
    if (this.storedRow(method, layer, position) >= 0) {
      return this.loadRow(method, layer, position);
    }
    if (this.loader.live) return this.loader.flow({ key, layer, position }, this.n);
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    this.queue.want(key, `flow at layer ${layer}`, () =>
      this.findFlows(key, capacities, layer, position),
    );
    return null;
  }

  private *findFlows(
    key: string,
    capacities: Float32Array[],
    layer: number,
    position: number,
  ): Generator<[number, number]> {
    const solver = new LayeredFlow(capacities.slice(0, layer), this.n);
    const row = new Float32Array(this.n);
    for (let token = 0; token < this.n; token++) {
      const value = solver.value(position, token);
      row[token] = value === Infinity ? 1 : value; // a carried position
      yield [token + 1, this.n];
    }
    this.rows.set(key, row);
  }

  /** Flow to words: one maximum flow to all tokens of a word, never the sum of their flows. */
  private wordFlowRow(layer: number, items: Items, item: number): Float32Array | null {
    const key = `flow/words/${layer}/${item}`;
    const cached = this.rows.get(key);
    if (cached) return cached;
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    this.queue.want(key, `flow of words at layer ${layer}`, () =>
      this.findWordFlows(key, capacities, items, item),
    );
    return null;
  }

  private *findWordFlows(
    key: string,
    capacities: Float32Array[],
    items: Items,
    item: number,
  ): Generator<[number, number]> {
    const group = items.groups[item];
    const solver = new LayeredFlow(contract(capacities, this.n, items, group), this.n);
    const row = new Float32Array(items.labels.length);
    for (let word = 0; word < row.length; word++) {
      const value = solver.value(group[0], word) / group.length;
      row[word] = value === Infinity ? 1 : value; // a carried position
      yield [word + 1, row.length];
    }
    this.rows.set(key, row);
  }

  private *findPath(
    key: string,
    capacities: Float32Array[],
    items: Items,
    item: number,
    to: number,
  ): Generator<[number, number]> {
    yield [0, 1]; // redraw before the work starts
    const group = items.groups[item];
    const grouped = group.length > 1 || items.groups[to].length > 1;
    const graph = grouped ? contract(capacities, this.n, items, group) : capacities;
    const solver = new LayeredFlow(graph, this.n, this.room);
    try {
      const sink = grouped ? to : items.groups[to][0];
      const path = solver.solve(group[0], sink);
      if (grouped) for (const edge of [...path.edges, ...path.cut]) expand(edge, items);
      this.paths.set(key, path);
    } finally {
      solver.clear();
    }
    if (this.paths.size > MAX_PATHS) this.paths.delete(this.paths.keys().next().value as string);
  }

  private capacitiesUpTo(layer: number): Float32Array[] | null {
    const layers = this.augmentedUpTo(layer);
    if (!layers) return null;
    if (!this.capacities || this.capacities.length < layer) {
      this.capacities = capacitiesOf(layers, this.n, this.example.carried);
    }
    return this.capacities.slice(0, layer);
  }

  /** Attention of a layer with the residual connection mixed in. */
  private mix(attention: Float32Array, layer: number): Float32Array {
    const { residual_weights, carried } = this.example;
    const here = carried.filter(([l]) => l === layer).map(([, position]) => position);
    return augment(attention, this.n, residual_weights[layer - 1] ?? 0.5, here);
  }
}
