// The top of the viewer: its title, and buttons for pictures and help.

import { isolated, make } from "./elements.ts";
import { download } from "./exporting.ts";
import { shorten, visible } from "./visible.ts";

export interface TopEvents {
  svg(): string;
  png(): Promise<Blob>;
  file(): string; // the name of the picture, without ending
  failed(sentence: string): void;
  help(): void;
}

function button(text: string, testid: string, label: string, act: () => void): HTMLElement {
  const made = make(
    "button",
    { type: "button", class: "tool", testid, "aria-label": label, title: label },
    text,
  );
  made.addEventListener("click", act);
  return made;
}

export function makeTopBar(title: string, events: TopEvents): HTMLElement {
  const saveSvg = (): void =>
    download(new Blob([events.svg()], { type: "image/svg+xml" }), `${events.file()}.svg`);
  const savePng = (): void => {
    const file = events.file();
    events.png().then(
      (blob) => download(blob, `${file}.png`),
      (reason: unknown) => events.failed(reason instanceof Error ? reason.message : String(reason)),
    );
  };
  const shown = title ? shorten(visible(title), 160) : "Attention flow";
  return make(
    "div",
    { class: "top" },
    make("h1", { class: "title", dir: "auto" }, isolated(shown)),
    make(
      "div",
      { class: "tools" },
      button("SVG", "export-svg", "Save what is on screen as SVG", saveSvg),
      button("PNG", "export-png", "Save what is on screen as PNG", savePng),
      button("?", "help-button", "Help and keys", events.help),
    ),
  );
}
