import assert from "node:assert/strict";
import { test } from "node:test";
import { escapeXml, SvgPainter } from "../../src/paint/svg.ts";

test("text cannot leave its element", () => {
  assert.equal(escapeXml(`<a b="c">&'`), "&lt;a b=&quot;c&quot;&gt;&amp;&apos;");
  assert.equal(escapeXml("a\u0000b\ud800"), "a\ufffdb\ufffd");
  const painter = new SvgPainter();
  painter.text("</text><script>", 0, 0, { size: 10, fill: `"/><script>` });
  const svg = painter.finish(10, 10, "</title><script>");
  assert.ok(!svg.includes("<script"));
});

test("shapes are written at their place after moveTo", () => {
  const painter = new SvgPainter();
  painter.moveTo(100, 10);
  painter.rect(1, 2, 3, 4, { fill: "red" });
  painter.edge(0, 0, 10, 20, { stroke: "blue", width: 2 });
  painter.cells(0, 0, 4, 2, { columns: 2, rows: 1, cell: (c) => (c ? 0xff0000ff : 0) });
  const svg = painter.finish(200, 100, "t");
  assert.match(svg, /<rect x="101" y="12" width="3" height="4" fill="red"\/>/);
  assert.match(svg, /<path d="M100 10C100 19 110 21 110 30"/);
  // The first of two cells has no color; the second starts at x = 2 of 4.
  assert.match(svg, /<path d="M102 10h2v2h-2z" fill="rgb\(255,0,0\)"\/>/);
});
