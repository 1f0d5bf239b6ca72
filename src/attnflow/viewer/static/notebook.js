// Around the viewer's entry point for notebooks: arrays that came along with the widget are taken
// from it, so that a notebook saved with its widgets works without a kernel, a kernel that does not
// answer is said to be silent, and the picture below is hidden for as long as the widget is there.
const PATIENCE = 20_000; // milliseconds

function answering(model) {
  const listeners = new Set();
  const waiting = new Map();
  const tell = (content, buffers) => {
    clearTimeout(waiting.get(content?.id));
    waiting.delete(content?.id);
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
      if (!listening) model.on("msg:custom", tell);
      listening = true;
    },
    off(event, callback) {
      if (event !== "msg:custom") return model.off(event, callback);
      listeners.delete(callback);
      if (listening && listeners.size === 0) {
        model.off("msg:custom", tell);
        listening = false;
      }
    },
    send(message) {
      const { id, kind, key } = message;
      const along = kind === "load" ? model.get("chunks")?.[key] : undefined;
      if (along) {
        queueMicrotask(() => tell({ kind: "chunk", id, key }, [along]));
        return;
      }
      const silent = "the kernel does not answer. Run the cell again";
      waiting.set(id, setTimeout(() => tell({ kind: "error", id, message: silent }, []), PATIENCE));
      model.send(message);
    },
  };
}

function hiding(name) {
  const picture = `.${CSS.escape(name)}`;
  const style = document.createElement("style");
  // The second: what JupyterLab wraps around it, which would leave a gap.
  style.textContent = [picture, `.jp-OutputArea-child:has(${picture})`]
    .map((one) => `${one} { display: none !important; }`)
    .join("\n");
  return style;
}

export default {
  render({ model, el }) {
    const stop = DEFAULT.render({ model: answering(model), el });
    const picture = model.get("picture");
    if (picture) el.append(hiding(picture));
    return stop;
  },
};
