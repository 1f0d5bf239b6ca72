import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeLog, decodeFloat16, halfToNumber } from "../../src/data/loader.ts";

test("known bit patterns", () => {
  const known: [number, number][] = [
    [0x0000, 0],
    [0x3c00, 1],
    [0xc000, -2],
    [0x3555, 0.333251953125],
    [0x0001, 2 ** -24], // the smallest number above 0
    [0x03ff, 1023 * 2 ** -24], // the largest subnormal
    [0x7bff, 65504],
    [0x7c00, Infinity],
  ];
  for (const [bits, value] of known) assert.equal(halfToNumber(bits), value);
  assert.ok(Number.isNaN(halfToNumber(0x7e00)));
});

test("a chunk is little-endian", () => {
  const bytes = Uint8Array.from([0x00, 0x3c, 0x00, 0x38]);
  assert.deepEqual([...decodeFloat16(bytes.buffer)], [1, 0.5]);
});

test("weights on a logarithmic scale", () => {
  // 0, the largest, 1, a half, and half a step below 1, with 16 levels per power of two.
  const codes = new Uint16Array([0, 1, 129, 145, 130]);
  const values = [...decodeLog(codes.buffer, 16)];
  assert.deepEqual(values.slice(0, 4), [0, 256, 1, 0.5]);
  assert.ok(Math.abs(values[4] - 2 ** (-1 / 16)) < 1e-6);
});

test("weights of one byte, after the highest weight", () => {
  const bytes = new Uint8Array([0, 0, 0, 0, 0, 1, 9, 255]);
  new DataView(bytes.buffer).setFloat32(0, 0.5, true);
  const values = [...decodeLog(bytes.buffer, 8)];
  assert.deepEqual(values.slice(0, 3), [0, 0.5, 0.25]);
  assert.ok(Math.abs(values[3] / (0.5 * 2 ** (-254 / 8)) - 1) < 1e-6);
});
