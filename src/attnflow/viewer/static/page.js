// The local page: sends texts to the server, shows how far it is, and hands results to the viewer.

import { mount } from "/attnflow-viewer.js";

const find = (id) => document.getElementById(id);
const [form, text, model, text2, model2] = ["form", "text", "model", "text2", "model2"].map(find);
const [second, compare, status, progress, place] =
  ["second", "compare", "status", "progress", "viewer"].map(find);

// What models do, in the words of people who use them.
const TASKS = {
  causal_lm: "predicts the next token",
  classifier: "classifies",
  encoder: "encodes",
  masked_lm: "fills in the mask",
  seq2seq: "text to text",
};

let viewer = null; // what is shown
let shared = null; // what a link to it says: texts and models; null for an opened file
let mostUpload = Infinity; // bytes of a file
let turn = 0; // counts requests, so that only the last one is shown

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Ask the server; a refusal is thrown as its sentence. */
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Start it again with: attnflow serve");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `The server answered with status ${response.status}.`);
}

function say(sentence, wrong = false) {
  status.textContent = sentence ? sentence[0].toUpperCase() + sentence.slice(1) : "";
  status.classList.toggle("wrong", wrong);
}

function showProgress(job) {
  progress.hidden = false;
  if (job.total > 0) {
    progress.max = job.total;
    progress.value = job.done;
  } else {
    progress.removeAttribute("value");
  }
  const share = job.total > 1 ? ` ${Math.floor((100 * job.done) / job.total)} %` : "";
  say(`${job.stage} …${share}`);
}

/** Wait for a computation, and return the name of its result; null if another was started. */
async function follow(name, mine) {
  for (let wait = 60; mine === turn; wait = Math.min(wait * 1.3, 400)) {
    const job = await (await ask(`/api/jobs/${name}`)).json();
    if (job.state === "failed") throw new Error(job.error);
    if (job.state === "done") return job.result;
    if (mine === turn) showProgress(job);
    await pause(wait);
  }
  return null;
}

/** The viewer's side of a result on the server. */
async function sourceOf(name) {
  const base = `/api/explanations/${name}`;
  return {
    header: await (await ask(`${base}/header`)).json(),
    load: async (key) => (await ask(`${base}/chunks/${key}`)).arrayBuffer(),
    flow: async (request) =>
      new Float32Array(
        await (await ask(`${base}/flow?${new URLSearchParams(request)}`)).arrayBuffer(),
      ),
  };
}

/** What of the state fits another text as well. */
function lastingState() {
  if (!viewer) return undefined;
  const { view, method, special, words, normalize, scale } = viewer.getState();
  return { view, method, special, words, normalize, scale };
}

/** Start a computation by `send`, wait for it, and show what comes out. */
async function show(send, link, state = lastingState()) {
  const mine = ++turn;
  say("Sending …");
  try {
    const { job } = await (await send()).json();
    const name = await follow(job, mine);
    if (name === null) return;
    const source = await sourceOf(name);
    if (mine !== turn) return;
    viewer?.destroy();
    const root = document.createElement("div");
    place.replaceChildren(root);
    shared = link;
    viewer = mount(root, source, { state, onState: remember });
    remember(viewer.getState());
    say("");
  } catch (error) {
    if (mine === turn) say(error.message, true);
  } finally {
    if (mine === turn) progress.hidden = true;
  }
}

let pending = 0;

/** Keep the state in the address, which is then a link to it. */
function remember(state) {
  clearTimeout(pending);
  pending = setTimeout(() => history.replaceState(null, "", address(state)), 200);
}

function address(state) {
  if (!shared) return location.pathname;
  return `#${new URLSearchParams({ ...shared, state: JSON.stringify(state) })}`;
}

function explain(state) {
  const link = { text: text.value, model: model.value };
  if (!second.hidden) Object.assign(link, { text2: text2.value, model2: model2.value });
  const examples = [{ text: link.text, model: Number(link.model) }];
  if (!second.hidden) examples.push({ text: link.text2, model: Number(link.model2) });
  const send = () =>
    ask("/api/explanations", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ examples }),
    });
  return show(send, link, state);
}

function toggleComparison(shown) {
  second.hidden = !shown;
  compare.setAttribute("aria-expanded", String(shown));
  compare.textContent = shown ? "Do not compare" : "Compare";
}

function openFile(file) {
  if (file.size > mostUpload) {
    return say(`The file is too large: at most ${mostUpload / 1e6} MB.`, true);
  }
  const send = () =>
    ask(`/api/attentions?${new URLSearchParams({ name: file.name })}`, {
      method: "POST",
      headers: { "content-type": "application/octet-stream" },
      body: file,
    });
  return show(send, null);
}

/** Fill the form from a link; returns the state that it asks for. */
function readLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  const known = (value) => (value !== null && model.options[Number(value)] ? value : "0");
  if (link.has("text")) text.value = link.get("text");
  model.value = known(link.get("model"));
  text2.value = link.get("text2") ?? "";
  model2.value = known(link.get("model2"));
  toggleComparison(link.has("text2"));
  try {
    return JSON.parse(link.get("state") ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

async function copyLink() {
  if (!shared) return say("A file that you opened has no link; only texts do.", true);
  history.replaceState(null, "", address(viewer.getState()));
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied. It works where this page is served with the same models.");
  } catch {
    say("The link is in the address bar.");
  }
}

async function start() {
  const { models, limits } = await (await ask("/api/models")).json();
  for (const select of [model, model2]) {
    models.forEach((one, i) =>
      select.add(new Option(`${one.label}: ${TASKS[one.task] ?? one.task}`, String(i))),
    );
  }
  mostUpload = limits.upload;
  text.value = models[0].example;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    explain();
  });
  for (const area of [text, text2]) {
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        explain();
      }
    });
  }
  compare.addEventListener("click", () => {
    if (!text2.value) text2.value = text.value;
    if (second.hidden) model2.value = model.value;
    toggleComparison(second.hidden);
    if (!second.hidden) text2.focus();
  });
  find("link").addEventListener("click", copyLink);
  find("open").addEventListener("click", () => find("file").click());
  find("file").addEventListener("change", (event) => {
    if (event.target.files.length) openFile(event.target.files[0]);
    event.target.value = "";
  });
  model.addEventListener("change", () => {
    if (models.some((one) => one.example === text.value)) text.value = models[model.value].example;
  });
  addEventListener("hashchange", () => explain(readLink()));
  const state = readLink();
  find("fields").disabled = false; // only now is there something to choose, and someone to listen
  await explain(state);
}

start().catch((error) => say(error.message, true));
