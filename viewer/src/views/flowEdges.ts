// The edges of the flow graph and their weights, for each method that the page computes. Edges
// connect items, so the tokens of a word are already merged.

import { methodOf } from "../data/header.ts";
import type { MaxFlow } from "../data/maxflow.ts";
import { ascend, descend } from "../data/rollout.ts";
import type { Snapshot } from "../data/snapshot.ts";

export interface Edge {
  layer: number; // from this level to the one below
  from: number; // item
  to: number; // item
  weight: number;
}

export interface Edges {
  edges: Edge[]; // largest weight last
  held: Float64Array[]; // [level][item]: weight through each node
  max: number; // largest weight
  path: MaxFlow | null; // for flow only
}

const MAX_EDGES = 2500;
const FAINTEST = 0.004; // share of the maximum below which lines are invisible

/** The edges to draw; null while scores are missing, or for methods stored in the data. */
export function findEdges(snapshot: Snapshot): Edges | null {
  const { state, example } = snapshot;
  if (methodOf(example, state.method).computed === "data") return null;
  if (state.method === "raw") return rawEdges(snapshot);
  if (state.method === "rollout") return rolloutEdges(snapshot);
  return flowEdges(snapshot);
}

function rawEdges(snapshot: Snapshot): Edges | null {
  const { rows, layer, item, items } = snapshot;
  const row = snapshot.scores.itemRow("raw", layer, items, item);
  if (!row || !rows.raw) return null;
  const all = Array.from(row, (weight, to) => ({ layer, from: item, to, weight }));
  const held = emptyLevels(snapshot);
  held[layer][item] = 1;
  row.forEach((weight, to) => (held[layer - 1][to] = weight));
  return choose(snapshot, all, held, null);
}

function rolloutEdges(snapshot: Snapshot): Edges | null {
  const { scores, layer, items, item, chosen, token } = snapshot;
  const { n } = scores;
  const layers = scores.augmentedUpTo(layer);
  if (!layers) return null;
  const start = new Float64Array(n);
  for (const position of items.groups[item]) start[position] = 1 / items.groups[item].length;
  const down = descend(layers, n, layer, start);
  // With a selected token, weight each edge by the share that ends in the token.
  const up = chosen && token !== null ? ascendItem(snapshot, layers) : null;
  const all: Edge[] = [];
  // Skip thin edges early: hundreds of tokens have millions of edges.
  let max = 0;
  for (let l = layer; l > 0; l--) {
    const weigh = weigher(down[l], layers[l - 1], up && up[l - 1], n);
    for (let u = 0; u < n; u++) {
      if (down[l][u] <= max) continue; // no edge carries more than its node
      for (let v = 0; v < n; v++) max = Math.max(max, weigh(u, v));
    }
  }
  const min = Math.max(snapshot.state.threshold, FAINTEST) * max * 0.5;
  for (let l = layer; l > 0; l--) {
    const weigh = weigher(down[l], layers[l - 1], up && up[l - 1], n);
    collect(snapshot, all, l, min, (u) => down[l][u] >= min, weigh);
  }
  const through = down.map((level, l) => (up ? level.map((value, i) => value * up[l][i]) : level));
  return choose(
    snapshot,
    all,
    through.map((level) => merged(snapshot, level)),
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

/** The rollout of each position to the selected item, level by level. */
function ascendItem(snapshot: Snapshot, layers: Float32Array[]): Float64Array[] {
  const { scores, layer, items, token } = snapshot;
  const group = items.groups[items.of[token ?? 0]];
  const columns = group.map((member) => ascend(layers, scores.n, layer, member));
  return columns.reduce((sum, column) =>
    sum.map((level, l) => level.map((value, i) => value + column[l][i])),
  );
}

function flowEdges(snapshot: Snapshot): Edges | null {
  const { scores, layer, position, token } = snapshot;
  if (token === null) return null;
  const path = scores.path(layer, position, token);
  if (!path) return null;
  const { n } = scores;
  const { of } = snapshot.items;
  const held = emptyLevels(snapshot);
  held[layer][of[position]] = Math.min(path.value, 1);
  const sums = new Map<number, Edge>(); // by layer and items, which merges the tokens of a word
  for (const edge of path.edges) {
    const from = of[edge.position];
    const to = of[edge.below];
    held[edge.layer - 1][to] += edge.flow;
    const key = (edge.layer * n + from) * n + to;
    const known = sums.get(key);
    if (known) known.weight += edge.flow;
    else sums.set(key, { layer: edge.layer, from, to, weight: edge.flow });
  }
  return choose(snapshot, [...sums.values()], held, path);
}

/** Add the edges of a layer with a weight of at least `min`, merged by item. */
function collect(
  snapshot: Snapshot,
  into: Edge[],
  layer: number,
  min: number,
  carries: (u: number) => boolean,
  weigh: (u: number, v: number) => number,
): void {
  const { scores, items } = snapshot;
  const { n } = scores;
  if (items.labels.length === n) {
    for (let u = 0; u < n; u++) {
      if (!carries(u)) continue;
      for (let v = 0; v < n; v++) {
        const weight = weigh(u, v);
        if (weight >= min && weight > 0) into.push({ layer, from: u, to: v, weight });
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
    if (weight >= min && weight > 0) {
      into.push({ layer, from: Math.floor(i / count), to: i % count, weight });
    }
  });
}

function merged(snapshot: Snapshot, level: Float64Array): Float64Array {
  const out = new Float64Array(snapshot.items.labels.length);
  level.forEach((value, token) => (out[snapshot.items.of[token]] += value));
  return out;
}

const emptyLevels = (snapshot: Snapshot): Float64Array[] =>
  Array.from({ length: snapshot.layer + 1 }, () => new Float64Array(snapshot.items.labels.length));

/** Apply threshold and top-k, and drop invisible edges. */
function choose(
  snapshot: Snapshot,
  all: Edge[],
  held: Float64Array[],
  path: MaxFlow | null,
): Edges {
  const { state, columns, item } = snapshot;
  const shown = new Set([...columns, item]);
  const seen = all.filter((edge) => shown.has(edge.from) && shown.has(edge.to));
  const max = seen.reduce((max, edge) => Math.max(max, edge.weight), 0);
  const min = Math.max(state.threshold, FAINTEST) * max;
  let kept = seen.filter((edge) => edge.weight >= min);
  kept.sort((a, b) => b.weight - a.weight);
  if (state.topK > 0) {
    const counts = new Map<number, number>();
    kept = kept.filter((edge) => {
      const count = (counts.get(edge.layer) ?? 0) + 1;
      counts.set(edge.layer, count);
      return count <= state.topK;
    });
  }
  kept = kept.slice(0, MAX_EDGES).reverse();
  return { edges: kept, held, max, path };
}
