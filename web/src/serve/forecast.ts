// Forecasts memory from the verdict.

import { isEnded, Job } from "./api";
import type { Forecast } from "../shared/markers";
import { rateOf } from "./words";

// Returns the area between the lowest and the highest growth rate of the verdict, starting at the current memory.
// Returns undefined if memory does not grow.
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

// Returns the time at which the drawn forecast ends. This is when memory reaches the limit at the lowest growth rate,
// or, if that is too far away, a time late enough to show the trend.
export function ahead(f: Forecast | undefined, limit: number | null, span: number): number {
  if (!f) return 0;
  const met = limit !== null && f.low > 0 ? ((limit - f.y) / f.low) * 1.05 : Infinity;
  const near = Math.max(span * 1.5, 60);
  return met <= near ? met : Math.max(span * 0.5, 30);
}
