// The edges of the flow view: what each carries, for each method. Weights are between items, so
// the tokens of a word are already merged.

import type { MaxFlow } from "./maxflow.ts";
import type { Reading } from "./reading.ts";
import { ascend, descend } from "./rollout.ts";

export interface Edge {
  layer: number; // leads from this level to the one below
  from: number; // items
  to: number;
  weight: number;
}

export interface Edges {
  edges: Edge[]; // heaviest last
  held: Float64Array[]; // [level][item]: what passes through each node
  most: number; // the largest weight
  path: MaxFlow | null; // for flow
}

const MOST_EDGES = 2500;
const FAINTEST = 0.004; // of the largest: thinner lines cannot be seen

/** The edges to draw, or null while numbers are missing. */
export function findEdges(reading: Reading): Edges | null {
  const { state } = reading;
  if (state.method === "raw") return rawEdges(reading);
  if (state.method === "rollout") return rolloutEdges(reading);
  return flowEdges(reading);
}

function rawEdges(reading: Reading): Edges | null {
  const { rows, layer, item, items } = reading;
  const row = reading.numbers.itemRow("raw", layer, items, item);
  if (!row || !rows.raw) return null;
  const all = Array.from(row, (weight, to) => ({ layer, from: item, to, weight }));
  const held = emptyLevels(reading);
  held[layer][item] = 1;
  row.forEach((weight, to) => (held[layer - 1][to] = weight));
  return choose(reading, all, held, null);
}

function rolloutEdges(reading: Reading): Edges | null {
  const { numbers, layer, items, item, chosen, token } = reading;
  const { n } = numbers;
  const layers = numbers.augmentedUpTo(layer);
  if (!layers) return null;
  const start = new Float64Array(n);
  for (const position of items.groups[item]) start[position] = 1 / items.groups[item].length;
  const down = descend(layers, n, layer, start);
  // With a chosen token only what ends there counts: each edge times what reaches the token.
  const up = chosen && token !== null ? ascendWord(reading, layers) : null;
  const all: Edge[] = [];
  // Thin edges are left out while collecting: with hundreds of tokens there are millions.
  let most = 0;
  for (let l = layer; l > 0; l--) {
    const weigh = weigher(down[l], layers[l - 1], up && up[l - 1], n);
    for (let u = 0; u < n; u++) {
      if (down[l][u] <= most) continue; // no edge carries more than its node
      for (let v = 0; v < n; v++) most = Math.max(most, weigh(u, v));
    }
  }
  const least = Math.max(reading.state.threshold, FAINTEST) * most * 0.5;
  for (let l = layer; l > 0; l--) {
    const weigh = weigher(down[l], layers[l - 1], up && up[l - 1], n);
    collect(reading, all, l, least, (u) => down[l][u] >= least, weigh);
  }
  const through = down.map((level, l) => (up ? level.map((value, i) => value * up[l][i]) : level));
  return choose(
    reading,
    all,
    through.map((level) => merged(reading, level)),
    null,
  );
}

function weigher(
  above: Float64Array,
  matrix: Float32Array,
  below: Float64Array | null,
  n: number,
): (u: number, v: number) => number {
  if (!below) return (u, v) => above[u] * matrix[u * n + v];
  return (u, v) => above[u] * matrix[u * n + v] * below[v];
}

/** What each position holds of the chosen word. */
function ascendWord(reading: Reading, layers: Float32Array[]): Float64Array[] {
  const { numbers, layer, items, token } = reading;
  const group = items.groups[items.of[token ?? 0]];
  const levels = group.map((one) => ascend(layers, numbers.n, layer, one));
  return levels.reduce((sum, one) =>
    sum.map((level, l) => level.map((value, i) => value + one[l][i])),
  );
}

function flowEdges(reading: Reading): Edges | null {
  const { numbers, layer, position, token } = reading;
  if (token === null) return null;
  const path = numbers.path(layer, position, token);
  if (!path) return null;
  const { n } = numbers;
  const { of } = reading.items;
  const held = emptyLevels(reading);
  held[layer][of[position]] = Math.min(path.value, 1);
  const sums = new Map<number, Edge>(); // by layer and ends, so that tokens of a word are merged
  for (const edge of path.edges) {
    const from = of[edge.position];
    const to = of[edge.below];
    held[edge.layer - 1][to] += edge.flow;
    const key = (edge.layer * n + from) * n + to;
    const known = sums.get(key);
    if (known) known.weight += edge.flow;
    else sums.set(key, { layer: edge.layer, from, to, weight: edge.flow });
  }
  return choose(reading, [...sums.values()], held, path);
}

/** Add the edges of a layer that carry at least `least`, merged by item. */
function collect(
  reading: Reading,
  into: Edge[],
  layer: number,
  least: number,
  carries: (u: number) => boolean,
  weigh: (u: number, v: number) => number,
): void {
  const { numbers, items } = reading;
  const { n } = numbers;
  if (items.labels.length === n) {
    for (let u = 0; u < n; u++) {
      if (!carries(u)) continue;
      for (let v = 0; v < n; v++) {
        const weight = weigh(u, v);
        if (weight >= least && weight > 0) into.push({ layer, from: u, to: v, weight });
      }
    }
    return;
  }
  const count = items.labels.length;
  const sums = new Float64Array(count * count);
  for (let u = 0; u < n; u++) {
    for (let v = 0; v < n; v++) sums[items.of[u] * count + items.of[v]] += weigh(u, v);
  }
  sums.forEach((weight, i) => {
    if (weight >= least && weight > 0) {
      into.push({ layer, from: Math.floor(i / count), to: i % count, weight });
    }
  });
}

function merged(reading: Reading, level: Float64Array): Float64Array {
  const out = new Float64Array(reading.items.labels.length);
  level.forEach((value, token) => (out[reading.items.of[token]] += value));
  return out;
}

const emptyLevels = (reading: Reading): Float64Array[] =>
  Array.from({ length: reading.layer + 1 }, () => new Float64Array(reading.items.labels.length));

/** Apply threshold and top-k, and leave out what cannot be seen. */
function choose(reading: Reading, all: Edge[], held: Float64Array[], path: MaxFlow | null): Edges {
  const { state, columns, item } = reading;
  const shown = new Set([...columns, item]);
  const seen = all.filter((edge) => shown.has(edge.from) && shown.has(edge.to));
  const most = seen.reduce((max, edge) => Math.max(max, edge.weight), 0);
  const least = Math.max(state.threshold, FAINTEST) * most;
  let kept = seen.filter((edge) => edge.weight >= least);
  kept.sort((a, b) => b.weight - a.weight);
  if (state.topK > 0) {
    const counts = new Map<number, number>();
    kept = kept.filter((edge) => {
      const count = (counts.get(edge.layer) ?? 0) + 1;
      counts.set(edge.layer, count);
      return count <= state.topK;
    });
  }
  kept = kept.slice(0, MOST_EDGES).reverse();
  return { edges: kept, held, most, path };
}
