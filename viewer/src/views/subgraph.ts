// The part of a layered graph that is drawn: the strongest edges, each with the strongest path
// through it from the top to the input, so that what is drawn is always connected.

export interface Edge {
  layer: number; // from this level to the one below
  from: number; // item
  to: number; // item
  weight: number;
}

/** Calls `see` for every edge of a layer. Called for the top layer first. */
export type Visit = (
  layer: number,
  see: (from: number, to: number, weight: number) => void,
) => void;

export interface Limits {
  edges: number; // drawn at most
  share: number; // of the largest weight, which an edge needs unless a path needs the edge
  few: number; // strongest edges that are drawn even if they are faint
  faintest: number; // share of the largest weight that others need
  perLayer: number; // strongest edges of each layer; 0: all
}

export interface Subgraph {
  edges: Edge[]; // largest weight last
  max: number; // the largest weight
  total: number; // number of edges with a weight
  shares: number[]; // per layer, lowest first: the share of its weight on the edges drawn
}

const BINS = 512; // of weights, eight for each power of two
const binOf = (share: number): number =>
  Math.max(0, Math.min(BINS - 1, BINS - 1 + Math.floor(8 * Math.log2(share))));

/** The strongest edge into or out of each node: the item at its other end, and its weight. */
class Links {
  readonly item: Int32Array[];
  readonly weight: Float64Array[];

  constructor(levels: number, count: number) {
    this.item = Array.from({ length: levels }, () => new Int32Array(count).fill(-1));
    this.weight = Array.from({ length: levels }, () => new Float64Array(count));
  }

  offer(level: number, at: number, other: number, weight: number): void {
    if (weight <= this.weight[level][at]) return;
    this.weight[level][at] = weight;
    this.item[level][at] = other;
  }
}

/** What one pass over all edges finds. */
interface Survey {
  above: Links; // from a node to its strongest edge from the level above
  below: Links; // to the level below
  max: number;
  total: number;
  sums: Float64Array; // of weights, per layer
  tops: Edge[][]; // per layer: its strongest edges, if their number is limited
}

function survey(
  visit: Visit,
  layers: number,
  count: number,
  starts: readonly number[],
  keep: number,
): Survey {
  const above = new Links(layers + 1, count);
  const below = new Links(layers + 1, count);
  const sums = new Float64Array(layers + 1);
  const tops: Edge[][] = Array.from({ length: layers + 1 }, () => []);
  let reached = new Uint8Array(count);
  for (const start of starts) reached[start] = 1;
  let max = 0;
  let total = 0;
  for (let layer = layers; layer > 0; layer--) {
    const next = new Uint8Array(count);
    visit(layer, (from, to, weight) => {
      if (!(weight > 0)) return;
      total++;
      sums[layer] += weight;
      if (!reached[from]) return;
      next[to] = 1;
      if (weight > max) max = weight;
      above.offer(layer - 1, to, from, weight);
      below.offer(layer, from, to, weight);
      if (keep > 0) offerTop(tops[layer], { layer, from, to, weight }, keep);
    });
    reached = next;
  }
  return { above, below, max, total, sums, tops };
}

/** Keep the strongest edges of a list that is sorted, strongest first. */
function offerTop(tops: Edge[], edge: Edge, keep: number): void {
  if (tops.length === keep && edge.weight <= tops[keep - 1].weight) return;
  let at = tops.length;
  while (at > 0 && tops[at - 1].weight < edge.weight) at--;
  tops.splice(at, 0, edge);
  if (tops.length > keep) tops.pop();
}

/** The edges to start from, strongest first. */
function findSeeds(visit: Visit, layers: number, found: Survey, limits: Limits): Edge[] {
  const { max, above, tops } = found;
  const byWeight = (a: Edge, b: Edge): number => b.weight - a.weight;
  const least = limits.share * max;
  if (limits.perLayer > 0) {
    return tops
      .flat()
      .filter(({ weight }) => weight >= least)
      .sort(byWeight);
  }
  // A histogram finds the weight above which there are not too many edges.
  const counts = new Int32Array(BINS);
  const each = (see: (from: number, to: number, weight: number, layer: number) => void): void => {
    for (let layer = layers; layer > 0; layer--) {
      visit(layer, (from, to, weight) => {
        // A node above that is not reached has no strongest edge.
        if (weight < least || !(weight > 0)) return;
        if (layer === layers || above.item[layer][from] >= 0) see(from, to, weight, layer);
      });
    }
  };
  each((_, __, weight) => counts[binOf(weight / max)]++);
  let bin = BINS - 1;
  for (let sum = counts[bin]; bin > 0 && sum + counts[bin - 1] <= 2 * limits.edges; bin--) {
    sum += counts[bin - 1];
  }
  const seeds: Edge[] = [];
  each((from, to, weight, layer) => {
    if (binOf(weight / max) >= bin) seeds.push({ layer, from, to, weight });
  });
  const visible = limits.faintest * max;
  return seeds.sort(byWeight).filter(({ weight }, i) => i < limits.few || weight >= visible);
}

/**
 * Choose the edges to draw.
 * layers: the number of layers; count: of items at each level; starts: the items that paths start from.
 * first: edges to draw before others, as far as there is room.
 */
export function chooseEdges(
  visit: Visit,
  layers: number,
  count: number,
  starts: readonly number[],
  limits: Limits,
  first: readonly Edge[] = [],
): Subgraph {
  const found = survey(visit, layers, count, starts, limits.perLayer);
  const seeds = [...first, ...findSeeds(visit, layers, found, limits)];
  const drawn = new Map<number, Edge>();
  const keyOf = ({ layer, from, to }: Edge): number => (layer * count + from) * count + to;
  for (const seed of seeds) {
    if (drawn.has(keyOf(seed))) continue;
    const path = pathOf(seed, found, layers, (edge) => drawn.has(keyOf(edge)));
    if (!path) continue;
    if (drawn.size + path.length > limits.edges) break;
    for (const edge of path) drawn.set(keyOf(edge), edge);
  }
  const edges = [...drawn.values()].sort((a, b) => a.weight - b.weight);
  const carried = new Float64Array(layers + 1);
  for (const { layer, weight } of edges) carried[layer] += weight;
  const shares = Array.from({ length: layers }, (_, l) => {
    const sum = found.sums[l + 1];
    return sum > 0 ? Math.min(1, carried[l + 1] / sum) : 1;
  });
  return { edges, max: found.max, total: found.total, shares };
}

/** An edge and the strongest way from the top to it and on to the input; null if there is none. */
function pathOf(
  seed: Edge,
  { above, below }: Survey,
  layers: number,
  isDrawn: (edge: Edge) => boolean,
): Edge[] | null {
  const path = [seed];
  for (let layer = seed.layer + 1, to = seed.from; layer <= layers; layer++) {
    const from = above.item[layer - 1][to];
    if (from < 0) return null;
    const edge = { layer, from, to, weight: above.weight[layer - 1][to] };
    if (isDrawn(edge)) break; // and so is the way up from it
    path.push(edge);
    to = from;
  }
  for (let layer = seed.layer - 1, from = seed.to; layer > 0; layer--) {
    const to = below.item[layer][from];
    if (to < 0) return null;
    const edge = { layer, from, to, weight: below.weight[layer][from] };
    if (isDrawn(edge)) break; // and so is the way down from it
    path.push(edge);
    from = to;
  }
  return path;
}
