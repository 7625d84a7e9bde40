// Starts a browser for the tests and records its console messages and requests.

import { chromium } from "playwright-core";

const flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--no-first-run"];
export const patience_ms = 180000; // long enough for a busy machine; no passing test waits this long

export async function openBrowser(program) {
  return chromium.launch({ executablePath: program, headless: true, args: flags, timeout: patience_ms });
}

// Adds console messages, page errors, and requests to hosts other than ADDRESS to SEEN.
export async function openPage(browser, address, seen, more = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(patience_ms);
  page.on("console", (m) => seen.messages.push(`${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => seen.errors.push(e.stack));
  page.on("request", (r) => {
    if (!r.url().startsWith(address)) seen.foreign.push(r.url());
  });
  return page;
}

// Returns the text of the first SELECTOR once it matches EXPECTED.
export async function untilText(page, selector, expected) {
  const one = page.locator(selector).filter({ hasText: expected }).first();
  await one.waitFor({ state: "attached" });
  return one.textContent();
}

export async function until(isSo, what) {
  for (const end = Date.now() + patience_ms; !(await isSo());) {
    if (Date.now() > end) throw new Error(`timed out waiting for: ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

// Returns true if the page stays too wide. Plots follow the window size after a frame or two, so this waits for them.
export async function isTooWide(page) {
  const isSo = () => page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  for (let i = 0; i < 100 && (await isSo()); i++) await new Promise((done) => setTimeout(done, 50));
  return isSo();
}
