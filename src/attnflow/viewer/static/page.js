// The local page: sends texts to the server, shows progress, and passes results to the viewer.

import { mount } from "/attnflow-viewer.js";

const find = (id) => document.getElementById(id);
const [form, text, model, text2, model2] = ["form", "text", "model", "text2", "model2"].map(find);
const [second, compare, status, progress, place] =
  ["second", "compare", "status", "progress", "viewer"].map(find);

// Labels of model tasks.
const TASKS = {
  causal_lm: "next-token prediction",
  classifier: "classification",
  encoder: "encoder",
  image: "images",
  masked_lm: "masked-token prediction",
  seq2seq: "sequence to sequence",
};

// The options of an explanation: names in requests, and their fields.
const OPTIONS = {
  edges: "edges",
  heads: "heads",
  residual_weight: "residual",
  target: "target",
  against: "against",
};

const SAMPLING = { temperature: "temperature", top_p: "top-p", seed: "seed" }; // field -> element
const ROLES = ["system", "user", "assistant"];
const FOLLOWS = { system: "user", user: "assistant", assistant: "user" }; // the next role in a chat

let models = [];
let job = null; // the one that the page waits for
let viewer = null;
let shared = null; // texts and models in the link; null for an opened file
let maxUpload = Infinity; // bytes of a file
let latest = 0; // number of the last request; results of earlier ones are dropped

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Send a request; throw the error message of the server if it fails. */
async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not respond. Restart it with: attnflow serve");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `The server responded with status ${response.status}.`);
}

/** Show a status message. */
function say(message, isError = false) {
  status.textContent = message ? message[0].toUpperCase() + message.slice(1) : "";
  status.classList.toggle("error", isError);
}

function showProgress(job) {
  progress.hidden = false;
  if (job.total > 0) {
    progress.max = job.total;
    progress.value = job.done;
  } else {
    progress.removeAttribute("value");
  }
  const share = job.total > 1 ? `: ${Math.floor((100 * job.done) / job.total)}%` : "…";
  say(job.stage + share);
}

/** Wait for a job and return the name of its result; null if a newer request was sent. */
async function waitFor(name, current) {
  for (let wait = 60; current === latest; wait = Math.min(wait * 1.3, 400)) {
    const job = await (await request(`/api/jobs/${name}`)).json();
    if (job.state === "failed") throw new Error(job.error);
    if (job.state === "done") return job.result;
    if (current === latest) showProgress(job);
    await pause(wait);
  }
  return null;
}

/** The source of a result, for the viewer. */
async function sourceOf(name) {
  const base = `/api/explanations/${name}`;
  return {
    header: await (await request(`${base}/header`)).json(),
    load: async (key) => (await request(`${base}/chunks/${key}`)).arrayBuffer(),
    flow: async (query) =>
      new Float32Array(
        await (await request(`${base}/flow?${new URLSearchParams(query)}`)).arrayBuffer(),
      ),
  };
}

/** The part of the state that also applies to another text. */
function lastingState() {
  if (!viewer) return undefined;
  const { view, method, special, units, normalize, scale } = viewer.getState();
  return { view, method, special, units, normalize, scale };
}

/** Start a job with `send`, wait for it and show its result. */
async function show(send, link, state = lastingState()) {
  const current = ++latest;
  say("Sending the request…");
  try {
    find("cancel").hidden = false;
    const started = (await (await send()).json()).job;
    if (current !== latest) return giveUp(started);
    job = started;
    const name = await waitFor(started, current);
    if (name === null) return giveUp(started);
    const source = await sourceOf(name);
    if (current !== latest) return;
    viewer?.destroy();
    const root = document.createElement("div");
    place.replaceChildren(root);
    shared = link;
    viewer = mount(root, source, { state, onState: remember });
    document.title = `${source.header.page_title || source.header.title} · attnflow`;
    remember(viewer.getState());
    say("");
  } catch (error) {
    if (current === latest) say(error.message, true);
  } finally {
    if (current === latest) {
      progress.hidden = find("cancel").hidden = true;
      job = null;
    }
  }
}

/** Tell the server that nobody waits for a job. */
function giveUp(name) {
  fetch(`/api/jobs/${name}`, { method: "DELETE" }).catch(() => {});
}

/** Stop waiting for the result. */
function cancel() {
  latest++; // drops what is still under way
  if (job) giveUp(job);
  job = null;
  progress.hidden = find("cancel").hidden = true;
  say("Cancelled.");
}

let pending = 0;

/** Store the state in the URL. */
function remember(state) {
  clearTimeout(pending);
  pending = setTimeout(() => history.replaceState(null, "", urlOf(state)), 200);
}

/** The URL of the current texts, models and state. */
function urlOf(state) {
  if (!shared) return location.pathname;
  return `#${new URLSearchParams({ ...shared, state: JSON.stringify(state) })}`;
}

function explain(state) {
  if (!find("open-image").hidden) return explainImage();
  const options = { ...chosenOptions(), ...chosenInput() };
  const link = { text: text.value, model: model.value, ...chosenOptions(), ...linkedInput() };
  if (!second.hidden) Object.assign(link, { text2: text2.value, model2: model2.value });
  const examples = [{ text: link.text, model: Number(link.model), ...options }];
  if (!second.hidden) examples.push({ text: link.text2, model: Number(link.model2), ...options });
  const send = () =>
    request("/api/explanations", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ examples }),
    });
  return show(send, link, state);
}

/** The options that are not left at their defaults. */
function chosenOptions() {
  const shown = Object.entries(OPTIONS).filter(([, id]) => !find(id).disabled);
  const values = shown.map(([name, id]) => [name, find(id).value]);
  return Object.fromEntries(values.filter(([, value]) => value.trim())); // tokens may start with a space
}

const kindOf = () => (find("kind-field").hidden ? "text" : find("kind").value);
const answerOf = () => (find("answer-field").hidden ? "" : find("answer").value);

/** The chat, the second text and the answer of a request. */
function chosenInput() {
  const input = {};
  if (kindOf() === "chat") input.messages = readMessages();
  if (kindOf() === "pair") input.text_pair = find("text-pair").value;
  if (answerOf() === "generate") {
    input.generate = Number(find("generate").value);
    for (const [name, id] of Object.entries(SAMPLING)) {
      if (find(id).value !== "") input[name] = Number(find(id).value);
    }
  }
  if (answerOf() === "continuation") input.continuation = find("continuation").value;
  return input;
}

/** The same in a link, where a chat is JSON. */
function linkedInput() {
  const { messages, ...input } = chosenInput();
  return messages ? { ...input, messages: JSON.stringify(messages) } : input;
}

const readMessages = () =>
  [...find("messages").children].map((line) => ({
    role: line.querySelector("select").value,
    content: line.querySelector("textarea").value,
  }));

/** Add a message to the chat. */
function addMessage({ role, content = "" }) {
  const select = document.createElement("select");
  for (const name of new Set([...ROLES, role])) select.add(new Option(name, name));
  select.value = role;
  select.ariaLabel = "Role";
  const area = document.createElement("textarea");
  Object.assign(area, { rows: 1, value: content, dir: "auto", spellcheck: false });
  area.ariaLabel = "Message";
  area.addEventListener("keydown", submitOnEnter);
  const remove = document.createElement("button");
  Object.assign(remove, { type: "button", textContent: "Remove" });
  const line = document.createElement("li");
  remove.addEventListener("click", () => {
    line.remove();
    find("add-message").focus();
  });
  line.append(select, area, remove);
  find("messages").append(line);
  return area;
}

function addNextMessage() {
  const last = readMessages().at(-1)?.role ?? "system";
  addMessage({ role: FOLLOWS[last] ?? "user" }).focus();
}

/** Show the fields of the kind of input and answer that are chosen. */
function fitInput() {
  const [kind, answer] = [kindOf(), answerOf()];
  const chat = kind === "chat";
  if (chat && !find("messages").children.length) addMessage({ role: "user", content: text.value });
  find("chat").hidden = !chat;
  find("pair").hidden = kind !== "pair";
  text.hidden = document.querySelector("label[for=text]").hidden = chat;
  find("generate-field").hidden = find("sampling").hidden = answer !== "generate";
  find("continuation-field").hidden = answer !== "continuation";
  for (const id of ["target", "against"]) find(id).disabled = answer !== "";
  compare.disabled = kind !== "text" || !find("open-image").hidden;
  if (compare.disabled) toggleComparison(false);
}

function submitOnEnter(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  explain();
}

/** Fill the lists of options. */
function listOptions({ edges, heads }) {
  for (const { name, title } of edges) find("edges").add(new Option(title, name));
  for (const name of ["", ...heads]) find("heads").add(new Option(name || "default", name));
  find("edges").addEventListener("change", () => {
    const chosen = edges.find(({ name }) => name === find("edges").value);
    find("about-edges").textContent = chosen ? `Edges: ${chosen.summary}` : "";
  });
  for (const id of ["edges", "heads"]) find(id).addEventListener("change", () => explain());
  for (const id of ["residual", "target", "against"]) {
    find(id).addEventListener("change", () => explain());
  }
}

/** Suggest the classes of the chosen model as targets. */
function listClasses() {
  const { classes } = models[model.value] ?? { classes: [] };
  find("classes").replaceChildren(...classes.map((name) => new Option(name, name)));
}

function toggleComparison(shown) {
  second.hidden = !shown;
  compare.setAttribute("aria-expanded", String(shown));
  compare.textContent = shown ? "Remove comparison" : "Compare";
}

/** Send a file to an address of the server. query: besides the name of the file. */
function openFile(file, path = "/api/attentions", query = {}, state = lastingState()) {
  if (file.size > maxUpload) {
    return say(`The file is too large (maximum: ${maxUpload / 1e6} MB).`, true);
  }
  const send = () =>
    request(`${path}?${new URLSearchParams({ name: file.name, ...query })}`, {
      method: "POST",
      headers: { "content-type": "application/octet-stream" },
      body: file,
    });
  return show(send, null, state);
}

let picture = null; // the image that was opened last

/** Explain an image, or ask for one. */
function explainImage(file = picture) {
  picture = file;
  if (!file) return say("Open an image for this model.");
  const query = { model: model.value, ...chosenOptions() };
  return openFile(file, "/api/images", query, { ...lastingState(), view: "image" });
}

/** Show the fields of the chosen model: a text, a chat, or an image. */
function fitModel() {
  const { task, generates, chats } = models[model.value] ?? {};
  const image = task === "image";
  find("open-image").hidden = !image;
  const kinds = { text: true, chat: chats, pair: !image && !generates };
  for (const option of find("kind").options) option.hidden = option.disabled = !kinds[option.value];
  if (!kinds[find("kind").value]) find("kind").value = "text";
  find("kind-field").hidden = image || !(kinds.chat || kinds.pair);
  find("answer-field").hidden = !generates;
  for (const id of ["text", "explain", "compare"]) find(id).disabled = image;
  fitInput();
}

/** A model for chats starts with one, and with an answer. */
function suggestInput() {
  const { chats, generates } = models[model.value] ?? {};
  find("kind").value = chats ? "chat" : "text";
  find("answer").value = generates ? "generate" : "";
}

/** Fill the form from the link in the URL; return its state. */
function readLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  const known = (value) => (value !== null && model.options[Number(value)] ? value : "0");
  if (link.has("text")) text.value = link.get("text");
  model.value = known(link.get("model"));
  text2.value = link.get("text2") ?? "";
  model2.value = known(link.get("model2"));
  toggleComparison(link.has("text2"));
  for (const [name, id] of Object.entries(OPTIONS)) find(id).value = link.get(name) ?? "";
  if (link.has("text")) readInput(link);
  else suggestInput();
  if (Object.keys(chosenOptions()).length) find("choices").open = true;
  try {
    return JSON.parse(link.get("state") ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/** Fill in the chat, the second text and the answer of a link. */
function readInput(link) {
  const given = ["generate", "continuation"].find((name) => link.has(name)) ?? "";
  find("answer").value = given;
  if (given) find(given).value = link.get(given);
  for (const [name, id] of Object.entries(SAMPLING)) find(id).value = link.get(name) ?? "";
  find("text-pair").value = link.get("text_pair") ?? "";
  find("kind").value = link.has("messages") ? "chat" : link.has("text_pair") ? "pair" : "text";
  find("messages").replaceChildren();
  try {
    for (const message of JSON.parse(link.get("messages") ?? "[]")) addMessage(message);
  } catch {
    say("The link has no valid messages.", true);
  }
}

async function copyLink() {
  if (!shared) return say("Links are available for texts, not for opened files.", true);
  history.replaceState(null, "", urlOf(viewer.getState()));
  try {
    await navigator.clipboard.writeText(location.href);
    say("Link copied. It works on any server with the same models.");
  } catch {
    say("Could not copy the link; it is in the address bar.");
  }
}

async function start() {
  const { models: offered, limits, options } = await (await request("/api/models")).json();
  models = offered;
  listOptions(options);
  find("generate").max = limits.generated;
  find("generate").value = Math.min(30, limits.generated);
  for (const select of [model, model2]) {
    models.forEach(({ label, task }, i) =>
      select.add(new Option(`${label} (${TASKS[task] ?? task})`, String(i))),
    );
  }
  maxUpload = limits.upload;
  text.value = models[0].example;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    explain();
  });
  for (const area of [text, text2, find("text-pair"), find("continuation")]) {
    area.addEventListener("keydown", submitOnEnter);
  }
  for (const id of ["kind", "answer"]) find(id).addEventListener("change", fitInput);
  find("add-message").addEventListener("click", addNextMessage);
  find("cancel").addEventListener("click", cancel);
  compare.addEventListener("click", () => {
    if (!text2.value) text2.value = text.value;
    if (second.hidden) model2.value = model.value;
    toggleComparison(second.hidden);
    if (!second.hidden) text2.focus();
  });
  find("link").addEventListener("click", copyLink);
  find("open-image").addEventListener("click", () => find("image").click());
  find("image").addEventListener("change", (event) => {
    if (event.target.files.length) explainImage(event.target.files[0]);
    event.target.value = "";
  });
  find("open").addEventListener("click", () => find("file").click());
  find("file").addEventListener("change", (event) => {
    if (event.target.files.length) openFile(event.target.files[0]);
    event.target.value = "";
  });
  model.addEventListener("change", () => {
    listClasses();
    suggestInput();
    fitModel();
    if (!find("open-image").hidden) explainImage();
    if (models.some(({ example }) => example === text.value)) text.value = models[model.value].example;
  });
  addEventListener("hashchange", () => {
    const state = readLink();
    fitModel();
    explain(state);
  });
  const state = readLink();
  listClasses();
  fitModel();
  find("fields").disabled = false; // models and listeners are ready
  await explain(state);
}

start().catch((error) => say(error.message, true));
