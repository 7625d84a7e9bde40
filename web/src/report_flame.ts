// The flame graph: live memory by call stack, with the outermost call on top.

import { Frame } from "./report_data";
import * as format from "./shared/format";

const rowHeight = 20;
// frames narrower than this fraction of the width are unreadable, so they are shown only when their parent is zoomed
const least = 0.01;

interface Box {
  frame: Frame;
  path: Frame[];
  left: number;
  wide: number;
}

function layout(root: Frame): Box[][] {
  const rows: Box[][] = [];
  const put = (frame: Frame, path: Frame[], left: number, wide: number, depth: number) => {
    (rows[depth] ??= []).push({ frame, path, left, wide });
    let at = left;
    for (const child of frame.c ?? []) {
      const w = frame.b > 0 ? (wide * child.b) / frame.b : 0;
      if (w >= least) put(child, [...path, child], at, w, depth + 1);
      at += w;
    }
  };
  put(root, [root], 0, 1, 0);
  return rows;
}

function nameOf(frame: Frame): string {
  return frame.n || "all";
}

function describe(box: Box, whole: number): string {
  const share = whole > 0 ? ((box.frame.b / whole) * 100).toFixed(1) : "0";
  return `${nameOf(box.frame)}${box.frame.w ? `, ${box.frame.w}` : ""}: ${format.size(box.frame.b)}, ${share} %`;
}

// Returns the shade for a function name. A function has the same shade everywhere, so that it can be recognised.
function shade(name: string): number {
  let h = 0;
  for (let i = 0; i < name.length; i++) h = (h * 31 + name.charCodeAt(i)) >>> 0;
  return h % 4;
}

export function addFlame(into: HTMLElement, root: Frame, memory: string): void {
  if (!root.c?.length) return;
  const title = document.createElement("h3");
  title.textContent = `Flame graph of live ${memory}`;
  const help = document.createElement("p");
  help.className = "quiet";
  help.textContent = "The outermost call is on top; widths show live memory; Python frames are blue; frames below 1 % are omitted. Click a frame to zoom in, the top frame to zoom out.";
  const frameText = document.createElement("p");
  frameText.className = "frame-text";
  frameText.setAttribute("aria-live", "polite");
  const graph = document.createElement("div");
  graph.className = "flame";
  into.append(title, help, graph, frameText);

  const show = (from: Frame, path: Frame[]) => {
    const rows = layout(from);
    graph.replaceChildren();
    graph.style.height = `${(rows.length + path.length - 1) * rowHeight}px`;
    const button = (box: Box, row: number, isAbove: boolean, choose: () => void) => {
      const b = document.createElement("button");
      b.type = "button";
      b.textContent = nameOf(box.frame);
      b.className = `${!box.frame.n ? "all" : box.frame.k === "p" ? "python" : "native"} shade${shade(nameOf(box.frame))}${isAbove ? " above" : ""}`;
      b.style.left = `${box.left * 100}%`;
      b.style.width = `${box.wide * 100}%`;
      b.style.top = `${row * rowHeight}px`;
      b.title = describe(box, root.b);
      const showText = () => (frameText.textContent = describe(box, root.b));
      b.addEventListener("mouseenter", showText);
      b.addEventListener("focus", showText);
      b.addEventListener("click", choose);
      graph.append(b);
    };
    path.slice(0, -1).forEach((frame, i) => {
      const way = path.slice(0, i + 1);
      button({ frame, path: way, left: 0, wide: 1 }, i, true, () => show(frame, way));
    });
    rows.forEach((row, depth) => {
      for (const box of row) {
        const way = [...path.slice(0, -1), ...box.path];
        button(box, path.length - 1 + depth, false, () => {
          show(box.frame, way);
          frameText.textContent = describe(box, root.b);
        });
      }
    });
  };
  show(root, [root]);
}
