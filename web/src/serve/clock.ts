// The server's time: the clock of this machine may be another.

let ahead_s = 0;

export function setServerTime(now_s: number | null | undefined): void {
  if (typeof now_s === "number") ahead_s = now_s - Date.now() / 1000;
}

export function serverNow_s(): number {
  return Date.now() / 1000 + ahead_s;
}
