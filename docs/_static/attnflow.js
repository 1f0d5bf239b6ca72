// The live viewer follows the theme that is chosen on the page.

addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe.live");
  if (!frame) return;
  const follow = () => {
    const theme = document.body.dataset.theme; // "light", "dark", or "auto": as the system
    const viewer = frame.contentDocument?.getElementById("attnflow");
    if (!viewer) return;
    if (theme === "light" || theme === "dark") viewer.dataset.theme = theme;
    else delete viewer.dataset.theme;
  };
  frame.addEventListener("load", follow);
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  follow();
});
