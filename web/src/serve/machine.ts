// Shows the machine: its memory and GPUs, resources reserved for jobs, running and queued jobs.

import { get, isEnded, Job } from "./api";
import { View } from "./app";
import { Badge } from "./badge";
import { serverNow_s } from "./clock";
import { h, oneLine, setText, soon } from "./dom";
import { Message } from "./live";
import * as format from "../shared/format";
import { duration, nameOf } from "./words";

const most = 200; // maximum number of jobs shown per list

export interface Machine {
  host?: string | null;
  kernel?: string | null;
  version?: string | null;
  memory?: { total_bytes?: number | null; used_bytes?: number | null } | null;
  limit?: { kind?: string | null; where?: string | null; limit_bytes?: number | null; used_bytes?: number | null } | null;
  swap?: { total_bytes?: number | null; free_bytes?: number | null } | null;
  load?: number[] | null;
  cpus?: number | null;
  gpus?: { index: number; name?: string | null; total_bytes?: number | null; used_bytes?: number | null }[] | null;
  room?: Room | null;
  server?: { pid?: number; started_s?: number | null; rss_bytes?: number | null; viewers?: number | null } | null;
}
// The resources that the server provides for jobs.
interface Room {
  slots?: { all?: number | null; used?: number | null } | null;
  memory?: { all_bytes?: number | null; used_bytes?: number | null } | null;
  gpus?: { all?: number | null; used?: number | null } | null;
}

class Meter {
  private readonly bar = h("progress");
  private readonly text = h("span");
  readonly root: HTMLElement;

  constructor(name: string) {
    this.bar.setAttribute("aria-label", name);
    this.root = h("div", { class: "meter" }, h("div", { class: "label" }, h("b", {}, name), this.text), this.bar);
  }

  show(used: number, total: number, text: string): void {
    this.bar.max = Math.max(total, 1);
    this.bar.value = Math.min(Math.max(used, 0), total);
    setText(this.text, text);
  }
}

const ofSize = (used: number, total: number) => `${format.size(used)} of ${format.size(total)}, ${format.size(Math.max(total - used, 0))} free`;
const ofCount = (used: number, total: number) => `${used} of ${total}`;

class JobTable {
  private readonly body = h("tbody");
  private readonly none = h("p", { class: "quiet" });
  readonly root: HTMLElement;
  private drawn = "";

  constructor(title: string, why: string, none: string) {
    setText(this.none, none);
    this.root = h("section", { "aria-label": title }, h("h2", {}, title),
      h("div", { class: "scroll" }, h("table", { class: "jobs" }, h("thead", {}, h("tr", {}, ...["Job", "State", "Reserved", "GPUs", why].map((t) => h("th", { scope: "col" }, t)))), this.body)), this.none);
  }

  show(list: Job[], whyOf: (job: Job) => string): void {
    const rows = list.map((job) => [job.id, nameOf(job), job.state, job.memory_bytes ?? null, job.gpus?.length ? job.gpus.join(", ") : job.gpus_wanted ? `× ${job.gpus_wanted}` : null, whyOf(job)] as const);
    const text = JSON.stringify(rows);
    this.none.hidden = list.length > 0;
    (this.body.closest(".scroll") as HTMLElement).hidden = !list.length;
    if (text === this.drawn) return;
    this.drawn = text;
    const active = document.activeElement instanceof HTMLAnchorElement && this.body.contains(document.activeElement) ? document.activeElement.pathname : null;
    this.body.replaceChildren(...rows.map(([id, name, state, memory, gpus, why]) => {
      const badge = new Badge();
      badge.state(state);
      return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "name" }, h("a", { href: `/jobs/${id}` }, `${id} `, h("bdi", {}, name)))),
        h("td", {}, badge.root), h("td", {}, h("small", {}, memory === null ? "" : format.size(memory))),
        h("td", {}, h("small", {}, gpus === null ? "" : `GPU ${gpus}`)), h("td", { class: "why" }, h("small", {}, oneLine(why))));
    }));
    if (active) this.body.querySelector<HTMLAnchorElement>(`a[href="${active}"]`)?.focus();
  }
}

export class MachineView implements View {
  readonly wants = { jobs: true, job: null, log: false };
  readonly title = "Machine";
  readonly root: HTMLElement;
  private readonly heading = h("h1", {}, "Machine");
  private readonly bars = h("div", { class: "bars" });
  private readonly facts = h("dl", { class: "facts" });
  private readonly meters = new Map<string, Meter>();
  private readonly running = new JobTable("Running", "Reason", "No running jobs.");
  private readonly queue = new JobTable("Queue", "Waits for", "The queue is empty.");
  private readonly jobs = new Map<number, Job>();
  // ids of jobs that received live updates during the current read of the list
  private readonly fresh = new Set<number>();
  private machine: Machine = {};
  private asked = 0;
  private reading = 0;

  constructor() {
    this.root = h("div", {}, this.heading, this.bars, this.facts, this.running.root, this.queue.root);
  }

  close(): void {
    this.asked++;
  }

  async refresh(): Promise<void> {
    const asked = ++this.asked;
    this.fresh.clear();
    this.reading++;
    const [machine, list] = await Promise.all([get<Machine>("/machine"), get<{ jobs: Job[] }>(`/jobs?state=active&limit=${most}`)])
      .finally(() => this.reading--);
    if (asked !== this.asked) return;
    this.machine = machine;
    for (const id of [...this.jobs.keys()]) if (!this.fresh.has(id)) this.jobs.delete(id);
    for (const job of list.jobs) if (!this.fresh.has(job.id)) this.jobs.set(job.id, job);
    soon(this.draw);
  }

  take(message: Message): void {
    if (message.type === "machine") this.machine = message as Machine;
    else if (message.type === "job") {
      if (this.reading > 0) this.fresh.add(message.job.id);
      if (isEnded(message.job.state)) this.jobs.delete(message.job.id);
      else this.jobs.set(message.job.id, message.job);
    }
    soon(this.draw);
  }

  private readonly draw = (): void => {
    const m = this.machine;
    const list = [...this.jobs.values()];
    setText(this.heading, m.host ? `Machine ${oneLine(m.host)}` : "Machine");
    this.drawMeters(m);
    this.drawFacts(m);
    this.running.show(list.filter((job) => job.state !== "queued").sort((a, b) => a.id - b.id).slice(0, most), (job) => job.reason ?? "");
    this.queue.show(list.filter((job) => job.state === "queued").sort((a, b) => (b.priority ?? 0) - (a.priority ?? 0) || a.id - b.id).slice(0, most), (job) => job.waits_for ?? "");
  };

  private meter(name: string, used: number | null | undefined, total: number | null | undefined, text: (used: number, total: number) => string): void {
    if (used == null || !total) return;
    let one = this.meters.get(name);
    if (!one) {
      this.meters.set(name, (one = new Meter(name)));
      this.bars.append(one.root);
    }
    one.show(used, total, text(used, total));
  }

  private drawMeters(m: Machine): void {
    const swap = m.swap?.total_bytes != null && m.swap.free_bytes != null ? m.swap.total_bytes - m.swap.free_bytes : null;
    this.meter("Memory of the machine", m.memory?.used_bytes, m.memory?.total_bytes, ofSize);
    if (m.limit?.limit_bytes !== m.memory?.total_bytes) this.meter("Memory within the effective limit", m.limit?.used_bytes, m.limit?.limit_bytes, ofSize);
    this.meter("Swap", swap, m.swap?.total_bytes, ofSize);
    this.meter("Slots", m.room?.slots?.used, m.room?.slots?.all, ofCount);
    this.meter("Memory reserved for jobs", m.room?.memory?.used_bytes, m.room?.memory?.all_bytes, ofSize);
    this.meter("GPUs assigned to jobs", m.room?.gpus?.used, m.room?.gpus?.all, ofCount);
    for (const g of m.gpus ?? []) this.meter(`GPU ${g.index}${g.name ? ` ${oneLine(g.name)}` : ""}`, g.used_bytes, g.total_bytes, ofSize);
  }

  private drawFacts(m: Machine): void {
    const list: [string, string | null][] = [
      ["limit", m.limit?.limit_bytes != null ? `${format.size(m.limit.limit_bytes)} (${[m.limit.kind, m.limit.where].filter(Boolean).join(", ")})` : null],
      ["load", m.load?.length ? m.load.map((l) => l.toFixed(2)).join(" ") : null],
      ["CPUs", m.cpus != null ? String(m.cpus) : null],
      ["kernel", m.kernel ?? null],
      ["ebb", m.version ?? null],
      ["server memory", m.server?.rss_bytes != null ? `${format.size(m.server.rss_bytes)}, pid ${m.server.pid ?? "?"}` : null],
      ["server uptime", m.server?.started_s != null ? duration(Math.max(0, serverNow_s() - m.server.started_s)) : null],
      ["live streams", m.server?.viewers != null ? String(m.server.viewers) : null],
    ];
    this.facts.replaceChildren(...list.filter(([, value]) => value !== null).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, oneLine(value ?? "")))));
  }
}
