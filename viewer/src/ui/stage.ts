// The stage: a canvas that shows a scene, and an overlay canvas for the target under the pointer,
// which makes hovering cheap. Wide scenes scroll: the canvases draw only the visible part.

import type { State } from "../data/state.ts";
import { CanvasPainter } from "../paint/painter.ts";
import type { Scene, Target } from "../views/scene.ts";

export interface StageEvents {
  choose(change: Partial<State>): void;
  hover(target: Target | null, event: PointerEvent | null): void;
}

export class Stage {
  readonly element: HTMLElement;
  private readonly spacer: HTMLElement;
  private readonly holder: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly overlay: HTMLCanvasElement;
  private scene: Scene | null = null;
  private target: Target | null = null;
  private frame = 0;
  private pointer: PointerEvent | null = null;
  private readonly events: StageEvents;

  constructor(events: StageEvents) {
    this.events = events;
    this.element = document.createElement("div");
    this.element.className = "stage";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "application");
    this.element.dataset.testid = "stage";
    this.spacer = document.createElement("div");
    this.holder = document.createElement("div");
    this.holder.className = "holder";
    this.canvas = document.createElement("canvas");
    this.overlay = document.createElement("canvas");
    this.overlay.className = "overlay";
    for (const canvas of [this.canvas, this.overlay]) canvas.setAttribute("aria-hidden", "true");
    this.holder.append(this.canvas, this.overlay);
    this.spacer.append(this.holder);
    this.element.append(this.spacer);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("pointermove", (event) => this.move(event));
    this.element.addEventListener("pointerleave", () => this.leave());
    this.element.addEventListener("click", (event) => {
      const target = this.hitAt(event);
      if (target?.change) this.events.choose(target.change);
    });
  }

  show(scene: Scene, label: string): void {
    const moved = this.scene?.focus !== scene.focus || this.scene?.width !== scene.width;
    const turned = this.scene?.focusY !== scene.focusY;
    this.scene = scene;
    this.element.setAttribute("aria-label", label);
    this.spacer.style.width = `${Math.ceil(scene.width)}px`;
    this.spacer.style.height = `${Math.ceil(scene.height)}px`;
    this.element.style.maxHeight = scene.visible ? `${scene.visible}px` : "";
    this.element.style.overflowY = scene.visible ? "auto" : "";
    if (moved) this.keepInSight(scene);
    if (turned && scene.visible && typeof scene.focusY === "number") {
      const { scrollTop, clientHeight } = this.element;
      const seen =
        scene.focusY > scrollTop + clientHeight / 4 &&
        scene.focusY < scrollTop + 0.9 * clientHeight;
      if (!seen) this.element.scrollTop = scene.focusY - clientHeight / 2;
    }
    this.draw();
    this.target = null;
    this.paintOverlay();
  }

  private keepInSight(scene: Scene): void {
    const { scrollLeft, clientWidth } = this.element;
    if (scene.focus === null || scene.width <= clientWidth) return;
    const margin = Math.min(80, clientWidth / 4);
    if (scene.focus < scrollLeft + margin || scene.focus > scrollLeft + clientWidth - margin) {
      this.element.scrollLeft = scene.focus - clientWidth / 2;
    }
  }

  /** Clear a canvas, fit it to the stage and apply the scroll offset. */
  private prepare(canvas: HTMLCanvasElement): CanvasRenderingContext2D | null {
    const ratio = Math.min(globalThis.devicePixelRatio || 1, 3);
    const width = Math.min(this.element.clientWidth, Math.ceil(this.scene?.width ?? 0)) || 1;
    const whole = Math.ceil(this.scene?.height ?? 0) || 1;
    const height = this.scene?.visible ? Math.min(this.element.clientHeight, whole) : whole;
    if (
      canvas.width !== Math.round(width * ratio) ||
      canvas.height !== Math.round(height * ratio)
    ) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d");
    if (!context) return null;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const { scrollLeft, scrollTop } = this.element;
    context.setTransform(ratio, 0, 0, ratio, -scrollLeft * ratio, -scrollTop * ratio);
    return context;
  }

  private draw(): void {
    const context = this.prepare(this.canvas);
    const { scrollLeft: from, scrollTop: top, clientWidth, clientHeight } = this.element;
    const sight = { from, to: from + clientWidth, top, bottom: top + clientHeight };
    if (context && this.scene) this.scene.paint(new CanvasPainter(context), sight);
  }

  private paintOverlay(): void {
    const context = this.prepare(this.overlay);
    if (context && this.scene && this.target) {
      this.scene.paintHover(new CanvasPainter(context), this.target);
    }
  }

  private hitAt(event: MouseEvent): Target | null {
    const frame = this.canvas.getBoundingClientRect();
    const x = event.clientX - frame.left + this.element.scrollLeft;
    const y = event.clientY - frame.top + this.element.scrollTop;
    return this.scene?.hit(x, y) ?? null;
  }

  private move(event: PointerEvent): void {
    this.pointer = event;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.pointer) return;
      const target = this.hitAt(this.pointer);
      if (target?.key !== this.target?.key) {
        this.target = target;
        this.paintOverlay();
        this.element.style.cursor = target?.change ? "pointer" : "";
      }
      this.events.hover(target, this.pointer);
    });
  }

  private leave(): void {
    this.pointer = null;
    this.target = null;
    this.paintOverlay();
    this.events.hover(null, null);
  }
}
