// What a canvas view hands to the stage: a drawing of a known size, and what is under a point.

import type { CutEdge } from "./maxflow.ts";
import type { Painter } from "./painter.ts";
import type { State } from "./state.ts";

export interface Target {
  key: string; // equal for the same thing
  lines: string[]; // of the tooltip; the first is its title
  change: Partial<State> | null; // what a click does
}

export interface NotePart {
  text: string;
  strong?: boolean;
}

export interface Scene {
  width: number;
  height: number;
  /** What to keep in sight when the scene is wider than the stage. */
  focus: number | null;
  /** A sentence above the drawing. */
  note?: NotePart[];
  /** The minimum cut that is drawn. */
  cut?: CutEdge[];
  /** The value that has the darkest color, if the drawing has one scale. */
  most?: number;
  /** Whether parts of it are still to come. */
  waiting?: boolean;
  /** sight: the part that is on screen, for scenes that can leave out the rest. */
  paint(painter: Painter, sight?: { from: number; to: number }): void;
  hit(x: number, y: number): Target | null;
  paintHover(painter: Painter, target: Target): void;
}
