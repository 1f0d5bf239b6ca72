// Half-precision numbers: little-endian float16 bytes to float32 arrays.

let table: Float32Array | undefined;

/** The value of one float16, given as its 16 bits. */
export function halfToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Decode a whole chunk. A table of all 65,536 values makes this one look-up a number. */
export function decodeFloat16(buffer: ArrayBuffer): Float32Array {
  if (!table) {
    table = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) table[bits] = halfToNumber(bits);
  }
  const view = new DataView(buffer);
  const n = buffer.byteLength >> 1;
  const out = new Float32Array(n);
  const words = littleEndian && new Uint16Array(buffer, 0, n);
  for (let i = 0; i < n; i++) out[i] = table[words ? words[i] : view.getUint16(2 * i, true)];
  return out;
}

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
