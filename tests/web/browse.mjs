// Opens a report in a browser, and zooms, selects and prints as a reader would. Writes a JSON document to standard
// output: what the page showed.
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

const patience_ms = 180000; // milliseconds, long enough for a busy machine

const context = await chromium.launchPersistentContext(profile, {
  executablePath: program, headless: true, args: flags, viewport: { width: 1280, height: 900 }, timeout: patience_ms,
});
context.setDefaultTimeout(patience_ms);

function listen(page) {
  page.on("console", (m) => seen.messages.push(`${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => seen.messages.push(`error: ${e.message}`));
  page.on("request", (r) => {
    if (r.url() !== address && !r.url().startsWith("data:")) seen.requests.push(r.url());
  });
}

// Tick labels cannot be read from a canvas. The legend follows the cursor, so its values at both ends of the plot are
// the values that the plot shows there.
async function legendAt(page, share) {
  const over = page.locator(".u-over").first();
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  await page.mouse.move(box.x + 1 + (box.width - 2) * share, box.y + box.height / 2);
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
    done(Array.from(document.querySelector(".u-legend").querySelectorAll(".u-series"), (row) =>
      [row.querySelector("th").textContent, row.querySelector("td").textContent]))))));
}

async function inspect(page) {
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

// Finds layout errors: the page is wider than the window, or an element extends beyond the window's right edge and
// cannot be scrolled into view.
async function fit(page) {
  return page.evaluate(() => {
    const edge = document.documentElement.clientWidth + 1;
    const reachable = (e) => e.closest(".scroll")?.scrollWidth > e.closest(".scroll")?.clientWidth + 1
      && getComputedStyle(e.closest(".scroll")).overflowX === "auto";
    const shown = Array.from(document.querySelectorAll("h1, h2, h3, p, li, dd, td, canvas, figure, .bar svg, .flame, button"))
      .filter((e) => e.checkVisibility());
    return {
      wide: document.documentElement.scrollWidth >= edge,
      beyond: shown.filter((e) => e.getBoundingClientRect().right > edge && !reachable(e))
        .map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`),
      scrolled: Array.from(document.querySelectorAll(".scroll")).filter((e) => e.scrollWidth > e.clientWidth + 1).length,
      cells: Array.from(document.querySelectorAll("#processes td")).filter((e) => e.checkVisibility())
        .map((e) => [e.dataset.label, e.textContent]),
      canvas: Array.from(document.querySelectorAll("canvas"), (c) => Math.round(c.getBoundingClientRect().width)),
    };
  });
}

async function onPaper(page) {
  return page.evaluate(() => {
    const style = (e) => getComputedStyle(e);
    const rgb = (text) => text.match(/[\d.]+/g).map(Number);
    return {
      text: rgb(style(document.body).color),
      back: rgb(style(document.body).backgroundColor),
      axis: style(document.documentElement).getPropertyValue("--axis").trim(),
      tools: style(document.getElementById("tools")).display,
      folded: Array.from(document.querySelectorAll("#diagnosis details")).filter((d) => !d.open).length,
      explanations: document.querySelectorAll("#diagnosis details").length,
      headline: document.querySelector(".headline").textContent,
    };
  });
}

// The page redraws its plots for paper before printing, and restores them afterwards.
async function print(page, path) {
  await page.evaluate(() => {
    addEventListener("beforeprint", () => {
      const canvas = document.querySelector("canvas");
      window.printed = {
        width: canvas?.width, axis: getComputedStyle(document.documentElement).getPropertyValue("--axis").trim(),
      };
    });
  });
  const pdf = await page.pdf({ path });
  const printed = await page.evaluate(() => window.printed);
  const pages = (pdf.toString("latin1").match(/\/Type\s*\/Page[^s]/g) ?? []).length;
  return { ...printed, pages, still: await page.evaluate(() => document.documentElement.className) };
}

// Waits until the widths of all plots are in the range, or gives up. Plots follow the window size after a frame or two.
async function settle(page, least, most) {
  for (let i = 0; i < 200; i++) {
    const widths = await page.evaluate(() => Array.from(document.querySelectorAll("canvas"), (c) => c.getBoundingClientRect().width));
    if (widths.every((w) => w > least && w <= most)) return;
    await page.waitForTimeout(50);
  }
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
  return { before, after, frame: await page.locator(".frame-text").textContent() };
}

try {
  const page = await context.newPage();
  listen(page);
  const began = Date.now();
  await page.goto(address);
  seen.opened_ms = Date.now() - began;
  seen.page = await inspect(page);
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
      seen.step_plots = (await inspect(page)).plots;
      if (pictures) await page.locator("#memory").screenshot({ path: join(pictures, "steps.png") });
      await page.locator("#by-time").click();
    }
    if (seen.page.flames.length) seen.flame = await useFlame(page);
  }
  await page.setViewportSize({ width: 390, height: 800 });
  await settle(page, 0, 390);
  seen.narrow = await fit(page);
  seen.narrow.facts = (await inspect(page)).facts;
  if (seen.page.plots.length) seen.narrow.ends = [await legendAt(page, 0), await legendAt(page, 1)];
  if (pictures) await page.screenshot({ path: join(pictures, "narrow.png"), fullPage: true });
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.emulateMedia({ colorScheme: "dark" });
  await settle(page, 390, 1280);
  seen.dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  if (pictures) await page.screenshot({ path: join(pictures, "dark.png"), fullPage: true });
  seen.printed = await print(page, pictures ? join(pictures, "print.pdf") : undefined);
  await page.setViewportSize({ width: 720, height: 1000 });
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  await settle(page, 500, 720);
  seen.paper = { ...(await fit(page)), ...(await onPaper(page)), facts: (await inspect(page)).facts };
  if (pictures) await page.screenshot({ path: join(pictures, "paper.png"), fullPage: true });
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}
console.log(JSON.stringify(seen));
