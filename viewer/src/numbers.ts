// The numbers of one example: chunks are loaded when first asked for, and kept; scores are worked
// out from them. A question is answered at once or with null; `changed` is called once it is known.

import {
  attentionKey,
  flowKey,
  headsKey,
  mergeRows,
  weightsKey,
  type Example,
  type Items,
  type Method,
  type Source,
} from "./format.ts";
import { Loading } from "./loading.ts";
import { capacitiesOf, LayeredFlow, type MaxFlow, type Room } from "./maxflow.ts";
import { augment, descend, multiply, oneHot } from "./rollout.ts";
import { Queue } from "./queue.ts";

const MOST_EDGES = 3e7; // the page's own solver needs some 10 bytes for each

export class Numbers {
  readonly example: Example;
  readonly index: number;
  readonly n: number;
  private readonly loading: Loading;
  readonly changed: () => void; // to be called as well where something else has arrived
  private readonly mixed = new Map<number, Float32Array>();
  private readonly rows = new Map<string, Float32Array>();
  private readonly products = new Map<string, Float32Array>();
  private readonly paths = new Map<string, MaxFlow>();
  private readonly queue: Queue;
  private readonly room: Room = { flow: [], order: [] }; // fresh ones would soon be much garbage
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
    this.loading = new Loading(source, index, changed);
    this.changed = changed;
    this.queue = new Queue(changed, progressed);
  }

  /** What went wrong, as a sentence. */
  get error(): string | null {
    return this.loading.error;
  }

  /** What is being worked out, for a progress line; null when nothing is. */
  get progress(): { what: string; done: number; total: number } | null {
    return this.queue.progress;
  }

  /** Before and after a drawing: work that no drawing asked for any more is dropped. */
  beginAsking(): void {
    this.queue.begin();
    this.loading.begin();
  }

  endAsking(): void {
    this.queue.end();
    this.loading.end(this.n);
  }

  /** Whether the page's own solver would take too much memory. */
  get tooLarge(): boolean {
    return this.example.n_layers * this.n * this.n > MOST_EDGES;
  }

  /** Forget an error, so that what failed is tried again. */
  retry(): void {
    this.loading.retry();
    this.queue.clear();
    this.changed();
  }

  /** Say what went wrong. */
  fail(sentence: string): void {
    this.loading.error = sentence;
    setTimeout(() => this.changed(), 0);
  }

  destroy(): void {
    this.loading.stop();
    this.queue.clear();
  }

  /** W of a layer, from 1: [n, n]. */
  attention(layer: number): Float32Array | null {
    return this.loading.chunk(attentionKey(this.index, layer), this.n * this.n);
  }

  /** The attention of every head of a layer: [heads, n, n]. */
  heads(layer: number): Float32Array | null {
    return this.loading.chunk(headsKey(this.index, layer), this.example.n_heads * this.n * this.n);
  }

  /** The heads of a layer may be asked for soon. */
  expectHeads(layer: number): void {
    const key = headsKey(this.index, layer);
    const shape = this.example.chunks[key]?.shape;
    if (shape) this.loading.expect(key, shape[0] * this.n * this.n);
  }

  /** A of a layer: the residual connection mixed in. */
  augmented(layer: number): Float32Array | null {
    const known = this.mixed.get(layer);
    if (known) return known;
    const own = weightsKey(this.index, layer);
    if (own in this.example.chunks) return this.loading.chunk(own, this.n * this.n);
    const attention = this.attention(layer);
    if (!attention) return null;
    const mixed = this.mix(attention, layer);
    this.mixed.set(layer, mixed);
    return mixed;
  }

  /** A of layers 1 to `layer`. */
  augmentedUpTo(layer: number): Float32Array[] | null {
    const out: Float32Array[] = [];
    let missing = false;
    for (let l = 1; l <= layer; l++) {
      const one = this.augmented(l);
      if (one) out.push(one);
      else missing = true;
    }
    return missing ? null : out;
  }

  /** One head's augmented matrix: [n, n]. */
  augmentedHead(layer: number, head: number): Float32Array | null {
    const heads = this.heads(layer);
    if (!heads) return null;
    const size = this.n * this.n;
    const one = heads.subarray((head - 1) * size, head * size);
    return this.mix(one, layer);
  }

  /** The scores of one position for every token: [n]. */
  row(method: Method, layer: number, position: number): Float32Array | null {
    const key = `${method}/${layer}/${position}`;
    const known = this.rows.get(key);
    if (known) return known;
    const row = this.findRow(method, layer, position);
    if (row) this.rows.set(key, row);
    return row;
  }

  /** Whether a row is at hand or quickly so; flow may have to be worked out first. */
  quick(method: Method, layer: number, position: number): boolean {
    if (method !== "flow" || this.n <= 64) return true;
    if (this.rows.has(`flow/${layer}/${position}`)) return true;
    const { chunks, flow_rows: kept } = this.example;
    return flowKey(this.index, layer) in chunks && (!kept || kept.includes(position));
  }

  /** The scores of one item, tokens of a word merged: summed over attended, mean over attending. */
  itemRow(method: Method, layer: number, items: Items, item: number): Float32Array | null {
    const group = items.groups[item];
    const rows = group.map((position) => this.row(method, layer, position));
    if (rows.some((row) => !row)) return null;
    if (items.labels.length === this.n && group.length === 1 && items.of[group[0]] === group[0]) {
      return rows[0];
    }
    return mergeRows(rows as Float32Array[], items);
  }

  /** The maximum flow from a position to a token, on every edge, with its minimum cut. */
  path(layer: number, position: number, token: number): MaxFlow | null {
    const key = `path/${layer}/${position}/${token}`;
    const known = this.paths.get(key);
    if (known) return known;
    const capacities = this.tooLarge ? null : this.capacitiesUpTo(layer);
    if (!capacities) return null;
    this.queue.want(key, "the maximum flow", () => this.findPath(key, capacities, position, token));
    return null;
  }

  /** The rollout of a head to the input (appendix A.1): its A times the rollout below. [n, n] */
  headRollout(layer: number, head: number): Float32Array | null {
    const key = `head/${layer}/${head}`;
    const known = this.products.get(key);
    if (known) return known;
    const top = this.augmentedHead(layer, head);
    if (!top) return null;
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
    const known = this.products.get(key);
    if (known) return known;
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
    if (method === "raw") {
      return this.attention(layer)?.slice(position * n, (position + 1) * n) ?? null;
    }
    if (method === "rollout") {
      const layers = this.augmentedUpTo(layer);
      return layers && Float32Array.from(descend(layers, n, layer, oneHot(n, position))[0]);
    }
    return this.flowRow(layer, position);
  }

  /** Flow from the host's chunk, else from the host, else worked out here. */
  private flowRow(layer: number, position: number): Float32Array | null {
    const key = `flow/${layer}/${position}`; // as in `row`
    const { n, example } = this;
    const chunk = flowKey(this.index, layer);
    const kept = example.flow_rows ? example.flow_rows.indexOf(position) : position;
    if (example.chunks[chunk] && kept >= 0) {
      const count = example.chunks[chunk].shape[0];
      const flows = this.loading.chunk(chunk, count * n);
      return flows && flows.slice(kept * n, (kept + 1) * n);
    }
    if (this.loading.live) return this.loading.flow({ key, layer, position }, n);
    if (this.tooLarge) return null;
    const capacities = this.capacitiesUpTo(layer);
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
      row[token] = value === Infinity ? 1 : value; // carried so far, it is the token itself
      yield [token + 1, this.n];
    }
    this.rows.set(key, row);
  }

  private *findPath(
    key: string,
    capacities: Float32Array[],
    position: number,
    token: number,
  ): Generator<[number, number]> {
    yield [0, 1]; // let what is on screen be drawn first
    const solver = new LayeredFlow(capacities, this.n, this.room);
    try {
      this.paths.set(key, solver.solve(position, token));
    } finally {
      solver.clear();
    }
    if (this.paths.size > 20) this.paths.delete(this.paths.keys().next().value as string);
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
