// Opens a page in fresh windows of one browser and prints, as JSON, how long each took.
//
//   node open.mjs CHROMIUM PAGE.html RUNS
//
// load: time until the load event, with all plots drawn; painted: time until the next frame was shown; zoom: time from
// the key press until the zoomed plots were shown.

import { chromium } from "playwright-core";
import { pathToFileURL } from "node:url";

const [program, file, runs] = process.argv.slice(2);
const flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--no-first-run"];
const browser = await chromium.launch({ executablePath: program, headless: true, args: flags });
const seen = [];

for (let i = 0; i < Number(runs); i++) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(pathToFileURL(file).href);
  seen.push(await page.evaluate(async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    await frame();
    const painted = performance.now();
    const plot = document.querySelector(".plot");
    const began = performance.now();
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
    await frame();
    const [entry] = performance.getEntriesByType("navigation");
    return { load: entry.loadEventEnd, painted, zoom: performance.now() - began, plots: document.querySelectorAll("canvas").length };
  }));
  await context.close();
}
await browser.close();
console.log(JSON.stringify(seen));
