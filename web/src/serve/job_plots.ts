// The plots of a job: made once, then fed; made anew only when their lines are others.

import { isEnded, Job } from "./api";
import { h, oneLine, soon } from "./dom";
import { JobData } from "./job_data";
import { Forecast, Kind, Marker } from "../shared/markers";
import { Line, Plot, PlotGroup } from "../shared/plot";
import { onThemeChange } from "../shared/theme";
import { rateOf } from "./words";

const mostLines = 7; // of processes: more cannot be told apart
const kinds: Record<string, Kind> = { epoch: "epoch", eval: "evaluation", evaluation: "evaluation", save: "checkpoint", checkpoint: "checkpoint" };

// Between the rates that the verdict allows, from where memory is now; undefined where it does not rise.
export function forecastOf(job: Job, x: number, y: number | null, limit: number | null): Forecast | undefined {
  const v = job.verdict;
  if (!v || y === null || v.leak === false || isEnded(job.state)) return undefined;
  const rate = rateOf(v.rate_bytes_per_min);
  const eta = v.oom_eta_s;
  const byEta = (s: number | null | undefined) => (s != null && s > 0 && limit !== null && limit > y ? (limit - y) / s : null);
  const high = byEta(eta?.low) ?? (rate ? (rate.high ?? rate.value) / 60 : null);
  const low = byEta(eta?.high) ?? (rate ? (rate.low ?? rate.value) / 60 : null);
  if (high === null || high <= 0) return undefined;
  return { x, y, high, low: Math.max(low ?? 0, 0) };
}

// How much of the time to come is shown: enough to see where it goes, no more than the run has shown.
function ahead(f: Forecast | undefined, limit: number | null, span: number): number {
  if (!f) return 0;
  const most = Math.max(span * 0.4, 30);
  return limit !== null && f.low > 0 ? Math.min(most, ((limit - f.y) / f.low) * 1.05) : most;
}

export class JobPlots {
  private readonly area = h("div", { class: "plots" });
  private readonly whole = h("button", { type: "button", disabled: true, onclick: () => this.group.zoom(null, null) }, "Whole run");
  private readonly none = h("p", { class: "quiet" }, "Nothing was measured.");
  readonly root = h("section", { "aria-label": "Memory" }, h("h2", {}, "Memory"),
    h("div", { class: "tools" }, this.whole, h("span", { class: "quiet" }, "Drag across a plot to look closer.")), this.none, this.area);
  private readonly group = new PlotGroup(this.area, (isPart) => (this.whole.disabled = !isPart));
  private plots: Plot[] = [];
  private shape = "";
  private job: Job | null = null;
  private readonly resized = () => soon(this.fit);

  constructor(private readonly data: JobData) {
    addEventListener("resize", this.resized);
    onThemeChange(() => {
      this.shape = "";
      soon(this.draw);
    });
  }

  close(): void {
    removeEventListener("resize", this.resized);
    this.group.clear([0, 1]);
  }

  show(job: Job): void {
    this.job = job;
    soon(this.draw);
  }

  private readonly fit = (): void => this.group.fit();

  private readonly draw = (): void => {
    if (!this.job || !this.root.isConnected || document.hidden) return;
    const limit = this.data.limit ?? this.job.memory?.limit_bytes ?? null;
    const forecast = forecastOf(this.job, this.data.until_s, this.data.lastBytes, limit);
    const plots = [this.jobPlot(limit, forecast), this.processPlot(), this.gpuPlot()].filter((p): p is Plot => p !== null && p.lines.length > 0);
    const extent: [number, number] = [0, Math.max(this.data.until_s + ahead(forecast, limit, this.data.until_s), 1)];
    const shape = JSON.stringify(plots.map((p) => [p.title, p.lines.map((l) => l.label), [...new Set(p.markers.map((m) => m.kind))]]));
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
    for (const mark of this.data.marks) {
      const kind = kinds[mark.kind];
      if (kind) list.push({ kind, x: mark.t_s });
    }
    this.data.events.forEach((e) => e.t_s != null && e.act && list.push({ kind: "guard", x: e.t_s }));
    return list;
  }

  private jobPlot(limit: number | null, forecast: Forecast | undefined): Plot | null {
    const { t, columns: [low, high, unique] } = this.data.job;
    if (t.length < 2) return null;
    const isBand = t.length > 200 && high.some((v, i) => v !== null && low[i] !== null && v > (low[i] as number) * 1.02);
    const lines: Line[] = isBand
      ? [{ label: "job, lowest", x: t, y: low, colour: 0, fill: true }, { label: "job, highest", x: t, y: high, colour: 0, thin: true }]
      : [{ label: "job", x: t, y: high, colour: 0, fill: true }];
    if (unique.some((v) => v !== null)) lines.push({ label: "unique", x: t, y: unique, colour: 5, thin: true });
    return {
      title: "Memory of the job",
      note: "What its processes share is counted once. Unique: what no other process has, the job's and others.",
      lines, unit: "B", byStep: false, markers: this.markers(), key: true, limit: limit ?? undefined, forecast,
    };
  }

  private processPlot(): Plot | null {
    const list = [...this.data.processes.values()].filter((p) => p.rss.length > 1).sort((a, b) => b.peak - a.peak).slice(0, mostLines);
    list.sort((a, b) => a.pid - b.pid);
    const lines = list.map((p, i): Line => ({ label: `${p.pid} ${oneLine(p.name)}${p.role ? ` (${oneLine(p.role)})` : ""}`, x: p.rss.t, y: p.rss.columns[0], colour: i, thin: i > 0 }));
    const note = this.data.processes.size > mostLines ? `Resident memory of the ${mostLines} largest.` : "Resident memory; what processes share is in each of them.";
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
