// Splits a command line into words as a shell does, and joins words to a command line.

export interface Split {
  words: string[];
  error: string | null;
}

const special = /[|&;<>()`$*?]/;

// Quotes and backslashes work as in sh. No shell runs the command, so characters that only a shell interprets are refused
// unless quoted.
export function split(line: string): Split {
  const words: string[] = [];
  let word: string | null = null;
  let refused: string | null = null;
  for (let i = 0; i < line.length; i++) {
    const c = line[i];
    if (/[ \t\r\n]/.test(c)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (c === "'") {
      const end = line.indexOf("'", i + 1);
      if (end < 0) return { words, error: "unterminated '" };
      word = (word ?? "") + line.slice(i + 1, end);
      i = end;
    } else if (c === '"') {
      const [text, end, isExpanded] = quoted(line, i + 1);
      if (end < 0) return { words, error: 'unterminated "' };
      if (isExpanded) refused ??= isExpanded;
      word = (word ?? "") + text;
      i = end;
    } else if (c === "\\") {
      if (i + 1 >= line.length) return { words, error: "trailing \\" };
      i++;
      if (line[i] !== "\n") word = (word ?? "") + line[i]; // a backslash before a line break continues the line
    } else {
      if (special.test(c) || (c === "#" && word === null)) refused ??= c;
      word = (word ?? "") + c;
    }
  }
  if (word !== null) words.push(word);
  const error = refused && `${refused} requires a shell, but the command runs without one; quote it, or use sh -c '…'`;
  return { words, error };
}

// Reads the quoted text that begins at AT. Returns the text, the position of the closing double quote (-1 if there is none),
// and the first character that a shell would expand (null if there is none).
function quoted(line: string, at: number): [string, number, string | null] {
  let text = "";
  let expanded: string | null = null;
  for (let i = at; i < line.length; i++) {
    const c = line[i];
    if (c === '"') return [text, i, expanded];
    if (c === "\\" && i + 1 < line.length && '"\\$`\n'.includes(line[i + 1])) {
      i++;
      if (line[i] !== "\n") text += line[i];
      continue;
    }
    if (c === "$" || c === "`") expanded ??= c;
    text += c;
  }
  return [text, -1, expanded];
}

export function join(words: string[]): string {
  return words.map((w) => (w !== "" && /^[A-Za-z0-9_@%+=:,./-]+$/.test(w) ? w : `'${w.replace(/'/g, `'\\''`)}'`)).join(" ");
}
