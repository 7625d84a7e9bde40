// The form for a new job, in a dialog. Errors of the server are shown beside the field they refer to.

import { ApiError, Job, send } from "./api";
import { App } from "./app";
import { h, oneLine, setText } from "./dom";
import * as shell from "./shell";

interface Field {
  key: string; // key of the field in the request
  label: string;
  help?: string;
  kind: "line" | "text" | "number";
  more?: boolean; // true for a field that is rarely needed
}

const fields: Field[] = [
  { key: "command", label: "Command", kind: "text", help: "The command is split into words as in a shell, but runs without a shell." },
  { key: "name", label: "Name", kind: "line", help: "Earlier runs with this name determine how much memory is reserved." },
  { key: "limit", label: "Memory limit", kind: "line", help: "A size such as 24G, or a share of the effective limit such as 80%. The guard enforces this limit." },
  { key: "memory", label: "Memory to reserve", kind: "line", help: "Such as 24G. The job starts when this much memory is free." },
  { key: "gpus", label: "GPUs", kind: "number" },
  { key: "cwd", label: "Folder", kind: "line", help: "Working folder of the command." },
  { key: "env", label: "Environment", kind: "text", help: "KEY=VALUE, separated by spaces or line breaks; quoted as in a shell.", more: true },
  { key: "priority", label: "Priority", kind: "number", help: "−100 to 100; jobs with a higher priority start first.", more: true },
  { key: "after", label: "After jobs", kind: "line", help: "Ids of jobs that must succeed before this one starts.", more: true },
  { key: "resume-args", label: "Resume arguments", kind: "line", help: "Appended to the command when the job is restarted.", more: true },
  { key: "options", label: "Other options of ebb run", kind: "text", help: "NAME or NAME=VALUE, such as interval=2s.", more: true },
];

type Input = HTMLInputElement | HTMLTextAreaElement;

class Refused extends Error {
  constructor(readonly key: string, message: string) {
    super(message);
  }
}

// Splits TEXT as a shell does. Each word must be KEY=VALUE. If NEEDSVALUE is false, a word may also be KEY alone.
function pairs(key: string, text: string, needsValue: boolean): Record<string, string | true> {
  const result: Record<string, string | true> = {};
  const { words, error } = shell.split(text);
  if (error) throw new Refused(key, error);
  for (const word of words) {
    const at = word.indexOf("=");
    if (at === 0 || (at < 0 && needsValue)) throw new Refused(key, `"${word}" is not KEY=VALUE`);
    if (at < 0) result[word] = true;
    else result[word.slice(0, at)] = word.slice(at + 1);
  }
  return result;
}

const unpair = (list: [string, unknown][]) => list.map(([k, v]) => shell.join([v === true ? k : `${k}=${String(v)}`])).join("\n");

// Formats a size in the largest unit that is exact.
function sizeText(bytes: number): string {
  for (const [unit, letter] of [[2 ** 30, "G"], [2 ** 20, "M"], [2 ** 10, "K"]] as const) {
    if (bytes > 0 && bytes % unit === 0) return `${bytes / unit}${letter}`;
  }
  return String(bytes);
}

function numberOf(key: string, text: string): number {
  const n = Number(text);
  if (!Number.isInteger(n)) throw new Refused(key, `"${text}" is not a whole number`);
  return n;
}

// Returns the field that a server error refers to: the message begins with the key or names an option.
export function fieldOf(message: string): string | null {
  const isField = (key: string | undefined) => fields.some((f) => f.key === key);
  const [, key, part] = /^"?([a-z]+)(?:[.[]"?([a-z-]+))?/.exec(message) ?? [];
  const option = /(?:^|\s|")--([a-z-]+)/.exec(message)?.[1];
  if (isField(part)) return part;
  if (isField(key)) return key;
  if (option) return isField(option) ? option : "options";
  return null;
}

export class SubmitDialog {
  readonly root: HTMLDialogElement;
  private readonly inputs = new Map<string, Input>();
  private readonly errors = new Map<string, HTMLElement>();
  private readonly restart = h("input", { type: "checkbox", id: "field-restart" });
  private readonly words = h("p", { class: "words", "aria-live": "off" });
  private readonly error = h("p", { class: "error", role: "alert" });
  private readonly button = h("button", { type: "submit", class: "main" }, "Submit");
  private readonly rest = h("details", {}, h("summary", {}, "More"));

  constructor(private readonly app: App) {
    const form = h("form", { class: "submit", novalidate: true, onsubmit: (e) => void this.submit(e) }, h("h2", { id: "submit-title" }, "New job"));
    for (const field of fields) (field.more ? this.rest : form).append(this.fieldOf(field));
    const restart = h("label", { class: "check" }, this.restart, " Restart from the last checkpoint if the guard stops the job");
    form.append(restart, this.rest, this.error,
      h("div", { class: "tools" }, this.button, h("button", { type: "button", onclick: () => this.root.close() }, "Close")));
    this.root = h("dialog", { "aria-labelledby": "submit-title" }, form);
    this.inputs.get("command")?.addEventListener("input", () => this.preview());
  }

  // Opens the form and fills in the request of JOB, if it is not null.
  open(job: Job | null, env?: Record<string, string> | null): void {
    if (job) this.fill(job, env ?? {});
    this.clearErrors();
    this.preview();
    this.root.showModal();
    this.inputs.get("command")?.focus();
  }

  private fieldOf(field: Field): HTMLElement {
    const id = `field-${field.key}`;
    const props = { id, name: field.key, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-help ${id}-error` };
    const input = field.kind === "text" ? h("textarea", { ...props, rows: field.key === "command" ? 3 : 2 })
      : h("input", { ...props, type: "text", inputmode: field.kind === "number" ? "numeric" : undefined });
    const error = h("p", { id: `${id}-error`, class: "error" });
    this.inputs.set(field.key, input);
    this.errors.set(field.key, error);
    return h("div", { class: `field ${field.kind}` }, h("label", { for: id }, field.label), input,
      field.key === "command" ? this.words : null,
      h("p", { id: `${id}-help`, class: "quiet" }, field.help ?? ""), error);
  }

  private value(key: string): string {
    return this.inputs.get(key)?.value.trim() ?? "";
  }

  private fill(job: Job, env: Record<string, string>): void {
    const options: Record<string, unknown> = { ...(job.options ?? {}) };
    const text: Record<string, string> = {
      command: shell.join(job.command ?? []),
      name: job.name ?? "",
      limit: job.limit ?? "",
      memory: job.memory_from === "declared" && job.memory_bytes != null ? sizeText(job.memory_bytes) : "",
      gpus: job.gpus_wanted ? String(job.gpus_wanted) : "",
      cwd: job.cwd ?? "",
      env: unpair(Object.entries(env)),
      priority: job.priority ? String(job.priority) : "",
      after: (job.after ?? []).join(" "),
      "resume-args": typeof options["resume-args"] === "string" ? options["resume-args"] : "",
    };
    this.restart.checked = options.restart === true;
    delete options.restart;
    delete options["resume-args"];
    text.options = unpair(Object.entries(options));
    for (const [key, input] of this.inputs) input.value = text[key] ?? "";
  }

  private preview(): void {
    const { words, error } = shell.split(this.value("command"));
    this.words.replaceChildren(...words.slice(0, 100).map((w) => h("code", {}, oneLine(w) || "''")));
    this.words.hidden = words.length === 0;
    if (!error) setText(this.errors.get("command") as HTMLElement, "");
  }

  private request(): Record<string, unknown> {
    const { words, error } = shell.split(this.value("command"));
    if (error) throw new Refused("command", error);
    if (!words.length) throw new Refused("command", "a command is required");
    const request: Record<string, unknown> = { command: words };
    for (const key of ["name", "limit", "memory", "cwd"]) if (this.value(key)) request[key] = this.value(key);
    for (const key of ["gpus", "priority"]) if (this.value(key)) request[key] = numberOf(key, this.value(key));
    const after = this.value("after").split(/[\s,]+/).filter(Boolean);
    if (after.length) request.after = after.map((id) => numberOf("after", id));
    if (this.value("env")) request.env = pairs("env", this.value("env"), true);
    const options = pairs("options", this.value("options"), false);
    if (this.restart.checked) options.restart = true;
    if (this.value("resume-args")) options["resume-args"] = this.value("resume-args");
    if (Object.keys(options).length) request.options = options;
    return request;
  }

  private clearErrors(): void {
    setText(this.error, "");
    for (const [key, error] of this.errors) {
      setText(error, "");
      this.inputs.get(key)?.removeAttribute("aria-invalid");
    }
  }

  private refuse(key: string | null, message: string): void {
    const input = key ? this.inputs.get(key) : undefined;
    const error = key ? this.errors.get(key) : undefined;
    if (!input || !error) return setText(this.error, oneLine(message));
    setText(error, oneLine(message));
    input.setAttribute("aria-invalid", "true");
    if (this.rest.contains(input)) this.rest.open = true;
    input.focus();
    this.app.announce(oneLine(message));
  }

  private async submit(e: Event): Promise<void> {
    e.preventDefault();
    this.clearErrors();
    this.button.disabled = true;
    try {
      const job = await send<Job>("POST", "/jobs", this.request());
      this.root.close();
      if (job) this.app.go(`/jobs/${job.id}`);
    } catch (problem) {
      if (problem instanceof Refused) this.refuse(problem.key, problem.message);
      else if (problem instanceof ApiError) this.refuse(problem.status === 400 ? fieldOf(problem.message) : null, problem.message);
      else throw problem;
    } finally {
      this.button.disabled = false;
    }
  }
}
