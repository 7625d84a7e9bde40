// Colours of what is drawn on canvas, which knows nothing of the style sheet.

export interface Theme {
  text: string;
  grid: string;
  lines: string[];
  events: Record<string, string>;
  phase: string;
  limit: string;
}

const light: Theme = {
  text: "#3c4654",
  grid: "#e4e8ee",
  lines: ["#1f4e9c", "#c2571a", "#2b8a57", "#8a4bb0", "#b3324a", "#00798c", "#7a6a1c", "#5b6777"],
  events: { epoch: "#6b7686", evaluation: "#8a4bb0", checkpoint: "#2b8a57", segment: "#b3324a", guard: "#d32f2f" },
  phase: "rgba(138, 75, 176, 0.10)",
  limit: "#d32f2f",
};

const dark: Theme = {
  text: "#b9c3d0",
  grid: "#2a323d",
  lines: ["#7fb0ff", "#ffab70", "#6fd39b", "#cf9cf0", "#ff8fa3", "#5fd0e0", "#d9c765", "#a4b0bf"],
  events: { epoch: "#8d99a8", evaluation: "#cf9cf0", checkpoint: "#6fd39b", segment: "#ff8fa3", guard: "#ff6b6b" },
  phase: "rgba(207, 156, 240, 0.14)",
  limit: "#ff6b6b",
};

const isDark = matchMedia("screen and (prefers-color-scheme: dark)");
let printing = false;

export function theme(): Theme {
  return isDark.matches && !printing ? dark : light;
}

// Calls REDRAW when the colours change, and around printing, which is on white paper.
export function onThemeChange(redraw: () => void): void {
  isDark.addEventListener("change", redraw);
  const print = (is: boolean) => () => {
    printing = is;
    redraw();
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
}
