// The plots of a job. They are created once, then updated, and created again only if their lines change.

import { Job, Sample, Samples } from "./api";
import { h, oneLine, soon } from "./dom";
import { ahead, forecastOf } from "./forecast";
import { JobData } from "./job_data";
import { Forecast, Kind, Marker } from "../shared/markers";
import { Line, Plot, PlotGroup } from "../shared/plot";
import { onThemeChange } from "../shared/theme";

const drawEvery_ms = 500;
const closerAfter_ms = 300;
const margin = 0.1; // amount of data read on each side of the zoomed range, as a fraction of the range
const mostLines = 7; // maximum number of processes in a plot; more lines could not be told apart
const kinds: Record<string, Kind> = { epoch: "epoch", eval: "evaluation", evaluation: "evaluation", save: "checkpoint", checkpoint: "checkpoint" };

export class JobPlots {
  private readonly area = h("div", { class: "plots" });
  private readonly whole = h("button", { type: "button", disabled: true, onclick: () => this.group.zoom(null, null) }, "Whole run");
  private readonly none = h("p", { class: "quiet" }, "No samples.");
  readonly root = h("section", { "aria-label": "Memory" }, h("h2", {}, "Memory"),
    h("div", { class: "tools" }, this.whole, h("span", { class: "quiet" }, "Drag across a plot to zoom in.")), this.none, this.area);
  private readonly group = new PlotGroup(this.area, (isPart) => this.zoomed(isPart));
  private plots: Plot[] = [];
  private shape = "";
  private job: Job | null = null;
  private waiting = 0;
  private drawn_ms = 0;
  private closer: JobData | null = null; // data of the zoomed range in more detail, or null
  private closerRange: [number, number] = [0, 0];
  private asked: string | null = null; // the last requested time range
  private reading = 0;
  private readonly unlisten: () => void;
  private readonly resized = () => soon(this.fit);

  // READ must return the samples between two times, in the finest detail that a plot can show.
  constructor(private readonly all: JobData, private readonly read: (from_s: number, to_s: number) => Promise<Samples | null>) {
    addEventListener("resize", this.resized);
    this.unlisten = onThemeChange(() => {
      this.shape = "";
      soon(this.draw);
    });
  }

  close(): void {
    removeEventListener("resize", this.resized);
    clearTimeout(this.waiting);
    clearTimeout(this.reading);
    this.unlisten();
    this.group.clear([0, 1]);
  }

  // Adds a live sample to the data, and also to the zoomed range.
  add(sample: Sample): void {
    this.all.add(sample);
    if (sample.t_s <= this.closerRange[1]) this.closer?.add(sample);
  }

  // Redraws the plots, at a limited rate.
  show(job: Job): void {
    this.job = job;
    this.waiting ||= window.setTimeout(() => {
      this.waiting = 0;
      soon(this.draw);
    }, Math.max(0, this.drawn_ms + drawEvery_ms - performance.now()));
  }

  // Returns the data of the zoomed range, or all data.
  private get data(): JobData {
    const part = this.group.shown;
    const isCovered = part && this.closerRange[0] <= part[0] && this.closerRange[1] >= part[1];
    return isCovered && this.closer && this.closer.job.length > 1 ? this.closer : this.all;
  }

  private zoomed(isPart: boolean): void {
    this.whole.disabled = !isPart;
    clearTimeout(this.reading);
    if (isPart) this.reading = window.setTimeout(() => void this.lookCloser(), closerAfter_ms);
    else this.closer = this.asked = null;
  }

  private async lookCloser(): Promise<void> {
    const part = this.group.shown;
    if (!part || this.asked === String(part)) return;
    this.asked = String(part);
    const wide = part[1] - part[0];
    const range: [number, number] = [Math.max(part[0] - wide * margin, 0), part[1] + wide * margin];
    const samples = await this.read(...range);
    if (!samples || String(this.group.shown) !== String(part)) return;
    this.closer = new JobData();
    this.closer.read(samples);
    this.closerRange = range;
    soon(this.draw);
  }

  private readonly fit = (): void => this.group.fit();

  private readonly draw = (): void => {
    if (!this.job || !this.root.isConnected || document.hidden) return;
    this.drawn_ms = performance.now();
    const limit = this.all.limit ?? this.job.memory?.limit_bytes ?? null;
    const forecast = forecastOf(this.job, this.all.until_s, this.all.lastBytes, limit);
    const plots = [this.jobPlot(limit, forecast), this.processPlot(), this.gpuPlot()].filter((p): p is Plot => p !== null && p.lines.length > 0);
    const extent: [number, number] = [0, Math.max(this.all.until_s + ahead(forecast, limit, this.all.until_s), 0.1)];
    const shape = JSON.stringify(plots.map((p) => [p.title, p.note, p.lines.map((l) => l.label), [...new Set(p.markers.map((m) => m.kind))]]));
    this.none.hidden = plots.length > 0;
    this.whole.parentElement?.toggleAttribute("hidden", !plots.length);
    if (shape === this.shape) this.plots.forEach((plot, i) => Object.assign(plot, plots[i]));
    else this.make(shape, plots, extent);
    this.group.update(extent);
  };

  private make(shape: string, plots: Plot[], extent: [number, number]): void {
    const part = this.group.shown;
    this.group.clear(extent);
    plots.forEach((plot) => this.group.add(plot));
    this.plots = plots;
    this.shape = shape;
    if (part) this.group.zoom(...part);
  }

  private markers(): Marker[] {
    const list: Marker[] = [];
    for (const mark of this.all.marks) {
      const kind = kinds[mark.kind];
      if (kind) list.push({ kind, x: mark.t_s });
    }
    this.all.events.forEach((e) => e.t_s != null && e.act && list.push({ kind: e.kind === "segment" ? "segment" : "guard", x: e.t_s }));
    return list;
  }

  private jobPlot(limit: number | null, forecast: Forecast | undefined): Plot | null {
    const { t, columns: [low, high, unique] } = this.data.job;
    if (t.length < 2) return null;
    const apart = high.filter((v, i) => v !== null && v > (low[i] ?? v) * 1.02).length;
    const isBand = apart > t.length / 20;
    const lines: Line[] = isBand
      ? [{ label: "job, lowest", x: t, y: low, colour: 0, fill: true }, { label: "job, highest", x: t, y: high, colour: 0, thin: true }]
      : [{ label: "job", x: t, y: high, colour: 0, fill: true }];
    if (unique.some((v) => v !== null)) lines.push({ label: "unique", x: t, y: unique, colour: 5, thin: true });
    return {
      title: "Memory of the job",
      note: `Shared memory is counted once. Unique memory is not shared with other processes.${forecast ? " Dotted: the forecast of the verdict." : ""}`,
      lines, unit: "B", byStep: false, markers: this.markers(), key: true, limit: limit ?? undefined, forecast,
    };
  }

  private processPlot(): Plot | null {
    const list = [...this.data.processes.values()].filter((p) => p.rss.length > 1).sort((a, b) => b.peak - a.peak).slice(0, mostLines);
    list.sort((a, b) => a.pid - b.pid);
    const lines = list.map((p, i): Line => ({ label: `${p.pid} ${oneLine(p.name)}${p.role ? ` (${oneLine(p.role)})` : ""}`, x: p.rss.t, y: p.rss.columns[0], colour: i, thin: i > 0 }));
    const note = this.data.processes.size > mostLines ? `Resident memory of the ${mostLines} largest processes.` : "Resident memory; shared memory is counted in each process.";
    return { title: "Memory by process", note, lines, unit: "B", byStep: false, markers: this.markers() };
  }

  private gpuPlot(): Plot | null {
    const lines: Line[] = [];
    for (const g of [...this.data.gpus.values()].sort((a, b) => a.index - b.index)) {
      if (g.memory.length < 2) continue;
      const name = `GPU ${g.index}`;
      const [job, used] = g.memory.columns;
      lines.push({ label: `${name}, job`, x: g.memory.t, y: job, colour: g.index, fill: this.data.gpus.size === 1 });
      lines.push({ label: `${name}, all`, x: g.memory.t, y: used, colour: g.index, thin: true });
    }
    return { title: "GPU memory", lines, unit: "B", byStep: false, markers: this.markers() };
  }
}
