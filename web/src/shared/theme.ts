// The colours of the style sheet, for drawing on a canvas.

export interface Theme {
  text: string;
  back: string;
  grid: string;
  lines: string[];
  events: Record<string, string>; // colours by the kind of an event
  phase: string;
  limit: string;
}

const kinds = ["epoch", "evaluation", "checkpoint", "segment", "guard"];
const lineCount = 8;
const isDark = matchMedia("screen and (prefers-color-scheme: dark)");
const isPrint = matchMedia("print");

export function theme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: colour("axis"),
    back: colour("card"),
    grid: colour("rule"),
    lines: Array.from({ length: lineCount }, (_, i) => colour(`line${i}`)),
    events: Object.fromEntries(kinds.map((kind) => [kind, colour(kind)])),
    phase: colour("phase-back"),
    limit: colour("limit"),
  };
}

// Returns true while the page is being printed. Paper is white and has its own width, and all details are unfolded.
export function isOnPaper(): boolean {
  return isPrint.matches || document.documentElement.classList.contains("paper");
}

// Calls REDRAW when the colours change, and before and after printing. Returns a function that removes the listeners.
export function onThemeChange(redraw: () => void): () => void {
  const until = new AbortController();
  const more = { signal: until.signal };
  const print = (is: boolean) => () => {
    document.documentElement.classList.toggle("paper", is);
    redraw();
  };
  isDark.addEventListener("change", redraw, more);
  isPrint.addEventListener("change", redraw, more);
  addEventListener("beforeprint", print(true), more);
  addEventListener("afterprint", print(false), more);
  return () => until.abort();
}
