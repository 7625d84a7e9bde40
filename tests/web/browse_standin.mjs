// Opens the server's page on a fake server, whose jobs this script controls. Prints a JSON document: what the page
// showed.
//
//   node browse_standin.mjs CHROMIUM FOLDER [PICTURES]     FOLDER contains the built page

import { join } from "node:path";
import { isTooWide, openBrowser, openPage, until, untilText } from "./browser.mjs";
import { Standin } from "./standin.mjs";

const [program, folder, pictures] = process.argv.slice(2);
const hostile = "<img src=x onerror=window.injected=true><script>window.injected=true</script>\u001b[31m\u202e\u0007";
const GiB = 2 ** 30;
const seen = { messages: [], errors: [], foreign: [], wide: {} };
const server = new Standin(folder);
const texts = (page, selector) => page.locator(selector).allTextContents();
const picture = async (page, name, more = {}) => pictures && page.screenshot({ path: join(pictures, `${name}.png`), ...more });

const press = (page, name) => page.getByRole("button", { name, exact: true }).click();

function series(n, from, slope) {
  const t_s = Array.from({ length: n }, (_, i) => i * 2);
  const v = t_s.map((t) => from + slope * t);
  return { t_s, v };
}

// Creates ended jobs, a job with hostile texts, a leaking job with every possible property, and a queued job.
function prepare() {
  const now_s = Date.now() / 1000;
  const { t_s, v } = series(600, GiB, 2e6);
  server.machine = { host: "node-1", cpus: 16, load: [1, 2, 3], memory: { total_bytes: 64 * GiB, used_bytes: 20 * GiB }, swap: { total_bytes: 0, free_bytes: 0 },
    gpus: [{ index: 0, name: hostile, total_bytes: 80 * GiB, used_bytes: 30 * GiB }], room: { slots: { all: 2, used: 1 }, memory: { all_bytes: 60 * GiB, used_bytes: 6 * GiB } } };
  for (let id = 1; id <= 60; id++) server.job(id, { name: `old-${id}`, state: "succeeded", started_s: now_s - 9000, ended_s: now_s - 8000 });
  server.job(61, { name: hostile, command: ["sh", "-c", hostile], state: "failed", reason: hostile, started_s: now_s - 5000, ended_s: now_s - 4000, run_dir: `/runs/${hostile}`,
    env: [hostile], verdict: { verdict: "stable", leak: false, sentence: hostile } });
  server.log(61, `${hostile}\n`);
  server.job(62, { name: "leaker", limit: "6G", state: "running", started_s: now_s - 1200, run_dir: "/runs/62", spark: v.filter((_, i) => i % 10 === 0),
    memory: { job_bytes: v.at(-1), peak_bytes: v.at(-1), unique_bytes: v.at(-1) * 0.9, limit_bytes: 6 * GiB, headroom_bytes: 6 * GiB - v.at(-1), gpu_bytes: 30 * GiB },
    progress: { step: 250, max_steps: 1000, steps_per_s: 2, eta_s: 375 },
    verdict: { verdict: "leaking", leak: true, confidence: 0.9, rate_bytes_per_min: { value: 1.2e8, low: 1e8, high: 1.4e8 }, oom_eta_s: { low: 1200, high: 1500 }, sentence: "memory grows" } });
  server.samples.set(62, { id: 62, until_s: 1198, limit_bytes: 6 * GiB, series: { t_s, job_low_bytes: v, job_high_bytes: v, unique_bytes: v.map((b) => b * 0.9) },
    processes: [{ pid: 9, name: hostile, role: "main", t_s, rss_bytes: v }], gpus: [{ index: 0, name: "GPU", t_s, job_bytes: v, used_bytes: v }],
    marks: [{ t_s: 400, kind: "epoch" }, { t_s: 410, kind: "eval" }, { t_s: 420, kind: "save" }] });
  server.log(62, "\x1b[32mfirst\x1b[0m line\n 1%\r 2%\r");
  server.jobs.set(59, { id: 59, state: "lost" });
  server.job(63, { name: "waiter", waits_for: "waits for a slot: 1 of 1 in use" });
  server.diagnosis = { verdict: "process 9 leaks", hypotheses: [
    { title: "the graph is kept", code: "graph-kept", site: { function: "append", file: "list.c", line: 3, in_program: { function: "main", file: "/tmp/train.py", line: 29 } }, word: "nearly certain", share: 0.6, for: [`tensors ${hostile}`], against: [] },
    { title: "retention", word: "ruled out", share: 0, for: [], against: ["the live heap grows too"] },
  ], advice: [{ what: "keep numbers", effect: "saves 1 MiB/step" }] };
}

async function login(page) {
  await page.goto(server.address);
  await page.fill("#token", "wrong");
  await page.keyboard.press("Enter");
  const refused = await untilText(page, "#token-error", /./);
  await page.fill("#token", "the-token");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".jobs tbody tr");
  await untilText(page, "#link", "live");
  const kept = await page.evaluate(() => ({ url: location.href, cookie: document.cookie, stored: JSON.stringify({ ...localStorage, ...sessionStorage }) }));
  return { refused, kept };
}

const row = (id) => `.jobs tbody tr:has(a[href="/jobs/${id}"])`;

async function useList(page) {
  const result = { first: await page.locator(".jobs tbody tr a").first().getAttribute("href"), leaker: (await texts(page, `${row(62)} > *`)).map((t) => t.trim()) };
  result.spark = await page.locator(`${row(62)} .spark-line`).getAttribute("d") !== null;
  result.hostile = await page.locator(`${row(61)} .name`).textContent();
  server.hold();
  server.job(63, { state: "running", waits_for: null, started_s: Date.now() / 1000 });
  result.started = await untilText(page, `${row(63)} .badge`, "running");
  result.announced = await untilText(page, "#announcements", "63");
  server.job(64, { name: "newcomer" });
  await page.waitForSelector(row(64));
  server.remove(64);
  await page.waitForSelector(row(64), { state: "detached" });
  server.release();
  server.job(63, { state: "queued", waits_for: "waits for a slot", started_s: null });
  const rows = page.locator(".jobs tbody tr");
  await untilText(page, row(63), "waits for a slot");
  result.rows = await rows.count();
  await press(page, "Older");
  await page.waitForSelector(row(1));
  result.older = await rows.count();
  await press(page, "Newest");
  await page.waitForSelector(row(62));
  await page.selectOption("#filter-state", "failed");
  await until(async () => (await rows.count()) === 1, "one failed job");
  result.failed = await page.locator(".jobs tbody tr a").first().getAttribute("href");
  await page.selectOption("#filter-state", "");
  await until(async () => (await rows.count()) > 40, "jobs of every state");
  await page.fill("#filter-name", "leaker");
  await until(async () => (await rows.count()) === 1, "one job of that name");
  result.url = new URL(page.url()).search;
  await page.fill("#filter-name", "");
  await until(async () => (await rows.count()) > 40, "all jobs again");
  return result;
}

// Submits a job with the keyboard only.
async function submit(page) {
  const tabTo = async (isThere) => {
    for (let i = 0; i < 400; i++) {
      if (await page.evaluate(isThere)) return;
      await page.keyboard.press("Tab");
    }
    throw new Error("the keyboard does not get there");
  };
  await page.keyboard.press("Tab");
  await tabTo(() => document.activeElement?.textContent === "New job");
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.type("python train.py --name 'a b'");
  await tabTo(() => document.activeElement?.id === "field-limit");
  await page.keyboard.type("lots");
  await page.keyboard.press("Enter");
  const error = await untilText(page, "#field-limit-error", /./);
  const invalid = await page.evaluate(() => [document.activeElement.id, document.activeElement.getAttribute("aria-invalid")]);
  await picture(page, "submit");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("6G");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/jobs\/\d+$/);
  const body = server.bodies.at(-1);
  const title = await untilText(page, "h1", /job-/);
  return { ring, error, invalid, body, title };
}

// Watches the page of a job that was queued when the page was opened.
async function begin(page) {
  const id = Number(page.url().split("/").pop());
  await untilText(page, ".state-line .badge", "queued");
  server.job(id, { state: "running", started_s: Date.now() / 1000, run_dir: "/runs/x" });
  server.log(id, "the first words\n");
  await until(async () => (await lines(page)).includes("the first words"), "the log from its beginning");
  for (let t = 0; t < 5; t++) server.sample(id, t, (1 + t) * GiB);
  await page.waitForSelector(".uplot");
  await until(async () => (await legend(page))[0]?.job === "5.00 GiB", "the plot from its beginning");
  return { log: await lines(page), plot: await legend(page) };
}

const legend = (page) => page.evaluate(() => Array.from(document.querySelectorAll(".u-legend")).map((l) =>
  Object.fromEntries(Array.from(l.querySelectorAll(".u-series"), (r) => [r.querySelector("th").textContent, r.querySelector("td").textContent]))));

async function useJob(page) {
  await page.click("nav a[href='/']");
  await page.click(`${row(62)} a`);
  await page.waitForSelector(".uplot");
  await untilText(page, "#diagnosis", "the graph is kept");
  const result = { plots: await texts(page, "figcaption"), keys: await texts(page, ".mark"), verdict: await page.locator(".verdict").textContent(),
    order: (await page.locator(".answer, .figures, .next").allInnerTexts()).join("\n") };
  result.diagnosis = await page.locator("#diagnosis").innerText();
  result.injected = await page.evaluate(() => window.injected === true);
  await until(async () => (await legend(page))[0].time !== "–", "the legend shows the last values");
  await page.locator(".plot").first().focus();
  for (const key of ["+", "+", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft"]) await page.keyboard.press(key);
  await until(async () => Number.parseInt((await legend(page))[0].time) < 19, "a part is shown");
  const parts = () => server.requests.filter((r) => r.includes("from_s=")).map((r) => new URL(r.split(" ")[1], "http://x"));
  await until(() => parts().some((url) => Number(url.searchParams.get("to_s")) < 1198), "it is read more finely");
  result.part = parts().at(-1).search;
  result.closer = await legend(page);
  await press(page, "Whole run");
  await until(async () => (await legend(page))[0].time.startsWith("19:"), "the whole is shown again");
  result.before = await legend(page);
  server.sample(62, 1260, 5 * GiB, { unique_bytes: 4 * GiB, limit_bytes: 6 * GiB });
  await until(async () => (await legend(page))[0].job === "5.00 GiB", "the plot moved");
  result.after = await legend(page);
  await picture(page, "job", { fullPage: true });
  return result;
}

const lines = (page) => page.evaluate(() => Array.from(document.querySelectorAll(".log > div"), (d) => d.textContent));

async function useLog(page) {
  const result = { first: await lines(page) };
  server.log(62, "\x1b[31msecond\x1b[0m <b>line</b>\n");
  await until(async () => (await lines(page)).includes("second <b>line</b>"), "a line that came live");
  result.live = await lines(page);
  await press(page, "Follow");
  server.log(62, "third\n");
  await untilText(page, "button", "Follow (1 new)");
  result.paused = await lines(page);
  await press(page, "Follow (1 new)");
  await until(async () => (await lines(page)).includes("third"), "what came while it was paused");
  server.log(62, Buffer.from([0x6f, 0x6b, 0x20, 0xff, 0xfe, 0x0a]));
  server.log(62, "after bytes\n");
  await until(async () => (await lines(page)).includes("after bytes"), "text after invalid UTF-8");
  result.bytes = (await lines(page)).slice(-3);
  server.log(62, Array.from({ length: 6000 }, (_, i) => `line ${i}\n`).join(""));
  await until(async () => (await lines(page)).includes("line 5999"), "many lines");
  result.many = (await lines(page)).length;
  return result;
}

async function act(page) {
  await press(page, "Checkpoint");
  const state = () => page.locator(".state-line .badge").textContent();
  await until(async () => (await state()) === "checkpointing", "checkpointing");
  const announced = await untilText(page, "#announcements", "checkpointing");
  server.job(62, { state: "running" });
  await press(page, "Cancel");
  await press(page, "Keep it running");
  const before = server.requests.filter((r) => r.includes("cancel")).length;
  await press(page, "Cancel");
  await page.fill("#cancel-reason", "enough");
  await page.keyboard.press("Enter");
  await until(async () => (await state()) === "stopping", "stopping");
  const reason = server.bodies.at(-1).reason;
  server.job(62, { state: "cancelled", reason: "asked to: enough", ended_s: Date.now() / 1000 });
  await until(async () => (await state()) === "cancelled", "cancelled");
  const buttons = await page.locator(".actions button:visible").allTextContents();
  await press(page, "Run again");
  await page.waitForURL(/\/jobs\/(?!62$)\d+$/);
  const again = await untilText(page, "h1", "leaker");
  const history = await page.evaluate(async () => {
    history.back();
    await new Promise((done) => addEventListener("popstate", done, { once: true }));
    return location.pathname;
  });
  await untilText(page, "tbody", "asked to: enough");
  return { announced, before, reason, buttons, again, history, changes: await texts(page, "section[aria-label='History'] tbody tr") };
}

// Stops the server, changes jobs, and starts another server.
async function restart(page) {
  server.job(70, { name: "survivor", state: "running", started_s: Date.now() / 1000 - 100, run_dir: "/runs/70", memory: { job_bytes: GiB } });
  server.samples.set(70, { until_s: 100, series: { t_s: [0, 100], job_low_bytes: [1, GiB], job_high_bytes: [1, GiB], unique_bytes: [null, null] } });
  server.log(70, "before\n");
  await page.goto(`${server.address}/jobs/70`);
  await until(async () => (await lines(page)).includes("before"), "the log");
  await untilText(page, "#link", "live");
  await server.stop();
  const away = await untilText(page, "#link", "does not answer");
  server.job(70, { state: "succeeded", reason: "it is done", ended_s: Date.now() / 1000, memory: { job_bytes: GiB, peak_bytes: 2 * GiB } });
  server.log(70, "after\n");
  server.samples.set(70, { until_s: 200, series: { t_s: [0, 100, 200], job_low_bytes: [1, GiB, 2 * GiB], job_high_bytes: [1, GiB, 2 * GiB], unique_bytes: [null, null, null] } });
  await server.start();
  await untilText(page, "#link", "live");
  await untilText(page, ".state-line .badge", "succeeded");
  await until(async () => (await lines(page)).includes("after"), "the log that was missed");
  await until(async () => (await legend(page))[0]?.job === "2.00 GiB", "the samples that were missed");
  return { away, log: await lines(page) };
}

function hide(page, is) {
  return page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, is);
}

// A hidden page has no stream and sends no requests; when shown again it catches up.
async function sleep(page) {
  await page.click("nav a[href='/']");
  await page.waitForSelector(row(63));
  await until(() => server.viewers.size === 1, "one stream");
  await hide(page, true);
  await until(() => server.viewers.size === 0, "no stream");
  server.job(63, { state: "failed", reason: "while nobody looked" });
  const before = server.requests.length;
  await hide(page, false);
  const found = await untilText(page, `${row(63)} .badge`, "failed");
  await until(() => server.viewers.size === 1, "a stream again");
  const asked = server.requests.slice(before);
  return { found, asked };
}

// Simulates a machine that slept: the stream is dead, and the clock has advanced.
async function silence(first) {
  await hide(first, true);
  await until(() => server.viewers.size === 0, "no stream");
  const page = await openPage(first.context().browser(), server.address, seen, { storageState: await first.context().storageState() });
  await page.clock.install();
  await page.goto(server.address);
  await untilText(page, "#link", "live");
  server.viewers.clear();
  server.job(63, { state: "lost", reason: "not sent" });
  await page.clock.fastForward(60000);
  const found = await untilText(page, `${row(63)} .badge`, "lost");
  await until(() => server.viewers.size === 1, "another stream");
  await page.close();
  await hide(first, false);
  return { found };
}

async function withoutLive(page) {
  server.hasLive = false;
  for (const socket of server.viewers.keys()) socket.destroy();
  const mode = await untilText(page, "#link", "no live stream");
  server.job(63, { state: "queued", reason: null, waits_for: "asked for" });
  const found = await untilText(page, row(63), "asked for");
  server.hasLive = true;
  return { mode, found };
}

async function looks(page) {
  for (const [name, path] of [["list", "/"], ["leaker", "/jobs/62"], ["hostile", "/jobs/61"], ["bare", "/jobs/59"], ["machine", "/machine"]]) {
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(server.address + path);
    await page.waitForSelector({ list: row(62), machine: ".meter", bare: ".state-line .badge" }[name] ?? ".log > div:not(:empty)");
    seen.wide[name] = await isTooWide(page);
    await picture(page, `${name}-narrow`, { fullPage: true });
    await page.setViewportSize({ width: 1280, height: 900 });
    await picture(page, name);
  }
  await page.click("nav a[href='/']");
  await press(page, "New job");
  await page.setViewportSize({ width: 390, height: 844 });
  seen.wide.submit = await isTooWide(page);
  await picture(page, "submit-narrow");
  await page.keyboard.press("Escape");
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await picture(page, "list-dark");
  await page.goto(`${server.address}/machine`);
  await page.waitForSelector(".meter");
  const machine = await texts(page, ".meter .label");
  await page.goto(`${server.address}/jobs/4711`);
  const missing = await untilText(page, ".error", /no such job/);
  return { dark, machine, missing, injected: await page.evaluate(() => window.injected === true) };
}

async function logout(page) {
  await page.click("#logout");
  await page.waitForSelector("#token");
  return { sessions: server.sessions.size, streams: server.viewers.size, stored: await page.evaluate(() => localStorage.length + sessionStorage.length) };
}

await server.start();
prepare();
const browser = await openBrowser(program);
try {
  const page = await openPage(browser, server.address, seen);
  for (const [name, play] of Object.entries({ login, useList, submit, begin, useJob, useLog, act })) seen[name] = await play(page);
  seen.quiet = [...seen.messages];
  for (const [name, play] of Object.entries({ looks, restart, sleep, withoutLive, silence, logout })) seen[name] = await play(page);
} finally {
  await browser.close();
  await server.stop();
}
console.log(JSON.stringify(seen));
