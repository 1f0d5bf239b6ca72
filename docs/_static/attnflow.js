// The live viewer follows the theme that is chosen on the page; pictures open in full size.

addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe.live");
  if (!frame) return;
  const follow = () => {
    const theme = document.body.dataset.theme; // "light", "dark", or "auto": as the system
    const viewer = frame.contentDocument?.getElementById("attnflow");
    if (!viewer) return;
    const chosen = theme === "light" || theme === "dark";
    frame.contentDocument.documentElement.style.colorScheme = chosen ? theme : "";
    if (chosen) viewer.dataset.theme = theme;
    else delete viewer.dataset.theme;
  };
  frame.addEventListener("load", follow);
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  follow();
});

addEventListener("load", () => {
  for (const image of document.querySelectorAll("article img")) {
    if (image.closest("a, .gallery")) continue;
    const link = document.createElement("a");
    link.href = image.src;
    link.classList.add("full-size");
    const isWide = image.naturalWidth > Math.max(600, 1.2 * image.naturalHeight);
    link.classList.toggle("wide", isWide);
    image.replaceWith(link);
    link.append(image);
  }
});
