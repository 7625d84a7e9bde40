// A series that grows for weeks and stays small: what is close together is merged, extremes are kept.

export type Merge = "low" | "high" | "last";
export type Value = number | null;

const most = 4000; // points, before they become fewer
const wished = 2000; // of them that are left, or half as many

function merge(how: Merge, a: Value, b: Value): Value {
  if (a === null || b === null) return b ?? a;
  if (how === "last") return b;
  return how === "low" ? Math.min(a, b) : Math.max(a, b);
}

export class Series {
  readonly t: number[] = [];
  readonly columns: Value[][];

  constructor(private readonly how: Merge[]) {
    this.columns = how.map(() => []);
  }

  get length(): number {
    return this.t.length;
  }

  get last_s(): number {
    return this.t.length ? this.t[this.t.length - 1] : -Infinity;
  }

  // What is not newer than the last is left out: it was read before.
  add(t_s: number, values: (Value | undefined)[]): void {
    if (!Number.isFinite(t_s) || t_s <= this.last_s) return;
    this.t.push(t_s);
    this.columns.forEach((column, i) => column.push(values[i] ?? null));
    if (this.t.length > most) this.thin();
  }

  clear(): void {
    this.t.length = 0;
    for (const column of this.columns) column.length = 0;
  }

  private thin(): void {
    // Powers of two: each piece of time lies within one of the next time, and nothing is merged twice with the wrong neighbour.
    const wide = 2 ** Math.ceil(Math.log2((this.last_s - this.t[0]) / wished));
    let kept = 0;
    let bucket = NaN;
    for (let i = 0; i < this.t.length; i++) {
      const now = Math.floor(this.t[i] / wide);
      const isSame = now === bucket;
      const to = isSame ? kept - 1 : kept++;
      bucket = now;
      this.t[to] = this.t[i];
      this.columns.forEach((column, c) => {
        column[to] = isSame ? merge(this.how[c], column[to], column[i]) : column[i];
      });
    }
    this.t.length = kept;
    for (const column of this.columns) column.length = kept;
  }
}
