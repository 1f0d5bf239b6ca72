// A layered network, as the solver of maximum flows reads it: capacities, tables of them, and sets of
// positions as bits.
//
// Level l holds the positions after layer l; level 0 is the input. Edge x leads from a position of
// level x + 1 to one of level x. The edges from a position to itself, one below the other, are its
// chain.

export const EPSILON = 2 ** -52; // residual capacities up to this count as 0
const UNLIMITED = 2 ** 14; // stands for Infinity: more than a cut, at most 1 for each position
const LARGE = 0.5; // an edge is large if it exceeds so many times the mean of its row off the chain

/** One source with one sink, each of which may be a set: the sum of its edges. */
export interface Pair {
  level: number; // of the source
  source: number; // its last position
  sink: number; // its first token
  row: Float64Array; // [n]: capacities of the edges out of the source
  column: Float64Array; // [n]: those into the sink
  first: number; // paths visit positions from here
  end: number; // to here
}

export class LayeredGraph {
  readonly n: number;
  readonly words: number; // of a set of positions
  readonly capacity: Float32Array; // [x, u, q]
  readonly chain: Float32Array; // [x, u]: capacity of the edge from u to itself
  readonly large: Int32Array; // [x, u]: where large edges lead, in causal graphs
  readonly small: Int32Array; // [x, u]: where the other edges lead, not to u itself
  readonly open: Int32Array; // [x, u]: where edges with residual capacity lead
  readonly chainLeast: Float64Array; // [level, u]: the least of chain edges 1 to level - 2
  readonly offChain: Float64Array; // [level, u]: the sum of all edges that leave this part of a chain
  readonly depth: number; // layers at most
  added = 0; // layers so far
  causal = true; // no edge leads to a later position

  constructor(n: number, depth: number) {
    this.n = n;
    this.depth = depth;
    this.words = (n + 31) >> 5;
    this.capacity = new Float32Array(depth * n * n);
    this.chain = new Float32Array(depth * n);
    this.large = new Int32Array(depth * n * this.words);
    this.small = new Int32Array(depth * n * this.words);
    this.open = new Int32Array(depth * n * this.words);
    this.chainLeast = new Float64Array((depth + 2) * n).fill(Infinity);
    this.offChain = new Float64Array((depth + 2) * n);
  }

  /** Add the next layer: capacities [n, n], Infinity for unlimited edges. */
  add(layer: ArrayLike<number>): void {
    const { n, words, capacity, chain, chainLeast, offChain, large, small, open } = this;
    const x = this.added++;
    for (let u = 0; u < n; u++) {
      const row = (x * n + u) * n;
      let before = 0;
      let after = 0;
      for (let q = 0; q < n; q++) {
        const value = Math.min(layer[u * n + q], UNLIMITED);
        capacity[row + q] = value;
        if (q < u) before += value;
        else if (q > u) after += value;
      }
      const least = (LARGE * before) / (u + 1);
      for (let q = 0; q < n; q++) {
        const value = capacity[row + q];
        if (value <= EPSILON) continue;
        const set = (x * n + u) * words;
        insert(open, set, q);
        if (q !== u) insert(q < u && value > least ? large : small, set, q);
      }
      chain[x * n + u] = capacity[row + u];
      this.causal &&= !(after > 0);
      const at = (x + 1) * n + u; // of a source below which this is the last edge but one
      chainLeast[at + n] = x > 0 ? Math.min(chainLeast[at], capacity[row + u]) : Infinity;
      offChain[at + n] = x > 0 ? offChain[at] + before + after : 0;
    }
  }

  /** The flow between unlimited edges is unlimited. */
  finite(value: number): number {
    return value >= UNLIMITED ? Infinity : value;
  }

  /** The pair of a set of positions above a layer, and a set of tokens. */
  pair(level: number, sources: readonly number[], tokens: readonly number[]): Pair {
    const { n, capacity } = this;
    const row = new Float64Array(n);
    const column = new Float64Array(n);
    for (const s of sources) {
      const start = ((level - 1) * n + s) * n;
      for (let q = 0; q < n; q++) row[q] += capacity[start + q];
    }
    for (const t of tokens) for (let u = 0; u < n; u++) column[u] += capacity[u * n + t];
    const source = Math.max(...sources);
    const sink = Math.min(...tokens);
    const [first, end] = this.causal && n > 1 ? [sink, source + 1] : [0, n];
    return { level, source, sink, row, column, first, end };
  }
}

// Sets of positions: a bit for each, in words of 32

export function insert(set: Int32Array, start: number, member: number): void {
  set[start + (member >> 5)] |= 1 << (member & 31);
}

export function remove(set: Int32Array, start: number, member: number): void {
  set[start + (member >> 5)] &= ~(1 << (member & 31));
}

export function contains(set: Int32Array, start: number, member: number): boolean {
  return ((set[start + (member >> 5)] >>> (member & 31)) & 1) === 1;
}

/** The smallest member of word w of a set, which is not empty. */
export function firstMember(word: number, w: number): number {
  return (w << 5) + 31 - Math.clz32(word & -word);
}

/** Make the sets of levels 1 to `levels` - 1 hold first … end - 1. */
export function fillLevels(
  set: Int32Array,
  levels: number,
  words: number,
  first: number,
  end: number,
): void {
  set.fill(0, words, levels * words);
  if (levels < 2) return;
  for (let member = first; member < end; member++) insert(set, words, member);
  for (let level = 2; level < levels; level++) {
    set.copyWithin(level * words, words, 2 * words);
  }
}
