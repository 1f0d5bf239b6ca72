// The interface between canvas views and the stage: a drawing of known size, the target under a
// point, and the text that goes with it.

import type { CutEdge } from "../data/maxflow.ts";
import type { State } from "../data/state.ts";
import type { Painter } from "../paint/painter.ts";

/** What is under the pointer. */
export interface Target {
  key: string; // identifies it
  lines: string[]; // of the tooltip; the first is its title
  change: Partial<State> | null; // the effect of a click
}

/** The visible part of a scene. */
export interface Sight {
  from: number; // left
  to: number;
  top: number;
  bottom: number;
}

export interface NotePart {
  text: string;
  strong?: boolean;
}

export interface Scene {
  width: number;
  height: number;
  /** The x coordinate to keep visible when the scene scrolls. */
  focus: number | null;
  /** The height that is shown, if the scene also scrolls up and down; and the y coordinate to keep
   * visible then. */
  visible?: number;
  focusY?: number | null;
  /** A sentence above the drawing. */
  note?: NotePart[];
  /** The minimum cut in the drawing. */
  cut?: CutEdge[];
  /** The maximum of the color scale, if the drawing has a single scale. */
  max?: number;
  /** Whether parts of the drawing are still loading. */
  waiting?: boolean;
  /** sight: the visible part; a scene may skip what is outside. */
  paint(painter: Painter, sight?: Sight): void;
  hit(x: number, y: number): Target | null;
  paintHover(painter: Painter, target: Target): void;
}

/** A scene that is only a sentence. */
export function messageScene(width: number, text: string): Scene {
  return {
    width: Math.min(width, 300),
    height: 24,
    focus: null,
    note: [{ text }],
    paint: () => {},
    hit: () => null,
    paintHover: () => {},
  };
}
