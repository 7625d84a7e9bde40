// A series of bounded length: old points are merged with their neighbours, and extremes are kept.

export type Merge = "low" | "high" | "last";
export type Value = number | null;

const most = 4000; // a series with more points is thinned
const target = 2000; // maximum number of points after thinning

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

  // Adds a point. Points that are not newer than the last one are ignored.
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
    // Bucket widths are powers of two, so that a later call with a larger width never splits an earlier bucket.
    const wide = 2 ** Math.ceil(Math.log2((this.last_s - this.t[0]) / target));
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
