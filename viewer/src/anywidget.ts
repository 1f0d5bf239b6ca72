// The notebook host: chunks travel as custom messages of the widget, state as a trait.

import { make } from "./elements.ts";
import type { FlowRequest, Header, Source } from "./format.ts";
import type { State } from "./state.ts";
import { followHostTheme } from "./hostTheme.ts";
import { mount, type Viewer } from "./widget.ts";

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

let asked = 0;

/** The bytes of a message, whatever kind of view the host wraps them in. */
function bytesOf(buffer: ArrayBuffer | ArrayBufferView): ArrayBuffer {
  if (buffer instanceof ArrayBuffer) return buffer;
  const { buffer: whole, byteOffset, byteLength } = buffer;
  return whole.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer;
}

function sourceOf(model: Model, header: Header): { source: Source; stop(): void } {
  const waiting = new Map<string, Waiting>();
  const receive = (message: Reply, buffers: (ArrayBuffer | ArrayBufferView)[] = []): void => {
    const one = waiting.get(message?.id);
    if (!one) return;
    waiting.delete(message.id);
    if (message.kind === "error") one.failed(new Error(message.message ?? "no reason was given"));
    else if (buffers[0]) one.done(bytesOf(buffers[0]));
    else one.failed(new Error("the answer was empty"));
  };
  const ask = (message: Record<string, unknown>): Promise<ArrayBuffer> =>
    new Promise((done, failed) => {
      const id = `${Date.now().toString(36)}-${++asked}`;
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
 * Keep keys from the notebook around us while the viewer has the focus: there, single letters
 * delete cells and arrows leave them, which would also take the arrows from our own sliders.
 * Those with Ctrl and the like, and those that leave the viewer, are still the notebook's.
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
    const given = model.get("header");
    const header = (typeof given === "string" ? JSON.parse(given) : given) as Header;
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
