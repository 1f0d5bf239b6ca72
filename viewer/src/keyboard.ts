// Keys: what each does to the state.

import { METHODS } from "./format.ts";
import type { Reading } from "./reading.ts";
import { VIEWS, type State } from "./state.ts";

export interface KeyEvents {
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

/** Act on a key; whether it meant something here. */
export function pressed(event: KeyboardEvent, reading: Reading, events: KeyEvents): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const target = event.composedPath()[0] as HTMLElement;
  const typing = target instanceof HTMLInputElement && target.type === "search";
  if (event.key === "Escape") return giveUp(reading, events);
  if (typing || target instanceof HTMLSelectElement) return false; // they have keys of their own
  if (moving.has(event.key)) {
    const onView = target.closest(".stage, .sentence") !== null;
    return onView && move(event, reading, events);
  }
  return letter(event.key, reading, events);
}

function giveUp(reading: Reading, events: KeyEvents): boolean {
  const { state } = reading;
  if (state.search) events.change({ search: "" });
  else if (state.head !== null && state.view === "heads") events.change({ head: null });
  else if (reading.chosen) events.change({ token: null });
  else return false;
  return true;
}

function letter(key: string, reading: Reading, events: KeyEvents): boolean {
  const { state } = reading;
  const view = VIEWS[Number(key) - 1];
  if (view) events.change({ view });
  else if (key === "m" || key === "M") {
    const next = (METHODS.indexOf(state.method) + 1) % METHODS.length;
    events.change({ method: METHODS[next] });
  } else if (key === "s" || key === "S") events.change({ special: !state.special });
  else if (key === "w" || key === "W") events.change({ words: !state.words });
  else if (key === "t" || key === "T") events.table();
  else if (key === "/") events.search();
  else if (key === "?") events.help();
  else return false;
  return true;
}

function move(event: KeyboardEvent, reading: Reading, events: KeyEvents): boolean {
  const { state, example, rightToLeft, layer } = reading;
  const forwards = rightToLeft ? "ArrowLeft" : "ArrowRight";
  const patches = state.view === "image" ? example.image : null;
  switch (event.key) {
    case "ArrowLeft":
    case "ArrowRight": {
      const step = event.key === forwards ? 1 : -1;
      if (event.shiftKey && state.view === "heads") {
        events.change({ head: stepHead(reading, event.key === "ArrowRight" ? 1 : -1) });
        return true;
      }
      events.change(
        event.shiftKey
          ? { token: stepToken(reading, step) }
          : { position: stepItem(reading, step) },
      );
      return true;
    }
    case "Home":
      events.change({ position: tokenOf(reading, reading.columns[0]) });
      return true;
    case "End":
      events.change({
        position: tokenOf(reading, reading.columns[reading.columns.length - 1]),
      });
      return true;
    default: {
      const up = event.key === "ArrowUp" || event.key === "PageUp";
      if (patches && event.key.startsWith("Arrow")) {
        const to = reading.position + (up ? -patches.columns : patches.columns);
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

const tokenOf = (reading: Reading, item: number | undefined): number =>
  item === undefined ? reading.position : reading.items.groups[item][0];

function stepHead(reading: Reading, step: number): number {
  const heads = reading.example.n_heads;
  const from = reading.state.head ?? (step > 0 ? 0 : heads + 1);
  return Math.min(heads, Math.max(1, from + step));
}

/** The next shown item after one, in either direction; stops at the ends. */
function next(reading: Reading, item: number, step: number): number {
  const { columns } = reading;
  const at = columns.indexOf(item);
  if (at >= 0) return columns[Math.min(columns.length - 1, Math.max(0, at + step))];
  const beyond = columns.filter((one) => (step > 0 ? one > item : one < item));
  return (step > 0 ? beyond[0] : beyond[beyond.length - 1]) ?? columns[0] ?? item;
}

const stepItem = (reading: Reading, step: number): number =>
  tokenOf(reading, next(reading, reading.item, step));

function stepToken(reading: Reading, step: number): number {
  const from = reading.token ?? reading.position;
  return tokenOf(reading, next(reading, reading.items.of[from], step));
}
