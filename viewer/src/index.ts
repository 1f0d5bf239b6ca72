// The module's public face: mount() for pages, and the default export for anywidget.

import { render } from "./anywidget.ts";

export { mount, type Options, type Viewer } from "./widget.ts";
export type { Header, Source } from "./format.ts";
export type { State } from "./state.ts";

export default { render };
