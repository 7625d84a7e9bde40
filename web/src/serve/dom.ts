// Creates elements from text alone. Nothing from the server is interpreted as markup.

type Child = Node | string | null | false | undefined;
type Props = Record<string, string | number | boolean | EventListener | undefined>;

// Creates an element. Properties that begin with "on" are listeners. The others are attributes: true sets an attribute
// without a value, false omits it.
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.filter((c): c is Node | string => c !== null && c !== false && c !== undefined));
  return element;
}

export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element: Element, name: string): void {
  if (element.className !== name) element.className = name;
}

const controls = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

// Puts text of other programs on one line, with control and direction characters made visible.
export function oneLine(text: string): string {
  return text.replace(controls, (c) => (c === "\n" ? "\\n" : c === "\t" ? " " : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`));
}

let waiting = 0;
const jobs = new Set<() => void>();

// Schedules DRAW for the next frame. It runs once, however often it was requested.
export function soon(draw: () => void): void {
  jobs.add(draw);
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    const list = [...jobs];
    jobs.clear();
    list.forEach((one) => one());
  });
}
