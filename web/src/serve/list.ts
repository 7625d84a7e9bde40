// The list of jobs, newest first. Each job is a row, which live messages update.

import { ApiError, get, isEnded, Job, State } from "./api";
import { App, View } from "./app";
import { Badge, ProgressBar, Spark } from "./badge";
import { serverNow_s } from "./clock";
import { h, oneLine, setText, soon } from "./dom";
import { Message } from "./live";
import * as shell from "./shell";
import { SubmitDialog } from "./submit";
import * as format from "../shared/format";
import * as words from "./words";

const pageSize = 50;
const atWork = "starting,running,checkpointing,stopping";
const columns = ["Job", "State", "Progress", "Memory", "Verdict", "Time"];
const choices: [string, string][] = [
  ["", "all"], ["active", "not ended"], ["ended", "ended"],
  ...(["queued", "starting", "running", "checkpointing", "stopping", "succeeded", "failed", "cancelled", "lost"] as State[]).map((s) => [s, s] as [string, string]),
];

interface Answer {
  jobs: Job[];
  more: boolean;
}

class Row {
  readonly root = h("tr");
  private readonly name = h("bdi");
  private readonly link: HTMLAnchorElement;
  private readonly command = h("small", { class: "cut" });
  private readonly state = new Badge();
  private readonly reason = h("small");
  private readonly progress = new ProgressBar();
  private readonly spark = new Spark();
  private readonly memory = h("small");
  private readonly verdict = new Badge();
  private readonly oom = h("small");
  private readonly time = h("small");
  private readonly took = h("small");

  constructor(id: number) {
    this.link = h("a", { href: `/jobs/${id}` }, `${id} `, this.name);
    const cells = [
      [h("span", { class: "name" }, this.link), this.command],
      [this.state.root, this.reason],
      [this.progress.root],
      [this.spark.root, this.memory],
      [this.verdict.root, this.oom],
      [this.time, this.took],
    ];
    cells.forEach((children, i) => this.root.append(h(i ? "td" : "th", { "data-label": columns[i], scope: i ? undefined : "row" }, ...children)));
  }

  show(job: Job, now_s: number): void {
    setText(this.name, words.nameOf(job));
    setText(this.command, oneLine(shell.join(job.command ?? [])));
    this.state.state(job.state);
    setText(this.reason, oneLine(job.state === "queued" ? (job.waits_for ?? "") : (job.reason ?? "")));
    this.progress.show(job);
    this.spark.show(job);
    setText(this.memory, memoryText(job));
    this.verdict.verdict(job.verdict);
    const oom = isEnded(job.state) ? null : words.outOfMemory(job.verdict);
    setText(this.oom, oom ? `out of memory ${oom}` : "");
    this.oom.className = oom ? "bad-text" : "";
    setText(this.time, timeText(job));
    setText(this.took, words.tookOf(job, now_s));
  }
}

function memoryText(job: Job): string {
  const m = job.memory;
  if (!m) return job.memory_bytes != null ? `${format.size(job.memory_bytes)} reserved` : "";
  const peak = m.peak_bytes != null ? `peak ${format.size(m.peak_bytes)}` : "";
  const now = m.job_bytes != null && !isEnded(job.state) ? format.size(m.job_bytes) : "";
  const limit = m.limit_bytes != null ? ` of ${format.size(m.limit_bytes)}` : "";
  return [now, peak].filter(Boolean).join(", ") + limit;
}

function timeText(job: Job): string {
  if (job.started_s != null) return words.clock(job.started_s);
  return job.submitted_s != null ? `submitted ${words.clock(job.submitted_s)}` : "";
}

function matches(job: Job, state: string): boolean {
  if (!state) return true;
  if (state === "active") return !isEnded(job.state);
  return state === "ended" ? isEnded(job.state) : job.state === state;
}

const isAtWork = (job: Job) => atWork.split(",").includes(job.state);

export class ListView implements View {
  readonly wants = { jobs: true, job: null, log: false };
  readonly title = "Jobs";
  readonly root: HTMLElement;
  private readonly jobs = new Map<number, Job>();
  private readonly rows = new Map<number, Row>();
  private readonly body = h("tbody");
  private readonly empty = h("p", { class: "quiet" });
  private readonly older = h("button", { type: "button", onclick: () => this.page(this.oldest) }, "Older");
  private readonly newest = h("button", { type: "button", onclick: () => this.page(null) }, "Newest");
  private readonly state = h("select", { id: "filter-state", onchange: () => this.filter() });
  private readonly name = h("input", { id: "filter-name", type: "search", autocomplete: "off", spellcheck: "false", list: "filter-names", placeholder: "exact name", oninput: () => this.typed() });
  private readonly names = h("datalist", { id: "filter-names" });
  // ids of jobs that received live updates during the current read of the list
  private readonly fresh = new Set<number>();
  private before: number | null = null;
  private hasMore = false;
  private oldest: number | null = null; // id of the oldest job of the page
  private asked = 0;
  private reading = 0;
  private typing = 0;

  constructor(private readonly app: App, search: URLSearchParams, private readonly dialog: SubmitDialog) {
    choices.forEach(([value, word]) => this.state.append(h("option", { value }, word)));
    this.state.value = search.get("state") ?? "";
    this.name.value = search.get("name") ?? "";
    this.before = Number(search.get("before")) || null;
    const table = h("table", { class: "jobs" },
      h("caption", { class: "unseen" }, "Jobs, newest first"),
      h("thead", {}, h("tr", {}, ...columns.map((c) => h("th", { scope: "col" }, c)))),
      this.body);
    this.root = h("div", {},
      h("div", { class: "head" }, h("h1", {}, "Jobs"),
        app.canWrite && h("button", { type: "button", class: "main", onclick: () => this.dialog.open(null) }, "New job")),
      h("form", { class: "tools filter", role: "search", onsubmit: (e) => e.preventDefault() },
        h("label", {}, "State ", this.state), h("label", {}, "Name ", this.name), this.names),
      h("div", { class: "scroll" }, table),
      this.empty,
      h("div", { class: "tools paging" }, this.newest, this.older));
    this.root.prepend(this.dialog.root);
  }

  close(): void {
    clearTimeout(this.typing);
    this.asked++;
  }

  async refresh(): Promise<void> {
    const asked = ++this.asked;
    this.fresh.clear();
    const query = this.query();
    query.set("limit", String(pageSize));
    const atWorkQuery = new URLSearchParams([...query, ["state", atWork]]);
    this.reading++;
    const [answer, first] = await Promise.all([
      get<Answer>(`/jobs?${query}`),
      this.isPinned ? get<Answer>(`/jobs?${atWorkQuery}`) : null,
    ]).finally(() => this.reading--);
    if (asked !== this.asked) return;
    for (const id of [...this.jobs.keys()]) if (!this.fresh.has(id)) this.jobs.delete(id);
    for (const job of [...(first?.jobs ?? []), ...answer.jobs]) if (!this.fresh.has(job.id)) this.jobs.set(job.id, job);
    this.hasMore = answer.more;
    soon(this.draw);
  }

  take(message: Message): void {
    if (message.type === "job") this.takeJob(message.job);
    else if (message.type === "removed") {
      this.jobs.delete(message.id);
      this.note(message.id);
    }
    soon(this.draw);
  }

  private takeJob(job: Job): void {
    const old = this.jobs.get(job.id);
    if (!old && !this.belongs(job)) return;
    if (old && old.state !== job.state) this.app.announce(`job ${job.id} ${words.nameOf(job)}: ${job.state}`);
    if (matches(job, this.state.value)) this.jobs.set(job.id, job);
    else this.jobs.delete(job.id);
    this.note(job.id);
  }

  private note(id: number): void {
    if (this.reading > 0) this.fresh.add(id);
  }

  // Returns true if JOB should be added to the list.
  private belongs(job: Job): boolean {
    if (this.before !== null || !matches(job, this.state.value)) return false;
    const name = this.name.value.trim();
    const isNewer = this.oldest === null || job.id > this.oldest || (this.isPinned && isAtWork(job));
    return isNewer && (!name || job.name === name);
  }

  // Returns true on the first page, where running jobs come before queued ones.
  private get isPinned(): boolean {
    return this.before === null && this.state.value === "";
  }

  private query(): URLSearchParams {
    const query = new URLSearchParams();
    if (this.state.value) query.set("state", this.state.value);
    if (this.name.value.trim()) query.set("name", this.name.value.trim());
    if (this.before) query.set("before", String(this.before));
    return query;
  }

  // Returns the jobs of the page in their order, without those that no longer fit on the page.
  private arrange(): Job[] {
    const all = [...this.jobs.values()].sort((a, b) => b.id - a.id);
    const first = this.isPinned ? all.filter(isAtWork).slice(0, pageSize) : [];
    const rest = all.filter((job) => !first.includes(job));
    if (rest.length > pageSize) this.hasMore = true;
    rest.splice(pageSize).forEach((job) => this.jobs.delete(job.id));
    this.oldest = this.hasMore && rest.length ? rest[rest.length - 1].id : null;
    return [...first, ...rest];
  }

  private readonly draw = (): void => {
    const now_s = serverNow_s();
    const list = this.arrange();
    for (const id of [...this.rows.keys()]) {
      if (this.jobs.has(id)) continue;
      this.rows.get(id)?.root.remove();
      this.rows.delete(id);
    }
    let at = this.body.firstElementChild;
    for (const job of list) {
      let row = this.rows.get(job.id);
      if (!row) this.rows.set(job.id, (row = new Row(job.id)));
      row.show(job, now_s);
      if (row.root === at) at = at.nextElementSibling;
      else this.body.insertBefore(row.root, at);
    }
    this.offerNames(list);
    const isFiltered = this.state.value || this.name.value.trim();
    setText(this.empty, list.length ? "" : isFiltered ? "No matching jobs." : "No jobs yet.");
    this.older.hidden = !this.hasMore;
    this.newest.hidden = this.before === null;
  };

  private offerNames(list: Job[]): void {
    const names = [...new Set(list.map((job) => job.name ?? "").filter(Boolean))];
    if (names.join("\n") === Array.from(this.names.options, (o) => o.value).join("\n")) return;
    this.names.replaceChildren(...names.map((value) => h("option", { value })));
  }

  private typed(): void {
    clearTimeout(this.typing);
    this.typing = window.setTimeout(() => this.filter(), 250);
  }

  private filter(): void {
    this.page(null);
  }

  private page(before: number | null): void {
    this.before = before;
    const text = this.query().toString();
    history.replaceState(null, "", text ? `/?${text}` : "/");
    this.refresh().catch((problem: unknown) => {
      if (!(problem instanceof ApiError)) throw problem;
      setText(this.empty, problem.message);
    });
  }
}

