// The secrets of the page's session. A browser sends the cookie to every port of the host, even to another user's web
// server, but it stores data separately for each port. So the server accepts the cookie only together with one of these
// secrets, which the page stores.

export interface Secrets {
  key?: string; // secret for requests
  view?: string; // secret for links that open in a new tab; it permits reading only
}

const place = "ebb-session";
let unstored: Secrets = {}; // the secrets if the browser has no storage

export function secrets(): Secrets {
  try {
    return JSON.parse(localStorage.getItem(place) ?? "{}") as Secrets;
  } catch {
    return unstored;
  }
}

export function keepSecrets({ key, view }: Secrets): void {
  unstored = { key, view };
  try {
    if (key) localStorage.setItem(place, JSON.stringify(unstored));
    else localStorage.removeItem(place);
  } catch {
    // In a browser without storage, the secrets last only as long as the page is open.
  }
}
