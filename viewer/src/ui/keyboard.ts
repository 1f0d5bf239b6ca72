// Keyboard shortcuts: the change of state for each key. The help dialog lists them
// (views/captions.ts).

import { explainsWhole, type Snapshot } from "../data/snapshot.ts";
import { type State, type ViewName, wholePart } from "../data/state.ts";

export interface KeyEvents {
  views: readonly ViewName[]; // in the order of their tabs
  change(change: Partial<State>): void;
  search(): void;
  table(): void;
  help(): void;
}

const moving = new Set([
  "ArrowLeft",
  "ArrowRight",
  "ArrowUp",
  "ArrowDown",
  "Home",
  "End",
  "PageUp",
  "PageDown",
]);

/** Handle a key; return whether it has a meaning here. */
export function pressed(event: KeyboardEvent, snapshot: Snapshot, events: KeyEvents): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const target = event.composedPath()[0] as HTMLElement;
  const typing = target instanceof HTMLInputElement && target.type === "search";
  if (event.key === "Escape") return clearSelection(snapshot, events);
  if (typing || target instanceof HTMLSelectElement) return false; // which use keys themselves
  if (moving.has(event.key)) {
    const onView = target.closest(".stage, .sentence, .dialogue") !== null;
    return onView && move(event, snapshot, events);
  }
  return letter(event.key, snapshot, events);
}

function clearSelection(snapshot: Snapshot, events: KeyEvents): boolean {
  const { state } = snapshot;
  if (state.search) events.change({ search: "" });
  else if (state.head !== null && state.view === "heads") events.change({ head: null });
  else if (snapshot.chosen) events.change({ token: null });
  else if (snapshot.example.answer && !explainsWhole(snapshot)) {
    events.change({ part: wholePart(snapshot.example.answer) });
  } else return false;
  return true;
}

function letter(key: string, snapshot: Snapshot, events: KeyEvents): boolean {
  const { state, example } = snapshot;
  const view = events.views[Number(key) - 1];
  if (view) events.change({ view });
  else if (key === "m" || key === "M") {
    const names = example.methods.map((method) => method.name);
    events.change({ method: names[(names.indexOf(state.method) + 1) % names.length] });
  } else if (key === "s" || key === "S") events.change({ special: !state.special });
  else if (key === "w" || key === "W") {
    events.change({ units: state.units === "tokens" ? "words" : "tokens" });
  } else if ((key === "a" || key === "A") && example.answer) {
    events.change({ part: wholePart(example.answer), token: null });
  } else if (key === "t" || key === "T") events.table();
  else if (key === "/") events.search();
  else if (key === "?") events.help();
  else return false;
  return true;
}

function move(event: KeyboardEvent, snapshot: Snapshot, events: KeyEvents): boolean {
  const { state, example, rightToLeft, layer } = snapshot;
  const forwards = rightToLeft ? "ArrowLeft" : "ArrowRight";
  const patches = state.view === "image" ? example.image : null;
  if (state.view === "text" && example.answer && !/Arrow(Up|Down)|Page/.test(event.key)) {
    const change = moveCursor(event, snapshot, forwards);
    if (change) events.change(change);
    return true;
  }
  switch (event.key) {
    case "ArrowLeft":
    case "ArrowRight": {
      const step = event.key === forwards ? 1 : -1;
      if (event.shiftKey && state.view === "heads") {
        events.change({ head: stepHead(snapshot, event.key === "ArrowRight" ? 1 : -1) });
        return true;
      }
      events.change(
        event.shiftKey
          ? { token: stepToken(snapshot, step) }
          : { position: stepItem(snapshot, step) },
      );
      return true;
    }
    case "Home":
      events.change({ position: tokenOf(snapshot, snapshot.columns[0]) });
      return true;
    case "End":
      events.change({
        position: tokenOf(snapshot, snapshot.columns[snapshot.columns.length - 1]),
      });
      return true;
    default: {
      const up = event.key === "ArrowUp" || event.key === "PageUp";
      if (patches && event.key.startsWith("Arrow")) {
        const to = snapshot.position + (up ? -patches.columns : patches.columns);
        if (to >= patches.first && to < patches.first + patches.rows * patches.columns) {
          events.change({ position: to });
        }
      } else
        events.change({
          layer: Math.min(example.n_layers, Math.max(1, layer + (up ? 1 : -1))),
        });
      return true;
    }
  }
}

/** The text with an answer has one cursor: on the answer it is the explained part, which Shift
 * extends; on the prompt it is the traced token. */
function moveCursor(
  event: KeyboardEvent,
  snapshot: Snapshot,
  forwards: string,
): Partial<State> | null {
  const { example, items, columns, part, position, token, chosen } = snapshot;
  const { answer } = example;
  if (!answer) return null;
  const step = event.key === forwards ? 1 : -1;
  const edge = part ? part[step > 0 ? 1 : 0] : position;
  const from = items.of[chosen && token !== null ? token : edge];
  const ends = { Home: columns[0], End: columns[columns.length - 1] };
  const item = ends[event.key as keyof typeof ends] ?? next(snapshot, from, step);
  const own = items.groups[item].filter((t) => t >= answer.first);
  if (!own.length) return event.shiftKey ? null : { token: items.groups[item][0] };
  if (!event.shiftKey || !part) return { part: [own[0], own[own.length - 1]], token: null };
  return { part: [Math.min(part[0], own[0]), Math.max(part[1], own[own.length - 1])] };
}

const tokenOf = (snapshot: Snapshot, item: number | undefined): number =>
  item === undefined ? snapshot.position : snapshot.items.groups[item][0];

function stepHead(snapshot: Snapshot, step: number): number {
  const heads = snapshot.example.n_heads;
  const from = snapshot.state.head ?? (step > 0 ? -1 : heads);
  return Math.min(heads - 1, Math.max(0, from + step));
}

/** The next item shown in either direction; stops at the ends. */
function next(snapshot: Snapshot, item: number, step: number): number {
  const { columns } = snapshot;
  const at = columns.indexOf(item);
  if (at >= 0) return columns[Math.min(columns.length - 1, Math.max(0, at + step))];
  const beyond = columns.filter((other) => (step > 0 ? other > item : other < item));
  return (step > 0 ? beyond[0] : beyond[beyond.length - 1]) ?? columns[0] ?? item;
}

const stepItem = (snapshot: Snapshot, step: number): number =>
  tokenOf(snapshot, next(snapshot, snapshot.item, step));

function stepToken(snapshot: Snapshot, step: number): number {
  const from = snapshot.token ?? snapshot.position;
  return tokenOf(snapshot, next(snapshot, snapshot.items.of[from], step));
}
