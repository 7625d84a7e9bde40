#!/usr/bin/env python3
"""Converts the content of a terminal into an SVG picture.

    tmux capture-pane -e -p -N | scripts/term2svg.py [--title TEXT] > picture.svg

Reads lines with SGR escapes (bold, dim, italic, underline, reverse; 8, 16, 256 and true colours). Other escapes are
ignored. Every word is placed at its own column with its width, so that the picture is correct in any monospace font.
"""
import argparse
import re
import sys
import unicodedata
from xml.sax.saxutils import escape, quoteattr

CELL_W, CELL_H, FONT = 8.4, 18, 14
PAD, BAR = 14, 30
FOREGROUND, BACKGROUND = "#d4d7dd", "#16181d"
NAMED = ["#2b2f38", "#e06c75", "#98c379", "#d6b16a", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4",
         "#5c6370", "#ef8790", "#b5dd99", "#ecca86", "#82c3f7", "#d89ae8", "#7fd0da", "#ffffff"]


def colour(n):
    """Returns the RGB value of one of the 256 colours."""
    if n < 16:
        return NAMED[n]
    if n >= 232:
        return "#" + f"{8 + 10 * (n - 232):02x}" * 3
    levels = [0, 95, 135, 175, 215, 255]
    n -= 16
    return "#%02x%02x%02x" % (levels[n // 36], levels[n // 6 % 6], levels[n % 6])


def mix(a, b, part):
    """Mixes colour A with colour B; PART is the share of B."""
    pairs = zip(bytes.fromhex(a[1:]), bytes.fromhex(b[1:]))
    return "#" + "".join(f"{round(x + (y - x) * part):02x}" for x, y in pairs)


class Style:
    def __init__(self):
        self.reset()

    def reset(self):
        self.fg = self.bg = None
        self.bold = self.dim = self.italic = self.underline = self.reverse = False

    def take(self, codes):
        """Applies the parameters of one SGR escape to STYLE."""
        codes = list(codes) or [0]
        while codes:
            c = codes.pop(0)
            if c == 0:
                self.reset()
            elif c in (1, 2, 3, 4, 7):
                setattr(self, {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse"}[c], True)
            elif c == 22:
                self.bold = self.dim = False
            elif c in (23, 24, 27):
                setattr(self, {23: "italic", 24: "underline", 27: "reverse"}[c], False)
            elif 30 <= c <= 37 or 90 <= c <= 97:
                self.fg = NAMED[c - 30 if c < 90 else c - 82]
            elif 40 <= c <= 47 or 100 <= c <= 107:
                self.bg = NAMED[c - 40 if c < 100 else c - 92]
            elif c in (38, 48) and codes:
                value = self.extended(codes)
                setattr(self, "fg" if c == 38 else "bg", value)
            elif c == 39:
                self.fg = None
            elif c == 49:
                self.bg = None

    @staticmethod
    def extended(codes):
        kind = codes.pop(0)
        if kind == 5 and codes:
            return colour(min(codes.pop(0), 255))
        if kind == 2 and len(codes) >= 3:
            return "#%02x%02x%02x" % tuple(min(codes.pop(0), 255) for _ in range(3))
        return None

    def shown(self):
        """Returns (foreground, background or None, bold, italic, underline) as shown by a terminal."""
        fg, bg = self.fg or FOREGROUND, self.bg
        if self.reverse:
            fg, bg = bg or BACKGROUND, fg
        if self.dim:
            fg = mix(fg, bg or BACKGROUND, 0.45)
        return fg, bg, self.bold, self.italic, self.underline


def width_of(character):
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cells_of(line, style):
    """Returns [(column, width, character, style as shown)] for one line. STYLE is the style at the end of the previous
    line, and is updated."""
    cells, column = [], 0
    for part in re.split(r"(\x1b\[[0-9;:?]*[A-Za-z]|\x1b[^\[])", line):
        if part.startswith("\x1b"):
            if part.startswith("\x1b[") and part.endswith("m"):
                style.take(int(n) if n else 0 for n in re.split("[;:]", part[2:-1]))
            continue
        for character in part:
            if ord(character) < 32 or character == "\x7f":
                continue
            width = width_of(character)
            if width == 0 and cells:
                last = cells[-1]
                cells[-1] = (last[0], last[1], last[2] + character, last[3])
                continue
            cells.append((column, width, character, style.shown()))
            column += width
    return cells


def runs_of(cells):
    """Groups adjacent cells with the same style."""
    runs = []
    for cell in cells:
        if runs and runs[-1][-1][3] == cell[3]:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return runs


def words_of(cells, keep_spaces):
    """Splits cells at spaces and gaps."""
    words = []
    for cell in cells:
        if cell[2] == " " and not keep_spaces:
            continue
        if words and words[-1][-1][0] + words[-1][-1][1] == cell[0]:
            words[-1].append(cell)
        else:
            words.append([cell])
    return words


# Characters that must join their neighbours, such as box drawing, are drawn as rectangles to be independent of the
# font.
LOWER = {c: i + 1 for i, c in enumerate("▁▂▃▄▅▆▇█")}


def draw_block(x, y, character, fg):
    if character in LOWER:
        h = CELL_H * LOWER[character] / 8
        return (f'<rect x="{x:.1f}" y="{y + CELL_H - h:.2f}" width="{CELL_W:.1f}" height="{h:.2f}" '
                f'fill="{fg}" shape-rendering="crispEdges"/>')
    if character == "░":
        return (f'<rect x="{x:.1f}" y="{y}" width="{CELL_W:.1f}" height="{CELL_H}" fill="{fg}" '
                'fill-opacity="0.3" shape-rendering="crispEdges"/>')
    return None


def draw_line(cells, y):
    back, front = [], []
    for run in runs_of(cells):
        fg, bg, bold, italic, underline = run[0][3]
        x = PAD + run[0][0] * CELL_W
        if bg:
            w = sum(c[1] for c in run) * CELL_W
            back.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{CELL_H}" '
                        f'fill="{bg}" shape-rendering="crispEdges"/>')
        blocks = [draw_block(PAD + c[0] * CELL_W, y, c[2], fg) for c in run]
        front += [b for b in blocks if b]
        extra = ' font-weight="700"' * bold + ' font-style="italic"' * italic
        extra += ' text-decoration="underline"' * underline
        for word in words_of([c for c, b in zip(run, blocks) if not b], underline):
            x, w = PAD + word[0][0] * CELL_W, sum(c[1] for c in word) * CELL_W
            front.append(f'<text x="{x:.1f}" y="{y + CELL_H - 5}" textLength="{w:.1f}" '
                         f'lengthAdjust="spacingAndGlyphs" fill="{fg}"{extra}>'
                         f'{escape("".join(c[2] for c in word))}</text>')
    return back + front


def picture(lines, title):
    style = Style()
    rows = [cells_of(line, style) for line in lines]
    columns = max([c[0] + c[1] for row in rows for c in row] or [1])
    top = BAR if title else 0
    width, height = columns * CELL_W + 2 * PAD, len(rows) * CELL_H + 2 * PAD + top
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
           f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label={quoteattr(title or "terminal")} '
           'font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" '
           f'font-size="{FONT}">',
           f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>']
    if title:
        out += [f'<circle cx="{PAD + 6 + 18 * i}" cy="{BAR / 2 + 2}" r="5.5" fill="{c}"/>'
                for i, c in enumerate(("#e06c75", "#d6b16a", "#98c379"))]
        out.append(f'<text x="{width / 2:.0f}" y="{BAR / 2 + 7}" fill="#8b919c" '
                   f'text-anchor="middle">{escape(title)}</text>')
    for i, row in enumerate(rows):
        out += draw_line(row, top + PAD + i * CELL_H)
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--title", default="", help="shown in a bar at the top")
    options = parser.parse_args()
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    sys.stdout.reconfigure(encoding="utf-8")
    lines = sys.stdin.read().rstrip("\n").split("\n")
    sys.stdout.write(picture(lines, options.title))


if __name__ == "__main__":
    main()
