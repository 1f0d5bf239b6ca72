// Scores that look random and are the same every time (a linear congruential generator).

export function random(seed: number): () => number {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A matrix [n, n] with rows that sum to 1, some weights being 0. */
export function randomAttention(n: number, next: () => number): Float32Array {
  const out = new Float32Array(n * n);
  for (let q = 0; q < n; q++) {
    let sum = 0;
    for (let k = 0; k < n; k++) {
      out[q * n + k] = next() < 0.25 ? 0 : next() ** 3;
      sum += out[q * n + k];
    }
    for (let k = 0; k < n; k++) out[q * n + k] = sum > 0 ? out[q * n + k] / sum : 1 / n;
  }
  return out;
}
