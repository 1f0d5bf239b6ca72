import type { Reading } from "./reading.ts";
import type { Scene } from "./scene.ts";

export function headsScene(_reading: Reading, _width: number, _most?: number): Scene | null {
  return null;
}

export function headColumns(_reading: Reading): null {
  return null;
}
