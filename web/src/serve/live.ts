// The live stream of the page. It is closed while the page is hidden, and reopened automatically. While there is no
// stream, the page polls the server.

import { ApiError, Happening, Job, Mark, Sample } from "./api";
import { setServerTime } from "./clock";
import { secrets } from "./session";

export interface Wants {
  jobs: boolean;
  job: number | null;
  log: boolean;
}
export type Message =
  | { type: "job"; job: Job }
  | { type: "removed"; id: number }
  | ({ type: "sample" } & Sample)
  | ({ type: "mark"; id: number } & Mark)
  | { type: "verdict"; id: number }
  | ({ type: "event"; id: number } & Happening)
  | { type: "log"; id: number; offset: number; text: string }
  | { type: "skipped"; id: number; what: string }
  | { type: "machine" };
export type Mode = "live" | "asking" | "away" | "waiting";

// A view that receives messages. REFRESH reads its data from the server: all of it (WHOLE) after a gap in the messages,
// else only what is new.
export interface Viewer {
  wants: Wants;
  take(message: Message): void;
  refresh(isWhole: boolean): Promise<void>;
}

const firstWait_ms = 500;
const longestWait_ms = 30000;
const askEvery_ms = 4000;
const patience_ms = 1500; // the page polls if the stream is not open after this time

// After this time without a message, the stream is considered dead. The server sends the machine's state every 2 s.
const silence_ms = 15000;
const checkEvery_ms = 3000;

export class Live {
  private socket: WebSocket | null = null;
  private viewer: Viewer | null = null;
  private wait_ms = firstWait_ms;
  private retry = 0;
  private asking = 0;
  private heard_ms = 0;
  private checked_ms = Date.now();
  private isRefreshing = false;
  private isStopped = true;
  private isAway = false;
  private boot: string | number | null = null;

  // ONMODE is called when the page changes between the live stream, polling and no connection; ONBOOT when the server
  // was restarted.
  constructor(private readonly onMode: (mode: Mode) => void, private readonly onBoot: () => void) {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.wake()));
    addEventListener("pagehide", () => this.rest());
    addEventListener("pageshow", (e) => e.persisted && this.wake());
    addEventListener("online", () => this.wake());
    setInterval(() => this.checkStream(), checkEvery_ms);
  }

  start(): void {
    this.isStopped = false;
    this.wake();
  }

  // Closes the stream until start is called.
  stop(): void {
    this.isStopped = true;
    this.rest();
  }

  // Sets the view that is shown, and refreshes it.
  show(viewer: Viewer): void {
    this.viewer = viewer;
    this.subscribe();
    void this.refresh(true);
  }

  // Sends the subscription of the view.
  subscribe(): void {
    if (this.socket?.readyState !== WebSocket.OPEN || !this.viewer) return;
    this.socket.send(JSON.stringify({ ...this.viewer.wants, machine: true }));
  }

  private get isResting(): boolean {
    return this.isStopped || document.hidden;
  }

  private rest(): void {
    clearTimeout(this.retry);
    clearTimeout(this.asking);
    this.drop();
    if (!this.isStopped) this.onMode("waiting");
  }

  private wake(): void {
    if (this.isResting) return;
    this.wait_ms = firstWait_ms;
    this.drop();
    this.connect();
    this.askSoon(patience_ms);
  }

  private drop(): void {
    const old = this.socket;
    this.socket = null;
    if (!old) return;
    old.onopen = old.onmessage = old.onclose = null;
    old.close();
  }

  private connect(): void {
    clearTimeout(this.retry);
    if (this.isResting || this.socket) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const { key } = secrets(); // the key is sent as a protocol: a browser cannot add headers to a WebSocket request
    const socket = new WebSocket(`${scheme}//${location.host}/api/v1/live`, ["ebb", ...(key ? [`ebb-key.${key}`] : [])]);
    this.socket = socket;
    this.heard_ms = Date.now();
    socket.onopen = () => this.subscribe();
    socket.onmessage = (e) => this.receive(String(e.data));
    socket.onclose = () => this.lost();
  }

  private lost(): void {
    this.drop();
    if (this.isResting) return;
    const wait = this.wait_ms * (0.75 + Math.random() / 2);
    this.wait_ms = Math.min(this.wait_ms * 2, longestWait_ms);
    clearTimeout(this.retry);
    this.retry = window.setTimeout(() => this.connect(), wait);
    this.askSoon(0);
  }

  private receive(text: string): void {
    this.heard_ms = Date.now();
    let message: Message | { type: "hello"; boot?: string | number; now_s?: number };
    try {
      message = JSON.parse(text) as typeof message;
    } catch {
      return;
    }
    if (message.type !== "hello") return this.viewer?.take(message);
    setServerTime(message.now_s);
    this.welcome(message.boot ?? null);
  }

  // Handles the first message. Live messages follow from here on; earlier data is read from the server once.
  private welcome(boot: string | number | null): void {
    const isOther = this.boot !== null && this.boot !== boot;
    this.boot = boot;
    this.wait_ms = firstWait_ms;
    clearTimeout(this.asking);
    this.subscribe();
    this.onMode("live");
    if (isOther) this.onBoot();
    void this.refresh(true);
  }

  // Reconnects after the machine has slept, and when no messages arrive.
  private checkStream(): void {
    const now = Date.now();
    const slept = Math.abs(now - this.checked_ms) > silence_ms; // the machine slept, or its clock was set
    this.checked_ms = now;
    if (this.isResting) return;
    if (slept || (this.socket && Math.abs(now - this.heard_ms) > silence_ms)) this.wake();
  }

  // When the server answers a poll again, reopens the stream.
  private answered(): void {
    this.onMode("asking");
    if (!this.isAway) return;
    this.isAway = false;
    this.wait_ms = firstWait_ms;
    this.connect();
  }

  private get isLive(): boolean {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  private askSoon(wait_ms: number): void {
    clearTimeout(this.asking);
    this.asking = window.setTimeout(() => void this.askNow(), wait_ms);
  }

  private async askNow(): Promise<void> {
    if (this.isResting || this.isLive) return;
    await this.refresh(false);
    if (!this.isResting && !this.isLive) this.askSoon(askEvery_ms);
  }

  private async refresh(isWhole: boolean): Promise<void> {
    const viewer = this.viewer;
    if (!viewer || this.isStopped || (this.isRefreshing && !isWhole)) return;
    this.isRefreshing = true;
    try {
      await viewer.refresh(isWhole);
      if (!this.isLive && !this.isResting) this.answered();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.isAway = error.status === 0 && !this.isLive && !this.isResting;
      if (this.isAway) this.onMode("away");
    } finally {
      this.isRefreshing = false;
    }
  }
}
