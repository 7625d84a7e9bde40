// Drives the page of a real `ebb serve`: submits a job, watches it, kills the server while
// the job continues, and cancels the job. Prints a JSON document: what the page showed.
//
//   node browse_serve.mjs CHROMIUM EBB FOLDER PYTHON PROGRAM [PICTURES]
//
// FOLDER is for the server's state. PROGRAM grows until FOLDER/enough exists.

import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { readFileSync, existsSync, rmSync, writeFileSync, openSync } from "node:fs";
import { join } from "node:path";
import { isTooWide, openBrowser, openPage, until, untilText } from "./browser.mjs";

const [program, ebb, folder, python, script, pictures] = process.argv.slice(2);
const state = join(folder, "state");
const ready = join(folder, "ready");
const name = "<script>window.injected=true</script>";
const seen = { messages: [], errors: [], foreign: [] };
const press = (page, label) => page.getByRole("button", { name: label, exact: true }).click();
const picture = async (page, label, more = {}) => pictures && page.screenshot({ path: join(pictures, `${label}.png`), ...more });
let server = null;
let address = null;

async function start() {
  const listen = address ? new URL(address).host : "127.0.0.1:0";
  rmSync(ready, { force: true });
  const log = openSync(join(folder, "server.log"), "a");
  server = spawn(ebb, ["serve", "--state-dir", state, "--listen", listen, "--ready-file", ready, "--slots", "2"], { stdio: ["ignore", log, log] });
  await until(() => existsSync(ready) && /\d/.test(readFileSync(ready, "utf8")), "the server listens");
  address = /http:\/\/[^\s/]+/.exec(readFileSync(ready, "utf8"))?.[0] ?? `http://${readFileSync(ready, "utf8").trim()}`;
}

async function stop(signal) {
  const gone = new Promise((done) => server.once("exit", done));
  server.kill(signal);
  await gone;
}

const badge = (page) => page.locator(".state-line .badge").textContent();
const lastNumber = async (page) => Math.max(-1, ...(await lines(page)).map((line) => Number(/^grew (\d+) /.exec(line)?.[1] ?? -1)));
const lines = (page) => page.evaluate(() => Array.from(document.querySelectorAll(".log > div"), (d) => d.textContent));

// Returns the last values in the legend of the first plot: seconds, and memory in MiB.
async function plotted(page) {
  const [time, size] = await page.evaluate(() => Array.from(document.querySelectorAll("figure:first-of-type .u-legend td"), (td) => td.textContent));
  const clock = /^(\d+):(\d+) min$/.exec(time ?? "");
  const unit = { KiB: 1 / 1024, MiB: 1, GiB: 1024 };
  return { s: clock ? 60 * clock[1] + Number(clock[2]) : parseFloat(time), mib: parseFloat(size) * unit[(size ?? "").split(" ")[1]] };
}

async function login(page) {
  await page.goto(address);
  await page.fill("#token", readFileSync(join(state, "token"), "utf8").trim());
  await page.keyboard.press("Enter");
  await untilText(page, "h1", "Jobs");
  return untilText(page, "#link", /live|polling/);
}

async function submit(page) {
  await press(page, "New job");
  await page.fill("#field-command", `'${python}' '${script}' 'two words'`);
  await page.fill("#field-name", name);
  await page.fill("#field-cwd", folder);
  await page.fill("#field-limit", "lots");
  await press(page, "Submit");
  const error = await untilText(page, ".field .error", /lots/);
  const field = await page.evaluate(() => document.activeElement.id);
  await page.fill("#field-limit", "2G");
  await page.click("dialog summary");
  await page.fill("#field-options", "interval=100ms\nno-heap");
  await press(page, "Submit");
  await page.waitForURL(/\/jobs\/\d+$/);
  return { error, field, title: await untilText(page, "h1", /script/) };
}

async function watch(page) {
  await until(async () => (await badge(page)) === "running", "the job runs");
  await page.waitForSelector(".uplot");
  await until(async () => (await plotted(page)).s > 0, "something is plotted");
  const first = await plotted(page);
  await until(async () => (await plotted(page)).s > first.s + 1 && (await plotted(page)).mib > first.mib, "the plot moves");
  await until(async () => (await lines(page)).includes("grew 3 <b>two words</b>"), "a line of the log");
  await picture(page, "job", { fullPage: true });
  return { first, second: await plotted(page), log: (await lines(page)).slice(0, 3), injected: await page.evaluate(() => window.injected === true) };
}

async function restart(page) {
  const before = await plotted(page);
  await stop("SIGKILL");
  const away = await untilText(page, "#link", "does not answer");
  const last = await lastNumber(page);
  await start();
  await untilText(page, "#link", "live");
  await until(async () => (await badge(page)) === "running", "the job still runs");
  await until(async () => (await plotted(page)).s > before.s + 1 && (await lastNumber(page)) > last, "plot and log go on");
  const log = await lines(page);
  const numbers = log.map((line) => /^grew (\d+) /.exec(line)?.[1]).filter(Boolean).map(Number);
  return { away, gaps: numbers.filter((n, i) => i > 0 && n !== numbers[i - 1] + 1).length, lines: numbers.length };
}

async function cancel(page) {
  await press(page, "Cancel");
  await page.fill("#cancel-reason", "seen enough");
  await press(page, "Cancel the job");
  await until(async () => (await badge(page)) === "cancelled", "the job is cancelled");
  const history = await untilText(page, "section[aria-label='History'] tbody", "cancelled");
  await page.click("nav a[href='/']");
  return { history, row: await untilText(page, ".jobs tbody tr", "cancelled") };
}

async function again(page) {
  await page.click(".jobs tbody a");
  await untilText(page, "h1", "script");
  const old = page.url();
  await press(page, "Run again");
  await page.waitForURL((url) => url.href !== old);
  await until(async () => (await badge(page)) === "running", "it runs again");
  await until(async () => (await lines(page)).some((line) => line.startsWith("grew")), "it says something");
  writeFileSync(join(folder, "enough"), "");
  await until(async () => (await badge(page)) === "succeeded", "it is done");
  await page.waitForSelector("#diagnosis .hypothesis", { state: "attached" });
  const report = await page.getAttribute("a:has-text('Report')", "href");
  const answer = await page.request.get(address + report);
  await picture(page, "ended", { fullPage: true });
  await page.setViewportSize({ width: 390, height: 844 });
  const wide = await isTooWide(page);
  await page.setViewportSize({ width: 1280, height: 900 });
  return { report: [answer.status(), (await answer.text()).includes("<html")], wide };
}

async function machine(page) {
  await page.click("nav a[href='/machine']");
  await page.waitForSelector(".meter");
  await picture(page, "machine");
  return page.locator(".meter .label").allTextContents();
}

// A web server of another user, on a different port of the same host, also receives the browser's cookie. The cookie
// alone must grant no access.
async function thief(page) {
  let cookie = "";
  const other = createServer((request, answer) => {
    cookie = request.headers.cookie ?? cookie;
    answer.end("<!doctype html><title>other</title>");
  });
  await new Promise((done) => other.listen(0, new URL(address).hostname, done));
  const tab = await page.context().newPage();
  await tab.goto(`http://${new URL(address).hostname}:${other.address().port}/`);
  const stored = await tab.evaluate(() => localStorage.length + sessionStorage.length);
  await tab.close();
  other.close();
  const ask = async (path, more = {}) => (await fetch(`${address}/api/v1${path}`, { ...more, headers: { Cookie: cookie, "Content-Type": "application/json" } })).status;
  const submitted = await ask("/jobs", { method: "POST", body: JSON.stringify({ command: ["true"] }) });
  return { received: /^ebb=\w{64}$/.test(cookie), stored, statuses: [await ask("/jobs"), await ask("/session"), await ask("/jobs/1/report"), submitted] };
}

// Checks that a second tab of the same browser is logged in.
async function secondTab(page) {
  const tab = await page.context().newPage();
  await tab.goto(`${address}/machine`);
  await tab.waitForSelector(".meter");
  const link = await untilText(tab, "#link", /live|polling/);
  await tab.close();
  return link;
}

const browser = await openBrowser(program);
try {
  await start();
  const page = await openPage(browser, address, seen);
  for (const [label, play] of Object.entries({ login, submit, watch, secondTab, thief })) seen[label] = await play(page);
  seen.quiet = [...seen.messages];
  for (const [label, play] of Object.entries({ restart, cancel, again, machine })) seen[label] = await play(page);
} catch (problem) {
  problem.message += `\n${readFileSync(join(folder, "server.log"), "utf8")}`;
  throw problem;
} finally {
  await browser.close();
  writeFileSync(join(folder, "enough"), "");
  if (server) await stop("SIGTERM");
}
console.log(JSON.stringify(seen));
