// Markers in a plot: events as vertical lines, phases as areas, and the limit.

import uPlot from "uplot";
import * as format from "./format";
import { Theme } from "./theme";

export type Kind = "epoch" | "evaluation" | "checkpoint" | "phase" | "segment" | "guard";

export interface Marker {
  kind: Kind;
  x: number;
  until?: number; // x at which a phase ends
}

// The forecast of a line: the area between a low and a high rate, up to the limit.
export interface Forecast {
  x: number;
  y: number;
  low: number; // lower growth rate per unit of x
  high: number;
}

const words: [Kind, string][] = [
  ["epoch", "epoch"],
  ["evaluation", "evaluation"],
  ["checkpoint", "checkpoint"],
  ["phase", "phase"],
  ["segment", "restart"],
  ["guard", "guard action"],
];

const leastApart = 24; // minimum distance between lines in px; closer lines would hide the plot
const short = 9; // px

// Draws a vertical line for each event. If there are many events of a kind, their lines are short and at the bottom.
export function drawMarkers(u: uPlot, markers: Marker[], colours: Theme): void {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const last: Record<string, number> = {};
  const seen: Record<string, number> = {};
  for (const m of markers) {
    const x = u.valToPos(m.x, "x", true);
    if (x >= left && x <= left + width) seen[m.kind] = (seen[m.kind] ?? 0) + 1;
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const m of markers) {
    const x = Math.round(u.valToPos(m.x, "x", true));
    if (m.kind === "phase") {
      const end = m.until === undefined ? x : u.valToPos(m.until, "x", true);
      ctx.fillStyle = colours.phase;
      ctx.fillRect(x, top, Math.max(end - x, 1), height);
      continue;
    }
    if (x < left || x > left + width || x - (last[m.kind] ?? -99) < 3 * devicePixelRatio) continue;
    last[m.kind] = x;
    ctx.strokeStyle = colours.events[m.kind];
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(m.kind === "segment" || m.kind === "guard" ? [] : [4 * devicePixelRatio, 3 * devicePixelRatio]);
    const isMany = seen[m.kind] * leastApart * devicePixelRatio > width;
    if (isMany) ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(x + 0.5, isMany ? top + height - short * devicePixelRatio : top);
    ctx.lineTo(x + 0.5, top + height);
    ctx.stroke();
  }
  ctx.restore();
}

export function drawLimit(u: uPlot, limit: number, colours: Theme): void {
  const { ctx } = u;
  const y = u.valToPos(limit, "y", true);
  ctx.save();
  const text = `limit ${format.size(limit)}`;
  ctx.strokeStyle = colours.limit;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(u.bbox.left, y);
  ctx.lineTo(u.bbox.left + u.bbox.width, y);
  ctx.stroke();
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  const from = u.bbox.left + 6 * devicePixelRatio;
  ctx.fillStyle = colours.back;
  ctx.fillRect(from - 3 * devicePixelRatio, y + 2 * devicePixelRatio, ctx.measureText(text).width + 6 * devicePixelRatio, 16 * devicePixelRatio);
  ctx.fillStyle = colours.limit;
  ctx.fillText(text, from, y + 4 * devicePixelRatio);
  ctx.restore();
}

export function drawForecast(u: uPlot, f: Forecast, limit: number | undefined, colours: Theme): void {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const end = u.scales.x.max ?? f.x;
  if (end <= f.x) return;
  // Returns the end of the line with this growth rate. If the line reaches the limit before, returns the point where it
  // does, and the end of the limit.
  const along = (rate: number): [number, number][] => {
    const there = f.y + rate * (end - f.x);
    if (limit === undefined || there <= limit || rate <= 0) return [[end, there]];
    return [[f.x + (limit - f.y) / rate, limit], [end, limit]];
  };
  const at = ([x, y]: [number, number]) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)] as const;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.fillStyle = ctx.strokeStyle = colours.limit;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(...at([f.x, f.y]));
  for (const corner of [...along(f.high), ...along(f.low).reverse()]) ctx.lineTo(...at(corner));
  ctx.closePath();
  ctx.stroke();
  ctx.globalAlpha = 0.16;
  ctx.fill();
  ctx.restore();
}

// Returns the legend of the markers, or null if there are none.
export function keyOf(markers: Marker[]): HTMLElement | null {
  const kinds = new Set(markers.map((m) => m.kind));
  const key = document.createElement("p");
  key.className = "key-row";
  for (const [kind, word] of words) {
    if (!kinds.has(kind)) continue;
    const one = document.createElement("span");
    one.className = `mark ${kind}`;
    one.textContent = word;
    key.append(one);
  }
  return key.childElementCount ? key : null;
}
