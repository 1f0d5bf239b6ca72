// Notebooks have a light or dark theme of their own, whatever the system prefers; this finds it.

type Name = "light" | "dark" | null;

/** The theme of the notebook around us; null where it follows the system. */
export function hostTheme(): Name {
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

/** Give an element the notebook's theme, now and when it changes; returns how to stop. */
export function followHostTheme(element: HTMLElement): () => void {
  const follow = (): void => {
    const name = hostTheme();
    if (name) element.dataset.theme = name;
    else delete element.dataset.theme;
  };
  follow();
  const observer = new MutationObserver(follow);
  const filter = ["class", "theme", "data-jp-theme-light", "data-vscode-theme-kind"];
  for (const one of [document.body, document.documentElement]) {
    observer.observe(one, { attributes: true, attributeFilter: filter });
  }
  return () => observer.disconnect();
}
