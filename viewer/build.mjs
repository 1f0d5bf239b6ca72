// Builds src/index.ts and its imports into one minified ES module.
// `node build.mjs` writes the committed file; `node build.mjs FILE` writes FILE.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";
import { stat } from "node:fs/promises";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const outfile = process.argv[2] ?? here("../src/attnflow/viewer/static/attnflow-viewer.js");
const LIMIT = 180_000;

const options = {
  bundle: true,
  minify: true,
  target: ["es2022"],
  charset: "ascii",
  legalComments: "none",
};
const solver = await build({
  ...options,
  entryPoints: [here("src/data/solver.ts")],
  format: "iife",
  globalName: "solver",
  write: false,
});
// The solver is in the module once: the text of this function is also the source of its workers.
const once = {
  name: "solver",
  setup: ({ onLoad }) =>
    onLoad({ filter: /data.solver\.ts$/ }, () => ({
      contents: `const create = () => { ${solver.outputFiles[0].text} return solver; };
        export const { flowScore, LayeredFlow } = create();
        export const workerSource = \`(\${create})().serve(self)\`;`,
    })),
};
await build({
  ...options,
  entryPoints: [here("src/index.ts")],
  outfile,
  format: "esm",
  plugins: [once],
  banner: { js: "// Built from viewer/src of attnflow by `npm run build`. Do not edit." },
  logLevel: "warning",
});
const { size } = await stat(outfile);
console.log(`${outfile}: ${size} bytes`);
if (size > LIMIT) {
  console.error(`The module has ${size} bytes; expected at most ${LIMIT}.`);
  process.exit(1);
}
