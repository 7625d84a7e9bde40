// The flame graph: what lives, by the calls that allocated it, the outermost on top.

import { Frame } from "./report_data";
import * as format from "./shared/format";

const rowHeight = 20;
const least = 0.01; // of the width: what is narrower cannot be read, and opens when its parent does

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

function tell(box: Box, whole: number): string {
  const share = whole > 0 ? ((box.frame.b / whole) * 100).toFixed(1) : "0";
  return `${nameOf(box.frame)}${box.frame.w ? `, ${box.frame.w}` : ""}: ${format.size(box.frame.b)}, ${share} %`;
}

// The same name has the same shade, so that a function is found again elsewhere.
function shade(name: string): number {
  let h = 0;
  for (let i = 0; i < name.length; i++) h = (h * 31 + name.charCodeAt(i)) >>> 0;
  return h % 4;
}

export function addFlame(into: HTMLElement, root: Frame): void {
  if (!root.c?.length) return;
  const title = document.createElement("h3");
  title.textContent = "Flame graph of what lives";
  const help = document.createElement("p");
  help.className = "quiet";
  help.textContent = "Outermost call on top, as wide as what lives of it; Python in blue, and what is narrower than 1 % left blank. Choose a frame to look closer, the top one to go back.";
  const told = document.createElement("p");
  told.className = "told";
  told.setAttribute("aria-live", "polite");
  const graph = document.createElement("div");
  graph.className = "flame";
  into.append(title, help, graph, told);

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
      b.title = tell(box, root.b);
      const say = () => (told.textContent = tell(box, root.b));
      b.addEventListener("mouseenter", say);
      b.addEventListener("focus", say);
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
          told.textContent = tell(box, root.b);
        });
      }
    });
  };
  show(root, [root]);
}
