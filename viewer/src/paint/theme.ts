// Colors of the light and dark themes. Scores use a blue ramp ordered by lightness alone, which is
// readable without color vision and in print; the bottleneck uses Okabe and Ito's orange.

export interface Theme {
  dark: boolean;
  ground: string;
  raised: string;
  ink: string;
  quiet: string; // secondary text
  faint: string; // lines
  accent: string;
  bottleneck: string;
  match: string; // search matches
  ramp: Ramp;
  diverging: Ramp; // for differences: below 0, 0 in the middle, above 0
}

export interface Ramp {
  css: string[]; // 256 colors
  packed: Uint32Array; // the same as 0xAABBGGRR, for image data
  ink: string[]; // black or white, whichever has more contrast
}

type Rgb = [number, number, number];

function makeRamp(stops: readonly string[]): Ramp {
  const points = stops.map(parse);
  const css: string[] = [];
  const ink: string[] = [];
  const packed = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (points.length - 1);
    const k = Math.min(Math.floor(at), points.length - 2);
    const mix = points[k].map((from, c) =>
      Math.round(from + (points[k + 1][c] - from) * (at - k)),
    ) as Rgb;
    css.push(`rgb(${mix.join(",")})`);
    packed[i] = (0xff000000 | (mix[2] << 16) | (mix[1] << 8) | mix[0]) >>> 0;
    ink.push(luminance(mix) > 0.179 ? "#000" : "#fff");
  }
  return { css, packed, ink };
}

const parse = (hex: string): Rgb => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)) as Rgb;

function luminance(color: Rgb): number {
  const [r, g, b] = color.map((c) => {
    const s = c / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export const LIGHT: Theme = {
  dark: false,
  ground: "#ffffff",
  raised: "#f6f7f9",
  ink: "#16191f",
  quiet: "#586070",
  faint: "#dfe3e9",
  accent: "#0b62a8",
  bottleneck: "#c24f00",
  match: "#9a6b00",
  ramp: makeRamp(["#f5f8fc", "#cfe1f2", "#8fbfe2", "#4a93ca", "#1b67ab", "#0a3d7a", "#062552"]),
  diverging: makeRamp([
    "#6b2b00",
    "#c24f00",
    "#f2b27c",
    "#f7f7f8",
    "#9cc6e6",
    "#1b67ab",
    "#062552",
  ]),
};

export const DARK: Theme = {
  dark: true,
  ground: "#12151a",
  raised: "#1a1e25",
  ink: "#e9ecf1",
  quiet: "#9ba4b3",
  faint: "#2d343f",
  accent: "#6cb8f0",
  bottleneck: "#ff9a4d",
  match: "#f0c24b",
  ramp: makeRamp(["#191e26", "#1b3350", "#1e4f80", "#2b74b4", "#54a0da", "#96caf0", "#e3f3ff"]),
  diverging: makeRamp([
    "#ffe0c2",
    "#ff9a4d",
    "#8a4a14",
    "#191e26",
    "#1e4f80",
    "#54a0da",
    "#e3f3ff",
  ]),
};

/** The index in a ramp of a share from 0 to 1. */
export const shade = (share: number): number =>
  share > 0 ? Math.min(255, Math.max(0, Math.round(share * 255))) : 0;

/** The ramp for patches over an image: ordered by lightness, on light and dark images. */
export const HEAT: Ramp = makeRamp([
  "#03051a",
  "#33125c",
  "#7a1f7d",
  "#c33c69",
  "#f4784e",
  "#fdc06d",
  "#fcf7c5",
]);
