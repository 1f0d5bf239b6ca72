import assert from "node:assert/strict";
import { test } from "node:test";
import { inflateSync } from "node:zlib";
import { PdfPainter, winAnsi } from "../../src/paint/pdf.ts";

/** The file as text, one character a byte, and the drawing commands in it. */
async function write(painter: PdfPainter, title = ""): Promise<{ file: string; content: string }> {
  const blob = await painter.finish(200, 100, title);
  const file = Buffer.from(await blob.arrayBuffer()).toString("latin1");
  const start = file.indexOf("stream\n", file.indexOf("4 0 obj")) + 7;
  const packed = file.slice(start, file.indexOf("\nendstream", start));
  return { file, content: inflateSync(Buffer.from(packed, "latin1")).toString() };
}

test("Latin text has an encoding, other scripts have none", () => {
  assert.equal(winAnsi("aé…"), "61e985");
  assert.equal(winAnsi("(\\)"), "285c29");
  assert.equal(winAnsi("−1"), "9631");
  for (const text of ["键", "→", "\n", "\0", "\u0080", "\u{1f600}"])
    assert.equal(winAnsi(text), null);
});

test("every object is where the table of the file says", async () => {
  const painter = new PdfPainter();
  painter.moveTo(100, 10);
  painter.rect(0, 0, 4, 4, { fill: "#fff", opacity: 0.5 });
  const { file } = await write(painter, "é键");
  const table = Number(/startxref\n(\d+)/.exec(file)?.[1]);
  const rows = file.slice(table).match(/^\d{10} \d{5} n $/gm) ?? [];
  assert.ok(file.startsWith("xref", table));
  assert.equal(rows.length, 5);
  rows.forEach((row, i) => assert.ok(file.startsWith(`${i + 1} 0 obj`, Number(row.slice(0, 10)))));
  assert.ok(file.includes("/Title <feff00e9952e>"));
  assert.ok(file.includes("/MediaBox [0 0 150 75]"));
  assert.ok(file.includes("/G0 <</ca 0.5 /CA 0.5>>"));
});

test("shapes and text are drawn from the top, at their place after moveTo", async () => {
  const painter = new PdfPainter();
  painter.moveTo(100, 10);
  painter.rect(1, 2, 3, 4, { fill: "rgb(255,0,51)", stroke: "#000", width: 2 });
  painter.circle(5, 5, 2, { fill: "#abc" });
  painter.edge(0, 0, 10, 20, { stroke: "#0b62a8", width: 1.5, dash: [2, 3] });
  painter.text("(a)", 7, 8, { size: 10, fill: "#000", align: "right", weight: 650, turn: 90 });
  const { content } = await write(painter);
  assert.ok(content.startsWith("0.75 0 0 -0.75 0 75 cm 1 J q\nQ q 1 0 0 1 100 10 cm"));
  assert.match(content, /1\.000 0\.000 0\.200 rg\n0\.000 0\.000 0\.000 RG 2 w\n1 2 3 4 re B Q/);
  assert.match(content, /0 0 m 0 9 10 11 10 20 c S Q/);
  assert.match(content, /1\.5 w \[2 3\] 0 d/);
  assert.match(content, /0\.0000 1\.0000 -1\.0000 0\.0000 7 8 cm/);
  assert.match(content, /\/B 10 Tf 100 Tz\n1 0 0 -1 -16\.5 0 Tm <286129> Tj ET/);
  assert.equal(content.match(/\bq\b/g)?.length, content.match(/\bQ\b/g)?.length);
});
