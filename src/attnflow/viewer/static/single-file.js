// The host of the viewer in a single HTML file: chunks are script elements of the page, and the
// state is part of the URL.
{
  const stateInUrl = () => {
    try {
      return JSON.parse(decodeURIComponent(location.hash.slice(1)));
    } catch {
      return undefined;
    }
  };
  const fromBase64 = (text) => {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // faster
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  };
  const inflate = async (bytes) => {
    if (!globalThis.DecompressionStream) {
      throw new Error("this browser cannot decompress data. Use a newer one");
    }
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  /** The bytes of numbers, from groups of their first bytes, second bytes and so on. */
  const ungroup = (bytes, width) => {
    if (width === 1) return bytes.buffer;
    const count = bytes.length / width;
    const out = new Uint8Array(bytes.length);
    for (let part = 0; part < width; part++) {
      for (let i = 0; i < count; i++) out[i * width + part] = bytes[part * count + i];
    }
    return out.buffer;
  };
  const load = async (key) => {
    const element = document.querySelector(`script[data-key="${CSS.escape(key)}"]`);
    if (!element) throw new Error(`the file has no chunk ${key}`);
    const bytes = await inflate(fromBase64(element.textContent));
    return ungroup(bytes, Number(element.dataset.width));
  };
  const header = JSON.parse(document.getElementById("attnflow-header").textContent);
  let pending = 0;
  const viewer = MOUNT(document.getElementById("attnflow"), { header, load }, {
    state: stateInUrl(),
    onState(state) {
      clearTimeout(pending);
      pending = setTimeout(
        () => history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`),
        200,
      );
    },
  });
  addEventListener("hashchange", () => {
    const state = stateInUrl();
    if (state) viewer.setState(state);
  });
}
