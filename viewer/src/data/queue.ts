// A queue of long computations, run in short slices so that the page stays responsive. Each is a
// generator that yields [done, total], with "wait" while workers compute; those that the last redraw
// did not request are dropped.

export type Step = [number, number, "wait"?];
type Work = () => Generator<Step, void>;

export interface WorkProgress {
  name: string; // what is computed
  done: number;
  total: number;
}

interface Job extends WorkProgress {
  key: string;
  work: Generator<Step, void>;
  wanted: boolean;
}

const SLICE = 12; // milliseconds of work between redraws
const PAUSE = 15; // milliseconds between looking for what workers computed
const REPORT = 150; // milliseconds between progress reports

export class Queue {
  private jobs: Job[] = [];
  private running = false;
  private readonly changed: () => void;
  private readonly progressed: () => void;
  private reported = 0;
  private stopped = false;

  /** changed: called when a job finishes. progressed: called while a job runs. */
  constructor(changed: () => void, progressed: () => void) {
    this.changed = changed;
    this.progressed = progressed;
  }

  /** The progress of the running job, or null. */
  get progress(): WorkProgress | null {
    return this.jobs[0] ?? null;
  }

  /** Call before a redraw. */
  begin(): void {
    for (const job of this.jobs) job.wanted = false;
  }

  /** Request a computation during a redraw. */
  want(key: string, name: string, work: Work): void {
    const queued = this.jobs.find((job) => job.key === key);
    if (queued) queued.wanted = true;
    else this.jobs.push({ key, name, work: work(), wanted: true, done: 0, total: 1 });
  }

  /** Call after a redraw: drop unwanted jobs and start the first one. */
  end(): void {
    this.drop((job) => !job.wanted);
    if (this.jobs.length && !this.running) {
      this.running = true;
      this.stopped = false;
      setTimeout(() => this.slice(), 0);
    }
  }

  clear(): void {
    this.drop(() => true);
    this.stopped = true;
  }

  private drop(unwanted: (job: Job) => boolean): void {
    for (const job of this.jobs.filter(unwanted)) job.work.return();
    this.jobs = this.jobs.filter((job) => !unwanted(job));
  }

  private slice(): void {
    const start = performance.now();
    let finished = false;
    let waiting = false;
    while (this.jobs.length && !finished && !waiting && performance.now() - start < SLICE) {
      const job = this.jobs[0];
      const step = job.work.next();
      if (step.done) {
        this.jobs = this.jobs.filter((other) => other !== job);
        finished = true;
      } else {
        [job.done, job.total] = step.value;
        waiting = step.value[2] === "wait";
      }
    }
    if (finished && !this.stopped) this.changed();
    else if (performance.now() - this.reported > REPORT) {
      this.reported = performance.now();
      if (!this.stopped) this.progressed();
    }
    this.running = this.jobs.length > 0;
    if (this.running) setTimeout(() => this.slice(), waiting ? PAUSE : 0);
  }
}
