import assert from "node:assert/strict";
import { test } from "node:test";
import {
  digits,
  plainToken,
  percent,
  runsRightToLeft,
  shorten,
  visible,
} from "../../src/data/text.ts";

test("characters that hide or reorder text become symbols", () => {
  assert.equal(visible("\u0000null"), "⟨U+0000⟩null");
  assert.equal(visible("\u202eevil"), "⟨U+202E⟩evil");
  assert.equal(visible("\u2066a\u2069"), "⟨U+2066⟩a⟨U+2069⟩");
  assert.equal(visible("a\nb\tc"), "a↵b⇥c");
  assert.equal(visible("\u200b"), "⟨U+200B⟩");
  assert.equal(visible("\ufeff"), "⟨U+FEFF⟩");
  assert.equal(visible("\ud800x"), "⟨U+D800⟩x");
  assert.equal(visible("\u0085"), "⟨U+0085⟩");
  assert.equal(visible("a\u{e0041}"), "a⟨U+E0041⟩");
});

test("empty and blank tokens are visible", () => {
  assert.equal(visible(""), "∅");
  assert.equal(visible("  "), "␣␣");
});

test("ordinary text of any script is unchanged", () => {
  for (const text of [
    "<b>&amp;",
    "##s",
    "می‌خواهم",
    "👩‍👩‍👧‍👦",
    "המחבר",
    "क्षि",
    "🏴\u{e0067}\u{e007f}",
  ]) {
    assert.equal(visible(text), text);
  }
});

test("stacked combining marks are limited", () => {
  assert.equal(visible("a" + "\u0301".repeat(50)).length, 5);
});

test("long texts are shortened between graphemes", () => {
  assert.equal(shorten("abcdef", 4), "abc…");
  assert.equal(shorten("👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 2), "👩‍👩‍👧‍👦…");
  assert.equal(shorten("abc", 3), "abc");
});

test("the direction is that of most letters", () => {
  assert.equal(runsRightToLeft(["המחברים", "של", "ok"]), true);
  assert.equal(runsRightToLeft(["كتب"]), true);
  assert.equal(runsRightToLeft(["the", "של"]), false);
  assert.equal(runsRightToLeft(["1", "."]), false);
});

test("three significant digits", () => {
  assert.equal(digits(0.12345), "0.123");
  assert.equal(digits(0.0123456), "0.0123");
  assert.equal(digits(0.00123456), "0.00123");
  assert.equal(digits(1), "1.00");
  assert.equal(digits(0.9996), "1.00");
  assert.equal(digits(0), "0");
  assert.equal(digits(0.00001234), "1.23e−5");
  assert.equal(digits(0.000657), "6.57e−4");
  assert.equal(digits(Infinity), "unlimited");
  assert.equal(percent(0.981), "98%");
  assert.equal(percent(0.0195), "1.9%");
});

const label = (token: string): string => visible(plainToken(token));

test("labels have no mark for the start of a word", () => {
  assert.equal(label("\u0120Tower"), "Tower");
  assert.equal(label("\u2581of"), "of");
  assert.equal(label("##s"), "##s");
  assert.equal(label("\u010a"), "↵");
  assert.equal(label("\u0120"), "\u0120", "a blank stays visible");
});

test("joiners and variation selectors without a letter are shown by their code", () => {
  assert.equal(visible("\u200d²"), "⟨U+200D⟩²");
  assert.equal(visible("\ufe0f"), "⟨U+FE0F⟩");
  assert.equal(visible("♀\ufe0f"), "♀\ufe0f");
});
