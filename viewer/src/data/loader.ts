// Requests to the host. Every chunk is loaded once and cached; a failed request becomes an error
// message. Flow rows that a live host computes are requested one at a time, after a short delay.

import type { Source } from "./header.ts";

const BYTES = 8; // with at most so many levels per power of two, a weight is one byte
const DELAY = 120; // milliseconds that a position stays selected before its flow is requested

export interface FlowQuery {
  key: string; // of the cached answer
  layer: number;
  position: number;
  count: number; // of positions
}

export class Loader {
  error: string | null = null;
  private readonly source: Source;
  private readonly example: number;
  private readonly changed: () => void;
  private readonly chunks: Record<string, { dtype: string }>;
  private readonly cache = new Map<string, Float32Array | null>(); // null: requested
  private readonly documents = new Map<string, unknown>(); // undefined: requested
  private readonly awaited = new Set<string>(); // prefetched chunks that are needed by now
  private readonly wanted = new Map<string, FlowQuery>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private requesting = false;

  /** chunks: the description of each chunk in the header. */
  constructor(
    source: Source,
    example: number,
    chunks: Record<string, { dtype: string }>,
    changed: () => void,
  ) {
    this.source = source;
    this.chunks = chunks;
    this.example = example;
    this.changed = changed;
  }

  /** Whether the host computes flow on request. */
  get live(): boolean {
    return this.source.flow !== undefined;
  }

  /** Return a chunk of `size` numbers, or null until it is loaded. */
  chunk(key: string, size: number): Float32Array | null {
    const cached = this.cache.get(key);
    if (cached === null) this.awaited.add(key);
    if (cached !== undefined) return cached;
    void this.request(key, () => this.load(key, size));
    return null;
  }

  /** Return a chunk of JSON, or undefined until it is loaded. */
  document(key: string): unknown {
    if (this.documents.has(key)) return this.documents.get(key);
    this.documents.set(key, undefined);
    this.source.load(key).then(
      (buffer) => {
        this.documents.set(key, JSON.parse(new TextDecoder().decode(buffer)));
        this.changed();
      },
      (error: unknown) => {
        this.fail(key, error);
        this.changed();
      },
    );
    return undefined;
  }

  /** Load a chunk that may be needed soon, without a redraw. */
  prefetch(key: string, size: number): void {
    if (this.cache.has(key)) return;
    this.cache.set(key, null);
    const done = (chunk: Float32Array | null): void => {
      // Forget a failure: the next `chunk` call loads again and reports the error.
      if (chunk) this.cache.set(key, chunk);
      else this.cache.delete(key);
      if (this.awaited.delete(key)) this.changed();
    };
    this.load(key, size).then(done, () => done(null));
  }

  private async load(key: string, size: number): Promise<Float32Array> {
    const buffer = await this.source.load(key);
    const levels = Number(/^log(\d+)$/.exec(this.chunks[key]?.dtype ?? "")?.[1] ?? 0);
    const bytes = levels && levels <= BYTES ? 4 + size : 2 * size;
    if (buffer.byteLength !== bytes) {
      throw new Error(`got ${buffer.byteLength} bytes, expected ${bytes}`);
    }
    return levels ? decodeLog(buffer, levels) : decodeFloat16(buffer);
  }

  /** Return the flow of a position from a live host, [n], or null until it is loaded. */
  flow(query: FlowQuery, n: number): Float32Array | null {
    const cached = this.cache.get(query.key);
    if (cached === undefined) this.wanted.set(query.key, query);
    return cached?.length === n ? cached : null;
  }

  /** Call before a redraw; pending flow queries that the redraw does not repeat are dropped. */
  begin(): void {
    this.wanted.clear();
  }

  /** Call after a redraw. */
  end(n: number): void {
    clearTimeout(this.timer);
    if (this.wanted.size) this.timer = setTimeout(() => void this.requestFlows(n), DELAY);
  }

  /** Forget the error and all failed requests. */
  retry(): void {
    this.error = null;
    for (const [key, chunk] of this.cache) if (!chunk) this.cache.delete(key);
    for (const [key, value] of this.documents) if (!value) this.documents.delete(key);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.wanted.clear();
  }

  private async requestFlows(n: number): Promise<void> {
    if (this.requesting) return;
    this.requesting = true;
    while (!this.error) {
      const next = this.wanted.values().next();
      if (next.done) break;
      const { key, layer, position, count } = next.value;
      this.wanted.delete(key);
      await this.request(key, async () => {
        const row = await this.source.flow?.({ example: this.example, position, count, layer });
        if (row?.length !== n) throw new Error(`got ${row?.length ?? 0} scores, expected ${n}`);
        return row.map((value) => (value === Infinity ? 1 : value)); // a carried position
      });
    }
    this.requesting = false;
  }

  private async request(key: string, load: () => Promise<Float32Array>): Promise<void> {
    if (this.cache.has(key)) return;
    this.cache.set(key, null);
    try {
      this.cache.set(key, await load());
    } catch (error) {
      this.fail(key, error);
    }
    this.changed();
  }

  private fail(key: string, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.error = `Could not load ${describeKey(key)}: ${reason.replace(/\.$/, "")}.`;
  }
}

/** What a chunk key ("0/heads/3", "0/scores/name/3", "0/notes") or flow query ("flow/3/7") refers to. */
function describeKey(key: string): string {
  const parts = key.split("/");
  if (parts[0] === "flow") return `the flow of position ${parts[2]} at layer ${parts[1]}`;
  if (parts[1] === "notes") return "the notes";
  const [layer, name] = parts.reverse();
  return `the ${name} of layer ${layer}`;
}

let halfTable: Float32Array | undefined;

/** The value of a float16 given as its 16 bits. */
export function halfToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Decode little-endian float16 bytes. A table of all 65,536 values needs one lookup each. */
export function decodeFloat16(buffer: ArrayBuffer): Float32Array {
  if (!halfTable) {
    halfTable = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) halfTable[bits] = halfToNumber(bits);
  }
  return lookUp(buffer, halfTable);
}

const LARGEST = 8; // as in src/attnflow/viewer/compression.py

/** Decode weights on a logarithmic scale: uint16, 0 for 0. levels: per power of two. */
export function decodeLog(buffer: ArrayBuffer, levels: number): Float32Array {
  if (levels <= BYTES) return decodeBytes(buffer, levels);
  const table = new Float32Array(65536);
  for (let q = 1; q < table.length; q++) table[q] = 2 ** (LARGEST - (q - 1) / levels);
  return lookUp(buffer, table);
}

/** One byte per weight, after the highest weight. */
function decodeBytes(buffer: ArrayBuffer, levels: number): Float32Array {
  const top = new DataView(buffer).getFloat32(0, true);
  const table = Float32Array.from({ length: 256 }, (_, q) =>
    q ? top * 2 ** ((1 - q) / levels) : 0,
  );
  return Float32Array.from(new Uint8Array(buffer, 4), (code) => table[code]);
}

/** The values of little-endian uint16 numbers in a table. */
function lookUp(buffer: ArrayBuffer, table: Float32Array): Float32Array {
  const view = new DataView(buffer);
  const n = buffer.byteLength >> 1;
  const out = new Float32Array(n);
  const codes = littleEndian && new Uint16Array(buffer, 0, n);
  for (let i = 0; i < n; i++) out[i] = table[codes ? codes[i] : view.getUint16(2 * i, true)];
  return out;
}

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
