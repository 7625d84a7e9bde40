// Texts about states, verdicts, rates and times.

import { Job, Progress, Rate, State, Verdict } from "./api";
import { oneLine } from "./dom";
import * as format from "../shared/format";

// The word is always shown beside the colour, for readers who cannot tell colours apart.
export const stateClass: Record<State, string> = {
  queued: "quiet",
  starting: "busy",
  running: "busy",
  checkpointing: "open",
  stopping: "open",
  succeeded: "good",
  failed: "bad",
  cancelled: "quiet",
  lost: "bad",
};

export function verdictClass(v: Verdict): string {
  if (v.leak === true) return "bad";
  return v.leak === false ? "good" : "open";
}

// Formats a duration in one or two units.
export function duration(s: number): string {
  if (s < 10) return `${Math.max(0, +s.toFixed(1))} s`;
  if (s < 120) return `${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

// Returns text such as "in about 22 min". Returns null if memory is not running out, or if the growth may be a warm-up
// or a cache.
export function outOfMemory(v: Verdict | null | undefined): string | null {
  if (!v?.leak) return null;
  const eta = v.oom_eta_s;
  const low = eta?.low;
  if (low == null) return null;
  const high = eta?.high;
  return high == null ? `in ${duration(low)} at the earliest` : `in about ${duration((low + high) / 2)}`;
}

export function rateOf(rate: Rate | number | null | undefined): Rate | null {
  if (rate == null) return null;
  return typeof rate === "number" ? { value: rate } : rate;
}

// Returns one growth rate: per step if steps are known, otherwise per minute.
export function growthOf(v: Verdict): string | null {
  const step = rateOf(v.rate_bytes_per_step);
  const rate = step ?? rateOf(v.rate_bytes_per_min);
  return rate ? `${rate.value > 0 ? "+" : ""}${format.about(rate.value)}/${step ? "step" : "min"}` : null;
}

// Returns text such as "+9.0 MiB/step, out of memory in about 7 min (97 % confident)".
export function answerOf(v: Verdict, isOver: boolean): string {
  const oom = isOver ? null : outOfMemory(v);
  const parts = [v.leak !== false ? growthOf(v) : null, oom ? `out of memory ${oom}` : null].filter(Boolean).join(", ");
  const sure = v.confidence != null && v.verdict !== "undecided" ? `(${Math.round(v.confidence * 100)} % confident)` : "";
  return [parts, sure].filter(Boolean).join(" ");
}

export function progressText(p: Progress | null | undefined, isOver: boolean): string {
  if (p?.step == null) return "";
  const of = p.max_steps ? ` of ${format.count(p.max_steps)}` : "";
  const left = p.eta_s != null && !isOver ? `, ${duration(p.eta_s)} left` : "";
  return `step ${format.count(p.step)}${of}${left}`;
}

// Formats a time, without the date if it is today.
export function clock(s: number): string {
  const at = new Date(s * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return isToday ? time : `${at.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" })} ${time}`;
}

export function tookOf(job: Job, now_s: number): string {
  if (job.started_s == null) return "";
  return duration(Math.max(0, (job.ended_s ?? now_s) - job.started_s));
}

export function nameOf(job: Job): string {
  return oneLine(job.name || "no name");
}
