// Unit tests of the server's page, without a browser: bundled by esbuild, run by node --test.

import test from "node:test";
import assert from "node:assert/strict";
import { LogText, plain } from "../../web/src/serve/ansi";
import { oneLine } from "../../web/src/serve/dom";
import { ahead, forecastOf } from "../../web/src/serve/forecast";
import { happenings, JobData } from "../../web/src/serve/job_data";
import { Series } from "../../web/src/serve/series";
import * as shell from "../../web/src/serve/shell";
import { fieldOf } from "../../web/src/serve/submit";
import * as words from "../../web/src/serve/words";

test("a command line is split as in a shell", () => {
  const cases = {
    "python train.py": ["python", "train.py"],
    "  a\t b\n c ": ["a", "b", "c"],
    "a 'b c' \"d e\" f\\ g": ["a", "b c", "d e", "f g"],
    "a'b'\"c\"d": ["abcd"],
    "'' \"\"": ["", ""],
    "a \\\n b": ["a", "b"],
    "'it'\\''s'": ["it's"],
    "\"a\\\"b\\\\c\\d\"": ["a\"b\\c\\d"],
    "--x='$HOME' '*'": ["--x=$HOME", "*"],
    "a#b x=~ [1] {2}": ["a#b", "x=~", "[1]", "{2}"],
    "": [],
  };
  for (const [line, expected] of Object.entries(cases)) assert.deepEqual(shell.split(line), { words: expected, error: null }, line);
});

test("shell syntax and unterminated quotes are refused", () => {
  for (const line of ["a | b", "a > b", "echo $HOME", "echo \"$HOME\"", "a && b", "ls *.py", "`date`", "# a"]) {
    assert.match(shell.split(line).error, /requires a shell/, line);
  }
  for (const line of ["'a", "\"a", "a\\"]) assert.notEqual(shell.split(line).error, null, line);
});

test("joining words and splitting the command line restores the words", () => {
  const list = ["a", "", "it's", "b c", "$x", "\"", "\\", "new\nline", "ü", "-", "*"];
  assert.deepEqual(shell.split(shell.join(list)), { words: list, error: null });
});

test("escape codes are removed and only the last state of a progress bar is kept", () => {
  assert.equal(plain("\x1b[1;32mok\x1b[0m \x1b]0;title\x07x\x1b(By\x1bcz"), "ok xyz");
  assert.equal(plain("10%\r20%\r30%"), "30%");
  assert.equal(plain("30%\r"), "30%");
  assert.equal(plain("a\u0000b\u202ec\u0007"), "abc");
  assert.equal(plain("<script>x</script>"), "<script>x</script>");
});

test("an escape code that arrives in two pieces is removed", () => {
  const text = new LogText();
  assert.deepEqual(text.add("a\x1b[3"), []);
  assert.equal(text.open, "a");
  assert.deepEqual(text.add("1mb\nc"), ["ab"]);
  assert.equal(text.open, "c");
});

test("an overlong log line is cut off and the next line is complete", () => {
  const text = new LogText();
  for (let i = 0; i < 2000; i++) text.add("x".repeat(1000));
  assert.ok(text.open.length < 5000);
  for (let i = 0; i < 2000; i++) text.add(`\r${"y".repeat(100)} ${i}`);
  assert.deepEqual(text.add("\nnext\n").slice(1), ["next"]);
});

test("control and bidi characters are shown as escape sequences", () => {
  assert.equal(oneLine("a\nb\x1b[31m\u202ec"), "a\\nb\\u001b[31m\\u202ec");
});

test("a week of samples is merged into few points that include the extremes", () => {
  const week = 7 * 86400;
  const s = new Series(["low", "high", "last"]);
  for (let t = 0; t < week; t++) s.add(t, [t === 12345 ? -7 : 100, t === 543210 ? 999 : 100, t]);
  assert.ok(s.length <= 4000 && s.length > 900);
  assert.equal(s.last_s, week - 1);
  assert.equal(Math.min(...s.columns[0]), -7);
  assert.equal(Math.max(...s.columns[1]), 999);
  assert.equal(s.columns[2].at(-1), week - 1);
  assert.ok(s.t.every((t, i) => i === 0 || t > s.t[i - 1]));
  const longest = Math.max(...s.t.slice(1).map((t, i) => t - s.t[i]));
  assert.ok(longest < week / 400);
});

test("samples that are not newer than the last sample are ignored", () => {
  const s = new Series(["high"]);
  s.add(1, [5]);
  s.add(1, [6]);
  s.add(0.5, [7]);
  s.add(NaN, [8]);
  s.add(2, [undefined]);
  assert.deepEqual([s.t, s.columns[0]], [[1, 2], [5, null]]);
});

test("live samples that arrive during a history load are kept", () => {
  const data = new JobData();
  data.add({ id: 1, t_s: 8, job_bytes: 80 });
  data.add({ id: 1, t_s: 12, job_bytes: 120 });
  data.addMark({ t_s: 11, kind: "epoch" });
  data.read({ until_s: 10, series: { t_s: [0, 10], job_low_bytes: [1, 2], job_high_bytes: [1, 2], unique_bytes: [1, 2] }, marks: [{ t_s: 5, kind: "epoch" }, { t_s: 6, kind: "step" }] });
  assert.deepEqual(data.job.t, [0, 10, 12]);
  assert.deepEqual(data.marks.map((m) => m.t_s), [5, 11]);
  assert.equal(data.until_s, 12);
});

test("the page keeps a bounded number of processes and marks", () => {
  const data = new JobData();
  for (let t = 0; t < 20000; t++) {
    data.add({ id: 1, t_s: t, job_bytes: 1, processes: [{ pid: 1, name: "main", rss_bytes: 1000 }, { pid: 2 + Math.floor(t / 20), name: "short", rss_bytes: 10 }] });
    data.addMark({ t_s: t, kind: "eval" });
    data.addEvent({ t_s: t, act: "note" });
  }
  assert.ok(data.processes.size <= 24 && data.processes.has(1));
  assert.ok(data.marks.length <= 2000 && data.events.length <= 300);
  assert.equal(data.marks.at(-1).t_s, 19999);
});

test("restarts and guard actions are listed as events with times", () => {
  const list = happenings([
    { kind: "guard", t_s: 50, act: "warn", why: "x" },
    { kind: "segment", segment: 0, started: "2026-11-15T18:29:54+0100" },
    { kind: "segment", segment: 1, started: "2026-11-15T18:30:24+0100" },
    { kind: "segment", segment: 2, started: "not a time" },
    { kind: "state", state: "running", t_s: 1.7e9 },
  ]);
  assert.deepEqual(list.map((e) => [e.t_s, e.act]), [[30, "restarted"], [50, "warn"]]);
});

test("the forecast spans the lowest to the highest growth rate", () => {
  const job = { state: "running", verdict: { verdict: "leaking", leak: true, oom_eta_s: { low: 100, high: 200 } } };
  const f = forecastOf(job, 50, 400, 1000);
  assert.deepEqual(f, { x: 50, y: 400, high: 6, low: 3 });
  assert.ok(ahead(f, 1000, 10000) >= 200 && ahead(f, 1000, 10000) < 220);
  assert.equal(ahead(f, 1000, 100), 50);
  assert.equal(forecastOf({ ...job, state: "failed" }, 50, 400, 1000), undefined);
  assert.equal(forecastOf({ ...job, verdict: { ...job.verdict, leak: false } }, 50, 400, 1000), undefined);
  const byRate = { state: "running", verdict: { verdict: "filling", leak: null, rate_bytes_per_min: { value: 60, low: 30, high: 120 } } };
  assert.deepEqual(forecastOf(byRate, 0, 5, null), { x: 0, y: 5, high: 2, low: 0.5 });
});

test("a server error is shown at the form field that caused the error", () => {
  const cases = {
    'limit: "lots" is not a size': "limit",
    "command: it is empty": "command",
    'env: "1A" cannot be a variable\'s name': "env",
    'options.resume-args: 5 is not a string': "resume-args",
    'options.grace: "x" is not a time': "options",
    'unknown option "--graze"': "options",
    "the disk is full": null,
    'there is no key "x" in a request; it may have command, name': null,
  };
  for (const [message, key] of Object.entries(cases)) assert.equal(fieldOf(message), key, message);
});

test("durations and intervals are written with units", () => {
  assert.deepEqual([0.04, 9.96, 59, 119, 130, 7300, 200000].map(words.duration), ["0 s", "10 s", "59 s", "119 s", "2 min", "2 h 2 min", "2 d 7 h"]);
  assert.equal(words.outOfMemory({ verdict: "leaking", leak: true, oom_eta_s: { low: 1200, high: 1500 } }), "in about 23 min");
  assert.equal(words.outOfMemory({ verdict: "leaking", leak: true, oom_eta_s: { low: 1200 } }), "in 20 min at the earliest");
  assert.equal(words.outOfMemory({ verdict: "stable", leak: false, oom_eta_s: null }), null);
  assert.equal(words.outOfMemory({ verdict: "undecided", leak: null, oom_eta_s: { low: 60, high: 90 } }), null);
  assert.equal(words.progressText({ step: 0, max_steps: 5000, eta_s: 60 }, false), "step 0 of 5,000, 60 s left");
  assert.equal(words.progressText({ step: 5000, max_steps: 5000, eta_s: 0 }, true), "step 5,000 of 5,000");
});
