// One plot: lines or stacked areas over time or steps, with what happened drawn into it.

import uPlot from "uplot";
import { Run } from "./data";
import * as format from "./format";
import { Theme, theme } from "./theme";

export interface Line {
  label: string;
  x: number[];
  y: (number | null)[];
  colour: number;
  shown?: (number | null)[]; // what the legend tells, where it is not what is drawn
  fill?: boolean;
  thin?: boolean;
}
export interface Marker {
  kind: string;
  x: number;
  until?: number;
  label: string;
}
export interface Plot {
  title: string;
  note?: string;
  lines: Line[];
  stacked?: boolean;
  unit: string;
  byStep: boolean;
  markers: Marker[];
  limit?: number;
}

export type OnZoom = (min: number | null, max: number | null) => void; // null: the whole run

const height = 260;
const plots = new Set<uPlot>();
let extent: [number, number] = [0, 1]; // of the x axes, all of it

// How far ticks may lie apart: sizes by powers of two, times as clocks have them.
const sizes = Array.from({ length: 62 }, (_, i) => 2 ** i);
const counts = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();
const hour = 3600;
const times = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, ...[1, 2, 5, 10, 20, 50, 100].map((d) => d * 24 * hour)];

export function markersOf(run: Run, toX: (t: number) => number | null): Marker[] {
  const list: Marker[] = [];
  const add = (kind: string, t: number, label: string, until?: number) => {
    const x = toX(t);
    const end = until === undefined ? undefined : (toX(until) ?? undefined);
    if (x !== null) list.push({ kind, x, label, until: end });
  };
  run.phases.forEach((p) => add("phase", p.t, p.name, p.until));
  run.events.forEach((e) => {
    if (e.kind === "epoch" || e.kind === "evaluation" || e.kind === "checkpoint") add(e.kind, e.t, e.kind);
  });
  run.segments.forEach((t) => add("segment", t, "started again"));
  run.guard.forEach((g) => add("guard", g.t_s, g.act));
  return list;
}

// A line for each event, but no more than can be told apart.
function drawMarkers(u: uPlot, markers: Marker[], colours: Theme): void {
  const { ctx } = u;
  const { left, top, width, height: tall } = u.bbox;
  const last: Record<string, number> = {};
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, tall);
  ctx.clip();
  for (const m of markers) {
    const x = Math.round(u.valToPos(m.x, "x", true));
    if (m.kind === "phase") {
      const end = m.until === undefined ? x : u.valToPos(m.until, "x", true);
      ctx.fillStyle = colours.phase;
      ctx.fillRect(x, top, Math.max(end - x, 1), tall);
      continue;
    }
    if (x < left || x > left + width || x - (last[m.kind] ?? -99) < 3 * devicePixelRatio) continue;
    last[m.kind] = x;
    ctx.strokeStyle = colours.events[m.kind];
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(m.kind === "segment" || m.kind === "guard" ? [] : [4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x + 0.5, top);
    ctx.lineTo(x + 0.5, top + tall);
    ctx.stroke();
  }
  ctx.restore();
}

function drawLimit(u: uPlot, limit: number, colours: Theme): void {
  const { ctx } = u;
  const y = u.valToPos(limit, "y", true);
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colours.limit;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(u.bbox.left, y);
  ctx.lineTo(u.bbox.left + u.bbox.width, y);
  ctx.stroke();
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillText(`limit ${format.size(limit)}`, u.bbox.left + 6 * devicePixelRatio, y + 4 * devicePixelRatio);
  ctx.restore();
}

function seriesOf(plot: Plot, colours: Theme, say: (v: number) => string): uPlot.Series[] {
  return plot.lines.map((line) => {
    const stroke = colours.lines[line.colour % colours.lines.length];
    return {
      label: line.label,
      stroke,
      width: line.thin ? 1 : 1.6,
      fill: line.fill ? `${stroke}${plot.stacked ? "99" : "22"}` : undefined,
      spanGaps: true,
      points: { show: false },
      value: (_u: uPlot, v: number | null, _s: number, i: number | null) => {
        const told = line.shown && i !== null ? line.shown[i] : v;
        return told === null || told === undefined ? "–" : say(told);
      },
    };
  });
}

// The x range of every plot at once.
export function zoomAll(min: number | null, max: number | null): void {
  const [from, to] = [min ?? extent[0], max ?? extent[1]];
  for (const u of plots) {
    if (u.scales.x.min !== from || u.scales.x.max !== to) u.setScale("x", { min: from, max: to });
  }
}

// Where a plot's own data ends says nothing: it is shown as part of the run.
function isOwnRange(u: uPlot, min: number, max: number): boolean {
  const x = u.data[0];
  return min === x[0] && max === x[x.length - 1];
}

export function forgetPlots(): void {
  for (const u of plots) u.destroy();
  plots.clear();
}

// The reading that holds at INDEX: the last one before it, while the series lasts.
function readingAt(u: uPlot, series: number, index: number): number {
  const y = u.data[series];
  let before = index;
  while (before >= 0 && y[before] == null) before--;
  let after = index;
  while (after < y.length && y[after] == null) after++;
  return before < 0 || after === y.length ? index : before;
}

function keys(u: uPlot, box: HTMLElement, onZoom: OnZoom): void {
  box.addEventListener("keydown", (e) => {
    const { min, max } = u.scales.x;
    const [first, last] = extent;
    if (min == null || max == null || e.ctrlKey || e.metaKey || e.altKey || e.target !== box) return;
    const wide = max - min;
    const go = (from: number, to: number) => {
      e.preventDefault();
      onZoom(Math.max(from, first), Math.min(to, last));
    };
    if (e.key === "+" || e.key === "=") go(min + wide / 4, max - wide / 4);
    else if (e.key === "-") go(min - wide / 2, max + wide / 2);
    else if (e.key === "ArrowLeft") go(Math.max(min - wide / 4, first), Math.max(min - wide / 4, first) + wide);
    else if (e.key === "ArrowRight") go(Math.min(max + wide / 4, last) - wide, Math.min(max + wide / 4, last));
    else if (e.key === "0") go(first, last);
  });
}

// Series can be switched off with the keyboard too.
function reachLegend(u: uPlot): void {
  u.root.querySelectorAll<HTMLElement>(".u-legend .u-series").forEach((row, i) => {
    const label = row.querySelector<HTMLElement>("th");
    if (i === 0 || !label) return;
    label.tabIndex = 0;
    label.setAttribute("role", "button");
    label.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      u.setSeries(i, { show: !u.series[i].show });
    });
  });
}

function optionsOf(plot: Plot, wide: number, onZoom: OnZoom): uPlot.Options {
  const colours = theme();
  const isBytes = plot.unit === "B";
  const say = isBytes ? format.size : format.count;
  const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
  const top = (max: number) => (plot.limit !== undefined && plot.limit < max * 2.5 ? Math.max(max, plot.limit) : max) * 1.05 || 1;
  return {
    width: wide,
    height,
    legend: { live: true },
    cursor: { sync: { key: plot.byStep ? "steps" : "time" }, drag: { x: true, y: false }, dataIdx: readingAt },
    scales: { x: { time: false, range: (u, min, max) => (isOwnRange(u, min, max) ? extent : [min, max]) }, y: { range: (_u, _min, max) => [0, top(max ?? 1)] } },
    axes: [
      { ...axis, space: 70, incrs: plot.byStep ? counts : times, values: (_u, v, _a, _s, incr) => v.map((x) => (plot.byStep ? format.count(x) : format.time(x, incr))) },
      { ...axis, size: 78, incrs: isBytes ? sizes : undefined, values: (_u, v) => v.map(isBytes ? format.tick : format.count) },
    ],
    series: [
      { label: plot.byStep ? "step" : "time", value: (_u, v) => (v == null ? "–" : plot.byStep ? format.count(Math.round(v)) : format.time(v)) },
      ...seriesOf(plot, colours, say),
    ],
    bands: plot.stacked ? plot.lines.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as [number, number] })) : undefined,
    hooks: {
      drawClear: [(u) => drawMarkers(u, plot.markers, colours)],
      draw: [(u) => plot.limit !== undefined && plot.limit <= (u.scales.y.max ?? 0) && drawLimit(u, plot.limit, colours)],
      setScale: [
        (u, key) => {
          if (key !== "x" || !plots.has(u)) return;
          const { min, max } = u.scales.x;
          if (min == null || max == null) return;
          const whole = min <= extent[0] && max >= extent[1];
          onZoom(whole ? null : min, whole ? null : max);
        },
      ],
    },
  };
}

// Everything drawn in one plot shares its x values.
function join(plot: Plot): uPlot.AlignedData {
  const first = plot.lines[0].x;
  if (plot.lines.every((line) => line.x === first)) return [first, ...plot.lines.map((line) => line.y)] as uPlot.AlignedData;
  return uPlot.join(plot.lines.map((line) => [line.x, line.y] as uPlot.AlignedData));
}

export function addPlot(into: HTMLElement, plot: Plot, whole: [number, number], onZoom: OnZoom): void {
  extent = whole;
  if (!plot.lines.length || plot.lines[0].x.length < 2) return;
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const box = document.createElement("div");
  caption.textContent = plot.title;
  figure.append(caption, box);
  if (plot.note) {
    const note = document.createElement("p");
    note.className = "quiet";
    note.textContent = plot.note;
    figure.append(note);
  }
  into.append(figure);
  box.className = "plot";
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${plot.title}; plus and minus zoom, arrows move, 0 shows the whole run`);
  const u = new uPlot(optionsOf(plot, box.clientWidth || 800, onZoom), join(plot), box);
  plots.add(u);
  keys(u, box, onZoom);
  reachLegend(u);
}

export function fitPlots(): void {
  for (const u of plots) {
    const wide = u.root.parentElement?.clientWidth ?? 0;
    if (wide && wide !== u.width) u.setSize({ width: wide, height });
  }
}
