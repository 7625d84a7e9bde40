// Unpacks the page's data. A series is stored as differences between consecutive values; this file adds them up.

export interface Packed {
  of: "job" | "process" | "machine" | "gpu" | "figure";
  field: string;
  unit: string;
  pid?: number;
  id: number;
  name: string;
  t: number[];
  v: number[];
}
export interface Event {
  kind: "epoch" | "evaluation" | "checkpoint" | "begin" | "end" | "guard";
  t: number;
  step: number | null;
}
export interface Phase {
  name: string;
  t: number;
  until: number;
}
export interface Frame {
  n: string | null;
  w?: string;
  b: number;
  k?: string;
  c?: Frame[];
}
export interface PackedRun {
  series?: Packed[];
  steps?: { t: number[]; v: number[] };
  span_s?: number;
  events?: Event[];
  phases?: Phase[];
  segments?: number[];
  pid?: number | null;
  flame?: Frame;
  flame_gpu?: Frame;
}

export interface Series {
  of: Packed["of"];
  field: string;
  unit: string;
  pid: number | null;
  id: number;
  name: string;
  t: number[]; // seconds
  v: number[]; // values in bytes, or in UNIT if it is set
}
// Steps in increasing order, with their times. A restarted job repeats steps, so it has one Clock per segment.
export interface Clock {
  t: number[];
  step: number[];
}
export interface Run {
  series: Series[];
  clocks: Clock[];
  span: number;
  events: Event[];
  phases: Phase[];
  segments: number[];
  pid: number | null;
  flame: Frame | null;
  flameGpu: Frame | null;
}

function sum(list: number[], unit: number): number[] {
  let at = 0;
  return list.map((d) => (at += d) * unit);
}

function clocksOf(t: number[], step: number[]): Clock[] {
  const clocks: Clock[] = [];
  let now: Clock | null = null;
  for (let i = 0; i < t.length; i++) {
    if (!now || step[i] < now.step[now.step.length - 1]) {
      now = { t: [], step: [] };
      clocks.push(now);
    }
    if (now.step.length && step[i] === now.step[now.step.length - 1]) continue;
    now.t.push(t[i]);
    now.step.push(step[i]);
  }
  return clocks.filter((c) => c.t.length > 1);
}

export function unpack(p: PackedRun): Run {
  const series = (p.series ?? []).map((s) => ({
    of: s.of,
    field: s.field,
    unit: s.unit,
    pid: s.pid ?? null,
    id: s.id,
    name: s.name,
    t: sum(s.t, 1e-3),
    v: sum(s.v, s.unit === "B" ? 1024 : 1),
  }));
  const steps = p.steps ?? { t: [], v: [] };
  return {
    series,
    clocks: clocksOf(sum(steps.t, 1e-3), sum(steps.v, 1)),
    span: p.span_s ?? 0,
    events: p.events ?? [],
    phases: p.phases ?? [],
    segments: p.segments ?? [],
    pid: p.pid ?? null,
    flame: p.flame ?? null,
    flameGpu: p.flame_gpu ?? null,
  };
}

// Returns the step at T, interpolated; null if T is before the first step or after the last.
export function stepAt(clock: Clock, t: number): number | null {
  const n = clock.t.length;
  if (t < clock.t[0] || t > clock.t[n - 1]) return null;
  let low = 0;
  let high = n - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (clock.t[middle] <= t) low = middle;
    else high = middle;
  }
  const wide = clock.t[high] - clock.t[low];
  const part = wide > 0 ? (t - clock.t[low]) / wide : 0;
  return clock.step[low] + part * (clock.step[high] - clock.step[low]);
}

// Converts the times of a series to steps of CLOCK. Values outside the time range of CLOCK are dropped.
export function overSteps(s: { t: number[]; v: number[] }, clock: Clock): [number[], number[]] {
  const x: number[] = [];
  const y: number[] = [];
  for (let i = 0; i < s.t.length; i++) {
    const step = stepAt(clock, s.t[i]);
    if (step === null || (x.length && step <= x[x.length - 1])) continue;
    x.push(step);
    y.push(s.v[i]);
  }
  return [x, y];
}

// Returns, for each of TIMES, the last value of S at or before it; null if the time is before the first value.
export function hold(s: Series | undefined, times: number[]): (number | null)[] {
  let i = 0;
  let last: number | null = null;
  return times.map((t) => {
    while (s && i < s.t.length && s.t[i] <= t) last = s.v[i++];
    return last;
  });
}
