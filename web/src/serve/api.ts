// The server's API (docs/reference/api.md): the types of its documents, and functions that send requests.

import { secrets } from "./session";

export type State = "queued" | "starting" | "running" | "checkpointing" | "stopping" | "succeeded" | "failed" | "cancelled" | "lost";

export interface Progress {
  step?: number | null;
  max_steps?: number | null;
  epoch?: number | null;
  steps_per_s?: number | null;
  eta_s?: number | null;
}
export interface Memory {
  job_bytes?: number | null;
  peak_bytes?: number | null;
  unique_bytes?: number | null;
  limit_bytes?: number | null;
  headroom_bytes?: number | null;
  gpu_bytes?: number | null;
}
export interface Rate {
  value: number;
  low?: number | null;
  high?: number | null;
}
export interface Verdict {
  verdict: string;
  leak?: boolean | null;
  confidence?: number | null;
  rate_bytes_per_min?: Rate | number | null;
  rate_bytes_per_step?: Rate | number | null;
  oom_eta_s?: { low?: number | null; high?: number | null } | null;
  sentence?: string | null;
}
export interface Change {
  t_s: number;
  state: State;
  reason?: string | null;
}
export interface JobRequest {
  env?: Record<string, string> | null;
}
export interface Job {
  id: number;
  name?: string | null;
  command?: string[] | null;
  cwd?: string | null;
  env?: string[] | null;
  options?: Record<string, unknown> | null;
  priority?: number | null;
  after?: number[] | null;
  limit?: string | null;
  state: State;
  reason?: string | null;
  waits_for?: string | null;
  memory_bytes?: number | null;
  memory_from?: string | null;
  gpus_wanted?: number | null;
  gpus?: number[] | null;
  submitted_s?: number | null;
  started_s?: number | null;
  ended_s?: number | null;
  run_dir?: string | null;
  pid?: number | null;
  segment?: number | null;
  status?: number | null;
  cause?: string | null;
  cause_kind?: string | null;
  progress?: Progress | null;
  memory?: Memory | null;
  verdict?: Verdict | null;
  spark?: (number | null)[] | null;
  given_back?: { host_bytes?: number | null; shm_bytes?: number | null; gpu_bytes?: number | null; clean?: boolean | null } | null;
  rerun_of?: number | null;
  changes?: Change[];
}
export interface Samples {
  t0_s?: number | null;
  until_s?: number | null;
  limit_bytes?: number | null;
  series?: Record<string, (number | null)[]> | null;
  processes?: { pid: number; name?: string; role?: string; t_s: number[]; rss_bytes: (number | null)[] }[];
  gpus?: { index: number; name?: string; t_s: number[]; job_bytes: (number | null)[]; used_bytes: (number | null)[] }[];
  marks?: Mark[];
}
export interface Mark {
  t_s: number;
  kind: string;
  step?: number | null;
  epoch?: number | null;
}
export interface Sample {
  id: number;
  t_s: number;
  job_bytes?: number | null;
  unique_bytes?: number | null;
  limit_bytes?: number | null;
  step?: number | null;
  gpus?: { index: number; job_bytes?: number | null; used_bytes?: number | null }[];
  processes?: { pid: number; name?: string; role?: string; rss_bytes?: number | null }[];
}
// An action of the guard, or a restart of the job. Changes of the job's state are not included; they are in
// Job.changes.
export interface Happening {
  kind?: string;
  t_s?: number | null;
  act?: string;
  why?: string | null;
  segment?: number | null;
  started?: string; // time at which a segment started
}

export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

export const isEnded = (state: State) => ["succeeded", "failed", "cancelled", "lost"].includes(state);

const usualPatience_s = 30;
export const readingPatience_s = 150; // time limit in seconds for answers that require the whole recording
let onLoggedOut = () => {};

// Sets the function to call for every answer with status 401.
export function whenLoggedOut(callback: () => void): void {
  onLoggedOut = callback;
}

async function messageOf(answer: Response): Promise<string> {
  try {
    const doc = (await answer.json()) as { error?: { message?: string } };
    if (doc.error?.message) return doc.error.message;
  } catch {
    // The answer is truncated, or comes from a proxy instead of the server.
  }
  return `the server answered with status ${answer.status}`;
}

// Requests PATH under /api/v1. Throws an ApiError if the answer is an error. Its status is 0 if the server
// does not answer.
export async function ask(path: string, more: RequestInit = {}, patience_s = usualPatience_s): Promise<Response> {
  let answer: Response;
  const giveUp = new AbortController();
  const timer = setTimeout(() => giveUp.abort(), patience_s * 1000);
  try {
    const { key } = secrets();
    const headers = { ...more.headers, ...(key ? { "X-Ebb-Key": key } : {}) };
    answer = await fetch(`/api/v1${path}`, { credentials: "same-origin", cache: "no-store", signal: giveUp.signal, ...more, headers });
  } catch {
    throw new ApiError(0, giveUp.signal.aborted ? `the server did not answer within ${patience_s} s` : "the server cannot be reached");
  } finally {
    clearTimeout(timer);
  }
  if (answer.ok) return answer;
  const error = new ApiError(answer.status, await messageOf(answer));
  if (answer.status === 401 && path !== "/session") onLoggedOut();
  throw error;
}

// Returns the body of ANSWER. Throws an ApiError with status 0 if the connection breaks in the middle.
export async function bodyOf(answer: Response): Promise<ArrayBuffer> {
  try {
    return await answer.arrayBuffer();
  } catch {
    throw new ApiError(0, "the server's answer was cut off");
  }
}

async function documentOf<T>(answer: Response): Promise<T | null> {
  const text = new TextDecoder().decode(await bodyOf(answer));
  try {
    return text ? (JSON.parse(text) as T) : null;
  } catch {
    throw new ApiError(answer.status, "the server's answer cannot be read");
  }
}

export async function get<T>(path: string, patience_s?: number): Promise<T> {
  const document = await documentOf<T>(await ask(path, {}, patience_s));
  if (document === null) throw new ApiError(0, "the server's answer is empty");
  return document;
}

export async function send<T>(method: "POST" | "DELETE", path: string, body: unknown = {}): Promise<T | null> {
  return documentOf<T>(await ask(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}
