// Shows the result of `ebb diagnose`: first the place and the fix; then every hypothesis with its evidence, and all
// advice.

import { ApiError, get, readingPatience_s } from "./api";
import { h, oneLine, setText } from "./dom";

interface Frame {
  function?: string | null;
  file?: string | null;
  line?: number | null;
}
interface Hypothesis {
  title: string;
  code?: string | null;
  word: string;
  site?: (Frame & { in_program?: Frame | null }) | null;
  share?: number | null;
  for?: string[];
  against?: string[];
  absent?: string[];
  decide?: string | null;
}
interface Diagnosis {
  verdict?: string | null;
  grew?: boolean;
  hypotheses?: Hypothesis[];
  advice?: { what: string; effect?: string | null }[];
  absent?: string[];
}

const shownFirst = ["nearly certain", "likely", "possible"];

function side(name: string, title: string, list: string[] | undefined): HTMLElement | null {
  if (!list?.length) return null;
  return h("div", { class: name }, h("b", {}, title), h("ul", {}, ...list.map((text) => h("li", {}, oneLine(text)))));
}

function hypothesis(one: Hypothesis, isOpen: boolean): HTMLElement {
  const share = one.share != null && one.share > 0 ? `, ${Math.round(one.share * 100)} % of the growth` : "";
  return h("details", { class: "hypothesis", open: isOpen },
    h("summary", {}, h("span", { class: "word" }, `${one.word}${share}`), " ", oneLine(one.title)),
    side("for", "evidence for", one.for), side("against", "evidence against", one.against), side("absent", "not measured", one.absent),
    one.decide ? h("p", { class: "decide" }, "To decide: ", oneLine(one.decide)) : null);
}

// Returns text such as "train.py:29 in main()": the innermost line of the program itself, else the allocating line.
// Paths below CWD, the job's working folder, are shown relative to it.
function placeOf(site: Hypothesis["site"], cwd: string | null): string | null {
  const frame = site?.in_program ?? site;
  if (!frame?.file && !frame?.function) return null;
  const file = cwd && frame.file?.startsWith(`${cwd}/`) ? frame.file.slice(cwd.length + 1) : frame.file;
  const at = file ? `${file}${frame.line != null ? `:${frame.line}` : ""}` : "";
  const inside = frame.function ? `${frame.function}()` : "";
  return [at, inside].filter(Boolean).join(" in ");
}

export class DiagnosisView {
  private readonly content = h("div");
  private readonly note = h("p", { class: "quiet", role: "status" });
  private readonly again = h("button", { type: "button", onclick: () => void this.read() }, "Diagnose again");
  readonly brief = h("div", { class: "brief", "aria-label": "Place and fix" });
  readonly root: HTMLElement;
  private first: Hypothesis | null = null;
  private asked = 0;

  // CWD returns the job's working folder. ONREAD is called when a diagnosis has been read.
  constructor(private readonly id: number, private readonly cwd: () => string | null, private readonly onRead: () => void) {
    this.root = h("section", { id: "diagnosis", "aria-label": "Diagnosis" }, h("h2", {}, "Diagnosis"), this.content, this.note, h("div", { class: "tools" }, this.again));
  }

  // Returns the stable code of the first hypothesis, for `ebb explain`.
  get code(): string | null {
    return this.first?.code ?? null;
  }

  // Requests the diagnosis, for which the server reads the whole recording. Therefore it is requested only when the
  // page opens, when the verdict changes, when the job ends, and when the user asks for it.
  async read(): Promise<void> {
    const asked = ++this.asked;
    this.again.disabled = true;
    setText(this.note, "Reading the recording …");
    try {
      const answer = await get<Diagnosis>(`/jobs/${this.id}/diagnosis`, readingPatience_s);
      if (asked !== this.asked) return;
      this.show(answer);
      this.onRead();
      setText(this.note, "");
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      if (asked === this.asked) setText(this.note, oneLine(problem.message));
    } finally {
      if (asked === this.asked) this.again.disabled = false;
    }
  }

  private show(d: Diagnosis): void {
    const all = d.hypotheses ?? [];
    const first = all.filter((one) => shownFirst.includes(one.word));
    const rest = all.filter((one) => !shownFirst.includes(one.word));
    this.first = first[0] && first[0].word !== "possible" ? first[0] : null;
    this.showBrief(d);
    this.content.replaceChildren();
    if (d.verdict) this.content.append(h("p", {}, oneLine(d.verdict)));
    if (d.advice?.length) {
      this.content.append(h("h3", {}, "Advice"), h("ul", { class: "advice" }, ...d.advice.map((a) =>
        h("li", {}, oneLine(a.what), a.effect ? h("em", {}, ` – ${oneLine(a.effect)}`) : null))));
    }
    if (first.length) this.content.append(h("h3", {}, "Hypotheses, most likely first"));
    first.forEach((one, i) => this.content.append(hypothesis(one, i === 0 && one.word !== "possible")));
    if (rest.length) {
      this.content.append(h("details", { class: "group" }, h("summary", {}, `${rest.length} more hypotheses: unlikely, ruled out or not testable`), ...rest.map((one) => hypothesis(one, false))));
    }
    if (d.absent?.length) {
      this.content.append(h("details", { class: "group" }, h("summary", {}, "Not measured"), h("ul", {}, ...d.absent.map((text) => h("li", {}, oneLine(text))))));
    }
  }

  private showBrief(d: Diagnosis): void {
    const place = placeOf(this.first?.site, this.cwd());
    const fix = d.advice?.[0];
    this.brief.replaceChildren();
    if (!this.first) return;
    this.brief.append(h("p", { class: "place" }, place ? h("code", {}, `→ ${oneLine(place)}`) : null, place ? ": " : "", oneLine(this.first.title)));
    if (fix) this.brief.append(h("p", { class: "fix" }, h("b", {}, "help: "), oneLine(fix.what), fix.effect ? ` (${oneLine(fix.effect)})` : null));
  }
}
