// Small elements that describe a job: its state, verdict, progress and a sparkline.

import { isEnded, Job, State, Verdict } from "./api";
import { h, setClass, setText } from "./dom";
import * as words from "./words";

export class Badge {
  readonly root = h("span", { class: "badge" });

  state(state: State): void {
    setText(this.root, state);
    setClass(this.root, `badge ${words.stateClass[state] ?? "quiet"}`);
  }

  verdict(v: Verdict | null | undefined): void {
    this.root.hidden = !v;
    if (!v) return;
    setText(this.root, v.verdict);
    setClass(this.root, `badge ${words.verdictClass(v)}`);
  }
}

export class ProgressBar {
  private readonly bar = h("progress", { "aria-label": "progress" });
  private readonly text = h("small", {});
  readonly root = h("div", { class: "progress" }, this.bar, this.text);

  show(job: Job): void {
    const p = job.progress;
    const has = p?.step != null;
    this.root.hidden = !has;
    if (!has) return;
    const most = p.max_steps ?? 0;
    this.bar.hidden = !(most > 0);
    if (most > 0) {
      this.bar.max = most;
      this.bar.value = Math.min(p.step ?? 0, most);
    }
    setText(this.text, words.progressText(p, isEnded(job.state)));
  }
}

const svg = "http://www.w3.org/2000/svg";
const wide = 96;
const high = 26;

// Draws memory over the time of the run. The y axis begins at 0 and ends at the peak, or at the limit if that is close
// to the peak.
export class Spark {
  readonly root = document.createElementNS(svg, "svg");
  private readonly line = document.createElementNS(svg, "path");
  private readonly limit = document.createElementNS(svg, "path");
  private drawn = "";

  constructor() {
    this.root.setAttribute("class", "spark");
    this.root.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    this.root.setAttribute("aria-hidden", "true");
    this.line.setAttribute("class", "spark-line");
    this.limit.setAttribute("class", "spark-limit");
    this.root.append(this.limit, this.line);
  }

  show(job: Job): void {
    const values = (job.spark ?? []).slice(-240);
    const known = values.filter((v): v is number => typeof v === "number");
    this.root.toggleAttribute("hidden", known.length < 2);
    if (known.length < 2) return;
    const limit = job.memory?.limit_bytes ?? null;
    const peak = Math.max(...known);
    const isNear = limit !== null && limit < peak * 2.5;
    const top = Math.max(isNear ? limit : 0, peak, 1) * 1.05;
    const y = (v: number) => (high - (v / top) * (high - 2) - 1).toFixed(1);
    let isDown = false;
    const path = values.map((v, i) => {
      if (typeof v !== "number") return "";
      const at = `${isDown ? "L" : "M"}${((i / (values.length - 1)) * wide).toFixed(1)} ${y(v)}`;
      isDown = true;
      return at;
    }).join("");
    if (path === this.drawn) return;
    this.drawn = path;
    this.line.setAttribute("d", path);
    this.limit.setAttribute("d", isNear ? `M0 ${y(limit)}H${wide}` : "");
  }
}
