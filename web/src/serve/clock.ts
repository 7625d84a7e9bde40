// Keeps the server's time, which may differ from this machine's clock.

let ahead_s = 0;

export function setServerTime(now_s: number | null | undefined): void {
  if (typeof now_s === "number") ahead_s = now_s - Date.now() / 1000;
}

export function serverNow_s(): number {
  return Date.now() / 1000 + ahead_s;
}
