// Exchanges the token for a session; the token is sent once and not stored.

import { ApiError, send } from "./api";
import { h, setText } from "./dom";
import { keepSecrets, Secrets } from "./session";

export function loginForm(onDone: () => void): HTMLElement {
  const token = h("input", { id: "token", type: "password", name: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-help token-error" });
  const error = h("p", { id: "token-error", class: "error", role: "alert" });
  const button = h("button", { type: "submit", class: "main" }, "Log in");
  const submit = async (e: Event) => {
    e.preventDefault();
    button.disabled = true;
    setText(error, "");
    try {
      keepSecrets((await send<Secrets>("POST", "/session", { token: token.value.trim() })) ?? {});
      token.value = "";
      onDone();
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setText(error, problem.status === 401 ? "Wrong token: the server does not accept it." : problem.message);
      token.select();
    } finally {
      button.disabled = false;
    }
  };
  return h("form", { class: "login card", onsubmit: (e) => void submit(e) },
    h("h1", {}, "Log in"),
    h("label", { for: "token" }, "Token"),
    token,
    h("p", { id: "token-help", class: "quiet" }, "The token is in the file ", h("code", {}, "token"), " in the server's state folder; the token in ", h("code", {}, "token.read-only"), " permits only reading."),
    error,
    button);
}
