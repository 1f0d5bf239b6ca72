// The style sheet of the viewer. It applies to the shadow root only; colors are custom properties
// set from the themes.

import { FONT } from "../paint/painter.ts";
import { DARK, LIGHT, type Theme } from "../paint/theme.ts";

const properties = (theme: Theme): string => `
  color-scheme: ${theme.dark ? "dark" : "light"};
  --ground: ${theme.ground}; --raised: ${theme.raised}; --ink: ${theme.ink};
  --quiet: ${theme.quiet}; --faint: ${theme.faint}; --accent: ${theme.accent};
  --bottleneck: ${theme.bottleneck}; --match: ${theme.match};
  --shadow: ${theme.dark ? "#000000cc" : "#00000040"};
  --on-accent: ${theme.dark ? "#0b1118" : "#ffffff"};
  --ramp: linear-gradient(to right, ${[0, 42, 85, 127, 170, 212, 255].map((i) => theme.ramp.css[i]).join(", ")});
  --stretched: linear-gradient(to right, ${[38, 74, 110, 147, 183, 219, 255].map((i) => theme.ramp.css[i]).join(", ")});
  --bar: ${theme.dark ? theme.ramp.css[150] : theme.ramp.css[130]};`;

export const CSS = `
:host { display: block; }
.app { ${properties(LIGHT)} }
@media (prefers-color-scheme: dark) { .app:not([data-theme="light"]) { ${properties(DARK)} } }
.app[data-theme="dark"] { ${properties(DARK)} }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
.app {
  container-type: inline-size; position: relative; background: var(--ground); color: var(--ink);
  font: 15px/1.5 ${FONT}; padding: 12px 24px 24px; border-radius: 10px; text-align: start;
}
.app :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
select { border: 1px solid var(--faint); background: var(--raised); border-radius: 6px;
  padding: 1px 4px; }
button, input, select { font: inherit; color: inherit; }
button { cursor: pointer; }
.top { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 20px; }
.title { font-size: 17px; font-weight: 650; margin: 0; flex: 1 1 auto; min-width: 0;
  overflow-wrap: anywhere; }
.tools { display: flex; gap: 6px; }
.tool { border: 1px solid var(--faint); background: none; border-radius: 6px; padding: 2px 10px;
  font-size: 13px; color: var(--quiet); }
.tool:hover { color: var(--ink); border-color: var(--quiet); }
.tabs { display: flex; gap: 0 22px; border-bottom: 1px solid var(--faint); margin: 4px 0 0;
  flex-wrap: wrap; }
.tabs button { border: 0; background: none; padding: 6px 2px; color: var(--quiet);
  border-bottom: 2px solid transparent; margin-bottom: -1px; white-space: nowrap; }
.tabs button:hover { color: var(--ink); }
.tabs button[aria-selected="true"] { color: var(--ink); font-weight: 600;
  border-bottom-color: var(--accent); }
.tabs button:focus-visible { outline-offset: -2px; }
.hint { margin: 8px 0; max-width: 140ch; font-size: 14px; }
.hint > span + span { display: inline-block; }
.hint .tool { padding: 0 8px; }
.main-row, .option-row { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: center; }
.option-row { gap: 4px 20px; }
.field { border: 0; padding: 0; margin: 0; display: flex; align-items: center; gap: 8px;
  font-size: 13px; color: var(--quiet); min-width: 0; }
.field legend { padding: 0; float: inline-start; }
.field.wide { flex: 0 1 330px; }
.field > span { white-space: nowrap; }
.value { color: var(--ink); font-variant-numeric: tabular-nums; }
.segments { display: inline-flex; flex-wrap: wrap; border: 1px solid var(--faint); border-radius: 8px; padding: 2px;
  background: var(--raised); }
.segments label { position: relative; }
.segments input { position: absolute; inset: 0; opacity: 0; margin: 0; cursor: pointer; }
.segments span { display: block; padding: 4px 14px; border-radius: 6px; font-size: 14px;
  color: var(--ink); white-space: nowrap; }
.segments input:checked + span { background: var(--accent); color: var(--on-accent);
  font-weight: 600; }
.segments input:focus-visible + span { outline: 2px solid var(--accent); outline-offset: 2px; }
input[type="range"] { accent-color: var(--accent); width: 84px; min-width: 60px; margin: 0; }
.main-row input[type="range"] { flex: 1 1 120px; width: 120px; }
input[type="checkbox"] { accent-color: var(--accent); width: 16px; height: 16px; margin: 0; }
input[type="search"] { border: 1px solid var(--faint); background: var(--raised); border-radius: 8px;
  padding: 4px 10px; width: 140px; font-size: 14px; color: var(--ink); }
.searching { display: flex; align-items: center; gap: 10px; }
.count { font-size: 13px; color: var(--quiet); min-width: 0; }
.toggle { display: inline-flex; gap: 7px; align-items: center; font-size: 13px; cursor: pointer;
  min-height: 28px; }
.summary { margin: 6px 0 0; max-width: 140ch; font-size: 13px; color: var(--quiet); }
.examples { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 8px; }
.pill { border: 1px solid var(--faint); background: none; border-radius: 20px; padding: 3px 14px;
  font-size: 13px; max-width: 100%; overflow-wrap: anywhere; }
.pill[aria-pressed="true"] { border-color: var(--accent); color: var(--accent); font-weight: 600; }
.options { margin: 8px 0 0; font-size: 13px; }
.options summary { color: var(--quiet); cursor: pointer; width: max-content; border-radius: 4px; }
.option-row { padding: 4px 0 0; }
.panels { display: grid; gap: 28px 40px; margin-top: 10px; grid-template-columns: minmax(0, 1fr); }
.panel { min-width: 0; container-type: inline-size; }
.panel-name { font-size: 15px; font-weight: 650; margin: 0 0 2px; overflow-wrap: anywhere; }
.settings { font-size: 13px; color: var(--quiet); margin: 0 0 6px; overflow-wrap: anywhere; }
.panel-grid { display: grid; gap: 20px 36px; grid-template-columns: minmax(0, 1fr); }
.view { min-width: 0; }
.stage { overflow-x: auto; overflow-y: hidden; border-radius: 6px; outline-offset: 4px;
  background: linear-gradient(to right, var(--ground) 40%, transparent) 0 0 / 40px 100% local,
    linear-gradient(to left, var(--ground) 40%, transparent) 100% 0 / 40px 100% local,
    linear-gradient(to right, var(--shadow), transparent) 0 0 / 14px 100% scroll,
    linear-gradient(to left, var(--shadow), transparent) 100% 0 / 14px 100% scroll;
  background-repeat: no-repeat; }
.sentence.long, .dialogue.long, .tables {
  background: linear-gradient(var(--ground) 40%, transparent) 0 0 / 100% 40px local,
    linear-gradient(to top, var(--ground) 40%, transparent) 0 100% / 100% 40px local,
    linear-gradient(var(--shadow), transparent) 0 0 / 100% 14px scroll,
    linear-gradient(to top, var(--shadow), transparent) 0 100% / 100% 14px scroll;
  background-repeat: no-repeat; }
.cue { font-size: 12px; color: var(--quiet); margin: 4px 0 0; text-align: center; }
.holder { position: sticky; left: 0; top: 0; width: max-content; }
.holder canvas { display: block; }
.overlay { position: absolute; inset: 0; pointer-events: none; }
.sentence { font-size: 20px; line-height: 2; border-radius: 6px; padding: 2px; outline-offset: 4px;
  overflow-wrap: anywhere; }
.sentence.short { font-size: 26px; line-height: 1.9; }
.sentence.long { font-size: 16px; line-height: 1.9; max-height: 520px; overflow-y: auto; }
.chip { unicode-bidi: isolate; display: inline-block; max-width: 100%; padding: 0 7px;
  line-height: 1.55; border-radius: 6px; cursor: pointer; margin: 0 1px; white-space: pre-wrap; }
.side { display: inline-block; width: 7ch; font-size: 12px; color: var(--quiet); }
.chip:hover { box-shadow: inset 0 0 0 1px var(--quiet); }
.chip.special { font-size: 0.82em; }
.chip.match { text-decoration: underline 3px var(--match); text-underline-offset: 4px; }
.chip.traced { box-shadow: inset 0 0 0 2px var(--bottleneck); }
.chip.chosen { box-shadow: 0 0 0 2px var(--ground), 0 0 0 4px var(--accent); }
.dialogue { display: grid; grid-auto-rows: max-content; gap: 10px; font-size: 17px; line-height: 1.75; border-radius: 6px;
  padding: 2px; outline-offset: 4px; overflow-wrap: anywhere; }
.dialogue.short { font-size: 20px; }
.dialogue.long { font-size: 15px; line-height: 1.65; overflow-y: auto; }
.block { display: grid; grid-template-columns: 84px minmax(0, 1fr); gap: 0 12px;
  border-inline-start: 3px solid var(--faint); padding-inline-start: 10px; }
.block.answer { border-inline-start-color: var(--accent); background: var(--raised);
  border-radius: 0 6px 6px 0; padding-block: 4px; }
.block.answer .words { user-select: none; touch-action: pan-y; }
.block.bare { font-size: 12px; line-height: 1.5; border-color: transparent; }
.dialogue.long .block.answer { position: sticky; bottom: -2px; max-height: 170px; overflow-y: auto; }
.role { font-size: 12px; font-weight: 650; color: var(--quiet); padding-top: 5px;
  overflow-wrap: anywhere; }
.words { white-space: pre-wrap; min-width: 0; }
.piece { border-radius: 3px; cursor: pointer; padding: 2px 0; box-decoration-break: clone;
  -webkit-box-decoration-break: clone; unicode-bidi: normal; }
.piece:hover { outline: 1px solid var(--quiet); }
.piece.special { font-size: 0.7em; color: var(--quiet); padding: 1px 3px; margin: 0 1px;
  unicode-bidi: isolate; display: inline-block; }
.block.bare .piece.special { font-size: 11px; }
.piece.unlikely { text-decoration: underline dotted 1.5px currentColor; text-underline-offset: 5px; }
.piece.part { box-shadow: 0 2px var(--accent); }
.piece.traced { outline: 2px solid var(--bottleneck); }
.piece.match { text-decoration: underline 3px var(--match); text-underline-offset: 4px; }
.outcomes.many { max-height: 300px; overflow-y: auto; }
.method-rows { margin-top: 30px; display: grid; gap: 6px; }
.method-row { display: grid; grid-template-columns: 224px minmax(0, 1fr); gap: 4px 12px;
  align-items: baseline; padding: 4px 6px; border-radius: 6px; cursor: pointer; margin-left: -6px; }
.method-row:hover { background: var(--raised); }
.method-name { font-size: 13px; color: var(--quiet); }
.method-row.current .method-name { color: var(--accent); font-weight: 650; }
.method-rows .chip { font-size: 14px; padding: 0 5px; border-radius: 4px; margin: 0 0 2px; }
.method-rows .chip:hover { box-shadow: none; }
.legend { display: flex; align-items: center; gap: 8px; font-size: 12px; color: var(--quiet);
  margin-top: 14px; font-variant-numeric: tabular-nums; }
.legend i { width: 120px; height: 8px; border-radius: 4px; background: var(--ramp); }
.legend i.stretched { background: var(--stretched); }
.readout h2, .prediction h2 { font-size: 13px; font-weight: 600; color: var(--quiet);
  margin: 0 0 8px; overflow-wrap: anywhere; }
.ranking { list-style: none; margin: 0; padding: 0; font-size: 14px; }
.ranking button { display: grid; grid-template-columns: minmax(0, 13ch) 1fr 6ch; gap: 10px;
  align-items: center; width: 100%; border: 0; background: none; padding: 2px 4px; text-align: start;
  border-radius: 4px; }
.ranking button:hover { background: var(--raised); }
.ranking button.traced { box-shadow: -3px 0 var(--bottleneck); border-radius: 0; }
.ranking .name, .outcomes bdi { text-align: left; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ranking .name { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2;
  white-space: normal; overflow-wrap: anywhere; }
.mark { color: var(--quiet); font-size: 11px; }
.prediction.other > .body { opacity: 0.6; }
.elsewhere { font-size: 13px; margin: 0 0 8px; padding: 6px 10px; background: var(--raised);
  border-inline-start: 3px solid var(--match); border-radius: 4px; }
.tie { font-size: 13px; color: var(--quiet); margin: 8px 4px 0; max-width: 60ch; }
.track { height: 8px; border-radius: 4px; background: var(--raised); overflow: hidden; }
.track i { display: block; height: 100%; background: var(--bar); border-radius: 4px; }
.number { font-variant-numeric: tabular-nums; text-align: end; color: var(--quiet); font-size: 13px; }
.prediction { margin-top: 22px; }
.prediction .target { font-size: 20px; font-weight: 650; margin: 0 0 8px; overflow-wrap: anywhere; }
.prediction .target small { font-weight: 400; color: var(--quiet); font-size: 14px; }
.outcomes { list-style: none; padding: 0; margin: 0; font-size: 14px; }
.outcomes li { display: grid; grid-template-columns: minmax(0, 9ch) 1fr 6ch; gap: 10px;
  align-items: center; padding: 2px 4px; }
.warnings { font-size: 13px; margin: 0 0 8px; max-width: 130ch; padding: 4px 12px;
  border-inline-start: 3px solid var(--match); background: var(--raised); border-radius: 4px;
  overflow-wrap: anywhere; }
.note { font-size: 13px; margin: 0 0 8px; max-width: 130ch; }
.note .bottleneck { color: var(--bottleneck); font-weight: 650; }
.status { color: var(--quiet); font-size: 13px; min-height: 20px; margin: 8px 0 0; }
.error { border-inline-start: 3px solid var(--bottleneck); background: var(--raised); padding: 10px 14px;
  border-radius: 4px; margin: 0 0 14px; overflow-wrap: anywhere; }
.error button { margin-inline-start: 10px; }
.tooltip { position: absolute; z-index: 5; pointer-events: none; background: var(--ink);
  color: var(--ground); border-radius: 6px; padding: 6px 10px; font-size: 13px; max-width: 280px;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tooltip b { display: block; }
.tooltip span { display: block; }
.table { margin-top: 22px; font-size: 13px; }
.table summary { color: var(--quiet); cursor: pointer; width: max-content; border-radius: 4px; }
.tables { max-height: 420px; overflow: auto; margin-top: 8px; border-radius: 6px; }
table { border-collapse: collapse; margin: 0 0 16px; font-variant-numeric: tabular-nums; }
caption { text-align: start; color: var(--quiet); padding: 4px 0; }
th, td { padding: 3px 14px 3px 0; border-bottom: 1px solid var(--faint); text-align: end;
  white-space: nowrap; }
th { font-weight: 600; }
tbody th, thead th:first-child { text-align: start; font-weight: 400; max-width: 24ch; overflow: hidden;
  text-overflow: ellipsis; unicode-bidi: isolate; }
.live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
dialog { border: 1px solid var(--faint); border-radius: 12px; background: var(--ground);
  color: var(--ink); padding: 22px 26px; max-width: min(560px, 92vw); }
dialog::backdrop { background: rgb(0 0 0 / 0.35); }
dialog h2 { font-size: 17px; margin: 0 0 10px; }
dialog dl { display: grid; grid-template-columns: max-content 1fr; gap: 5px 18px; margin: 0 0 14px;
  font-size: 14px; }
dialog dt { font-weight: 600; }
dialog dd { margin: 0; color: var(--quiet); }
dialog p { font-size: 14px; color: var(--quiet); margin: 0 0 10px; }
@container (min-width: 860px) {
  .panels.two { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@container (min-width: 712px) {
  .options summary { display: none; }
  .options { margin-top: 4px; }
  .panel-grid { grid-template-columns: minmax(0, 1fr) 240px; }
}
@container (max-width: 560px) {
  .method-row { grid-template-columns: minmax(0, 1fr); }
}
@container (max-width: 480px) {
  .tabs { gap: 13px; font-size: 14px; }
  .segments { display: flex; }
  .segments label { flex: 1 1 auto; text-align: center; }
  .segments span { padding: 5px 6px; font-size: 13px; }
  .segments input:checked + span { font-weight: 400; }
  .main-row { gap: 12px 18px; }
  .main-row > fieldset, .option-row > .field { flex: 1 1 100%; }
  .main-row > .field.wide, .main-row > .searching { flex: 1 1 100%; }
  .field legend { float: none; margin-bottom: 4px; }
  .main-row > fieldset { display: block; }
  .main-row input[type="range"] { min-width: 100px; }
  .count { display: none; }
  .sentence, .sentence.short { font-size: 19px; }
  .block { grid-template-columns: minmax(0, 1fr); }
  .dialogue, .dialogue.short { font-size: 17px; }
  .dialogue.long { font-size: 15px; }
  .searching input { width: 100%; }
  .searching .field { flex: 1; white-space: nowrap; }
}
@media (max-width: 480px) { .app { padding: 14px 14px 20px; border-radius: 0; } }
@media (prefers-reduced-motion: no-preference) {
  .track i { transition: width 0.15s; }
}
@media (forced-colors: active) {
  .chip, .piece, .track i, .legend i, .holder { forced-color-adjust: none; }
  .holder canvas:first-child { background: var(--ground); }
  .chip.chosen { outline: 3px solid var(--accent); }
  .chip.traced { outline: 3px dashed var(--bottleneck); }
  .segments input:checked + span, .pill[aria-pressed="true"] { forced-color-adjust: none;
    background: Highlight; color: HighlightText; }
  .tabs button { border-bottom-color: Canvas; }
  .tabs button[aria-selected="true"] { border-bottom: 4px solid Highlight; }
  .track, .tooltip { border: 1px solid CanvasText; }
  .ranking button.traced { outline: 2px dashed Highlight; }
}
.sheet { display: none; }
@media print {
  .app, .app[data-theme] { ${properties(LIGHT)} padding: 0; print-color-adjust: exact; }
  .controls, .tabs, .tools, .cue, .status, .tooltip, .elsewhere button, dialog,
  .table:not([open]) { display: none !important; }
  .sentence.long, .dialogue.long, .dialogue.long .block.answer, .outcomes.many,
  .tables { max-height: none !important; overflow: visible; background: none; }
  .chip, .ranking li, .outcomes li, tr, .prediction { break-inside: avoid; }
  .app.drawn > .panels { display: none; }
  .app.drawn > .sheet { display: block; }
  .sheet svg { display: block; max-width: 100%; max-height: 94vh; height: auto; margin: auto;
    print-color-adjust: exact; }
}
`;

/** Add the style sheet to a shadow root; a strict content security policy forbids inline styles. */
export function addStyles(root: ShadowRoot): void {
  try {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(CSS);
    root.adoptedStyleSheets = [sheet];
  } catch {
    const style = document.createElement("style");
    style.textContent = CSS;
    root.append(style);
  }
}
