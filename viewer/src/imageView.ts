// Image view: patches over the image, shaded by what reaches the chosen position, and below it
// every layer by every method as small pictures. Positions without a patch, such as [CLS], stand
// above the image.

import { METHODS, type Example, type Method, type Picture } from "./format.ts";
import { messageScene } from "./headsView.ts";
import {
  hoverPlace,
  inside,
  layPills,
  layThumbs,
  patchPlace,
  type Pill,
  type Place,
  type Places,
  type Thumb,
} from "./imageLayout.ts";
import type { Painter } from "./painter.ts";
import { METHOD_NAMES, quoted, scoreLines } from "./phrases.ts";
import { largest, scoresAt, type Reading, type Row } from "./reading.ts";
import type { Scene, Target } from "./scene.ts";
import { HEAT, shade } from "./theme.ts";
import { digits } from "./visible.ts";

const SAFE = /^data:image\/(png|jpeg|webp|gif|bmp);base64,[A-Za-z0-9+/=]+$/;
const MARGIN = 4; // for the frame of a patch at the edge
const images = new WeakMap<Example, HTMLImageElement>();

/** The picture of an example, loaded once; null until it is there. */
function pictureOf(reading: Reading, picture: Picture): HTMLImageElement | null {
  const { example, numbers } = reading;
  let image = images.get(example);
  if (!image) {
    image = new Image();
    image.addEventListener("load", () => numbers.changed());
    image.addEventListener("error", () => numbers.fail("The image could not be read."));
    if (SAFE.test(picture.src)) image.src = picture.src;
    else numbers.fail("The image is not embedded as PNG, JPEG, WebP or GIF, so it is not shown.");
    images.set(example, image);
  }
  return image.complete && image.naturalWidth > 0 ? image : null;
}

/** Everything the image view draws. */
interface Drawing {
  reading: Reading;
  picture: Picture;
  image: HTMLImageElement | null; // null until it is loaded
  places: Places;
  row: Row; // of the chosen method and layer
  darkest: number; // the value of the brightest patch
  small: { row: Row; most: number }[]; // one for each small picture
  height: number;
}

export function imageScene(reading: Reading, width: number, most: number): Scene {
  const picture = reading.example.image;
  if (!picture) return messageScene(width, "This example has no image.");
  const drawing = arrange(reading, picture, width, most);
  const { places, height } = drawing;
  const method = METHOD_NAMES[reading.state.method];
  const from = quoted(reading.names[reading.position]);
  return {
    width: Math.max(...[places.big, ...places.thumbs].map((one) => one.x + one.width)) + MARGIN,
    height,
    focus: null,
    note: [{ text: `${method} at layer ${reading.layer}: which patches reach ${from}.` }],
    paint: (painter) => paintAll(painter, drawing),
    hit: (x, y) => hit(reading, picture, places, x, y),
    paintHover: (painter, target) => {
      const place = hoverPlace(picture, places, target.key);
      if (!place) return;
      const { x, y, width: wide, height: tall } = place;
      painter.rect(x, y, wide, tall, { stroke: "#fff", width: 2 });
      painter.rect(x - 1.5, y - 1.5, wide + 3, tall + 3, { stroke: "#000", width: 1 });
    },
  };
}

function arrange(reading: Reading, picture: Picture, width: number, most: number): Drawing {
  const { example, state } = reading;
  const aspect = picture.height / picture.width;
  const pills = layPills(reading, picture, width);
  const top = pills.length ? pills[pills.length - 1].y + 40 : 4;
  const wide = Math.min(width - 2 * MARGIN, 560, 460 / aspect);
  const big: Place = { x: MARGIN, y: top, width: wide, height: wide * aspect };
  const thumbs = layThumbs(example.n_layers, aspect, big.y + big.height + 44, width);
  const last = thumbs[thumbs.length - 1];
  const patches = patchesOf(picture);
  const row = tokenRow(reading, state.method, reading.layer);
  const rows = thumbs.map((one) => tokenRow(reading, one.method, one.layer));
  const own = rows.map((one) => largest(one, patches));
  const whole = Math.max(...own);
  const shared = state.scale === "shared";
  return {
    reading,
    picture,
    image: pictureOf(reading, picture),
    places: { big, thumbs, pills },
    row,
    darkest: shared ? most : largest(row, patches),
    small: rows.map((one, i) => ({ row: one, most: shared ? whole : own[i] })),
    height: last.y + last.height + (last.narrow ? 20 : 8),
  };
}

function paintAll(painter: Painter, drawing: Drawing): void {
  const { reading, picture, image, places, row, darkest, small } = drawing;
  const { big, thumbs, pills } = places;
  const { opacity, threshold } = reading.state;
  for (const pill of pills) paintPill(painter, reading, pill, row, darkest);
  if (image) painter.picture(image, big.x, big.y, big.width, big.height);
  else painter.rect(big.x, big.y, big.width, big.height, { fill: reading.theme.raised });
  if (row) paintPatches(painter, picture, row, darkest, big, opacity, threshold);
  paintChosen(painter, reading, picture, big);
  paintScale(painter, reading, big, darkest);
  thumbs.forEach((one, i) =>
    paintThumb(painter, reading, picture, image, one, small[i].row, small[i].most),
  );
}

/** The tokens that are patches. */
const patchesOf = ({ first, rows, columns }: Picture): number[] =>
  Array.from({ length: rows * columns }, (_, i) => first + i);

/** Patches are tokens, so words are never merged here. */
function tokenRow(reading: Reading, method: Method, layer: number): Row {
  if (!reading.state.words) return scoresAt(reading, method, layer);
  return reading.numbers.row(method, layer, reading.position);
}

function paintPatches(
  painter: Painter,
  picture: Picture,
  row: ArrayLike<number>,
  most: number,
  place: Place,
  opacity: number,
  threshold: number,
): void {
  const alpha = Math.round(255 * opacity) << 24;
  painter.cells(place.x, place.y, place.width, place.height, {
    columns: picture.columns,
    rows: picture.rows,
    cell: (c, r) => {
      const value = row[picture.first + r * picture.columns + c];
      const share = most > 0 && value >= threshold * most ? value / most : 0;
      return ((HEAT.packed[shade(share)] & 0xffffff) | alpha) >>> 0;
    },
  });
}

function paintChosen(painter: Painter, reading: Reading, picture: Picture, big: Place): void {
  const marks: [number, string][] = [[reading.position, "#4db2ff"]];
  if (reading.chosen && reading.token !== null) marks.unshift([reading.token, "#ff9a4d"]);
  for (const [token, color] of marks) {
    const one = patchPlace(picture, big, token);
    if (!one) continue;
    painter.rect(one.x - 1, one.y - 1, one.width + 2, one.height + 2, {
      stroke: "#000",
      width: 5,
    });
    painter.rect(one.x - 1, one.y - 1, one.width + 2, one.height + 2, {
      stroke: color,
      width: 3,
    });
  }
}

function paintPill(painter: Painter, reading: Reading, pill: Pill, row: Row, most: number): void {
  const { theme, names } = reading;
  const level = row && most > 0 ? shade(Math.min(1, row[pill.token] / most)) : 0;
  const chosen = pill.token === reading.position;
  painter.rect(pill.x, pill.y, pill.width, pill.height, {
    fill: HEAT.css[level],
    stroke: chosen ? theme.accent : theme.quiet,
    width: chosen ? 3 : 1,
    radius: 13,
  });
  painter.text(names[pill.token].slice(0, 40), pill.x + pill.width / 2, pill.y + 17.5, {
    size: 13,
    align: "center",
    fill: HEAT.ink[level],
  });
}

/** The colors below the image, from 0 to the largest. */
function paintScale(painter: Painter, reading: Reading, big: Place, most: number): void {
  const y = big.y + big.height + 10;
  const style = { size: 11, fill: reading.theme.quiet };
  painter.text("0", big.x, y + 8, style);
  painter.cells(big.x + 12, y, 120, 8, {
    columns: 60,
    rows: 1,
    cell: (c) => HEAT.packed[Math.round((c / 59) * 255)],
  });
  painter.text(digits(most), big.x + 138, y + 8, style);
}

function paintThumb(
  painter: Painter,
  reading: Reading,
  picture: Picture,
  image: HTMLImageElement | null,
  one: Thumb,
  row: Row,
  most: number,
): void {
  const { theme, state, layer } = reading;
  const current = one.method === state.method && one.layer === layer;
  if (one.layer === 1) {
    const y = one.narrow ? one.y - 8 : one.y + one.height / 2 + 4;
    painter.text(METHOD_NAMES[one.method], 0, y, {
      size: 13,
      fill: one.method === state.method ? theme.accent : theme.ink,
      weight: one.method === state.method ? 650 : 400,
    });
  }
  if (one.method === METHODS[one.narrow ? METHODS.length - 1 : 0]) {
    const y = one.narrow ? one.y + one.height + 14 : one.y - 8;
    painter.text(String(one.layer), one.x + one.width / 2, y, {
      size: 11,
      align: "center",
      fill: one.layer === layer ? theme.accent : theme.quiet,
    });
  }
  if (image) painter.picture(image, one.x, one.y, one.width, one.height);
  if (row)
    paintPatches(painter, picture, row, most, one, Math.max(state.opacity, 0.5), state.threshold);
  else painter.rect(one.x, one.y, one.width, one.height, { fill: theme.raised });
  if (current) {
    painter.rect(one.x - 2, one.y - 2, one.width + 4, one.height + 4, {
      stroke: theme.accent,
      width: 2.5,
      radius: 2,
    });
  }
}

function hit(
  reading: Reading,
  picture: Picture,
  places: Places,
  x: number,
  y: number,
): Target | null {
  const pill = places.pills.find((one) => inside(one, x, y));
  const { big } = places;
  let token = pill?.token;
  if (inside(big, x, y)) {
    const column = Math.floor(((x - big.x) / big.width) * picture.columns);
    const row = Math.floor(((y - big.y) / big.height) * picture.rows);
    token = picture.first + row * picture.columns + column;
  }
  if (token !== undefined && token < reading.example.tokens.length) {
    const item = reading.items.of[token];
    return {
      key: `token/${token}`,
      lines: [reading.names[token], ...scoreLines(reading, item), "Click to look from here"],
      change: { position: token },
    };
  }
  const at = places.thumbs.findIndex((one) => inside(one, x, y));
  if (at < 0) return null;
  const { method, layer } = places.thumbs[at];
  return {
    key: `thumb/${at}`,
    lines: [`${METHOD_NAMES[method]}, layer ${layer}`],
    change: { method, layer },
  };
}
