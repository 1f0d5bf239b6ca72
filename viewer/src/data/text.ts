// Text from untrusted data, made safe to show: control characters and bidi controls become symbols.
// Tokens, texts and names pass through `visible` before they are shown. Also number formats.

// Controls, soft hyphen, Arabic letter mark, zero-width and bidi controls, line separators,
// invisible operators, lone surrogates, byte order mark, interlinear marks and tags. Joiners
// (U+200C, U+200D) are kept: Persian words and joined emoji need them.
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffc]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const TAGS = /[\u{e0000}-\u{e007f}]/gu;
// Joiners and variation selectors without a letter, such as a part of an emoji.
const ALONE = /^[\u200c\u200d\ufe00-\ufe0f¹²³⁴]+$/u;
const MARKS = /(\p{M}{4})\p{M}+/gu;

const code = (character: string): string =>
  `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

function symbol(character: string): string {
  const point = character.codePointAt(0) ?? 0;
  if (point === 10) return "↵";
  if (point === 9) return "⇥";
  return code(character);
}

/** Replace characters that hide, reorder or break the surrounding text by symbols. */
export function visible(text: string): string {
  let shown = String(text).replace(HIDDEN, symbol).replace(MARKS, "$1");
  if (!shown.includes("\u{1f3f4}")) shown = shown.replace(TAGS, code); // flags use tags
  if (ALONE.test(shown)) shown = shown.replace(/[^¹²³⁴]/gu, code);
  if (shown === "") return "∅";
  return /^\s+$/.test(shown) ? "␣".repeat(Math.min(shown.length, 8)) : shown;
}

const START = /^[\u0120\u2581](?=.)/su; // byte-level BPE and SentencePiece
const NEWLINE = "\u010a"; // of byte-level BPE

/** A token without the mark for the start of a word, for data without labels. */
export const plainToken = (token: string): string =>
  token === NEWLINE ? "\n" : token.replace(START, "");

const segmenter =
  typeof Intl !== "undefined" && "Segmenter" in Intl
    ? new Intl.Segmenter(undefined, { granularity: "grapheme" })
    : null;

/** Shorten a text to at most `max` graphemes, with an ellipsis. */
export function shorten(text: string, max: number): string {
  if (text.length <= max) return text;
  const parts = segmenter
    ? Array.from(segmenter.segment(text.slice(0, max * 16)), (part) => part.segment)
    : Array.from(text);
  return parts.length <= max ? text : parts.slice(0, max - 1).join("") + "…";
}

const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]|[\ud802\ud803\ud83a\ud83b]/;
const LTR = /\p{L}/u;

/** Whether most letters are written from right to left. */
export function runsRightToLeft(texts: readonly string[]): boolean {
  let right = 0;
  let left = 0;
  for (const text of texts) {
    for (const character of text) {
      if (RTL.test(character)) right++;
      else if (LTR.test(character)) left++;
    }
  }
  return right > left;
}

/** A number with three significant digits. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : "unlimited";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 0.001 ? value.toExponential(2).replace("e-", "e−") : value.toPrecision(3);
}

export const percent = (share: number | null): string =>
  share === null
    ? "unknown"
    : share > 0 && share < 0.0005
      ? "<0.1%"
      : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
