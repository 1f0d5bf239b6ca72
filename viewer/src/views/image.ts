// The image view: scores of patches over the image, and below it a thumbnail for every layer and
// method. Positions without a patch, such as [CLS], are buttons above the image.

import type { Example, Method, Picture } from "../data/header.ts";
import { fromZero, pick, type Range, rangeOf, strength } from "../data/range.ts";
import { largest, type Snapshot, type Row, scoresAt } from "../data/snapshot.ts";
import { digits } from "../data/text.ts";
import { fit, measure, type Painter } from "../paint/painter.ts";
import { HEAT, shade } from "../paint/theme.ts";
import { scoreLines, SELECT_HINT, titleOf } from "./captions.ts";
import { messageScene, type Scene, type Target } from "./scene.ts";

const SAFE = /^data:image\/(png|jpeg|webp|gif|bmp);base64,[A-Za-z0-9+/=]+$/;
// Patches of other images of a text, or of tiles of this one: too many for buttons.
const OTHER_PATCH = /^image \d+ (tile \d+ |part \d+ )?patch \d/;
const MARGIN = 4; // for the frame of a patch at the edge
const images = new WeakMap<Example, HTMLImageElement>();

interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Thumb extends Place {
  method: string;
  layer: number;
  narrow: boolean; // whether titles are above the row and layer numbers below the last row
}

interface Pill extends Place {
  token: number;
}

interface Places {
  big: Place;
  thumbs: Thumb[];
  pills: Pill[];
}

/** The image of an example, loaded once; null until it is loaded. */
function pictureOf(snapshot: Snapshot, picture: Picture): HTMLImageElement | null {
  const { example, scores } = snapshot;
  let image = images.get(example);
  if (!image) {
    image = new Image();
    image.addEventListener("load", () => scores.changed());
    image.addEventListener("error", () => scores.fail("Could not decode the image."));
    if (SAFE.test(picture.src)) image.src = picture.src;
    else scores.fail("Unsupported image; expected an embedded PNG, JPEG, WebP, GIF or BMP.");
    images.set(example, image);
  }
  return image.complete && image.naturalWidth > 0 ? image : null;
}

/** The contents of the image view. */
interface Drawing {
  snapshot: Snapshot;
  picture: Picture;
  image: HTMLImageElement | null; // null until loaded
  places: Places;
  row: Row; // of the selected method and layer
  range: Range; // of the colors
  small: { row: Row; range: Range }[]; // one per thumbnail
  height: number;
}

export function imageScene(snapshot: Snapshot, width: number, max: number): Scene {
  const picture = snapshot.example.image;
  if (!picture) return messageScene(width, "This example has no image.");
  const drawing = arrange(snapshot, picture, width, max);
  const { places, height } = drawing;
  const boxes = [places.big, ...places.thumbs, ...places.pills];
  return {
    width: Math.max(...boxes.map((box) => box.x + box.width)) + MARGIN,
    height,
    focus: null,
    paint: (painter) => paintAll(painter, drawing),
    hit: (x, y) => hit(snapshot, picture, places, x, y),
    paintHover: (painter, target) => {
      const place = hoverPlace(picture, places, target.key);
      if (!place) return;
      const { x, y, width: wide, height: tall } = place;
      painter.rect(x, y, wide, tall, { stroke: "#fff", width: 2 });
      painter.rect(x - 1.5, y - 1.5, wide + 3, tall + 3, { stroke: "#000", width: 1 });
    },
  };
}

function arrange(snapshot: Snapshot, picture: Picture, width: number, max: number): Drawing {
  const { example, state } = snapshot;
  const aspect = picture.height / picture.width;
  const pills = layPills(snapshot, picture, width);
  const top = pills.length ? pills[pills.length - 1].y + 40 : 4;
  const wide = Math.min(width - 2 * MARGIN, 560, 460 / aspect);
  const big: Place = { x: MARGIN, y: top, width: wide, height: wide * aspect };
  const below = big.y + big.height + 44;
  const thumbs = layThumbs(example.methods, example.n_layers, aspect, below, width);
  const last = thumbs[thumbs.length - 1];
  const patches = patchesOf(picture);
  const row = tokenRow(snapshot, state.method, snapshot.layer);
  const rows = thumbs.map(({ method, layer }) => tokenRow(snapshot, method, layer));
  const overall = fromZero(Math.max(...rows.map((scores) => largest(scores, patches))));
  const shared = state.scale === "shared";
  const own = (scores: Row): Range => rangeOf(pick(scores, patches), state.scale);
  return {
    snapshot,
    picture,
    image: pictureOf(snapshot, picture),
    places: { big, thumbs, pills },
    row,
    range: shared ? fromZero(max) : own(row),
    small: rows.map((scores) => ({ row: scores, range: shared ? overall : own(scores) })),
    height: last.y + last.height + (last.narrow ? 20 : 8),
  };
}

function paintAll(painter: Painter, drawing: Drawing): void {
  const { snapshot, picture, image, places, row, range, small } = drawing;
  const { big, thumbs, pills } = places;
  const { opacity, threshold } = snapshot.state;
  for (const pill of pills) paintPill(painter, snapshot, pill, row, range);
  if (image) painter.picture(image, big.x, big.y, big.width, big.height);
  else painter.rect(big.x, big.y, big.width, big.height, { fill: snapshot.theme.raised });
  if (row) paintPatches(painter, picture, row, range, big, opacity, threshold);
  paintChosen(painter, snapshot, picture, big);
  paintScale(painter, snapshot, big, range);
  thumbs.forEach((thumb, i) =>
    paintThumb(painter, snapshot, picture, image, thumb, small[i].row, small[i].range),
  );
}

/** The tokens that are patches. */
const patchesOf = ({ first, rows, columns }: Picture): number[] =>
  Array.from({ length: rows * columns }, (_, i) => first + i);

/** The scores of tokens: patches are never merged into words. */
function tokenRow(snapshot: Snapshot, method: string, layer: number): Row {
  if (snapshot.items.name === "tokens") return scoresAt(snapshot, method, layer);
  return snapshot.scores.row(method, layer, [snapshot.position]);
}

function paintPatches(
  painter: Painter,
  picture: Picture,
  row: ArrayLike<number>,
  range: Range,
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
      const share = value >= threshold * range.high ? strength(range, value) : 0;
      return ((HEAT.packed[shade(share)] & 0xffffff) | alpha) >>> 0;
    },
  });
}

function paintChosen(painter: Painter, snapshot: Snapshot, picture: Picture, big: Place): void {
  const marks: [number, string][] = [[snapshot.position, "#4db2ff"]];
  if (snapshot.chosen && snapshot.token !== null) marks.unshift([snapshot.token, "#ff9a4d"]);
  for (const [token, color] of marks) {
    const patch = patchPlace(picture, big, token);
    if (!patch) continue;
    painter.rect(patch.x - 1, patch.y - 1, patch.width + 2, patch.height + 2, {
      stroke: "#000",
      width: 5,
    });
    painter.rect(patch.x - 1, patch.y - 1, patch.width + 2, patch.height + 2, {
      stroke: color,
      width: 3,
    });
  }
}

function paintPill(painter: Painter, snapshot: Snapshot, pill: Pill, row: Row, range: Range): void {
  const { theme, names } = snapshot;
  const level = row ? shade(strength(range, row[pill.token])) : 0;
  const chosen = pill.token === snapshot.position;
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

/** The color scale below the image. */
function paintScale(painter: Painter, snapshot: Snapshot, big: Place, range: Range): void {
  const y = big.y + big.height + 10;
  const style = { size: 11, fill: snapshot.theme.quiet };
  const low = digits(range.low);
  const left = big.x + measure(low, 11) + 6;
  painter.text(low, big.x, y + 8, style);
  painter.cells(left, y, 120, 8, {
    columns: 60,
    rows: 1,
    cell: (c) =>
      HEAT.packed[shade(strength(range, range.low + (c / 59) * (range.high - range.low)))],
  });
  const more = range.exceeded ? " or more" : "";
  painter.text(digits(range.high) + more, left + 126, y + 8, style);
}

function paintThumb(
  painter: Painter,
  snapshot: Snapshot,
  picture: Picture,
  image: HTMLImageElement | null,
  thumb: Thumb,
  row: Row,
  range: Range,
): void {
  const { theme, state, layer, example } = snapshot;
  const { methods } = example;
  const current = thumb.method === state.method && thumb.layer === layer;
  if (thumb.layer === 1) {
    const y = thumb.narrow ? thumb.y - 8 : thumb.y + thumb.height / 2 + 4;
    const title = titleOf(example, thumb.method);
    painter.text(thumb.narrow ? title : fit(title, thumb.x - 8, 13), 0, y, {
      size: 13,
      fill: thumb.method === state.method ? theme.accent : theme.ink,
      weight: thumb.method === state.method ? 650 : 400,
    });
  }
  if (thumb.method === methods[thumb.narrow ? methods.length - 1 : 0].name) {
    const y = thumb.narrow ? thumb.y + thumb.height + 14 : thumb.y - 8;
    painter.text(String(thumb.layer), thumb.x + thumb.width / 2, y, {
      size: 11,
      align: "center",
      fill: thumb.layer === layer ? theme.accent : theme.quiet,
    });
  }
  if (image) painter.picture(image, thumb.x, thumb.y, thumb.width, thumb.height);
  if (row)
    paintPatches(
      painter,
      picture,
      row,
      range,
      thumb,
      Math.max(state.opacity, 0.5),
      state.threshold,
    );
  else painter.rect(thumb.x, thumb.y, thumb.width, thumb.height, { fill: theme.raised });
  if (current) {
    painter.rect(thumb.x - 2, thumb.y - 2, thumb.width + 4, thumb.height + 4, {
      stroke: theme.accent,
      width: 2.5,
      radius: 2,
    });
  }
}

function hit(
  snapshot: Snapshot,
  picture: Picture,
  places: Places,
  x: number,
  y: number,
): Target | null {
  const pill = places.pills.find((box) => inside(box, x, y));
  const { big } = places;
  let token = pill?.token;
  if (inside(big, x, y)) {
    const column = Math.floor(((x - big.x) / big.width) * picture.columns);
    const row = Math.floor(((y - big.y) / big.height) * picture.rows);
    token = picture.first + row * picture.columns + column;
  }
  if (token !== undefined && token < snapshot.example.tokens.length) {
    const item = snapshot.items.of[token];
    return {
      key: `token/${token}`,
      lines: [snapshot.names[token], ...scoreLines(snapshot, item), SELECT_HINT],
      change: { position: token },
    };
  }
  const at = places.thumbs.findIndex((box) => inside(box, x, y));
  if (at < 0) return null;
  const { method, layer } = places.thumbs[at];
  return {
    key: `thumb/${at}`,
    lines: [`${titleOf(snapshot.example, method)}, layer ${layer}`],
    change: { method, layer },
  };
}

const inside = (place: Place, x: number, y: number): boolean =>
  x >= place.x && x < place.x + place.width && y >= place.y && y < place.y + place.height;

/** Place the buttons for positions without a patch. */
function layPills(snapshot: Snapshot, picture: Picture, width: number): Pill[] {
  const { names, example, state } = snapshot;
  const end = picture.first + picture.rows * picture.columns;
  const pills: Pill[] = [];
  let x = 2;
  let y = 4;
  example.tokens.forEach((name, token) => {
    if (token >= picture.first && token < end) return;
    if (OTHER_PATCH.test(name) && token !== snapshot.position) return;
    if (!state.special && example.special[token] && token !== snapshot.position) return;
    const wide = Math.min(200, measure(names[token], 13) + 22);
    if (x + wide > width && x > 2) {
      x = 2;
      y += 36;
    }
    pills.push({ token, x, y, width: wide, height: 26 });
    x += wide + 10;
  });
  return pills;
}

/** Place a thumbnail for every method (rows) and layer (columns). aspect: height / width. */
export function layThumbs(
  methods: readonly Method[],
  layers: number,
  aspect: number,
  top: number,
  width: number,
): Thumb[] {
  const narrow = width < 480;
  const gap = narrow ? 5 : 8;
  const titles = methods.map(({ title }) => measure(title, 13, 650));
  const left = narrow ? 3 : Math.min(180, Math.max(...titles) + 12);
  const wide = Math.max(36, Math.min(120, (width - left - 8 - (layers - 1) * gap) / layers));
  const tall = wide * aspect;
  return methods.flatMap(({ name: method }, m) =>
    Array.from({ length: layers }, (_, l) => ({
      method,
      layer: l + 1,
      narrow,
      x: left + l * (wide + gap),
      y: top + (narrow ? 18 : 0) + m * (tall + (narrow ? 34 : 14)),
      width: wide,
      height: tall,
    })),
  );
}

/** The place of a token's patch; null if it has none. */
function patchPlace(picture: Picture, place: Place, token: number): Place | null {
  const at = token - picture.first;
  if (at < 0 || at >= picture.rows * picture.columns) return null;
  const width = place.width / picture.columns;
  const height = place.height / picture.rows;
  const x = place.x + (at % picture.columns) * width;
  return { x, y: place.y + Math.floor(at / picture.columns) * height, width, height };
}

function hoverPlace(picture: Picture, places: Places, key: string): Place | null {
  const [kind, number] = key.split("/");
  if (kind === "thumb") return places.thumbs[Number(number)];
  const token = Number(number);
  return (
    patchPlace(picture, places.big, token) ??
    places.pills.find((pill) => pill.token === token) ??
    null
  );
}
