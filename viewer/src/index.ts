// The entry point of the viewer: mount() for pages, and the default export for anywidget.
//
// Reading order:
// 1. data/   header (what hosts send), state, scores (loading and computing), snapshot
// 2. paint/  painter (canvas and SVG), axis, theme, dom
// 3. views/  captions (all texts), scene, then one file per view: text, dialogue
//            (prompt and answer), alignment (the token map), flow, map, heads, difference, image
// 4. ui/     viewer (the main loop), panel, controls, keyboard, export, notebook
// Each folder imports only from those above it (data/ also uses the type Theme of paint/).

import { render } from "./ui/notebook.ts";

export { mount, type Options, type Viewer } from "./ui/viewer.ts";
export type { Header, Source } from "./data/header.ts";
export type { State } from "./data/state.ts";

export default { render };
