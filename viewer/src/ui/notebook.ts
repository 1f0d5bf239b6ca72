// The anywidget host for notebooks: chunks arrive as custom messages, the state is a trait, and
// the theme follows the notebook.

import type { FlowRequest, Source } from "../data/header.ts";
import type { State } from "../data/state.ts";
import { make } from "../paint/dom.ts";
import { mount, type Viewer } from "./viewer.ts";

interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(message: unknown): void;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
}

interface Reply {
  kind: "chunk" | "flow" | "error";
  id: string;
  message?: string;
}

interface Waiting {
  done(buffer: ArrayBuffer): void;
  failed(error: Error): void;
}

let requests = 0;

/** The bytes of a message; hosts send different kinds of views. */
function bytesOf(buffer: ArrayBuffer | ArrayBufferView): ArrayBuffer {
  if (buffer instanceof ArrayBuffer) return buffer;
  const { buffer: whole, byteOffset, byteLength } = buffer;
  return whole.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer;
}

function sourceOf(model: Model, header: unknown): { source: Source; stop(): void } {
  const waiting = new Map<string, Waiting>();
  const receive = (message: Reply, buffers: (ArrayBuffer | ArrayBufferView)[] = []): void => {
    const request = waiting.get(message?.id);
    if (!request) return;
    waiting.delete(message.id);
    if (message.kind === "error") request.failed(new Error(message.message ?? "unknown error"));
    else if (buffers[0]) request.done(bytesOf(buffers[0]));
    else request.failed(new Error("the response is empty"));
  };
  const ask = (message: Record<string, unknown>): Promise<ArrayBuffer> =>
    new Promise((done, failed) => {
      const id = `${Date.now().toString(36)}-${++requests}`;
      waiting.set(id, { done, failed });
      model.send({ ...message, id });
    });
  model.on("msg:custom", receive as never);
  const source: Source = {
    header,
    load: (key) => ask({ kind: "load", key }),
    flow: async (request: FlowRequest) => new Float32Array(await ask({ kind: "flow", ...request })),
  };
  return { source, stop: () => model.off("msg:custom", receive as never) };
}

/**
 * Keep keys from the notebook while the viewer has the focus: single letters would delete cells,
 * and arrow keys would leave the cell instead of moving a slider. The notebook still receives
 * Escape, Tab, Shift+Enter and keys with Ctrl, Alt or Cmd.
 */
function keepKey(event: KeyboardEvent): void {
  const leaving = event.key === "Escape" || event.key === "Tab";
  const running = event.key === "Enter" && event.shiftKey;
  const modified = event.ctrlKey || event.metaKey || event.altKey;
  if (!leaving && !running && !modified) event.stopPropagation();
}

export function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const place = make("div");
  el.append(place);
  place.addEventListener("keydown", keepKey);
  let stop = (): void => {};
  let viewer: Viewer | null = null;
  const start = (): void => {
    stop();
    const value = model.get("header");
    const header: unknown = typeof value === "string" ? JSON.parse(value) : value;
    const link = sourceOf(model, header);
    const inner = make("div");
    place.replaceChildren(inner);
    const unfollow = followHostTheme(inner);
    viewer = mount(inner, link.source, {
      state: (model.get("state") as Partial<State>) ?? {},
      onState: (state) => {
        model.set("state", state);
        model.save_changes();
      },
    });
    stop = () => {
      unfollow();
      viewer?.destroy();
      link.stop();
    };
  };
  const restore = (): void => {
    const wanted = model.get("state") as Partial<State> | null;
    if (wanted && JSON.stringify(wanted) !== JSON.stringify(viewer?.getState())) {
      viewer?.setState(wanted);
    }
  };
  start();
  model.on("change:header", start);
  model.on("change:state", restore);
  return () => {
    model.off("change:header", start);
    model.off("change:state", restore);
    stop();
  };
}

type Name = "light" | "dark" | null;

/** The theme of the notebook; null if it follows the system. */
function hostTheme(): Name {
  const { body, documentElement: html } = document;
  const jupyter = body.dataset.jpThemeLight; // JupyterLab and Notebook
  if (jupyter) return jupyter === "false" ? "dark" : "light";
  const code = body.dataset.vscodeThemeKind; // VS Code
  if (code) return code.includes("light") ? "light" : "dark";
  const colab = html.getAttribute("theme"); // Colab
  if (colab === "dark" || colab === "light") return colab;
  const classes = [body, html].map((element) => element.classList); // marimo
  if (classes.some((list) => list.contains("dark") || list.contains("dark-theme"))) return "dark";
  return classes.some((list) => list.contains("light-theme")) ? "light" : null;
}

/** Keep the theme of an element in sync with the notebook; returns a function to stop. */
function followHostTheme(element: HTMLElement): () => void {
  const follow = (): void => {
    const name = hostTheme();
    if (name) element.dataset.theme = name;
    else delete element.dataset.theme;
  };
  follow();
  const observer = new MutationObserver(follow);
  const filter = ["class", "theme", "data-jp-theme-light", "data-vscode-theme-kind"];
  for (const host of [document.body, document.documentElement]) {
    observer.observe(host, { attributes: true, attributeFilter: filter });
  }
  return () => observer.disconnect();
}
