// The plots of a report with their series and markers.

import { Clock, hold, overSteps, Run, Series, stepAt } from "./report_data";
import { Kind, Marker } from "./shared/markers";
import { Line, Plot } from "./shared/plot";

const most = 12; // number of lines that fit in a plot's legend

function find(run: Run, of: string, field: string, pid?: number | null): Series | undefined {
  return run.series.find((s) => s.of === of && s.field === field && (pid === undefined || s.pid === pid));
}

// Returns one line over time. If CLOCKS is not null, instead returns a line over steps for each segment.
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
      if (t < clock.t[0]) return clock.step[0]; // the job was between two segments at T
      const step = stepAt(clock, t);
      if (step !== null) return step;
    }
    return null;
  };
}

// Returns the x range. All plots of a page have the same x range, so that they can be compared vertically.
export function extentOf(list: Run[], isByStep: boolean): [number, number] {
  if (!isByStep) return [0, Math.max(...list.map((run) => run.span))];
  const steps = list.flatMap((run) => run.clocks.flatMap((c) => [c.step[0], c.step[c.step.length - 1]]));
  return [Math.min(...steps), Math.max(...steps)];
}

function markersOf(run: Run, toX: (t: number) => number | null): Marker[] {
  const list: Marker[] = [];
  const add = (kind: Kind, t: number, until?: number) => {
    const x = toX(t);
    const end = until === undefined ? undefined : (toX(until) ?? undefined);
    if (x !== null) list.push({ kind, x, until: end });
  };
  run.phases.forEach((p) => add("phase", p.t, p.until));
  run.events.forEach((e) => {
    if (e.kind !== "begin" && e.kind !== "end") add(e.kind, e.t);
  });
  run.segments.forEach((t) => add("segment", t));
  return list;
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
    note: "The job's line counts shared memory once. The lines of processes show resident memory.",
    lines,
    unit: "B",
    byStep: !!clocks,
    markers: markersOf(run, xOf(clocks)),
    key: true,
    limit: limitOf(run),
  };
}

// Plots the parts of the resident memory of one process, stacked from the bottom up.
function partsPlot(run: Run, clocks: Clock[] | null): Plot | null {
  const rss = find(run, "process", "rss", run.pid);
  const anon = find(run, "process", "anon", run.pid);
  if (!rss || !anon) return null;
  const times = rss.t.filter((t) => t >= anon.t[0]);
  const at = (field: string) => hold(find(run, "process", field, run.pid), times);
  const heapLive = run.series.find((s) => s.of === "figure" && s.name === `heap_live_bytes@${run.pid}`);
  const file = at("file");
  const shmem = at("shmem");
  // The parts of RSS are sampled less often than RSS, so their sum may differ from it. The difference is shown as
  // anonymous memory.
  const anons = hold(rss, times).map((v, i) => Math.max((v ?? 0) - (file[i] ?? 0) - (shmem[i] ?? 0), 0));
  const live = hold(heapLive, times).map((v, i) => (v === null ? null : Math.min(v, anons[i])));
  const rest = anons.map((v, i) => v - (live[i] ?? 0));
  const parts: [string, (number | null)[], number][] = [
    ["mapped files", file, 6],
    ["shared memory", shmem, 3],
    ["live heap, as the allocator reports it", live, 1],
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
    title: `Memory breakdown of process ${run.pid} ${rss.name}`,
    lines,
    stacked: true,
    unit: "B",
    byStep: !!clock,
    markers: markersOf(run, xOf(clock ? [clock] : null)),
  };
}

const gpuLabels: Record<string, string> = {
  used: "used", job: "used by the job", allocated: "allocated by PyTorch", reserved: "reserved by PyTorch", outside: "outside PyTorch",
};

// Plots, for each GPU, the series on which the GPU's verdict is based, and also the others if the legend has room for
// them.
function gpuPlot(run: Run, clocks: Clock[] | null): [string, Line[]] {
  const gpus = run.series.filter((s) => s.of === "gpu");
  const ids = [...new Set(gpus.map((s) => s.id))];
  const names = [...new Set(gpus.map((s) => s.name))];
  const has = (id: number, field: string) => gpus.some((s) => s.id === id && s.field === field);
  const judged = (id: number) => ["allocated", "job", "used"].find((field) => has(id, field));
  const shown = gpus.filter((s) => s.field === judged(s.id) || gpus.length <= most);
  const isOneKind = names.length === 1;
  const lines = shown.slice(0, most).flatMap((s) => {
    const label = `GPU ${s.id}${isOneKind ? "" : ` ${s.name}`} ${gpuLabels[s.field] ?? s.field}`;
    return linesOf(s, label, s.id, clocks, { thin: s.field !== judged(s.id) });
  });
  return [isOneKind ? `GPU memory, ${ids.length > 1 ? `${ids.length} × ` : ""}${names[0]}` : "GPU memory", lines];
}

// Returns the lines of the metrics that the job reports, those of the selected process first. A metric has the same
// colour for all processes.
function figureLines(run: Run, clocks: Clock[] | null): Line[] {
  const figures = run.series.filter((s) => s.of === "figure" && s.unit === "B");
  const nameOf = (s: Series) => s.name.replace(/@.*/, "");
  const names = [...new Set(figures.map(nameOf))];
  const isSubject = (s: Series) => s.name.endsWith(`@${run.pid}`);
  figures.sort((a, b) => Number(isSubject(b)) - Number(isSubject(a)));
  return figures.slice(0, most).flatMap((s) =>
    linesOf(s, s.name.replace("_bytes@", " of "), names.indexOf(nameOf(s)), clocks, { thin: !isSubject(s) }));
}

function otherPlots(run: Run, clocks: Clock[] | null): Plot[] {
  const markers = markersOf(run, xOf(clocks));
  const plots: [string, Line[]][] = [
    gpuPlot(run, clocks),
    ["Metrics reported by the job", figureLines(run, clocks)],
  ];
  return plots.filter(([, lines]) => lines.length).map(([title, lines]) => ({ title, lines, unit: "B", byStep: !!clocks, markers }));
}

function comparePlot(runs: Run[], isByStep: boolean): Plot {
  const lines = runs.flatMap((run, i) => {
    const job = find(run, "job", "tree_low") ?? run.series.find((s) => s.field === "rss");
    return job ? linesOf(job, i ? "after" : "before", i ? 0 : 1, isByStep ? run.clocks : null) : [];
  });
  return { title: isByStep ? "Memory over steps" : "Memory over time", lines, unit: "B", byStep: isByStep, markers: [] };
}

export function plotsOf(runs: Run[], isByStep: boolean): Plot[] {
  if (runs.length > 1) return [comparePlot(runs, isByStep)];
  const clocks = isByStep ? runs[0].clocks : null;
  const parts = partsPlot(runs[0], clocks);
  return [memoryPlot(runs[0], clocks), ...(parts ? [parts] : []), ...otherPlots(runs[0], clocks)];
}
