// Maximum flows of a graph in a JSON file, for tests that compare them with those of the library.
import { readFileSync } from "node:fs";
import { LayeredFlow, type Query } from "../src/data/maxflow.ts";

interface Job {
  n: number;
  layers: number[][]; // capacities [n, n]
  queries: Query[];
}

const jobs = JSON.parse(readFileSync(process.argv[2], "utf8")) as Job[];
const values = jobs.map(({ n, layers, queries }) => {
  const solver = new LayeredFlow(n, layers.length);
  for (const layer of layers) solver.add(layer);
  return queries.map((query) => {
    const value = solver.value(query);
    const { value: again, cut } = solver.solve(query);
    return { value, again, cut: cut.reduce((sum, edge) => sum + edge.capacity, 0) };
  });
});
console.log(JSON.stringify(values));
