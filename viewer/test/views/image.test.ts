import assert from "node:assert/strict";
import { test } from "node:test";
import { imageScene, layThumbs } from "../../src/views/image.ts";
import { SvgPainter } from "../../src/paint/svg.ts";
import { makeHeader } from "../example.ts";
import { settle } from "../snapshot.ts";

const image = {
  src: "data:image/png;base64,AA==",
  rows: 1,
  columns: 2,
  first: 1,
  width: 20,
  height: 10,
};

/** `Image` of a browser, with an image that is not loaded yet. */
class FakeImage {
  complete = false;
  naturalWidth = 0;
  src = "";
  addEventListener(): void {}
}

test("every layer has its number on wide and narrow screens", async () => {
  Object.assign(globalThis, { Image: FakeImage });
  for (const width of [800, 340]) {
    const text = await settle(
      { view: "image" },
      (snapshot) => {
        const scene = imageScene(snapshot, width, 1);
        const painter = new SvgPainter();
        scene.paint(painter);
        return painter.finish(scene.width, scene.height, "t");
      },
      { image },
    );
    for (const layer of [1, 2]) assert.ok(text.includes(`>${layer}<`), `${layer} at ${width}`);
  }
});

test("the frame of a patch at the edge is not cut off", async () => {
  Object.assign(globalThis, { Image: FakeImage });
  const frames: number[] = [];
  await settle(
    { view: "image", position: 1 },
    (snapshot) => {
      const painter = new SvgPainter();
      painter.rect = (x, _y, _width, _height, { stroke, width = 1 }) => {
        if (stroke) frames.push(x - width / 2);
      };
      imageScene(snapshot, 340, 1).paint(painter);
    },
    { image },
  );
  assert.ok(frames.length > 0);
  assert.ok(Math.min(...frames) >= 0);
});

test("thumbnails do not overlap", () => {
  const { methods } = makeHeader();
  for (const width of [800, 340]) {
    const thumbs = layThumbs(methods, 4, 0.5, 100, width);
    for (const one of thumbs) {
      for (const other of thumbs) {
        if (one === other) continue;
        const apart =
          one.x + one.width <= other.x ||
          other.x + other.width <= one.x ||
          one.y + one.height <= other.y ||
          other.y + other.height <= one.y;
        assert.ok(apart);
      }
    }
  }
});

test("patches of other images have no buttons", async () => {
  Object.assign(globalThis, { Image: FakeImage });
  const draw = async (tokens: string[]): Promise<string> =>
    settle(
      { view: "image", position: 0 },
      (snapshot) => {
        const scene = imageScene(snapshot, 800, 1);
        const painter = new SvgPainter();
        scene.paint(painter);
        return painter.finish(scene.width, scene.height, "t");
      },
      { tokens, labels: tokens, image: { ...image, columns: 1 } },
    );
  assert.ok((await draw(["word", "image 1 patch 0,0", "other"])).includes(">other<"));
  for (const name of ["image 2 patch 0,0", "image 1 tile 2 patch 3,1"]) {
    const text = await draw(["word", "image 1 patch 0,0", name]);
    assert.ok(text.includes(">word<"));
    assert.ok(!text.includes(`>${name}<`));
  }
});

test("buttons that reach beyond the image are not cut off", async () => {
  Object.assign(globalThis, { Image: FakeImage });
  const labels = ["a", "b", "c"].map((letter) => letter.repeat(60));
  const wide = await settle(
    { view: "image", position: 0 },
    (snapshot) => imageScene(snapshot, 800, 1).width,
    { labels, image: { ...image, columns: 1, height: 60 } },
  );
  assert.ok(wide >= 2 + 200 + 10 + 200); // two of the widest buttons
});
