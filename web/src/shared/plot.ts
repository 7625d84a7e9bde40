// Plots that share an x axis and zoom together: lines or stacked areas over time or steps.

import uPlot from "uplot";
import * as format from "./format";
import { drawForecast, drawLimit, drawMarkers, Forecast, keyOf, Marker } from "./markers";
import { isOnPaper, theme, Theme } from "./theme";

export interface Line {
  label: string;
  x: number[];
  y: (number | null)[];
  colour: number; // index in the theme's line colours
  shown?: (number | null)[]; // values for the legend, if they differ from the drawn ones
  fill?: boolean;
  thin?: boolean;
}
export interface Plot {
  title: string;
  note?: string;
  lines: Line[];
  stacked?: boolean;
  unit: string; // "B": bytes; any other value: counts
  byStep: boolean;
  markers: Marker[];
  key?: boolean; // true if a legend of the markers is shown below the plot
  limit?: number;
  forecast?: Forecast;
}

const height = 260;
const paperWidth = 880; // width in px, which the style sheet scales to the paper's width

// Distances between two ticks: powers of two for sizes, units of the clock for times.
const sizes = Array.from({ length: 62 }, (_, i) => 2 ** i);
const counts = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();
const hour = 3600;
const times = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, ...[1, 2, 5, 10, 20, 50, 100].map((d) => d * 24 * hour)];

// Joins the lines of one plot, which share their x values.
export function join(lines: Line[]): uPlot.AlignedData {
  const first = lines[0].x;
  if (lines.every((line) => line.x === first)) return [first, ...lines.map((line) => line.y)] as uPlot.AlignedData;
  return uPlot.join(lines.map((line) => [line.x, line.y] as uPlot.AlignedData));
}

// Returns the value that the legend shows while the pointer is not on the plot.
function lastOf(line: Line): number | null {
  const values = line.shown ?? line.y;
  for (let i = values.length - 1; i >= 0; i--) if (values[i] != null) return values[i];
  return null;
}

function seriesOf(plot: Plot, colours: Theme): uPlot.Series[] {
  const formatted = plot.unit === "B" ? format.size : format.count;
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
        const value = i === null ? lastOf(line) : line.shown ? line.shown[i] : v;
        return value === null || value === undefined ? "–" : formatted(value);
      },
    };
  });
}

// Returns the index of the last known value at or before INDEX. If INDEX is before the first known value or after the
// last one, returns INDEX.
function readingAt(u: uPlot, series: number, index: number): number {
  const y = u.data[series];
  let before = index;
  while (before >= 0 && y[before] == null) before--;
  let after = index;
  while (after < y.length && y[after] == null) after++;
  return before < 0 || after === y.length ? index : before;
}

// Makes the legend usable with the keyboard, so that series can be switched off.
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

function axesOf(plot: Plot, colours: Theme): uPlot.Axis[] {
  const isBytes = plot.unit === "B";
  const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1 } };
  return [
    {
      ...axis,
      space: 70,
      incrs: plot.byStep ? counts : times,
      values: (_u, v, _a, _s, incr) => v.map((x) => (plot.byStep ? format.count(x) : format.time(x, incr))),
    },
    { ...axis, size: 78, incrs: isBytes ? sizes : undefined, values: (_u, v) => v.map(isBytes ? format.tick : format.count) },
  ];
}

export class PlotGroup {
  private readonly plots = new Map<uPlot, Plot>();
  private extent: [number, number] = [0, 1]; // full range of the x axes
  private part: [number, number] | null = null; // the zoomed range of the x axes, or null
  private isZooming = false;

  // ONZOOM is called after a zoom: with true if part of the x range is shown, with false if all of it is shown.
  constructor(private readonly into: HTMLElement, private readonly onZoom: (isPart: boolean) => void) {}

  clear(extent: [number, number]): void {
    for (const u of this.plots.keys()) u.destroy();
    this.plots.clear();
    this.into.replaceChildren();
    this.extent = extent;
    this.part = null;
  }

  // Adds a plot. Keeps a reference to the data of PLOT, so that update can draw changed data.
  add(plot: Plot): uPlot | null {
    if (!plot.lines.length || plot.lines[0].x.length < 2) return null;
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
    const key = plot.key ? keyOf(plot.markers) : null;
    if (key) figure.append(key);
    this.into.append(figure);
    box.className = "plot";
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${plot.title}; plus and minus zoom, arrows move, 0 shows the whole run`);
    const u = new uPlot(this.optionsOf(plot, this.widthOf(box)), join(plot.lines), box);
    this.plots.set(u, plot);
    this.listen(u, box);
    reachLegend(u);
    return u;
  }

  // Sets the x range of all plots; null selects the full range.
  zoom(min: number | null, max: number | null): void {
    const [from, to] = [min ?? this.extent[0], max ?? this.extent[1]];
    if (this.isZooming) return;
    this.isZooming = true;
    this.part = min === null ? null : [from, to];
    for (const u of this.plots.keys()) {
      if (u.scales.x.min !== from || u.scales.x.max !== to) u.setScale("x", { min: from, max: to });
    }
    this.onZoom(min !== null);
    this.isZooming = false;
  }

  // Draws all plots again with their current data. The zoom is kept.
  update(extent: [number, number]): void {
    this.extent = extent;
    const [min, max] = this.part ?? extent;
    for (const [u, plot] of this.plots) {
      u.setData(join(plot.lines), false);
      u.setScale("x", { min, max });
      queueMicrotask(() => this.showLast(u)); // later, because drawing resets the legend
    }
  }

  // Shows the last values in the legend while there is no pointer.
  private showLast(u: uPlot): void {
    if (this.plots.has(u) && (u.cursor.left ?? -1) < 0) u.setLegend({ idx: u.data[0].length - 1 });
  }

  // Returns the zoomed range, or null for the full range.
  get shown(): [number, number] | null {
    return this.part;
  }

  // Adapts the plots to the current width.
  fit(): void {
    for (const u of this.plots.keys()) {
      const box = u.root.parentElement;
      const wide = box ? this.widthOf(box) : 0;
      if (wide && wide !== u.width) u.setSize({ width: wide, height });
    }
  }

  private widthOf(box: HTMLElement): number {
    return isOnPaper() ? paperWidth : box.clientWidth || 800;
  }

  private optionsOf(plot: Plot, wide: number): uPlot.Options {
    const colours = theme();
    const top = (read: number) => {
      const f = plot.forecast;
      const end = (this.part ?? this.extent)[1];
      const max = f && end > f.x ? Math.max(read, Math.min(f.y + f.high * (end - f.x), plot.limit ?? Infinity)) : read;
      return (plot.limit !== undefined && plot.limit < max * 2.5 ? Math.max(max, plot.limit) : max) * 1.05 || 1;
    };
    return {
      width: wide,
      height,
      padding: [null, 34, null, null], // leaves room to the right of the axis for half of the last tick's label
      legend: { live: true },
      cursor: { sync: { key: plot.byStep ? "steps" : "time" }, drag: { x: true, y: false }, dataIdx: readingAt },
      scales: {
        // the x range of every plot covers the whole run, even if the plot's own data ends earlier
        x: { time: false, range: (u, min, max) => (min === u.data[0][0] && max === u.data[0][u.data[0].length - 1] ? this.extent : [min, max]) },
        y: { range: (_u, _min, max) => [0, top(max ?? 1)] },
      },
      axes: axesOf(plot, colours),
      series: [
        { label: plot.byStep ? "step" : "time", value: (_u, v) => (v == null ? "at the end" : plot.byStep ? format.count(Math.round(v)) : format.time(v)) },
        ...seriesOf(plot, colours),
      ],
      bands: plot.stacked ? plot.lines.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as [number, number] })) : undefined,
      hooks: {
        drawAxes: [(u) => drawMarkers(u, plot.markers, colours)],
        draw: [
          (u) => plot.forecast && drawForecast(u, plot.forecast, plot.limit, colours),
          (u) => plot.limit !== undefined && plot.limit <= (u.scales.y.max ?? 0) && drawLimit(u, plot.limit, colours),
        ],
        setScale: [(u, key) => key === "x" && this.plots.has(u) && this.follow(u)],
      },
    };
  }

  private follow(u: uPlot): void {
    const { min, max } = u.scales.x;
    if (min == null || max == null) return;
    const whole = min <= this.extent[0] && max >= this.extent[1];
    this.zoom(whole ? null : min, whole ? null : max);
  }

  private listen(u: uPlot, box: HTMLElement): void {
    box.addEventListener("keydown", (e) => {
      const { min, max } = u.scales.x;
      const [first, last] = this.extent;
      if (min == null || max == null || e.ctrlKey || e.metaKey || e.altKey || e.target !== box) return;
      const wide = max - min;
      const go = (from: number, to: number) => {
        e.preventDefault();
        this.zoom(Math.max(from, first), Math.min(to, last));
      };
      if (e.key === "+" || e.key === "=") go(min + wide / 4, max - wide / 4);
      else if (e.key === "-") go(min - wide / 2, max + wide / 2);
      else if (e.key === "ArrowLeft") go(Math.max(min - wide / 4, first), Math.max(min - wide / 4, first) + wide);
      else if (e.key === "ArrowRight") go(Math.min(max + wide / 4, last) - wide, Math.min(max + wide / 4, last));
      else if (e.key === "0") go(first, last);
    });
  }
}
