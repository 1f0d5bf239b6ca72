// Where things stand in the image view: pills for positions without a patch, the image, and small
// pictures for every layer by every method.

import { METHODS, type Method, type Picture } from "./format.ts";
import { measure } from "./painter.ts";
import type { Reading } from "./reading.ts";

export interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Thumb extends Place {
  method: Method;
  layer: number;
  narrow: boolean; // names stand above their row, and numbers of layers below the last
}

export interface Pill extends Place {
  token: number;
}

export interface Places {
  big: Place;
  thumbs: Thumb[];
  pills: Pill[];
}

export const inside = (place: Place, x: number, y: number): boolean =>
  x >= place.x && x < place.x + place.width && y >= place.y && y < place.y + place.height;

export function layPills(reading: Reading, picture: Picture, width: number): Pill[] {
  const { names, example, state } = reading;
  const end = picture.first + picture.rows * picture.columns;
  const pills: Pill[] = [];
  let x = 2;
  let y = 4;
  example.tokens.forEach((_, token) => {
    if (token >= picture.first && token < end) return;
    if (!state.special && example.special[token] && token !== reading.position) return;
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

export function layThumbs(layers: number, aspect: number, top: number, width: number): Thumb[] {
  const narrow = width < 480;
  const gap = narrow ? 5 : 8;
  const left = narrow ? 3 : 104;
  const wide = Math.max(36, Math.min(120, (width - left - 8 - (layers - 1) * gap) / layers));
  const tall = wide * aspect;
  return METHODS.flatMap((method, m) =>
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

export function patchPlace(picture: Picture, place: Place, token: number): Place | null {
  const at = token - picture.first;
  if (at < 0 || at >= picture.rows * picture.columns) return null;
  const width = place.width / picture.columns;
  const height = place.height / picture.rows;
  const x = place.x + (at % picture.columns) * width;
  return { x, y: place.y + Math.floor(at / picture.columns) * height, width, height };
}

export function hoverPlace(picture: Picture, places: Places, key: string): Place | null {
  const [kind, number] = key.split("/");
  if (kind === "thumb") return places.thumbs[Number(number)];
  const token = Number(number);
  return (
    patchPlace(picture, places.big, token) ??
    places.pills.find((one) => one.token === token) ??
    null
  );
}
