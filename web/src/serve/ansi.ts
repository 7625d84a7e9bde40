// Converts a log to lines of plain text: removes escape codes, shows overwritten lines in their last state, and limits
// line lengths.

// Matches CSI, OSC and similar sequences up to BEL or ST, two-character escapes, then other control characters.
const escapes = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ\\`a-~])/g;
const unfinished = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const longestLine = 4096;

// Converts RAW, one line of a log without its line feed. A progress bar overwrites itself after \r, so only its last
// text is shown.
export function plain(raw: string): string {
  const parts = raw.replace(escapes, "").replace(unfinished, "").split("\r").filter((p) => p.trim() !== "");
  const text = (parts.pop() ?? "").replace(controls, "");
  return text.length > longestLine ? `${text.slice(0, longestLine)} …` : text;
}

export class LogText {
  private raw = ""; // the last line, if it is incomplete

  // Adds TEXT, and returns the lines that are now complete.
  add(text: string): string[] {
    const pieces = (this.raw + text).split("\n");
    this.raw = bounded(pieces.pop() ?? "");
    return pieces.map(plain);
  }

  get open(): string {
    return plain(this.raw);
  }

  clear(): void {
    this.raw = "";
  }
}

// Shortens a very long line to the part after its last \r. If that part is also too long, keeps only its beginning.
function bounded(raw: string): string {
  if (raw.length <= 4 * longestLine) return raw;
  const kept = raw.slice(raw.lastIndexOf("\r", raw.length - 2) + 1);
  return kept.length <= 4 * longestLine ? kept : kept.slice(0, 2 * longestLine);
}
