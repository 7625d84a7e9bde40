// The series, marks and events of a job. They are read once, then extended by live messages. However long the job runs,
// only a limited number is kept.

import { Happening, Mark, Sample, Samples } from "./api";
import { Series } from "./series";

const mostProcesses = 24;
const mostGpus = 32;
const mostMarks = 2000;
export const mostEvents = 300;
const mostRecent = 600; // maximum number of recent samples, which may not be in the recording yet

// Returns the actions of the guard, and all segments except the first as restarts, with times since the first segment.
export function happenings(events: Happening[]): Happening[] {
  const parse = (e: Happening | undefined) => Date.parse((e?.started ?? "").replace(/([+-]\d\d)(\d\d)$/, "$1:$2"));
  const began_ms = parse(events.find((e) => e.kind === "segment"));
  const again = events.filter((e) => e.kind === "segment" && e.segment).map((e) => startedAgain((parse(e) - began_ms) / 1000));
  return [...events.filter((e) => e.act), ...again.filter((e) => !Number.isNaN(e.t_s))].sort((a, b) => (a.t_s ?? 0) - (b.t_s ?? 0));
}

export function startedAgain(t_s: number): Happening {
  return { kind: "segment", t_s, act: "restarted" };
}

export interface ProcessSeries {
  pid: number;
  name: string;
  role: string;
  rss: Series;
  peak: number;
}
export interface GpuSeries {
  index: number;
  name: string;
  memory: Series; // GPU memory used by the job, and by all processes
}

export class JobData {
  readonly job = new Series(["low", "high", "last"]); // lowest and highest memory of the job, and its unique memory
  readonly processes = new Map<number, ProcessSeries>();
  readonly gpus = new Map<number, GpuSeries>();
  marks: Mark[] = [];
  events: Happening[] = [];
  limit: number | null = null;
  until_s = 0; // time of the newest data in seconds
  private recent: Sample[] = [];

  // Replaces the data. Keeps events, and live data that is not in the recording yet.
  read(s: Samples): void {
    const { t_s = [], job_low_bytes = [], job_high_bytes = [], unique_bytes = [] } = s.series ?? {};
    this.job.clear();
    this.processes.clear();
    this.gpus.clear();
    t_s.forEach((t, i) => t !== null && this.job.add(t, [job_low_bytes[i], job_high_bytes[i], unique_bytes[i]]));
    for (const p of s.processes ?? []) p.t_s.forEach((t, i) => this.addProcess(t, p.pid, p.name, p.role, p.rss_bytes[i]));
    for (const g of s.gpus ?? []) g.t_s.forEach((t, i) => this.addGpu(t, g.index, g.name, g.job_bytes[i], g.used_bytes[i]));
    const end_s = Math.max(this.job.last_s, s.until_s ?? 0, 0);
    const marks = (s.marks ?? []).filter((m) => m.kind !== "step");
    this.marks = [...marks, ...this.marks.filter((m) => m.t_s > end_s)].slice(-mostMarks);
    this.limit = s.limit_bytes ?? this.limit;
    this.until_s = end_s;
    for (const one of this.recent) if (one.t_s > this.job.last_s) this.put(one);
  }

  add(s: Sample): void {
    this.recent.push(s);
    if (this.recent.length > mostRecent) this.recent.splice(0, mostRecent / 2);
    this.put(s);
  }

  private put(s: Sample): void {
    this.job.add(s.t_s, [s.job_bytes, s.job_bytes, s.unique_bytes]);
    for (const p of s.processes ?? []) this.addProcess(s.t_s, p.pid, p.name, p.role, p.rss_bytes);
    for (const g of s.gpus ?? []) this.addGpu(s.t_s, g.index, undefined, g.job_bytes, g.used_bytes);
    if (s.limit_bytes != null) this.limit = s.limit_bytes;
    this.until_s = Math.max(this.until_s, s.t_s);
  }

  addMark(mark: Mark): void {
    if (mark.kind === "step" || mark.kind === "substep") return;
    this.marks.push(mark);
    // Drops every other mark, so that one can still see when marks are frequent.
    if (this.marks.length > mostMarks) this.marks = this.marks.filter((_, i) => i % 2 === 1);
  }

  addEvent(event: Happening): void {
    this.events.push(event);
    if (this.events.length > mostEvents) this.events.shift();
  }

  get lastBytes(): number | null {
    const high = this.job.columns[1];
    return high.length ? high[high.length - 1] : null;
  }

  private addProcess(t: number, pid: number, name: string | undefined, role: string | undefined, rss: number | null | undefined): void {
    if (rss == null) return;
    let one = this.processes.get(pid);
    if (!one) {
      if (this.processes.size >= mostProcesses && !this.forget(t)) return;
      one = { pid, name: name ?? "", role: role ?? "", rss: new Series(["high"]), peak: 0 };
      this.processes.set(pid, one);
    }
    one.name = name ?? one.name;
    one.role = role ?? one.role;
    one.peak = Math.max(one.peak, rss);
    one.rss.add(t, [rss]);
  }

  // Drops the smallest processes among those without new samples.
  private forget(now_s: number): boolean {
    const gone = [...this.processes.values()].filter((p) => p.rss.last_s < now_s - 10);
    if (!gone.length) return false;
    this.processes.delete(gone.reduce((a, b) => (b.peak < a.peak ? b : a)).pid);
    return true;
  }

  private addGpu(t: number, index: number, name: string | undefined, job: number | null | undefined, used: number | null | undefined): void {
    let one = this.gpus.get(index);
    if (!one) {
      if (this.gpus.size >= mostGpus) return;
      one = { index, name: name ?? "", memory: new Series(["high", "high"]) };
      this.gpus.set(index, one);
    }
    one.name = name ?? one.name;
    one.memory.add(t, [job, used]);
  }
}
