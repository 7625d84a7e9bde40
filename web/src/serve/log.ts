// Shows the end of a job's log. It is read once, then followed live. The number of lines is bounded. Parts that the
// live stream skipped are read from the server.

import { ApiError, ask, bodyOf } from "./api";
import { LogText } from "./ansi";
import { h, setText, soon } from "./dom";

const mostLines = 2000;
const firstRead = 64 << 10; // bytes
const mostRead = 512 << 10;
const nearEnd = 24; // px

export class LogView {
  private readonly lines = h("div", { class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log", onscroll: () => this.scrolled() });
  private readonly open = h("div", { class: "open-line" });
  private readonly follow = h("button", { type: "button", "aria-pressed": "true", onclick: () => this.setFollow(!this.isFollowing) }, "Follow");
  private readonly wrap = h("button", { type: "button", "aria-pressed": "true", onclick: () => this.setWrap() }, "Wrap");
  private readonly note = h("span", { class: "quiet" });
  readonly root: HTMLElement;
  private readonly text = new LogText();
  private decoder = new TextDecoder();
  private pending: string[] = [];
  private end: number | null = null; // offset up to which the log was read
  private isFollowing = true;
  private isReading = false;
  private isStale = false;
  private isClosed = false;

  constructor(private readonly id: number) {
    this.root = h("section", { "aria-label": "Log" }, h("h2", {}, "Log"),
      h("div", { class: "tools" }, this.follow, this.wrap, h("a", { href: `/api/v1/jobs/${id}/log`, target: "_blank", rel: "noopener" }, "Whole log"), this.note),
      this.lines);
    this.lines.append(this.open);
  }

  close(): void {
    this.isClosed = true;
  }

  // Adds a live piece of the log. If invalid UTF-8 in it was replaced, its original length in bytes is unknown, so it
  // is read again from the server.
  take(offset: number, text: string): void {
    if (this.isReading) {
      this.isStale = true;
      return;
    }
    if (this.end === null) this.readSoon();
    else if (offset === this.end && !text.includes("\ufffd")) {
      this.end += new TextEncoder().encode(text).length;
      setText(this.note, "");
      this.add(text);
    } else if (offset + text.length > this.end || text.includes("\ufffd")) {
      this.readSoon();
    }
  }

  private readSoon(): void {
    this.refresh().catch((problem: unknown) => {
      if (!(problem instanceof ApiError)) throw problem;
    });
  }

  // Reads new output. On the first call, and after a long gap, reads only the end of the log.
  async refresh(): Promise<void> {
    if (this.isReading) {
      this.isStale = true;
      return;
    }
    this.isReading = true;
    try {
      do {
        this.isStale = false;
        await this.read();
      } while (this.isStale && !this.isClosed);
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.status === 0) throw problem;
      setText(this.note, problem.status === 404 && this.end === null ? "No log yet." : problem.message);
    } finally {
      this.isReading = false;
    }
  }

  private async read(): Promise<void> {
    const from = this.end;
    const answer = await ask(`/jobs/${this.id}/log?${from === null ? `tail=${firstRead}` : `offset=${from}`}`);
    const start = Number(answer.headers.get("X-Log-Offset") ?? from ?? 0);
    const whole = Number(answer.headers.get("X-Log-End") ?? NaN);
    if (from !== null && (whole < from || whole - start > mostRead)) {
      void answer.body?.cancel().catch(() => {}); // the rest of the answer is too long to show
      this.restart(whole < from ? "the log was truncated and begins again here" : null);
      this.isStale = true;
      return;
    }
    const bytes = new Uint8Array(await bodyOf(answer));
    if (this.isClosed) return;
    if (start > (from ?? 0)) this.push([`… ${(start - (from ?? 0)).toLocaleString("en")} earlier bytes are not shown`]);
    this.end = start + bytes.length;
    setText(this.note, whole === 0 ? "The log is empty." : "");
    this.add(this.decoder.decode(bytes, { stream: true }));
    if (bytes.length && this.end < whole) this.isStale = true;
  }

  private restart(why: string | null): void {
    this.end = null;
    this.text.clear();
    this.decoder = new TextDecoder();
    if (why) this.push([`… ${why}`]);
  }

  private add(text: string): void {
    this.push(this.text.add(text));
  }

  private push(lines: string[]): void {
    for (const line of lines) this.pending.push(line);
    if (this.pending.length > mostLines) this.pending.splice(0, this.pending.length - mostLines);
    soon(this.draw);
  }

  private readonly draw = (): void => {
    if (!this.isFollowing) {
      setText(this.follow, this.pending.length ? `Follow (${this.pending.length} new)` : "Follow");
      return;
    }
    for (const line of this.pending) this.open.before(h("div", {}, line));
    this.pending = [];
    while (this.lines.childElementCount > mostLines + 1) this.lines.firstElementChild?.remove();
    setText(this.open, this.text.open);
    setText(this.follow, "Follow");
    this.lines.scrollTop = this.lines.scrollHeight;
  };

  // Stops following the log when the user scrolls up, and follows it again at the end.
  private scrolled(): void {
    const isAtEnd = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < nearEnd;
    if (isAtEnd !== this.isFollowing) this.setFollow(isAtEnd);
  }

  private setFollow(is: boolean): void {
    this.isFollowing = is;
    this.follow.setAttribute("aria-pressed", String(is));
    soon(this.draw);
  }

  private setWrap(): void {
    const is = this.lines.classList.toggle("no-wrap");
    this.wrap.setAttribute("aria-pressed", String(!is));
    if (this.isFollowing) soon(this.draw);
  }
}
