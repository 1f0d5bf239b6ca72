// Long computations in slices, so that the page never freezes: each is a generator that yields
// [done, total]. One runs at a time; those that the last drawing did not ask for are dropped.

type Work = () => Generator<[number, number], void>;

interface Job {
  key: string;
  what: string;
  work: Generator<[number, number], void>;
  wanted: boolean;
  done: number;
  total: number;
}

const SLICE = 12; // milliseconds of work before the page may draw again

export class Queue {
  private jobs: Job[] = [];
  private running = false;
  private readonly changed: () => void;
  private readonly progressed: () => void;
  private told = 0;
  private stopped = false;

  /** changed: something is finished. progressed: the progress is worth showing again. */
  constructor(changed: () => void, progressed: () => void) {
    this.changed = changed;
    this.progressed = progressed;
  }

  get progress(): { what: string; done: number; total: number } | null {
    const job = this.jobs[0];
    return job ? { what: job.what, done: job.done, total: job.total } : null;
  }

  begin(): void {
    for (const job of this.jobs) job.wanted = false;
  }

  want(key: string, what: string, work: Work): void {
    const known = this.jobs.find((job) => job.key === key);
    if (known) known.wanted = true;
    else this.jobs.push({ key, what, work: work(), wanted: true, done: 0, total: 1 });
  }

  end(): void {
    this.jobs = this.jobs.filter((job) => job.wanted);
    if (this.jobs.length && !this.running) {
      this.running = true;
      this.stopped = false;
      setTimeout(() => this.slice(), 0);
    }
  }

  clear(): void {
    this.jobs = [];
    this.stopped = true;
  }

  private slice(): void {
    const start = performance.now();
    let finished = false;
    while (this.jobs.length && !finished && performance.now() - start < SLICE) {
      const job = this.jobs[0];
      const step = job.work.next();
      if (step.done) {
        this.jobs = this.jobs.filter((one) => one !== job);
        finished = true;
      } else [job.done, job.total] = step.value;
    }
    if (finished && !this.stopped) this.changed();
    else if (performance.now() - this.told > 150) {
      this.told = performance.now();
      if (!this.stopped) this.progressed();
    }
    this.running = this.jobs.length > 0;
    if (this.running) setTimeout(() => this.slice(), 0);
  }
}
