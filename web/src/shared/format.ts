// Formats sizes and times as in all of ebb's output.

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes: number): string {
  let v = Math.abs(bytes);
  let unit = 0;
  while (v >= 1023.5 && unit < units.length - 1) {
    v /= 1024;
    unit++;
  }
  const digits = unit === 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return `${bytes < 0 ? "-" : ""}${v.toFixed(digits)} ${units[unit]}`;
}

// Formats a size with two significant digits, as in the headline of a verdict.
export function about(bytes: number): string {
  let v = Math.abs(bytes);
  let unit = 0;
  while (v >= (unit ? 995 : 1023.5) && unit < units.length - 1) {
    v /= 1024;
    unit++;
  }
  if (unit && v >= 99.5) v = 10 * Math.round(v / 10);
  return `${bytes < 0 ? "-" : ""}${v.toFixed(unit && v < 9.95 ? 1 : 0)} ${units[unit]}`;
}

// Formats a size for an axis, as short as the distance between two ticks permits.
export function tick(bytes: number): string {
  let v = Math.abs(bytes);
  let unit = 0;
  while (v >= 1024 && unit < units.length - 1) {
    v /= 1024;
    unit++;
  }
  return `${bytes < 0 ? "-" : ""}${+v.toFixed(2)} ${units[unit]}`;
}

// Formats a time. STEP is the distance between two ticks on an axis.
export function time(s: number, step = s < 10 ? 0.1 : 1): string {
  if (s < 60 || step < 1) return `${+s.toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0)} s`;
  const pad = (n: number) => String(n).padStart(2, "0");
  const whole = Math.round(s);
  if (s < 3600) return `${Math.floor(whole / 60)}:${pad(whole % 60)} min`;
  const minutes = Math.floor(whole / 60);
  if (s < 86400) return `${Math.floor(minutes / 60)}:${pad(minutes % 60)} h`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export function count(v: number): string {
  return Number.isInteger(v) ? v.toLocaleString("en") : v.toLocaleString("en", { maximumFractionDigits: 1 });
}
