// The edges of the flow graph and their weights, for each method that the page computes. Edges
// connect items, so the tokens of a word are already merged.

import { methodOf } from "../data/header.ts";
import type { MaxFlow } from "../data/maxflow.ts";
import { ascend, descend, spread } from "../data/rollout.ts";
import type { Snapshot } from "../data/snapshot.ts";
import { chooseEdges, type Edge, type Limits, type Subgraph, type Visit } from "./subgraph.ts";

export interface Edges extends Subgraph {
  held: Float64Array[]; // [level][item]: weight through each node
  path: MaxFlow | null; // for flow only
}

const STRONGEST = 2500; // edges that are drawn by default
const MOST = 20000; // edges that are drawn at most
const FEW = 400; // of the strongest edges, which are drawn even if they are faint
const FAINTEST = 0.004; // share of the maximum below which lines are hardly visible

/** The edges to draw; null while scores are missing, or for methods stored in the data. */
export function findEdges(snapshot: Snapshot): Edges | null {
  const { state, example } = snapshot;
  if (methodOf(example, state.method).computed === "data") return null;
  if (state.method === "raw") return rawEdges(snapshot);
  if (state.method === "rollout") return rolloutEdges(snapshot);
  return flowEdges(snapshot);
}

/** How many edges to draw. */
function limitsOf({ state }: Snapshot): Limits {
  const all = state.edges === "all";
  return {
    edges: all ? MOST : STRONGEST,
    share: state.threshold,
    few: FEW,
    faintest: all ? 0 : FAINTEST,
    perLayer: state.topK,
  };
}

/** The items of the explained positions. */
export const startsOf = ({ items, sources }: Snapshot): number[] => [
  ...new Set(sources.map((source) => items.of[source])),
];

/** Items that are drawn: those shown, and the target position. */
function shownItems({ columns, sources, items }: Snapshot): Uint8Array {
  const shown = new Uint8Array(items.labels.length);
  for (const column of columns) shown[column] = 1;
  for (const source of sources) shown[items.of[source]] = 1;
  return shown;
}

function rawEdges(snapshot: Snapshot): Edges | null {
  const { scores, rows, layer, items, sources } = snapshot;
  const attention = scores.itemRows(
    "raw",
    layer,
    items,
    sources.map((source) => [source]),
  );
  if (attention.includes(null) || !rows.raw) return null;
  const held = emptyLevels(snapshot);
  const shown = shownItems(snapshot);
  const share = 1 / sources.length;
  sources.forEach((source, i) => {
    held[layer][items.of[source]] += share;
    attention[i]?.forEach((weight, to) => (held[layer - 1][to] += share * weight));
  });
  const visit: Visit = (_, see) => {
    sources.forEach((source, i) =>
      attention[i]?.forEach((weight, to) => {
        if (shown[to]) see(items.of[source], to, share * weight);
      }),
    );
  };
  const found = chooseEdges(visit, 1, items.labels.length, startsOf(snapshot), limitsOf(snapshot));
  const edges = found.edges.map((edge) => ({ ...edge, layer }));
  return { ...found, edges, held, path: null };
}

function rolloutEdges(snapshot: Snapshot): Edges | null {
  const { scores, layer, items, sources, chosen, token } = snapshot;
  const { n } = scores;
  const layers = scores.augmentedUpTo(layer);
  if (!layers) return null;
  const down = descend(layers, n, layer, spread(n, sources));
  // With a selected token, weight each edge by the share that ends in the token.
  const up = chosen && token !== null ? ascendItem(snapshot, layers) : null;
  const visit = rolloutVisit(snapshot, layers, down, up);
  const found = chooseEdges(
    visit,
    layer,
    items.labels.length,
    startsOf(snapshot),
    limitsOf(snapshot),
  );
  const through = down.map((level, l) => (up ? level.map((value, i) => value * up[l][i]) : level));
  return { ...found, held: through.map((level) => merged(snapshot, level)), path: null };
}

/** Visit the edges between the items shown, weighted by the rollout through each. */
function rolloutVisit(
  snapshot: Snapshot,
  layers: readonly Float32Array[],
  down: readonly Float64Array[],
  up: readonly Float64Array[] | null,
): Visit {
  const { scores, items } = snapshot;
  const { n } = scores;
  const count = items.labels.length;
  const shown = shownItems(snapshot);
  const merges = count < n;
  const tokens = Array.from({ length: n }, (_, i) => i).filter((i) => shown[items.of[i]]);
  return (layer, see) => {
    const matrix = layers[layer - 1];
    const above = down[layer];
    const below = up && up[layer - 1];
    const sums = merges ? new Float64Array(count * count) : null;
    for (const u of tokens) {
      if (above[u] === 0) continue;
      for (const v of tokens) {
        const weight = above[u] * matrix[u * n + v] * (below ? below[v] : 1);
        if (sums) sums[items.of[u] * count + items.of[v]] += weight;
        else see(u, v, weight);
      }
    }
    sums?.forEach((weight, i) => see(Math.floor(i / count), i % count, weight));
  };
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
  const { scores, layer, item, sources, token, items } = snapshot;
  if (token === null) return null;
  const path = scores.path(layer, items, sources, items.of[token]);
  if (!path) return null;
  const count = items.labels.length;
  const { of } = items;
  const shown = shownItems(snapshot);
  const held = emptyLevels(snapshot);
  held[layer][item] = Math.min(path.value, 1);
  const sums = Array.from({ length: layer + 1 }, () => new Map<number, number>());
  for (const edge of path.edges) {
    const to = of[edge.below];
    held[edge.layer - 1][to] += edge.flow;
    const key = of[edge.position] * count + to;
    sums[edge.layer].set(key, (sums[edge.layer].get(key) ?? 0) + edge.flow);
  }
  const visit: Visit = (l, see) => {
    for (const [key, weight] of sums[l]) {
      const from = Math.floor(key / count);
      const to = key % count;
      if (shown[from] && shown[to]) see(from, to, weight);
    }
  };
  const found = chooseEdges(
    visit,
    layer,
    count,
    startsOf(snapshot),
    limitsOf(snapshot),
    cutEdges(),
  );
  return { ...found, held, path };

  /** The edges of the cut, which are always drawn. */
  function cutEdges(): Edge[] {
    return (path?.cut ?? [])
      .map(({ layer: l, position, below }) => {
        const [from, to] = [of[position], of[below]];
        return { layer: l, from, to, weight: sums[l].get(from * count + to) ?? 0 };
      })
      .filter(({ from, to, weight }) => shown[from] && shown[to] && weight > 0)
      .sort((a, b) => b.weight - a.weight);
  }
}

function merged(snapshot: Snapshot, level: Float64Array): Float64Array {
  const out = new Float64Array(snapshot.items.labels.length);
  level.forEach((value, token) => (out[snapshot.items.of[token]] += value));
  return out;
}

const emptyLevels = (snapshot: Snapshot): Float64Array[] =>
  Array.from({ length: snapshot.layer + 1 }, () => new Float64Array(snapshot.items.labels.length));
