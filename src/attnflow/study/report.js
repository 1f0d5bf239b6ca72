// Shows one metric, replacement and sign at a time. Without it, the page shows all of them.
const bar = document.querySelector(".choice");
const names = ["metric", "replacement", "sign"];
const views = [...document.querySelectorAll("[data-view]")];

function show() {
  const chosen = Object.fromEntries(
    names.map((name) => [name, bar.querySelector(`select[name=${name}]`)?.value ?? ""]),
  );
  for (const view of views) {
    const fits = (name) => {
      const value = view.dataset[name];
      return value === undefined || chosen[name] === "" || value === chosen[name];
    };
    view.hidden = !names.every(fits);
    if (chosen.metric !== "" && view.dataset.metric === chosen.metric) view.open = true;
  }
}

bar.hidden = false;
bar.addEventListener("change", show);
show();
