// The solver against hand-computed graphs, a plain Edmonds–Karp solver, its minimum cut, and values
// of the library.
import assert from "node:assert/strict";
import { test } from "node:test";
import { capacitiesOf, flowScore, LayeredFlow, type MaxFlow } from "../../src/data/maxflow.ts";
import { augment, descend, oneHot } from "../../src/data/rollout.ts";
import { random, randomAttention } from "../random.ts";

type Layers = readonly ArrayLike<number>[];
type Ends = number | readonly number[];

/** A solver of a graph, with queries from its last layer by position and token, or sets of them. */
function solverOf(layers: Layers, n: number) {
  const solver = new LayeredFlow(n, layers.length);
  for (const layer of layers) solver.add(layer);
  const query = (source: Ends, sink: Ends, layer: number) => ({
    layer,
    sources: [source].flat(),
    tokens: [sink].flat(),
  });
  return {
    value: (source: Ends, sink: Ends, layer = layers.length) =>
      solver.value(query(source, sink, layer)),
    solve: (source: Ends, sink: Ends, layer = layers.length) =>
      solver.solve(query(source, sink, layer)),
  };
}

/** Remove edges to later positions, if this is asked for. */
function masked(attention: Float32Array, causal: boolean): Float32Array {
  const n = Math.sqrt(attention.length);
  for (let u = 0; u < n && causal; u++) attention.fill(0, u * n + u + 1, (u + 1) * n);
  return attention;
}

function rowsOfOne(matrix: Float32Array, n: number): Float32Array {
  for (let u = 0; u < n; u++) {
    const row = matrix.subarray(u * n, (u + 1) * n);
    const sum = row.reduce((total, weight) => total + weight, 0);
    row.forEach((weight, q) => (row[q] = weight / sum));
  }
  return matrix;
}

/** Augmenting paths, one breadth-first search each, on a full adjacency matrix. */
function slowFlow(
  layers: readonly ArrayLike<number>[],
  n: number,
  source: number,
  sink: number,
): number {
  const size = (layers.length + 1) * n;
  const room = Array.from({ length: size }, () => new Float64Array(size));
  layers.forEach((layer, l) => {
    for (let u = 0; u < n; u++) {
      for (let v = 0; v < n; v++)
        room[(l + 1) * n + u][l * n + v] = Math.min(layer[u * n + v], 1e3);
    }
  });
  const start = layers.length * n + source;
  let total = 0;
  for (;;) {
    const before = new Int32Array(size).fill(-1);
    before[start] = start;
    const queue = [start];
    for (const node of queue) {
      for (let to = 0; to < size; to++) {
        if (before[to] < 0 && room[node][to] > 1e-12) {
          before[to] = node;
          queue.push(to);
        }
      }
    }
    if (before[sink] < 0) return total;
    let least = Infinity;
    for (let to = sink; to !== start; to = before[to])
      least = Math.min(least, room[before[to]][to]);
    for (let to = sink; to !== start; to = before[to]) {
      room[before[to]][to] -= least;
      room[to][before[to]] += least;
    }
    total += least;
  }
}

/** Check that a flow respects capacities, is conserved, and equals its cut. */
function check(
  found: MaxFlow,
  capacities: readonly ArrayLike<number>[],
  n: number,
  source: number,
  sink: number,
): void {
  const layers = capacities.length;
  const into = Array.from({ length: layers + 1 }, () => new Float64Array(n));
  const out = Array.from({ length: layers + 1 }, () => new Float64Array(n));
  const flows = new Map<string, number>();
  for (const { layer, position, below, flow } of found.edges) {
    assert.ok(flow > 0 && flow <= capacities[layer - 1][position * n + below] + 1e-9);
    out[layer][position] += flow;
    into[layer - 1][below] += flow;
    flows.set(`${layer} ${position} ${below}`, flow);
  }
  assert.equal(flows.size, found.edges.length, "no edge is listed twice");
  for (let l = 1; l < layers; l++) {
    for (let u = 0; u < n; u++) assert.ok(Math.abs(into[l][u] - out[l][u]) < 1e-9);
  }
  assert.ok(Math.abs(out[layers][source] - found.value) < 1e-9);
  assert.ok(Math.abs(into[0][sink] - found.value) < 1e-9);
  assert.ok(Math.abs(found.capacity - found.value) < 1e-9);
  for (const edge of found.cut) {
    const flow = flows.get(`${edge.layer} ${edge.position} ${edge.below}`) ?? 0;
    assert.ok(Math.abs(flow - edge.capacity) < 1e-9, "every edge of the cut is full");
  }
}

test("two layers by hand: a sum of minima", () => {
  // Both layers are [[0.75, 0.25], [0, 1]]. From position 0 to token 0 only 0 → 0 → 0 leads: 0.75.
  // To token 1: min(0.75, 0.25) through 0, and min(0.25, 1) through 1, together 0.5.
  const layer = [0.75, 0.25, 0, 1];
  const solver = solverOf([layer, layer], 2);
  assert.equal(solver.value(0, 0), 0.75);
  assert.equal(solver.value(0, 1), 0.5);
  assert.equal(solver.value(1, 0), 0);
  const { cut, capacity } = solver.solve(0, 1);
  assert.equal(capacity, 0.5);
  assert.deepEqual(cut, [
    { layer: 2, position: 0, below: 1, capacity: 0.25 },
    { layer: 1, position: 0, below: 1, capacity: 0.25 },
  ]);
});

test("a path that must be undone does not hide the maximum", () => {
  // From 0 at layer 3. The first path found uses 0 → 0 → 0 → 0; the maximum needs to undo part of
  // it: layer 3 sends 1 to 0 and 1 to 1; at layer 2, 0 leads to 0 and 1, and 1 only to 0; at
  // layer 1 both lead to token 0, with capacity 1 each. The maximum is 2.
  const top = [1, 1, 0, 0];
  const middle = [1, 1, 1, 0];
  const bottom = [1, 0, 1, 0];
  const solver = solverOf([bottom, middle, top], 2);
  assert.equal(solver.value(0, 0), 2);
  check(solver.solve(0, 0), [bottom, middle, top], 2, 0, 0);
});

test("one layer is the matrix itself", () => {
  const attention = randomAttention(5, random(1));
  const solver = solverOf([attention], 5);
  for (let s = 0; s < 5; s++) {
    for (let t = 0; t < 5; t++) assert.equal(solver.value(s, t), attention[s * 5 + t]);
  }
});

test("random graphs: the value of a slow solver, a valid flow and an equal cut", () => {
  const next = random(7);
  for (let round = 0; round < 120; round++) {
    const n = 2 + Math.floor(next() * 6);
    const layers = 1 + Math.floor(next() * 5);
    const residual = next() < 0.3 ? 0 : 0.5;
    const graph = Array.from({ length: layers }, () =>
      augment(randomAttention(n, next), n, residual),
    );
    const capacities = capacitiesOf(graph, n, []);
    const solver = solverOf(capacities, n);
    const source = Math.floor(next() * n);
    const sink = Math.floor(next() * n);
    const found = solver.solve(source, sink);
    assert.ok(Math.abs(found.value - slowFlow(capacities, n, source, sink)) < 1e-9);
    check(found, capacities, n, source, sink);
  }
});

test("integers with many ties, where one blocking flow is not enough", () => {
  const next = random(11);
  for (let round = 0; round < 200; round++) {
    const n = 3 + Math.floor(next() * 4);
    const layers = 3 + Math.floor(next() * 4);
    const capacities = Array.from({ length: layers }, () =>
      Float64Array.from({ length: n * n }, () => (next() < 0.45 ? Math.floor(next() * 4) : 0)),
    );
    const solver = solverOf(capacities, n);
    const found = solver.solve(0, 0);
    assert.equal(found.value, slowFlow(capacities, n, 0, 0));
    check(found, capacities, n, 0, 0);
  }
});

test("a solver gives the same values again, in any order", () => {
  const graph = Array.from({ length: 4 }, (_, l) => augment(randomAttention(6, random(l)), 6, 0.5));
  const solver = solverOf(capacitiesOf(graph, 6, []), 6);
  const first = Array.from({ length: 6 }, (_, t) => solver.value(2, t));
  const again = Array.from({ length: 6 }, (_, t) => solver.value(2, 5 - t)).reverse();
  again.forEach((value, t) => assert.ok(Math.abs(value - first[t]) < 1e-12));
});

test("flow is at least rollout and at most 1", () => {
  const next = random(3);
  const n = 8;
  const graph = Array.from({ length: 5 }, () => augment(randomAttention(n, next), n, 0.5));
  const solver = solverOf(capacitiesOf(graph, n, []), n);
  const rollout = descend(graph, n, 5, oneHot(n, 3))[0];
  for (let t = 0; t < n; t++) {
    const value = solver.value(3, t);
    assert.ok(value >= rollout[t] - 1e-6 && value <= 1 + 1e-6);
  }
});

test("carried positions have unlimited capacity", () => {
  // Two positions, three layers. Position 0 is carried through layers 1 and 2; at layer 3 position
  // 1 sends 0.5 to 0 and 0.5 to itself, and at layers 1 and 2 half of it goes to 0 as well.
  const half = Float32Array.from([1, 0, 0.5, 0.5]);
  const carried: [number, number][] = [
    [1, 0],
    [2, 0],
  ];
  const capacities = capacitiesOf([half, half, half], 2, carried);
  const solver = solverOf(capacities, 2);
  // To token 0: 0.5 at layer 3, and of the other 0.5 all of it through layer 2's edge 1 → 0.
  assert.equal(solver.value(1, 0), 1);
  assert.equal(solverOf(capacities.slice(0, 2), 2).value(0, 0), Infinity);
  const unlimited = solverOf(capacities.slice(0, 2), 2).solve(0, 0);
  assert.deepEqual([unlimited.value, unlimited.cut.length], [Infinity, 0]);
});

test("flow between sets equals that of a graph with a sink and a source of their own", () => {
  const next = random(7);
  const n = 7;
  for (const causal of [false, true]) {
    const layers = [1, 2, 3, 4].map(() =>
      augment(masked(randomAttention(n, next), causal), n, 0.5),
    );
    const solver = solverOf(layers, n);
    for (let round = 0; round < 40; round++) {
      const pick = () => [0, 1, 2, 3, 4, 5, 6].filter(() => next() < 0.4);
      const [sources, tokens] = [pick(), pick()];
      if (!sources.length || !tokens.length) continue;
      // Unlimited edges from a node above to the sources, and from the tokens to a node below.
      const [above, below] = [new Float64Array(n * n), new Float64Array(n * n)];
      for (const source of sources) above[source] = 1e3;
      for (const token of tokens) below[token * n] = 1e3;
      for (const depth of [1, 2, 4]) {
        const expected = slowFlow([below, ...layers.slice(0, depth), above], n, 0, 0);
        assert.ok(Math.abs(solver.value(sources, tokens, depth) - expected) < 1e-9);
        const found = solver.solve(sources, tokens, depth);
        assert.ok(Math.abs(found.value - expected) < 1e-9);
        assert.ok(Math.abs(found.capacity - expected) < 1e-9);
        for (const { layer, position, below: end } of found.edges) {
          if (layer === depth) assert.equal(position, sources[0]);
          if (layer === 1) assert.equal(end, tokens[0]);
        }
      }
    }
  }
});

test("deep graphs: each layer, causal or not, with a sink", () => {
  const next = random(17);
  for (const causal of [false, true]) {
    const n = 24;
    const graph = Array.from({ length: 12 }, () => {
      const attention = randomAttention(n, next);
      for (let u = 0; u < n; u++) attention[u * n] += 1;
      return augment(rowsOfOne(masked(attention, causal), n), n, 0.6);
    });
    const solver = solverOf(graph, n);
    for (const depth of [3, 5, 12]) {
      const layers = graph.slice(0, depth);
      for (const source of [n - 1, 9]) {
        for (const sink of [0, 3, 8, 20]) {
          const expected = slowFlow(layers, n, source, sink);
          assert.ok(Math.abs(solver.value(source, sink, depth) - expected) < 1e-9);
          const found = solver.solve(source, sink, depth);
          assert.ok(Math.abs(found.value - expected) < 1e-9);
          check(found, layers, n, source, sink);
        }
      }
    }
  }
});

test("scores are flows divided by the number of sources, 1 for carried positions", () => {
  assert.equal(flowScore(1.5, [2, 3]), 0.75);
  assert.equal(flowScore(Infinity, [2]), 1);
});

test("edges of very different sizes: the value of a slow solver, and an equal cut", () => {
  const next = random(12);
  for (let round = 0; round < 30; round++) {
    const n = 9;
    const causal = round % 2 === 0;
    const layers = Array.from({ length: 10 }, () => {
      const weights = Float32Array.from({ length: n * n }, () =>
        next() < 0.3 ? 0 : 10 ** (-15.5 * next()),
      );
      return masked(weights, causal);
    });
    const solver = solverOf(layers, n);
    for (let t = 0; t < n; t++) {
      const expected = slowFlow(layers, n, n - 1, t);
      assert.ok(Math.abs(solver.value(n - 1, t) - expected) < 1e-9);
      check(solver.solve(n - 1, t), layers, n, n - 1, t);
    }
  }
});

test("a cut around the chain of the source proves flows without a search", () => {
  // From 3 at layer 4, over a chain with an edge of 0.25 in layer 3, and from there to all positions.
  // What leaves the chain above is 0.5 in layer 4 and 0.125 in layer 3.
  const n = 4;
  const wide = Float32Array.from({ length: n * n }, (_, i) => (i % n <= i / n ? 1 : 0));
  const middle = wide.slice();
  middle.set([0.125, 0, 0, 0.25], 3 * n);
  const top = wide.slice();
  top.set([0.5, 0, 0, 1], 3 * n);
  const solver = new LayeredFlow(n, 4);
  for (const layer of [wide, wide, middle, top]) solver.add(layer);
  Object.assign(solver, { maximize: () => assert.fail("searched") });
  assert.equal(solver.value({ layer: 4, sources: [3], tokens: [0] }), 0.875);
});
