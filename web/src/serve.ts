// The page of `ebb serve`: what the server says of itself.

fetch("/api/v1/health").then((answer) => answer.json()).then((health: { status: string; version: string }) => {
  const main = document.getElementById("main");
  if (main) main.textContent = `ebb ${health.version}: ${health.status}`;
});
