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
  const load = async (key) => {
    const element = document.querySelector(`script[data-key="${CSS.escape(key)}"]`);
    if (!element) throw new Error(`the file has no chunk ${key}`);
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(element.textContent).buffer; // faster
    const text = atob(element.textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes.buffer;
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
