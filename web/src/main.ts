// The page of `ebb report`: draws what the program has written into it.

import { Clock, hold, overSteps, PackedRun, Run, Series, stepAt, unpack } from "./data";
import { addFlame } from "./flame";
import { addPlot, fitPlots, forgetPlots, Line, markersOf, Plot, zoomAll } from "./plot";
import { onThemeChange } from "./theme";

const text = document.getElementById("data")?.textContent ?? "{}";
const packed = JSON.parse(text) as PackedRun & { runs?: PackedRun[] };
const area = document.getElementById("plots");
let byStep = false;

function find(run: Run, of: string, field: string, pid?: number | null): Series | undefined {
  return run.series.find((s) => s.of === of && s.field === field && (pid === undefined || s.pid === pid));
}

// Over time, or over the steps of each of CLOCKS.
function linesOf(s: { t: number[]; v: number[] }, label: string, colour: number, clocks: Clock[] | null, more: Partial<Line> = {}): Line[] {
  if (!clocks) return [{ label, x: s.t, y: s.v, colour, ...more }];
  return clocks.map((clock, i) => {
    const [x, y] = overSteps(s, clock);
    return { label: i ? `${label}, segment ${i}` : label, x, y, colour, ...more };
  }).filter((line) => line.x.length > 1);
}

function xOf(clocks: Clock[] | null): (t: number) => number | null {
  if (!clocks) return (t) => t;
  return (t) => {
    for (const clock of clocks) {
      if (t < clock.t[0]) return clock.step[0]; // between two lives of the job
      const step = stepAt(clock, t);
      if (step !== null) return step;
    }
    return null;
  };
}

// The same for every plot of a page, so that they can be read one below the other.
function extentOf(list: Run[], isByStep: boolean): [number, number] {
  if (!isByStep) return [0, Math.max(...list.map((run) => run.span))];
  const steps = list.flatMap((run) => run.clocks.flatMap((c) => [c.step[0], c.step[c.step.length - 1]]));
  return [Math.min(...steps), Math.max(...steps)];
}

function limitOf(run: Run): number | undefined {
  const limit = find(run, "machine", "limit");
  return limit?.v[limit.v.length - 1];
}

function memoryPlot(run: Run, clocks: Clock[] | null): Plot {
  const job = find(run, "job", "tree_low");
  const lines = job ? linesOf(job, "job", 0, clocks, { fill: true }) : [];
  const processes = run.series.filter((s) => s.of === "process" && s.field === "rss");
  processes.slice(0, clocks && clocks.length > 1 ? 0 : 6).forEach((s, i) => {
    lines.push(...linesOf(s, `${s.pid} ${s.name}`, i + 1, clocks, { thin: true }));
  });
  return {
    title: clocks ? "Memory over steps" : "Memory over time",
    note: "Of the job, what its processes share is counted once; of a process it is what is resident.",
    lines,
    unit: "B",
    byStep: !!clocks,
    markers: markersOf(run, xOf(clocks)),
    limit: limitOf(run),
  };
}

// What the resident memory of one process is made of, from the bottom up.
function partsPlot(run: Run, clocks: Clock[] | null): Plot | null {
  const rss = find(run, "process", "rss", run.pid);
  const anon = find(run, "process", "anon", run.pid);
  if (!rss || !anon) return null;
  const times = rss.t.filter((t) => t >= anon.t[0]);
  const at = (field: string) => hold(find(run, "process", field, run.pid), times);
  const heapLive = run.series.find((s) => s.of === "figure" && s.name === `heap_live_bytes@${run.pid}`);
  const file = at("file");
  const shmem = at("shmem");
  // What is resident is read more often than what it is made of: the rest is anonymous.
  const anons = hold(rss, times).map((v, i) => Math.max((v ?? 0) - (file[i] ?? 0) - (shmem[i] ?? 0), 0));
  const live = hold(heapLive, times).map((v, i) => (v === null ? null : Math.min(v, anons[i])));
  const rest = anons.map((v, i) => v - (live[i] ?? 0));
  const parts: [string, (number | null)[], number][] = [
    ["mapped files", file, 6],
    ["shared memory", shmem, 3],
    ["live heap, by the allocator", live, 1],
    [heapLive ? "other anonymous memory" : "anonymous memory", rest, 0],
  ];
  const clock = clocks?.[clocks.length - 1] ?? null;
  const sums = times.map(() => 0);
  const lines: Line[] = [];
  for (const [label, values, colour] of parts) {
    if (values.every((v) => !v)) continue;
    values.forEach((v, i) => (sums[i] += v ?? 0));
    const drawn = clock ? overSteps({ t: times, v: [...sums] }, clock) : ([times, [...sums]] as [number[], number[]]);
    const shown = clock ? overSteps({ t: times, v: values.map((v) => v ?? 0) }, clock)[1] : values;
    lines.push({ label, x: drawn[0], y: drawn[1], colour, shown, fill: true, thin: true });
  }
  const x = lines[0]?.x;
  lines.forEach((line) => (line.x = x));
  return {
    title: `What the memory of process ${run.pid} ${rss.name} is`,
    lines,
    stacked: true,
    unit: "B",
    byStep: !!clock,
    markers: markersOf(run, xOf(clock ? [clock] : null)),
  };
}

function otherPlots(run: Run, clocks: Clock[] | null): Plot[] {
  const plots: Plot[] = [];
  const markers = markersOf(run, xOf(clocks));
  const add = (title: string, list: Series[], label: (s: Series) => string) => {
    const lines = list.slice(0, 8).flatMap((s, i) => linesOf(s, label(s), i, clocks));
    if (lines.length) plots.push({ title, lines, unit: "B", byStep: !!clocks, markers });
  };
  const gpus = run.series.filter((s) => s.of === "gpu");
  add("GPU memory", gpus, (s) => `${s.name} ${s.field === "job" ? "by the job" : "in use"}`);
  const figures = run.series.filter((s) => s.of === "figure" && s.unit === "B");
  add("What the job says of itself", figures, (s) => s.name.replace("_bytes@", " of "));
  return plots;
}

function comparePlot(runs: Run[], isByStep: boolean): Plot {
  const lines = runs.flatMap((run, i) => {
    const job = find(run, "job", "tree_low") ?? run.series.find((s) => s.field === "rss");
    return job ? linesOf(job, i ? "after" : "before", i ? 0 : 1, isByStep ? run.clocks : null) : [];
  });
  return { title: isByStep ? "Memory over steps" : "Memory over time", lines, unit: "B", byStep: isByStep, markers: [] };
}

const runs = (packed.runs ?? [packed]).map(unpack);

function draw(): void {
  if (!area) return;
  forgetPlots();
  area.replaceChildren();
  const clocks = byStep ? runs[0].clocks : null;
  const plots = packed.runs
    ? [comparePlot(runs, byStep)]
    : [memoryPlot(runs[0], clocks), partsPlot(runs[0], clocks), ...otherPlots(runs[0], clocks)];
  const extent = extentOf(runs, byStep);
  for (const plot of plots) if (plot) addPlot(area, plot, extent, zoomed);
  addKey(area);
}

// What the lines across the plots mean; nothing where there are none.
function addKey(into: HTMLElement): void {
  const kinds = new Set(runs.length === 1 ? markersOf(runs[0], (t) => t).map((m) => m.kind) : []);
  const words: [string, string][] = [
    ["epoch", "epoch"],
    ["evaluation", "evaluation"],
    ["checkpoint", "checkpoint"],
    ["phase", "phase"],
    ["segment", "started again"],
    ["guard", "act of the guard"],
  ];
  const key = document.createElement("p");
  key.className = "key-row";
  for (const [kind, word] of words) {
    if (!kinds.has(kind)) continue;
    const one = document.createElement("span");
    one.className = `mark ${kind}`;
    one.textContent = word;
    key.append(one);
  }
  const first = into.querySelector("figure");
  if (key.childElementCount && first) first.append(key);
}

let isZooming = false;
function zoomed(min: number | null, max: number | null): void {
  const whole = document.getElementById("whole") as HTMLButtonElement | null;
  if (isZooming) return;
  isZooming = true;
  zoomAll(min, max);
  if (whole) whole.disabled = min === null;
  isZooming = false;
}

function setAxis(step: boolean): void {
  byStep = step;
  document.getElementById("by-time")?.setAttribute("aria-pressed", String(!step));
  document.getElementById("by-step")?.setAttribute("aria-pressed", String(step));
  draw();
}

function addTools(): void {
  const tools = document.getElementById("tools");
  const hasSteps = runs.every((run) => run.clocks.length > 0);
  if (!tools) return;
  tools.hidden = false;
  const step = document.getElementById("by-step") as HTMLButtonElement | null;
  if (step) step.disabled = !hasSteps;
  document.getElementById("by-time")?.addEventListener("click", () => setAxis(false));
  step?.addEventListener("click", () => setAxis(true));
  document.getElementById("whole")?.addEventListener("click", () => zoomed(null, null));
}

addTools();
draw();
const flame = document.getElementById("flame");
if (flame && runs[0].flame) addFlame(flame, runs[0].flame);
let waiting = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(fitPlots);
});
onThemeChange(draw);
// On paper nothing can be opened.
addEventListener("beforeprint", () => document.querySelectorAll<HTMLDetailsElement>("#diagnosis details").forEach((d) => (d.open = true)));
