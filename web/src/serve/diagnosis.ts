// Why memory is what it is: the hypotheses of `ebb diagnose`, each with what speaks for and against it, and what to do.

import { ApiError, get, readingPatience_s } from "./api";
import { h, oneLine, setText } from "./dom";

interface Hypothesis {
  title: string;
  word: string;
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
  const share = one.share != null && one.share > 0 ? `, ${Math.round(one.share * 100)} % of it` : "";
  return h("details", { class: "hypothesis", open: isOpen },
    h("summary", {}, h("span", { class: "word" }, `${one.word}${share}`), " ", oneLine(one.title)),
    side("for", "for it", one.for), side("against", "against it", one.against), side("absent", "not known", one.absent),
    one.decide ? h("p", { class: "decide" }, "What would decide it: ", oneLine(one.decide)) : null);
}

export class DiagnosisView {
  private readonly content = h("div");
  private readonly note = h("p", { class: "quiet", role: "status" });
  private readonly again = h("button", { type: "button", onclick: () => void this.read() }, "Look again");
  readonly root: HTMLElement;
  private asked = 0;

  constructor(private readonly id: number) {
    this.root = h("section", { id: "diagnosis", "aria-label": "Diagnosis" }, h("h2", {}, "Diagnosis"), this.content, this.note, h("div", { class: "tools" }, this.again));
  }

  // A whole recording is read for it: asked for once, and when somebody wants it again.
  async read(): Promise<void> {
    const asked = ++this.asked;
    this.again.disabled = true;
    setText(this.note, "Reading the recording …");
    try {
      const answer = await get<Diagnosis>(`/jobs/${this.id}/diagnosis`, readingPatience_s);
      if (asked !== this.asked) return;
      this.show(answer);
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
    this.content.replaceChildren();
    if (d.verdict) this.content.append(h("p", {}, oneLine(d.verdict)));
    if (d.advice?.length) {
      this.content.append(h("h3", {}, "What to do"), h("ul", { class: "advice" }, ...d.advice.map((a) =>
        h("li", {}, oneLine(a.what), a.effect ? h("em", {}, ` – ${oneLine(a.effect)}`) : null))));
    }
    if (first.length) this.content.append(h("h3", {}, "Hypotheses, the one that explains most first"));
    first.forEach((one, i) => this.content.append(hypothesis(one, i === 0 && one.word !== "possible")));
    if (rest.length) {
      this.content.append(h("details", { class: "group" }, h("summary", {}, `${rest.length} that are unlikely, ruled out or cannot be tested`), ...rest.map((one) => hypothesis(one, false))));
    }
    if (d.absent?.length) {
      this.content.append(h("details", { class: "group" }, h("summary", {}, "What was not measured"), h("ul", {}, ...d.absent.map((text) => h("li", {}, oneLine(text))))));
    }
  }
}
