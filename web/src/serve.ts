// The page of `ebb serve`: routing, login, and the connection to the server.

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
const announcements = document.getElementById("announcements") as HTMLElement;
const nav = document.getElementById("nav") as HTMLElement;
const link = document.getElementById("link") as HTMLElement;
const trouble = document.getElementById("trouble") as HTMLElement;
const logout = document.getElementById("logout") as HTMLButtonElement;

const mostAnnouncements = 5; // maximum number of queued announcements to screen readers
const healthEvery_ms = 60000;
const modes: Record<Mode, [string, string]> = {
  live: ["live", "good"],
  asking: ["no live stream: polling every few seconds", "open"],
  away: ["the server does not answer: retrying", "bad"],
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
  announce(text) {
    announcements.append(h("p", {}, text));
    while (announcements.childElementCount > mostAnnouncements) announcements.firstElementChild?.remove();
  },
  changed() {
    if (view) document.title = `${view.title} – ebb`;
    live.subscribe();
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
    main.replaceChildren(h("h1", {}, "Page not found"), h("p", {}, h("a", { href: "/" }, "Show all jobs")));
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

// Checks whether the session is still valid. A restart of the server may have ended it.
async function checkSession(): Promise<void> {
  try {
    canWrite = (await get<{ write?: boolean }>("/session")).write === true;
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
    if (problem.status === 401 && isLoggedIn) askForToken();
  }
}

// Shows the problems that the server reports, such as a full disk.
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

// Links within the page are followed without reloading it.
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
