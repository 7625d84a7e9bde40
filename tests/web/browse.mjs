// Opens a report in a browser, does what a reader does, and prints what was seen as JSON.
//
//   node browse.mjs CHROMIUM PAGE.html [FOLDER]      pictures go into FOLDER
//
// The folder that this file is in must hold node_modules with playwright-core.

import { chromium } from "playwright-core";
import { pathToFileURL } from "node:url";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [program, file, pictures] = process.argv.slice(2);
const address = pathToFileURL(file).href;
const profile = mkdtempSync(join(tmpdir(), "ebb-browser-"));
const flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--no-first-run"];
const seen = { messages: [], requests: [] };

const context = await chromium.launchPersistentContext(profile, {
  executablePath: program, headless: true, args: flags, viewport: { width: 1280, height: 900 },
});

function listen(page) {
  page.on("console", (m) => seen.messages.push(`${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => seen.messages.push(`error: ${e.message}`));
  page.on("request", (r) => {
    if (r.url() !== address && !r.url().startsWith("data:")) seen.requests.push(r.url());
  });
}

// The label of the first and the last tick cannot be read off a canvas: the legend follows the
// cursor, so what it says at both ends is what the plot shows there.
async function legendAt(page, share) {
  const over = page.locator(".u-over").first();
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  await page.mouse.move(box.x + 1 + (box.width - 2) * share, box.y + box.height / 2);
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
    done(Array.from(document.querySelector(".u-legend").querySelectorAll(".u-series"), (row) =>
      [row.querySelector("th").textContent, row.querySelector("td").textContent]))))));
}

async function look(page) {
  return page.evaluate(() => ({
    title: document.title,
    h1: document.querySelector("h1").textContent,
    headline: document.querySelector(".headline").textContent,
    sections: Array.from(document.querySelectorAll("section"), (s) => s.id),
    plots: Array.from(document.querySelectorAll("figure figcaption"), (c) => c.textContent),
    keys: Array.from(document.querySelectorAll(".mark"), (m) => m.textContent),
    flames: Array.from(document.querySelectorAll(".flame button"), (b) => b.textContent),
    facts: Object.fromEntries(Array.from(document.querySelectorAll(".figures > div"), (d) =>
      [d.querySelector("dt").textContent, d.querySelector("dd").textContent])),
    scripts: document.scripts.length,
    text: document.body.innerText,
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    injected: window.injected === true,
  }));
}

async function zoom(page) {
  const box = await page.locator(".u-over").first().boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.25, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, y, { steps: 4 });
  await page.mouse.up();
}

async function useKeys(page) {
  await page.locator(".plot").first().focus();
  await page.keyboard.press("+");
  const closer = [await legendAt(page, 0), await legendAt(page, 1)];
  await page.locator(".plot").first().focus();
  await page.keyboard.press("0");
  return { closer, back: [await legendAt(page, 0), await legendAt(page, 1)] };
}

async function useFlame(page) {
  const frames = page.locator(".flame button");
  const before = await frames.count();
  await frames.nth(before - 1).click();
  const after = await frames.count();
  return { before, after, told: await page.locator(".told").textContent() };
}

try {
  const page = await context.newPage();
  listen(page);
  const began = Date.now();
  await page.goto(address);
  seen.opened_ms = Date.now() - began;
  seen.page = await look(page);
  if (pictures) await page.screenshot({ path: join(pictures, "light.png"), fullPage: true });
  if (seen.page.plots.length) {
    seen.whole = [await legendAt(page, 0), await legendAt(page, 1)];
    await zoom(page);
    seen.zoomed = [await legendAt(page, 0), await legendAt(page, 1)];
    if (pictures) await page.screenshot({ path: join(pictures, "zoomed.png") });
    const whole = page.locator("#whole");
    if (await whole.count()) {
      seen.can_go_back = await whole.isEnabled();
      await whole.click();
      seen.back = [await legendAt(page, 0), await legendAt(page, 1)];
    }
    seen.keys = await useKeys(page);
    const step = page.locator("#by-step");
    if (await step.count()) {
      await step.click();
      seen.steps = [await legendAt(page, 0), await legendAt(page, 1)];
      seen.step_plots = (await look(page)).plots;
      if (pictures) await page.locator("#memory").screenshot({ path: join(pictures, "steps.png") });
      await page.locator("#by-time").click();
    }
    if (seen.page.flames.length) seen.flame = await useFlame(page);
  }
  await page.setViewportSize({ width: 390, height: 800 });
  await page.waitForTimeout(100);
  seen.narrow_wide = (await look(page)).wide;
  if (pictures) await page.screenshot({ path: join(pictures, "narrow.png"), fullPage: true });
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForTimeout(100);
  seen.dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  if (pictures) await page.screenshot({ path: join(pictures, "dark.png"), fullPage: true });
  if (pictures) await page.pdf({ path: join(pictures, "print.pdf") });
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}
console.log(JSON.stringify(seen));
