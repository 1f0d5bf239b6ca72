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
const images = new WeakMap<Example, HTMLImageElement>();

/** The picture of an example, loaded once; null until it is there. */
function pictureOf(reading: Reading, picture: Picture): HTMLImageElement | null {
  const { example, numbers } = reading;
  let image = images.get(example);
  if (!image) {
    image = new Image();
    image.addEventListener("load", () => numbers.refresh());
    image.addEventListener("error", () => numbers.fail("The image could not be read."));
    if (SAFE.test(picture.src)) image.src = picture.src;
    else numbers.fail("The image is not embedded as PNG, JPEG, WebP or GIF, so it is not shown.");
    images.set(example, image);
  }
  return image.complete && image.naturalWidth > 0 ? image : null;
}

export function imageScene(reading: Reading, width: number, most: number): Scene {
  const { example, state, theme, names } = reading;
  const picture = example.image;
  if (!picture) return messageScene(width, "This example has no image.");
  const tokens = { ...reading, ...tokenRows(reading) };
  const image = pictureOf(reading, picture);
  const aspect = picture.height / picture.width;
  const pills = layPills(reading, picture, width);
  const top = pills.length ? pills[pills.length - 1].y + 40 : 4;
  const wide = Math.min(width, 560, 460 / aspect);
  const big: Place = { x: 0, y: top, width: wide, height: wide * aspect };
  const thumbs = layThumbs(example.n_layers, aspect, big.y + big.height + 44, width);
  const last = thumbs[thumbs.length - 1];
  const row = tokens.rows[state.method];
  const darkest = state.scale === "shared" ? most : largest(row, tokens.all);
  const rows = new Map(thumbs.map((one) => [one, thumbRow(reading, one)]));
  const whole = Math.max(...[...rows.values()].map((one) => largest(one, tokens.all)));
  return {
    width: Math.max(big.width, ...thumbs.map((one) => one.x + one.width)) + 4,
    height: last.y + last.height + 8,
    focus: null,
    note: [
      {
        text: `${METHOD_NAMES[state.method]} at layer ${reading.layer}: which patches reach ${quoted(names[reading.position])}.`,
      },
    ],
    paint: (painter) => {
      for (const pill of pills) paintPill(painter, reading, pill, row, darkest);
      if (image) painter.picture(image, big.x, big.y, big.width, big.height);
      else painter.rect(big.x, big.y, big.width, big.height, { fill: theme.raised });
      if (row) paintPatches(painter, picture, row, darkest, big, state.opacity, state.threshold);
      paintChosen(painter, reading, picture, big);
      paintScale(painter, reading, big, darkest);
      for (const [one, values] of rows) {
        const own = largest(values, tokens.all);
        paintThumb(
          painter,
          reading,
          picture,
          image,
          one,
          values,
          state.scale === "shared" ? whole : own,
        );
      }
    },
    hit: (x, y) => hit(reading, picture, { big, thumbs, pills }, x, y),
    paintHover: (painter, target) => {
      const place = hoverPlace(picture, { big, thumbs, pills }, target.key);
      if (place)
        painter.rect(place.x, place.y, place.width, place.height, {
          stroke: "#fff",
          width: 2,
        });
      if (place)
        painter.rect(place.x - 1.5, place.y - 1.5, place.width + 3, place.height + 3, {
          stroke: "#000",
          width: 1,
        });
    },
  };
}

/** Patches are tokens, so words are never merged here. */
function tokenRows(reading: Reading): { rows: Record<Method, Row>; all: number[] } {
  const rows = {} as Record<Method, Row>;
  for (const method of METHODS) rows[method] = tokenRow(reading, method, reading.layer);
  const { first, rows: down, columns } = reading.example.image as Picture;
  return { rows, all: Array.from({ length: down * columns }, (_, i) => first + i) };
}

function tokenRow(reading: Reading, method: Method, layer: number): Row {
  if (!reading.state.words) return scoresAt(reading, method, layer);
  return reading.numbers.row(method, layer, reading.position);
}

const thumbRow = (reading: Reading, one: Thumb): Row => tokenRow(reading, one.method, one.layer);

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
  for (const [token, colour] of marks) {
    const one = patchPlace(picture, big, token);
    if (!one) continue;
    painter.rect(one.x - 1, one.y - 1, one.width + 2, one.height + 2, {
      stroke: "#000",
      width: 5,
    });
    painter.rect(one.x - 1, one.y - 1, one.width + 2, one.height + 2, {
      stroke: colour,
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

/** The colours below the image, from 0 to the largest. */
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
    const y = one.x < 50 ? one.y - 8 : one.y + one.height / 2 + 4;
    painter.text(METHOD_NAMES[one.method], 0, y, {
      size: 13,
      fill: one.method === state.method ? theme.accent : theme.ink,
      weight: one.method === state.method ? 650 : 400,
    });
  }
  if (one.method === METHODS[0] && (one.x >= 104 || one.layer > 2)) {
    painter.text(String(one.layer), one.x + one.width / 2, one.y - 8, {
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
