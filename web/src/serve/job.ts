// The page of one job, in the order of the summary of `ebb run`: the verdict, the place, the fix, the numbers, the next command; then plots, log and the rest.

import { ApiError, Change, get, Happening, isEnded, Job, JobRequest, readingPatience_s, Samples, send, State } from "./api";
import { App, View } from "./app";
import { Badge, ProgressBar } from "./badge";
import { serverNow_s } from "./clock";
import { DiagnosisView } from "./diagnosis";
import { h, oneLine, setClass, setText, soon } from "./dom";
import { happenings, JobData, mostEvents, startedAgain } from "./job_data";
import { JobPlots } from "./job_plots";
import { Message } from "./live";
import { LogView } from "./log";
import { secrets } from "./session";
import * as shell from "./shell";
import { SubmitDialog } from "./submit";
import * as format from "../shared/format";
import * as words from "./words";

const points = 1200;
const readAgain_ms = 20000; // time between two reads of the samples, in milliseconds

function figure(name: string, value: string | null, small: string | null = null): HTMLElement | null {
  if (value === null) return null;
  return h("div", {}, h("dt", {}, name), h("dd", {}, value, small ? h("small", {}, small) : null));
}

const sizeOf = (bytes: number | null | undefined) => (bytes == null ? null : format.size(bytes));

export class JobView implements View {
  readonly wants: { jobs: boolean; job: number; log: boolean };
  readonly root: HTMLElement;
  private readonly data = new JobData();
  private readonly plots = new JobPlots(this.data, (from_s, to_s) => this.readPart(from_s, to_s));
  private readonly log: LogView;
  private readonly diagnosis: DiagnosisView;
  private readonly heading = h("h1");
  private readonly badge = new Badge();
  private readonly reason = h("span", { class: "reason" });
  private readonly progress = new ProgressBar();
  private readonly verdict = h("div", { class: "verdict" });
  private readonly figures = h("dl", { class: "figures" });
  private readonly next = h("p", { class: "next quiet" });
  private readonly history = h("tbody");
  private readonly request = h("dl", { class: "facts" });
  private readonly problem = h("p", { class: "error", role: "alert" });
  private readonly content: HTMLElement;
  private readonly checkpoint = h("button", { type: "button", onclick: () => void this.act("checkpoint", {}, "Checkpoint requested.") }, "Checkpoint");
  private readonly cancel = h("button", { type: "button", onclick: () => this.confirm.showModal() }, "Cancel");
  private readonly rerun = h("button", { type: "button", onclick: () => void this.runAgain() }, "Run again");
  private readonly edit = h("button", { type: "button", onclick: () => void this.change() }, "Edit and run again");
  private readonly report = h("a", { class: "button", target: "_blank", rel: "noopener" }, "Report");
  private readonly confirm: HTMLDialogElement;
  private job: Job | null = null;
  private changes: Change[] = [];
  private asked = 0;
  private isUpdated = false; // true if a live message arrived while the job was being read
  private readSamples_ms = 0;
  private later = 0;
  private drawnFigures = "";
  private drawnHistory = "";
  private drawnRequest = "";

  constructor(private readonly app: App, private readonly id: number, private readonly dialog: SubmitDialog) {
    this.wants = { jobs: false, job: id, log: true };
    this.log = new LogView(id);
    this.diagnosis = new DiagnosisView(id, () => this.job?.cwd ?? null, () => soon(this.draw));
    const { view } = secrets();
    this.report.href = `/api/v1/jobs/${id}/report${view ? `?view=${view}` : ""}`;
    this.confirm = this.confirmDialog();
    const buttons = h("div", { class: "tools actions" }, ...(app.canWrite ? [this.checkpoint, this.cancel, this.rerun, this.edit] : []), this.report);
    this.content = h("div", { hidden: true },
      h("div", { class: "state-line" }, this.badge.root, this.reason), this.progress.root,
      h("div", { class: "answer" }, this.verdict, this.diagnosis.brief), this.figures, this.next, buttons,
      this.plots.root, this.log.root, this.diagnosis.root,
      h("section", { "aria-label": "History" }, h("h2", {}, "History"),
        h("div", { class: "scroll" }, h("table", { class: "happened" }, h("thead", {}, h("tr", {}, ...["Time", "Event", "Reason"].map((t) => h("th", { scope: "col" }, t)))), this.history))),
      h("section", { "aria-label": "Request" }, h("h2", {}, "Request"), this.request));
    setText(this.heading, `Job ${id}`);
    this.root = h("div", {}, this.dialog.root, this.confirm, this.heading, this.problem, this.content);
  }

  get title(): string {
    return this.job ? `${this.job.state}: ${words.nameOf(this.job)} (${this.id})` : `Job ${this.id}`;
  }

  close(): void {
    this.asked++;
    clearTimeout(this.later);
    this.plots.close();
    this.log.close();
  }

  async refresh(isWhole: boolean): Promise<void> {
    const asked = ++this.asked;
    this.isUpdated = false;
    let job: Job;
    try {
      job = await get<Job>(`/jobs/${this.id}`);
    } catch (problem) {
      if (problem instanceof ApiError && problem.status === 404) return this.missing(problem.message);
      throw problem;
    }
    if (asked !== this.asked) return;
    this.changes = job.changes ?? this.changes;
    this.setJob(this.isUpdated && this.job ? this.job : job);
    if (!isWhole && !this.data.job.length) isWhole = true;
    // The recording lags behind the job, so the newest samples are read again a little later.
    clearTimeout(this.later);
    if (isWhole && !isEnded(job.state)) this.later = window.setTimeout(() => this.missed("sample"), readAgain_ms);
    await Promise.all([this.readSamples(isWhole, asked), job.state === "queued" ? null : this.log.refresh(), isWhole ? this.readEvents(asked) : null]);
  }

  take(message: Message): void {
    if (message.type === "machine") return;
    if (message.type === "job") {
      if (message.job.id !== this.id) return;
      this.isUpdated = true;
      this.setJob(message.job);
      return;
    }
    if (message.id !== this.id) return;
    if (message.type === "sample") this.plots.add(message);
    else if (message.type === "mark") this.data.addMark(message);
    else if (message.type === "event") this.takeEvent(message);
    else if (message.type === "log") this.log.take(message.offset, message.text);
    else if (message.type === "skipped") this.missed(message.what);
    else if (message.type === "removed") this.missing(`job ${this.id} was removed`);
    if (this.job && (message.type === "sample" || message.type === "mark")) this.plots.show(this.job);
  }

  private takeEvent(event: Happening): void {
    this.data.addEvent(event);
    soon(this.drawHistory);
  }

  private missed(what: string): void {
    const again = what === "log" ? this.log.refresh() : this.readSamples(true, this.asked);
    again.catch((problem: unknown) => {
      if (!(problem instanceof ApiError)) throw problem;
    });
  }

  private missing(why: string): void {
    this.content.hidden = true;
    setText(this.problem, oneLine(why));
  }

  // Reads the samples. Without a live stream, polling calls this often: if the last read was less than readAgain_ms ago
  // and isWhole is false, only adds the job's current memory as a sample.
  private async readSamples(isWhole: boolean, asked: number): Promise<void> {
    if (this.job?.started_s == null) return;
    const now = Date.now();
    const m = this.job.memory;
    if (!isWhole && now - this.readSamples_ms < readAgain_ms) {
      const t_s = serverNow_s() - this.job.started_s;
      if (m?.job_bytes != null && !isEnded(this.job.state)) this.data.add({ id: this.id, t_s, job_bytes: m.job_bytes, unique_bytes: m.unique_bytes, limit_bytes: m.limit_bytes });
      return this.plots.show(this.job);
    }
    this.readSamples_ms = now;
    try {
      const samples = await get<Samples>(`/jobs/${this.id}/samples?points=${points}`, readingPatience_s);
      if (asked === this.asked) this.data.read(samples);
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.status === 0) throw problem;
    }
    if (this.job) this.plots.show(this.job);
  }

  private async readPart(from_s: number, to_s: number): Promise<Samples | null> {
    try {
      return await get<Samples>(`/jobs/${this.id}/samples?points=${points}&from_s=${from_s.toFixed(3)}&to_s=${to_s.toFixed(3)}`, readingPatience_s);
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      return null;
    }
  }

  private async readEvents(asked: number): Promise<void> {
    try {
      const answer = await get<{ events: Happening[] }>(`/jobs/${this.id}/events`);
      if (asked === this.asked) this.data.events = happenings(answer.events).slice(-mostEvents);
      soon(this.drawHistory);
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.status === 0) throw problem;
    }
  }

  private setJob(job: Job): void {
    const old = this.job;
    this.job = job;
    if (old && (job.segment ?? 0) > (old.segment ?? 0)) this.data.addEvent(startedAgain(this.data.until_s));
    this.content.hidden = false;
    setText(this.problem, "");
    if (!old || old.state !== job.state) this.stateChanged(old?.state ?? null, job);
    else if (job.run_dir && job.verdict && old.verdict?.verdict !== job.verdict.verdict) void this.diagnosis.read();
    this.plots.show(job);
    soon(this.draw);
  }

  private stateChanged(before: State | null, job: Job): void {
    if (before) {
      this.app.announce(`job ${this.id}: ${job.state}${job.reason ? `, ${oneLine(job.reason)}` : ""}`);
      if (this.changes[this.changes.length - 1]?.state !== job.state) this.changes.push({ t_s: serverNow_s(), state: job.state, reason: job.reason });
    }
    this.app.changed();
    // Once the job has ended, the recording is complete and the diagnosis is most accurate.
    if (job.run_dir && (before === null || isEnded(job.state))) void this.diagnosis.read();
  }

  private readonly draw = (): void => {
    const job = this.job;
    if (!job) return;
    const ended = isEnded(job.state);
    setText(this.heading, `${this.id} ${words.nameOf(job)}`);
    this.badge.state(job.state);
    setText(this.reason, oneLine((job.state === "queued" ? job.waits_for : job.reason) ?? job.cause ?? ""));
    this.progress.show(job);
    this.checkpoint.hidden = this.cancel.hidden = ended;
    this.checkpoint.disabled = job.state !== "running";
    this.cancel.disabled = job.state === "stopping";
    this.report.hidden = !job.run_dir;
    this.diagnosis.root.hidden = this.next.hidden = !job.run_dir;
    this.diagnosis.brief.hidden = !job.run_dir || job.verdict?.leak === false;
    this.drawVerdict(job);
    this.drawFigures(job);
    this.drawNext(job);
    this.drawHistory();
    this.drawRequest(job);
  };

  private drawVerdict(job: Job): void {
    const v = job.verdict;
    this.verdict.hidden = !v;
    if (!v) return;
    setClass(this.verdict, `verdict ${words.verdictClass(v)}`);
    const answer = words.answerOf(v, isEnded(job.state));
    const code = v.leak !== false ? this.diagnosis.code : null;
    const text = JSON.stringify([v.verdict, v.sentence, answer, code]);
    if (this.verdict.dataset.text === text) return;
    this.verdict.dataset.text = text;
    this.verdict.replaceChildren(
      h("p", { class: "headline" }, h("b", {}, v.verdict), answer ? `: ${answer}` : "", code ? h("code", {}, ` [${oneLine(code)}]`) : null),
      h("p", { class: "quiet" }, oneLine(v.sentence ?? "")));
  }

  private drawNext(job: Job): void {
    const code = job.verdict?.leak === false ? null : this.diagnosis.code;
    const commands = [`ebb show ${this.id}`, ...(code ? [`ebb explain ${code}`] : [])];
    if (this.next.dataset.text === commands.join()) return;
    this.next.dataset.text = commands.join();
    this.next.replaceChildren("Run in a terminal: ", ...commands.flatMap((c, i) => [i ? " · " : "", h("code", {}, oneLine(c))]));
  }

  private drawFigures(job: Job): void {
    const m = job.memory ?? {};
    const back = job.given_back;
    const list: [string, string | null, string | null][] = [
      ["Memory", isEnded(job.state) ? null : sizeOf(m.job_bytes), m.unique_bytes != null ? `${format.size(m.unique_bytes)} unique` : null],
      ["Peak", sizeOf(m.peak_bytes), null],
      ["Limit", sizeOf(m.limit_bytes), m.headroom_bytes != null && !isEnded(job.state) ? `${format.size(m.headroom_bytes)} headroom` : null],
      ["GPU memory", sizeOf(m.gpu_bytes), job.gpus?.length ? `GPU ${job.gpus.join(", ")}` : null],
      ["Speed", job.progress?.steps_per_s != null ? `${format.count(job.progress.steps_per_s)} steps/s` : null, job.progress?.epoch != null ? `epoch ${format.count(job.progress.epoch)}` : null],
      ["Started", job.started_s != null ? words.clock(job.started_s) : null, words.tookOf(job, serverNow_s()) || null],
      ["Ended", job.ended_s != null ? words.clock(job.ended_s) : null, job.status != null ? `status ${job.status}` : null],
      ["Memory returned", back ? (back.clean ? "completely" : "not completely") : null, back?.host_bytes != null ? `${format.size(back.host_bytes)} of host memory` : null],
    ];
    const text = JSON.stringify(list);
    if (text === this.drawnFigures) return;
    this.drawnFigures = text;
    this.figures.replaceChildren(...list.map((one) => figure(...one)).filter((one): one is HTMLElement => one !== null));
  }

  private readonly drawHistory = (): void => {
    const t0 = this.job?.started_s ?? 0;
    const rows = [
      ...this.changes.map((c) => [c.t_s, c.state, c.reason ?? ""] as const),
      ...this.data.events.map((e) => [t0 + (e.t_s ?? 0), e.kind === "segment" ? "restarted" : `guard: ${e.act ?? ""}`, e.why ?? ""] as const),
    ].sort((a, b) => a[0] - b[0]);
    const text = JSON.stringify(rows);
    if (text === this.drawnHistory) return;
    this.drawnHistory = text;
    this.history.replaceChildren(...rows.map(([t, what, why]) =>
      h("tr", {}, h("td", {}, words.clock(t)), h("td", {}, oneLine(what)), h("td", { class: "wide" }, oneLine(why)))));
  };

  private drawRequest(job: Job): void {
    // redraws this part only if the run folder or the memory has changed
    const asked = JSON.stringify([job.run_dir, job.memory_bytes]);
    if (asked === this.drawnRequest) return;
    this.drawnRequest = asked;
    this.request.replaceChildren();
    const add = (name: string, value: string | null | undefined, isLong = false) =>
      value && this.request.append(h("div", { class: isLong && "whole" }, h("dt", {}, name), h("dd", {}, h("code", {}, oneLine(value)))));
    add("command", shell.join(job.command ?? []), true);
    add("folder", job.cwd);
    add("limit", job.limit);
    add("memory reserved", job.memory_bytes != null ? `${format.size(job.memory_bytes)} (${job.memory_from ?? "?"})` : null);
    add("GPUs", job.gpus_wanted ? String(job.gpus_wanted) : null);
    add("priority", job.priority ? String(job.priority) : null);
    add("after", job.after?.length ? job.after.join(", ") : null);
    add("rerun of", job.rerun_of != null ? `job ${job.rerun_of}` : null);
    for (const [key, value] of Object.entries(job.options ?? {})) add(`--${key}`, value === true ? "yes" : String(value));
    add("environment", job.env?.length ? job.env.join(", ") : null);
    add("run folder", job.run_dir, true);
  }

  private confirmDialog(): HTMLDialogElement {
    const reason = h("input", { id: "cancel-reason", type: "text", autocomplete: "off" });
    const submit = (e: Event) => {
      e.preventDefault();
      this.confirm.close();
      void this.act("cancel", reason.value.trim() ? { reason: reason.value.trim() } : {}, "The job is being cancelled.");
    };
    return h("dialog", { "aria-labelledby": "cancel-title" }, h("form", { class: "submit", onsubmit: submit },
      h("h2", { id: "cancel-title" }, `Cancel job ${this.id}?`),
      h("p", {}, "The job receives SIGTERM. After its grace period all its processes are killed, and unsaved work is lost."),
      h("div", { class: "field line" }, h("label", { for: "cancel-reason" }, "Reason (optional)"), reason),
      h("div", { class: "tools" }, h("button", { type: "submit", class: "danger" }, "Cancel the job"), h("button", { type: "button", onclick: () => this.confirm.close() }, "Keep it running"))));
  }

  private async act(what: string, body: unknown, done: string): Promise<void> {
    setText(this.problem, "");
    try {
      await send("POST", `/jobs/${this.id}/${what}`, body);
      this.app.announce(done);
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setText(this.problem, oneLine(problem.message));
    }
  }

  // Opens the form to run the job again. The server sends the values of environment variables only to users who may run
  // jobs.
  private async change(): Promise<void> {
    setText(this.problem, "");
    try {
      const request = await get<JobRequest>(`/jobs/${this.id}/request`);
      if (this.job) this.dialog.open(this.job, request.env);
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setText(this.problem, oneLine(problem.message));
    }
  }

  private async runAgain(): Promise<void> {
    setText(this.problem, "");
    this.rerun.disabled = true;
    try {
      const job = await send<Job>("POST", `/jobs/${this.id}/rerun`);
      if (job) this.app.go(`/jobs/${job.id}`);
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setText(this.problem, oneLine(problem.message));
    } finally {
      this.rerun.disabled = false;
    }
  }
}
