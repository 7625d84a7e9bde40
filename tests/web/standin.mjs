// A fake server with the API of docs/reference/api.md. Tests set its jobs. It serves the built page from FOLDER.

import { createServer } from "node:http";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const token = "the-token";
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const types = { html: "text/html; charset=utf-8", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };
const ended = ["succeeded", "failed", "cancelled", "lost"];

function frameOf(text) {
  const body = Buffer.from(text);
  const head = body.length < 126 ? Buffer.from([0x81, body.length])
    : body.length < 65536 ? Buffer.from([0x81, 126, body.length >> 8, body.length & 255])
    : Buffer.concat([Buffer.from([0x81, 127, 0, 0, 0, 0]), (() => { const b = Buffer.alloc(4); b.writeUInt32BE(body.length); return b; })()]);
  return Buffer.concat([head, body]);
}

// Yields the texts of the WebSocket frames in DATA. Clients mask their frames. The page's frames are short
// and unfragmented.
function* textsIn(data) {
  for (let at = 0; at + 2 <= data.length;) {
    const kind = data[at] & 15;
    let length = data[at + 1] & 127;
    let start = at + 2;
    if (length === 126) {
      length = data.readUInt16BE(start);
      start += 2;
    }
    const mask = data.subarray(start, start + 4);
    const body = Buffer.from(data.subarray(start + 4, start + 4 + length).map((b, i) => b ^ mask[i % 4]));
    if (kind === 1) yield body.toString();
    at = start + 4 + length;
  }
}

export class Standin {
  jobs = new Map();
  logs = new Map();
  samples = new Map();
  diagnosis = { hypotheses: [], advice: [] };
  machine = {};
  trouble = [];
  requests = []; // one "METHOD path" per request
  bodies = [];
  viewers = new Map(); // maps a socket to its subscription
  hasLive = true;
  held = null; // requests that wait for release(), or null
  sessions = new Set();
  boot = 1;
  port = 0;

  constructor(folder) {
    this.folder = folder;
  }

  async start() {
    this.server = createServer((request, answer) => this.handle(request, answer));
    this.server.on("upgrade", (request, socket) => this.upgrade(request, socket));
    await new Promise((done) => this.server.listen(this.port, "127.0.0.1", done));
    this.port = this.server.address().port;
    this.beat = setInterval(() => this.publish({ type: "machine", ...this.machine }, () => true), 2000);
  }

  async stop() {
    clearInterval(this.beat);
    for (const socket of this.viewers.keys()) socket.destroy();
    this.viewers.clear();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
    this.boot++;
  }

  get address() {
    return `http://127.0.0.1:${this.port}`;
  }

  job(id, more = {}) {
    const job = { id, name: `job-${id}`, command: ["python", "train.py"], cwd: "/tmp", env: [], options: {}, priority: 0, after: [], limit: null,
      state: "queued", reason: null, submitted_s: 1.7e9 + id, changes: [], ...this.jobs.get(id), ...more };
    if (job.changes.at(-1)?.state !== job.state) job.changes = [...job.changes, { t_s: Date.now() / 1000, state: job.state, reason: job.reason }];
    this.jobs.set(id, job);
    const { changes, ...rest } = job;
    this.publish({ type: "job", job: rest }, (w) => w.jobs || w.job === id);
    return job;
  }

  remove(id) {
    this.jobs.delete(id);
    this.publish({ type: "removed", id }, () => true);
  }

  sample(id, t_s, job_bytes, more = {}) {
    this.publish({ type: "sample", id, t_s, job_bytes, ...more }, (w) => w.job === id);
  }

  log(id, text) {
    const old = this.logs.get(id) ?? Buffer.alloc(0);
    this.logs.set(id, Buffer.concat([old, Buffer.from(text)]));
    this.publish({ type: "log", id, offset: old.length, text: Buffer.from(text).toString() }, (w) => w.job === id && w.log);
  }

  publish(message, isFor) {
    for (const [socket, wants] of this.viewers) if (isFor(wants)) socket.write(frameOf(JSON.stringify(message)));
  }

  upgrade(request, socket) {
    this.requests.push("GET live");
    socket.on("error", () => socket.destroy());
    if (!this.hasLive || !this.isIn(request)) return socket.end("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: ebb\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    this.viewers.set(socket, {});
    socket.on("data", (data) => {
      if ((data[0] & 15) === 8) socket.end();
      else for (const text of textsIn(data)) this.viewers.set(socket, JSON.parse(text));
    });
    socket.on("close", () => this.viewers.delete(socket));
    socket.write(frameOf(JSON.stringify({ type: "hello", version: "0", now_s: Date.now() / 1000, boot: this.boot })));
  }

  isIn(request) {
    const name = /ebb=(\w+)/.exec(request.headers.cookie ?? "")?.[1];
    const key = request.headers["x-ebb-key"] ?? /ebb-key\.(\w+)/.exec(request.headers["sec-websocket-protocol"] ?? "")?.[1];
    return this.sessions.has(name) && key === `key_of_${name}`;
  }

  handle(request, answer) {
    const url = new URL(request.url, "http://x");
    const pieces = [];
    this.requests.push(`${request.method} ${request.url}`);
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const body = Buffer.concat(pieces).toString();
      if (!url.pathname.startsWith("/api/")) return this.file(url.pathname, answer);
      if (body) this.bodies.push(JSON.parse(body));
      this.api(request, url, body ? JSON.parse(body) : {}, answer);
    });
  }

  file(path, answer) {
    const name = path.startsWith("/assets/") ? path.slice(8) : "serve.html";
    answer.writeHead(200, { "Content-Type": types[name.split(".").pop()], "Content-Encoding": "gzip", "Content-Security-Policy": policy });
    answer.end(readFileSync(join(this.folder, `${name}.gz`)));
  }

  json(answer, status, doc, headers = {}) {
    answer.writeHead(status, { "Content-Type": "application/json", ...headers });
    answer.end(JSON.stringify(doc));
  }

  error(answer, status, message) {
    this.json(answer, status, { error: { status, message } });
  }

  // Delays all answers until release(), so that the page has only live data.
  hold() {
    this.held = [];
  }

  release() {
    const list = this.held;
    this.held = null;
    list.forEach((call) => this.api(...call));
  }

  api(request, url, body, answer) {
    if (this.held) return this.held.push([request, url, body, answer]);
    const path = url.pathname.slice("/api/v1".length);
    if (path === "/health") return this.json(answer, 200, { status: "ok", version: "0", trouble: this.trouble });
    if (path === "/session") return this.session(request, body, answer);
    if (!this.isIn(request)) return this.error(answer, 401, "a token is needed");
    if (path === "/machine") return this.json(answer, 200, this.machine);
    if (path === "/jobs") return request.method === "POST" ? this.submit(body, answer) : this.list(url.searchParams, answer);
    const [, id, what] = /^\/jobs\/(\d+)(?:\/(\w+))?$/.exec(path) ?? [];
    const job = this.jobs.get(Number(id));
    if (!job) return this.error(answer, 404, `no such job: ${id}`);
    return this.ofJob(job, what, url.searchParams, answer);
  }

  session(request, body, answer) {
    if (request.method === "POST") {
      if (body.token !== token) return this.error(answer, 401, "wrong token");
      const name = `s${this.sessions.size}`;
      this.sessions.add(name);
      return this.json(answer, 200, { write: true, key: `key_of_${name}`, view: `view_of_${name}` }, { "Set-Cookie": `ebb=${name}; HttpOnly; SameSite=Strict; Path=/` });
    }
    if (request.method === "DELETE") this.sessions.clear();
    return this.isIn(request) ? this.json(answer, 200, { write: true }) : this.error(answer, 401, "a token is needed");
  }

  list(query, answer) {
    const states = query.get("state")?.split(",") ?? [];
    const before = Number(query.get("before") ?? Infinity);
    const isWanted = (job) => job.id < before && (!query.get("name") || job.name === query.get("name")) &&
      (!states.length || states.includes(job.state) || states.includes(ended.includes(job.state) ? "ended" : "active"));
    const list = [...this.jobs.values()].filter(isWanted).sort((a, b) => b.id - a.id);
    const limit = Number(query.get("limit") ?? 100);
    this.json(answer, 200, { jobs: list.slice(0, limit), more: list.length > limit });
  }

  submit(body, answer) {
    if (body.limit === "lots") return this.error(answer, 400, 'limit: "lots" is not a size');
    const id = Math.max(0, ...this.jobs.keys()) + 1;
    this.json(answer, 201, this.job(id, { ...body }));
  }

  ofJob(job, what, query, answer) {
    if (!what) return this.json(answer, 200, job);
    if (what === "cancel") {
      this.json(answer, 202, {});
      return this.job(job.id, { state: "stopping", reason: "asked to" });
    }
    if (what === "checkpoint") {
      this.json(answer, 202, {});
      return this.job(job.id, { state: "checkpointing" });
    }
    if (what === "rerun") return this.submit({ command: job.command, name: job.name, rerun_of: job.id }, answer);
    if (what === "request") return this.json(answer, 200, { command: job.command, env: Object.fromEntries((job.env ?? []).map((k) => [k, "v"])) });
    if (what === "samples") return this.sendSamples(this.samples.get(job.id) ?? { id: job.id, series: {} }, query, answer);
    if (what === "events") return this.json(answer, 200, { events: [] });
    if (what === "diagnosis") return this.json(answer, 200, this.diagnosis);
    return this.sendLog(job.id, query, answer);
  }

  // Sends the samples. For a zoomed range, sends only the part of the job's series that is in the range.
  sendSamples(all, query, answer) {
    if (!query.has("from_s")) return this.json(answer, 200, all);
    const isWanted = all.series.t_s.map((t) => t >= Number(query.get("from_s")) && t <= Number(query.get("to_s")));
    const series = Object.fromEntries(Object.entries(all.series).map(([key, list]) => [key, list.filter((_, i) => isWanted[i])]));
    this.json(answer, 200, { ...all, series });
  }

  sendLog(id, query, answer) {
    const log = this.logs.get(id) ?? Buffer.alloc(0);
    const from = query.has("tail") ? Math.max(0, log.length - Number(query.get("tail"))) : Number(query.get("offset") ?? 0);
    answer.writeHead(200, { "Content-Type": "text/plain; charset=utf-8", "X-Log-Offset": String(from), "X-Log-End": String(log.length) });
    answer.end(log.subarray(from));
  }
}
