// DOM elements. Content is always set as text, so that data cannot inject markup.

type Attributes = Record<string, string | number | boolean | null | undefined>;

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string | null)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = String(value);
    else if (name === "testid") element.dataset.testid = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/** Text from the data, isolated from the direction of the surrounding text. */
export const isolated = (text: string, className = ""): HTMLElement =>
  make("bdi", { class: className || null }, text);

/** Set a text only if it changed, which preserves live regions and selections. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
