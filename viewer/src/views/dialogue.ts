// The text view of an example with an answer: prompt and answer as running text, a block for each
// message. Selecting a part of the answer shades the prompt; selecting a token of the prompt shades
// the answer by where the token went.

import type { Example } from "../data/header.ts";
import { type Range, strength } from "../data/range.ts";
import { answerItems, tracedItem, type Snapshot } from "../data/snapshot.ts";
import type { Part, State } from "../data/state.ts";
import { digits, percent, runsRightToLeft, shorten, visible } from "../data/text.ts";
import { make } from "../paint/dom.ts";
import { fit, type Painter } from "../paint/painter.ts";
import { shade, type Theme } from "../paint/theme.ts";
import { describeLayerOf, itemLines, scoreText, targetName, titleOf } from "./captions.ts";

const MAX_PIECE = 300; // characters of a token
const UNLIKELY = 0.3; // tokens of the answer with a lower probability are marked

/** A block of text: its title, and its tokens. */
export interface Block {
  title: string; // empty for the tokens of a template
  first: number;
  end: number;
}

/** The blocks of a text: its segments, and what is between them. */
export function blocksOf({ example }: Pick<Snapshot, "example">): Block[] {
  const blocks: Block[] = [];
  const rest = (first: number, end: number): void => {
    if (first >= end) return;
    const bare = example.special.slice(first, end).every(Boolean);
    blocks.push({ title: bare ? "" : "prompt", first, end });
  };
  let at = 0;
  for (const [name, first, end] of example.segments) {
    rest(at, first);
    blocks.push({ title: visible(name), first, end });
    at = end;
  }
  rest(at, example.tokens.length);
  return blocks;
}

/** A token in running text: the space before it, and the rest with its line breaks. */
export function pieceOf(run: string): { space: string; text: string } {
  const space = /^[^\S\n]*/.exec(run)?.[0] ?? "";
  const rest = run.slice(space.length);
  if (!rest) return { space: "", text: space ? visible(space) : "" };
  return { space, text: visible(rest).replaceAll("↵", "↵\n") };
}

/** For each token the one whose piece of the text it shares: tokens that are parts of a character
 * share that of the first. */
export function ownersOf({ runs, special, tokens }: Example): number[] {
  const owners: number[] = [];
  tokens.forEach((_, token) => {
    const shares = token > 0 && runs[token] === "" && !special[token] && !special[token - 1];
    owners.push(shares ? owners[token - 1] : token);
  });
  return owners;
}

export interface DialogueEvents {
  change(change: Partial<State>): void;
  hover(item: number | null, event: Event): void;
}

export class DialogueView {
  readonly element: HTMLElement;
  private readonly events: DialogueEvents;
  private pieces: HTMLElement[] = [];
  private labels: readonly string[] = [];
  private owners: number[] = [];
  private snapshot: Snapshot | null = null;
  private titles: HTMLElement[] = [];
  private bare: HTMLElement[] = []; // blocks of a template
  private anchor: Part | null = null; // where a drag or a selection with Shift starts
  private dragging = false;

  constructor(events: DialogueEvents) {
    this.events = events;
    this.element = make("div", {
      class: "dialogue",
      tabindex: 0,
      role: "listbox",
      "aria-multiselectable": "true",
      testid: "dialogue",
    });
    this.element.addEventListener("pointerdown", (event) => this.press(event));
    this.element.addEventListener("pointermove", (event) => this.move(event));
    this.element.addEventListener("pointerup", () => (this.dragging = false));
    this.element.addEventListener("pointercancel", () => (this.dragging = false));
    this.element.addEventListener("pointerleave", (event) => events.hover(null, event));
  }

  /** The token under the pointer. */
  private tokenAt(event: PointerEvent): number | null {
    const root = this.element.getRootNode() as ShadowRoot;
    const found =
      root.elementFromPoint?.(event.clientX, event.clientY) ?? (event.target as Element);
    const piece = found.closest<HTMLElement>("[data-token]");
    return piece && this.element.contains(piece) ? Number(piece.dataset.token) : null;
  }

  /** The part of the answer that belongs to a token; null for a token of the prompt. */
  private partAt(token: number): Part | null {
    const { snapshot } = this;
    if (!snapshot?.example.answer || token < snapshot.example.answer.first) return null;
    if (snapshot.items.special[snapshot.items.of[token]]) return [token, token];
    const own = answerItems(snapshot).find(({ item }) => item === snapshot.items.of[token]);
    return own ? [own.part[0], Math.max(own.part[1], this.owners.lastIndexOf(token))] : null;
  }

  private press(event: PointerEvent): void {
    const token = this.tokenAt(event);
    if (token === null || event.button !== 0 || !this.snapshot) return;
    const part = this.partAt(token);
    if (!part) {
      const { token: traced, chosen, items } = this.snapshot;
      const again = chosen && traced !== null && items.of[traced] === items.of[token];
      this.events.change({ token: again ? null : items.groups[items.of[token]][0] });
      return;
    }
    const extends_ = event.shiftKey && this.snapshot.part !== null;
    if (!extends_ || !this.anchor) this.anchor = extends_ ? this.snapshot.part : part;
    this.dragging = true;
    this.select(part);
  }

  private move(event: PointerEvent): void {
    const token = this.tokenAt(event);
    const { snapshot } = this;
    this.events.hover(token === null || !snapshot ? null : snapshot.items.of[token], event);
    if (!this.dragging || token === null) return;
    if (event.buttons === 0) this.dragging = false;
    const part = this.partAt(token);
    if (part && this.dragging) this.select(part);
  }

  /** Select from the anchor to a part. */
  private select(part: Part): void {
    const [first, last] = this.anchor ?? part;
    const joined: Part = [Math.min(first, part[0]), Math.max(last, part[1])];
    this.events.change({ part: joined, token: null });
  }

  /** Show a snapshot; `range` is that of the colors. */
  show(snapshot: Snapshot, range: Range): void {
    this.snapshot = snapshot;
    if (this.labels !== snapshot.labels) this.build(snapshot);
    const { theme, state, items, example, part, row, kept, reverse, matches } = snapshot;
    const traced = snapshot.chosen ? tracedItem(snapshot) : null;
    const values = reverse ?? row;
    const first = example.answer?.first ?? items.of.length;
    this.element.setAttribute("aria-label", this.describe(snapshot));
    this.pieces.forEach((piece, token) => {
      const item = items.of[token];
      piece.hidden = (!state.special && items.special[item]) || this.owners[token] !== token;
      if (piece.hidden) return;
      const own = token >= first;
      const lit = reverse ? own : (!own || state.own) && kept[item];
      const value = values && lit ? this.largestOf(values, token) : 0;
      colorPiece(piece, theme, strength(range, value));
      const inPart = part !== null && token >= part[0] && token <= part[1] && !reverse;
      const target = part === null && !reverse && item === snapshot.item;
      piece.classList.toggle("part", inPart || target);
      piece.classList.toggle("traced", traced === item);
      piece.classList.toggle("match", matches.has(item));
      if (piece.getAttribute("role") !== "option") return;
      piece.setAttribute("aria-selected", String(inPart || target || traced === item));
      const score = lit ? scoreText(snapshot, state.method, values?.[item]) : "not shaded";
      piece.setAttribute("aria-label", `${snapshot.labels[item]}${snapshot.marks[item]}, ${score}`);
    });
    for (const block of this.bare) block.hidden = !state.special;
    const focus = traced === null ? (part?.[0] ?? snapshot.position) : items.groups[traced][0];
    this.element.setAttribute("aria-activedescendant", this.pieces[focus].id);
  }

  /** The largest score of the tokens that share a piece of the text. */
  private largestOf(values: Float32Array, token: number): number {
    const of = this.snapshot?.items.of ?? [];
    let value = values[of[token]];
    for (let i = token + 1; this.owners[i] === token; i++) value = Math.max(value, values[of[i]]);
    return value;
  }

  private describe(snapshot: Snapshot): string {
    const shaded = snapshot.reverse
      ? `Answer shaded by where ${targetOfReverse(snapshot)} went`
      : `Prompt shaded by score for ${targetName(snapshot)}`;
    return `${shaded}. Use arrow keys to move, and Shift to select several tokens of the answer.`;
  }

  private build(snapshot: Snapshot): void {
    const { example, items, names, scores } = snapshot;
    this.labels = snapshot.labels;
    this.titles = [];
    this.bare = [];
    this.owners = ownersOf(example);
    const seen = new Set<number>();
    const line: Node[] = [];
    this.pieces = example.tokens.map((_, token) => {
      const item = items.of[token];
      const special = example.special[token];
      const run = example.runs.length ? example.runs[token] : ` ${example.labels[token]}`;
      const { space, text } = special ? { space: "", text: names[token] } : pieceOf(run);
      const joined = token > 0 && items.of[token - 1] === item && !special;
      const probability = probabilityOf(snapshot, token);
      const classes = ["piece", special && "special", isUnlikely(probability) && "unlikely"];
      const piece = make(
        "span",
        {
          id: `piece-${scores.index}-${token}`,
          class: classes.filter(Boolean).join(" "),
          "data-token": token,
          testid: "piece",
          role: seen.has(item) ? "presentation" : "option",
        },
        shorten((joined ? space : "") + text, MAX_PIECE),
      );
      seen.add(item);
      line[token] = joined ? piece : spaced(space, piece);
      return piece;
    });
    this.element.replaceChildren(
      ...blocksOf(snapshot).map((block) => this.makeBlock(snapshot, block, line)),
    );
  }

  private makeBlock({ example }: Snapshot, block: Block, line: readonly Node[]): HTMLElement {
    const { title, first, end } = block;
    const role = title ? { class: "role", role: "presentation" } : { role: "presentation" };
    const heading = make("span", role, title);
    const rightToLeft = runsRightToLeft(
      example.labels.slice(first, end).filter((_, i) => !example.special[first + i]),
    );
    const dir = rightToLeft ? "rtl" : "ltr";
    const text = make("div", { class: "words", dir, role: "presentation" });
    text.append(...line.slice(first, end));
    const answer = example.answer?.first === first ? " answer" : "";
    const kind = title ? `block${answer}` : "block bare";
    const element = make("div", { class: kind, role: "presentation" }, heading, text);
    if (title) this.titles.push(heading);
    else this.bare.push(element);
    return element;
  }

  /** Paint the text as on screen; return its size. */
  paint(painter: Painter): { width: number; height: number } {
    const { element, snapshot } = this;
    const frame = element.getBoundingClientRect();
    const shift = { x: frame.left, y: frame.top - element.scrollTop };
    if (snapshot) {
      for (const title of this.titles) paintTitle(painter, title, shift, snapshot.theme);
      for (const piece of this.pieces) paintPiece(painter, piece, shift, snapshot.theme);
    }
    return { width: frame.width, height: Math.max(frame.height, element.scrollHeight) };
  }
}

/** The selected token of the prompt in words. */
function targetOfReverse({ labels, marks, items, token }: Snapshot): string {
  const item = items.of[token ?? 0];
  return `“${shorten(labels[item], 60)}”${marks[item]}`;
}

/** Method, token and layer, as a caption. */
export const describeReverse = (snapshot: Snapshot): string =>
  `${titleOf(snapshot.example, snapshot.state.method)} from ${targetOfReverse(snapshot)} to the answer at ${describeLayerOf(snapshot)}`;

/** Tooltip lines of an item: also its probability in the answer, and where the token went. */
export function dialogueLines(snapshot: Snapshot, item: number): string[] {
  const own = answerItems(snapshot).find((candidate) => candidate.item === item);
  const lines = itemLines(snapshot, item);
  if (!own) return lines;
  const probability = probabilityOf(snapshot, own.part[0]);
  const likely = own.sources.length === 1 ? [`Probability: ${percent(probability)}`] : [];
  const { reverse, reversed } = snapshot;
  const went = reversed
    ? [`From ${targetOfReverse(snapshot)}: ${reverse ? digits(reverse[item]) : "…"}`]
    : [];
  const [title, ...rest] = lines;
  return [title, ...likely, ...went, ...(reversed ? [] : rest)];
}

/** The probability of a token of the answer; null for others. */
export function probabilityOf({ example }: Snapshot, token: number): number | null {
  const { answer } = example;
  return answer?.steps[token - answer.first]?.target.probability ?? null;
}

const isUnlikely = (probability: number | null): boolean =>
  probability !== null && probability < UNLIKELY;

function spaced(space: string, piece: HTMLElement): Node {
  if (!space) return piece;
  const both = document.createDocumentFragment();
  both.append(space, piece);
  return both;
}

function colorPiece(piece: HTMLElement, theme: Theme, share: number): void {
  const level = shade(share);
  piece.style.backgroundColor = level ? theme.ramp.css[level] : "";
  piece.style.color = level ? theme.ramp.ink[level] : "";
}

interface Shift {
  x: number;
  y: number;
}

function paintTitle(painter: Painter, title: HTMLElement, shift: Shift, theme: Theme): void {
  const box = title.getBoundingClientRect();
  if (!box.width) return;
  const style = { size: 12, weight: 650, fill: theme.quiet };
  painter.text(title.textContent ?? "", box.left - shift.x, box.top - shift.y + 14, style);
}

/** Paint a token at its place on screen; of several lines, its text is on the first. */
function paintPiece(painter: Painter, piece: HTMLElement, shift: Shift, theme: Theme): void {
  if (piece.hidden) return;
  const size = parseFloat(getComputedStyle(piece).fontSize) || 17;
  [...piece.getClientRects()].forEach((box, i) => {
    const [x, y] = [box.left - shift.x, box.top - shift.y];
    if (piece.style.backgroundColor) {
      painter.rect(x, y, box.width, box.height, { fill: piece.style.backgroundColor, radius: 3 });
    }
    const underlined = piece.classList.contains("part") || piece.classList.contains("traced");
    if (underlined) {
      const stroke = piece.classList.contains("traced") ? theme.bottleneck : theme.accent;
      painter.line(x, y + box.height, x + box.width, y + box.height, { stroke, width: 2 });
    }
    if (i > 0) return;
    const text = fit((piece.textContent ?? "").replaceAll("\n", ""), box.width + 2, size);
    painter.text(text, x, y + box.height * 0.5 + size * 0.35, {
      size,
      fill: piece.style.color || theme.ink,
    });
  });
}
