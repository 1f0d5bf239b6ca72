import type { Reading } from "./reading.ts";
import type { Scene } from "./scene.ts";

export function flowScene(_reading: Reading, _width: number, _most?: number): Scene | null {
  return null;
}
