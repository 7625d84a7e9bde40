// The page of `ebb serve`: which view is shown, who is logged in, how the page is connected.

import { ApiError, get, send, whenLoggedOut } from "./serve/api";
import { App, View } from "./serve/app";
import { setServerTime } from "./serve/clock";
import { h, oneLine, setClass, setText } from "./serve/dom";
import { JobView } from "./serve/job";
import { ListView } from "./serve/list";
import { Live, Mode } from "./serve/live";
import { loginForm } from "./serve/login";
import { MachineView } from "./serve/machine";
import { keepSecrets } from "./serve/session";
import { SubmitDialog } from "./serve/submit";

const main = document.getElementById("main") as HTMLElement;
const told = document.getElementById("told") as HTMLElement;
const nav = document.getElementById("nav") as HTMLElement;
const link = document.getElementById("link") as HTMLElement;
const trouble = document.getElementById("trouble") as HTMLElement;
const logout = document.getElementById("logout") as HTMLButtonElement;

const mostTold = 5; // at once: what is not read out by then is old
const healthEvery_ms = 60000;
const modes: Record<Mode, [string, string]> = {
  live: ["live", "good"],
  asking: ["no live stream: asking every few seconds", "open"],
  away: ["the server does not answer: trying again", "bad"],
  waiting: ["", "quiet"],
};

let canWrite = false;
let isLoggedIn = false;
let view: View | null = null;

const live = new Live((mode) => {
  const [text, name] = modes[mode];
  setText(link, text);
  setClass(link, `link ${name}`);
}, () => void checkSession());

const app: App = {
  get canWrite() {
    return canWrite;
  },
  go(path) {
    history.pushState(null, "", path);
    route();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  },
  tell(text) {
    told.append(h("p", {}, text));
    while (told.childElementCount > mostTold) told.firstElementChild?.remove();
  },
  changed() {
    if (view) document.title = `${view.title} – ebb`;
    live.say();
  },
};

function viewOf(path: string): View | null {
  const dialog = new SubmitDialog(app);
  if (path === "/") return new ListView(app, new URLSearchParams(location.search), dialog);
  if (path === "/machine") return new MachineView();
  const job = /^\/jobs\/(\d{1,15})$/.exec(path);
  return job ? new JobView(app, Number(job[1]), dialog) : null;
}

function route(): void {
  view?.close();
  view = viewOf(location.pathname);
  nav.querySelectorAll("a").forEach((a) => (a.pathname === location.pathname ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current")));
  if (!view) {
    main.replaceChildren(h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "/" }, "To the jobs")));
    return;
  }
  main.replaceChildren(view.root);
  document.title = `${view.title} – ebb`;
  live.show(view);
}

function askForToken(): void {
  isLoggedIn = false;
  live.stop();
  view?.close();
  view = null;
  nav.hidden = logout.hidden = true;
  setText(link, "");
  document.title = "Log in – ebb";
  main.replaceChildren(loginForm(() => void begin().then(() => main.focus({ preventScroll: true }))));
  main.querySelector("input")?.focus();
}

// After a restart of the server its sessions may be gone.
async function checkSession(): Promise<void> {
  try {
    canWrite = (await get<{ write?: boolean }>("/session")).write === true;
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
    if (problem.status === 401 && isLoggedIn) askForToken();
  }
}

// What the server itself says is wrong with it: a full disk, a store that cannot be written.
async function checkHealth(): Promise<void> {
  if (!isLoggedIn || document.hidden) return;
  try {
    const health = await get<{ now_s?: number; trouble?: string[] }>("/health");
    const list = health.trouble ?? [];
    setServerTime(health.now_s);
    trouble.hidden = !list.length;
    const text = list.map(oneLine).join("\n");
    if (trouble.dataset.text === text) return;
    trouble.dataset.text = text;
    trouble.replaceChildren(...list.map((one) => h("p", {}, oneLine(one))));
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
  }
}

async function begin(): Promise<void> {
  try {
    canWrite = (await get<{ write?: boolean }>("/session")).write === true;
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
    if (problem.status === 401) return askForToken();
    main.replaceChildren(h("h1", {}, "The server does not answer"), h("p", {}, problem.message), h("button", { type: "button", class: "main", onclick: () => void begin() }, "Try again"));
    return;
  }
  isLoggedIn = true;
  nav.hidden = logout.hidden = false;
  route();
  live.start();
  void checkHealth();
}

// Links of the page itself are followed without loading it again.
document.addEventListener("click", (e) => {
  const a = (e.target as Element).closest?.("a");
  if (!a || !isLoggedIn || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  if (a.target || a.origin !== location.origin || a.hash || /^\/(api|assets|metrics)(\/|$)/.test(a.pathname)) return;
  e.preventDefault();
  app.go(a.pathname + a.search);
});
addEventListener("popstate", () => isLoggedIn && route());
logout.addEventListener("click", () => {
  send("DELETE", "/session").catch((problem: unknown) => {
    if (!(problem instanceof ApiError)) throw problem;
  }).finally(() => {
    keepSecrets({});
    void begin();
  });
});
whenLoggedOut(() => isLoggedIn && askForToken());
setInterval(() => void checkHealth(), healthEvery_ms);
void begin();
