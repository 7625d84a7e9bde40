// The page of `ebb report`. It draws the data that `ebb report` has embedded in it.

import { PackedRun, unpack } from "./report_data";
import { addFlame } from "./report_flame";
import { extentOf, plotsOf } from "./report_plots";
import { PlotGroup } from "./shared/plot";
import { labelCells } from "./shared/tables";
import { isOnPaper, onThemeChange } from "./shared/theme";

const text = document.getElementById("data")?.textContent ?? "{}";
const packed = JSON.parse(text) as PackedRun & { runs?: PackedRun[] };
const runs = (packed.runs ?? [packed]).map(unpack);
const area = document.getElementById("plots");
const group = area && new PlotGroup(area, (isPart) => {
  const whole = document.getElementById("whole") as HTMLButtonElement | null;
  if (whole) whole.disabled = !isPart;
});
let byStep = false;

function draw(): void {
  group?.clear(extentOf(runs, byStep));
  for (const plot of plotsOf(runs, byStep)) group?.add(plot);
}

function setAxis(step: boolean): void {
  byStep = step;
  document.getElementById("by-time")?.setAttribute("aria-pressed", String(!step));
  document.getElementById("by-step")?.setAttribute("aria-pressed", String(step));
  draw();
}

function addTools(): void {
  const tools = document.getElementById("tools");
  const hasSteps = runs.every((run) => run.clocks.length > 0);
  if (!tools) return;
  tools.hidden = false;
  const step = document.getElementById("by-step") as HTMLButtonElement | null;
  if (step) step.disabled = !hasSteps;
  document.getElementById("by-time")?.addEventListener("click", () => setAxis(false));
  step?.addEventListener("click", () => setAxis(true));
  document.getElementById("whole")?.addEventListener("click", () => group?.zoom(null, null));
}

// Unfolds explanations and the stacks of leaking call sites before printing, because readers cannot unfold them on
// paper.
function openForPaper(): void {
  const folded = "#diagnosis details, #heap tr:has(td.bad) details, #gpu tr:has(td.bad) details";
  if (isOnPaper()) document.querySelectorAll<HTMLDetailsElement>(folded).forEach((d) => (d.open = true));
}

labelCells();
addTools();
draw();
const flame = document.getElementById("flame");
if (flame && runs[0].flame) addFlame(flame, runs[0].flame, "memory");
const flameGpu = document.getElementById("flame-gpu");
if (flameGpu && runs[0].flameGpu) addFlame(flameGpu, runs[0].flameGpu, "GPU memory");
let waiting = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => group?.fit());
});
onThemeChange(() => {
  openForPaper();
  draw();
});
