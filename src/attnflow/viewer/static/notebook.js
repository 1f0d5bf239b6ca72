// Wraps the entry point of the viewer for notebooks. Chunks stored in the widget are served
// without the kernel, so a notebook saved with its widgets works offline; a kernel that does not
// respond becomes an error; the static preview is hidden while the widget exists.
const TIMEOUT = 20_000; // milliseconds

function withStoredChunks(model) {
  const listeners = new Set();
  const timers = new Map();
  const deliver = (content, buffers) => {
    clearTimeout(timers.get(content?.id));
    timers.delete(content?.id);
    for (const listener of listeners) listener(content, buffers);
  };
  let listening = false;
  return {
    get: (name) => model.get(name),
    set: (name, value) => model.set(name, value),
    save_changes: () => model.save_changes(),
    on(event, callback) {
      if (event !== "msg:custom") return model.on(event, callback);
      listeners.add(callback);
      if (!listening) model.on("msg:custom", deliver);
      listening = true;
    },
    off(event, callback) {
      if (event !== "msg:custom") return model.off(event, callback);
      listeners.delete(callback);
      if (listening && listeners.size === 0) {
        model.off("msg:custom", deliver);
        listening = false;
      }
    },
    send(message) {
      const { id, kind, key } = message;
      const stored = kind === "load" ? model.get("chunks")?.[key] : undefined;
      if (stored) {
        queueMicrotask(() => deliver({ kind: "chunk", id, key }, [stored]));
        return;
      }
      const error = "the kernel does not respond. Run the cell again";
      timers.set(id, setTimeout(() => deliver({ kind: "error", id, message: error }, []), TIMEOUT));
      model.send(message);
    },
  };
}

function hidingStyle(name) {
  const picture = `.${CSS.escape(name)}`;
  const style = document.createElement("style");
  // The second selector: the output area of JupyterLab, which would leave a gap.
  style.textContent = [picture, `.jp-OutputArea-child:has(${picture})`]
    .map((selector) => `${selector} { display: none !important; }`)
    .join("\n");
  return style;
}

export default {
  render({ model, el }) {
    const stop = DEFAULT.render({ model: withStoredChunks(model), el });
    const picture = model.get("picture");
    if (picture) el.append(hidingStyle(picture));
    return stop;
  },
};
