// Asking the host: every chunk once, kept for good; a failure becomes a sentence. Flows that a live
// host works out are asked for one after another, once a position has been looked from a while.

import { decodeFloat16 } from "./float16.ts";
import type { Source } from "./format.ts";

const PATIENCE = 120; // milliseconds

export interface FlowQuestion {
  key: string; // under which the answer is kept
  layer: number;
  position: number;
}

export class Loading {
  error: string | null = null;
  private readonly source: Source;
  private readonly example: number;
  private readonly changed: () => void;
  private readonly known = new Map<string, Float32Array | null>(); // null: asked for
  private readonly awaited = new Set<string>(); // expected chunks that were asked for meanwhile
  private readonly wanted = new Map<string, FlowQuestion>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asking = false;

  constructor(source: Source, example: number, changed: () => void) {
    this.source = source;
    this.example = example;
    this.changed = changed;
  }

  /** Whether the host works out flows when asked. */
  get live(): boolean {
    return this.source.flow !== undefined;
  }

  /** A chunk of `size` numbers; null until it is there. */
  chunk(key: string, size: number): Float32Array | null {
    const known = this.known.get(key);
    if (known === null) this.awaited.add(key);
    if (known !== undefined) return known;
    void this.ask(key, () => this.load(key, size));
    return null;
  }

  /** Load a chunk that may be asked for soon. Nothing is drawn for it. */
  expect(key: string, size: number): void {
    if (this.known.has(key)) return;
    this.known.set(key, null);
    const done = (chunk: Float32Array | null): void => {
      // What failed is forgotten: once it is really asked for, it is tried again, and said.
      if (chunk) this.known.set(key, chunk);
      else this.known.delete(key);
      if (this.awaited.delete(key)) this.changed();
    };
    this.load(key, size).then(done, () => done(null));
  }

  private async load(key: string, size: number): Promise<Float32Array> {
    const buffer = await this.source.load(key);
    if (buffer.byteLength !== 2 * size) {
      throw new Error(`it has ${buffer.byteLength} bytes where ${2 * size} were expected`);
    }
    return decodeFloat16(buffer);
  }

  /** The flow of a position from a live host, [n]; null until it is there. */
  flow(question: FlowQuestion, n: number): Float32Array | null {
    const known = this.known.get(question.key);
    if (known === undefined) this.wanted.set(question.key, question);
    return known?.length === n ? known : null;
  }

  /** Before and after a drawing: flows that no drawing asked for any more are not asked for. */
  begin(): void {
    this.wanted.clear();
  }

  end(n: number): void {
    clearTimeout(this.timer);
    if (this.wanted.size) this.timer = setTimeout(() => void this.askFlows(n), PATIENCE);
  }

  /** Forget what failed, so that it is tried again. */
  retry(): void {
    this.error = null;
    for (const [key, chunk] of this.known) if (!chunk) this.known.delete(key);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.wanted.clear();
  }

  private async askFlows(n: number): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    while (!this.error) {
      const next = this.wanted.values().next();
      if (next.done) break;
      const { key, layer, position } = next.value;
      this.wanted.delete(key);
      await this.ask(key, async () => {
        const row = await this.source.flow?.({ example: this.example, position, layer });
        if (row?.length !== n) throw new Error("the answer has the wrong length");
        return row.map((value) => (value === Infinity ? 1 : value)); // still the token itself
      });
    }
    this.asking = false;
  }

  private async ask(key: string, question: () => Promise<Float32Array>): Promise<void> {
    if (this.known.has(key)) return;
    this.known.set(key, null);
    try {
      this.known.set(key, await question());
    } catch (reason) {
      const why = reason instanceof Error ? reason.message : String(reason);
      this.error = `${describeKey(key)} could not be loaded: ${why.replace(/\.$/, "")}.`;
    }
    this.changed();
  }
}

function describeKey(key: string): string {
  const [first, second, third] = key.split("/");
  return first === "flow" ? `The flow at layer ${second}` : `The ${second} of layer ${third}`;
}
