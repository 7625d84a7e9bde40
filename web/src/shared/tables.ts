// Labels each table cell with the name of its column, because on a phone the style sheet shows a row as a card.

export function labelCells(): void {
  document.querySelectorAll<HTMLTableElement>(".scroll table").forEach((table) => {
    const names = Array.from(table.tHead?.rows[0]?.cells ?? [], (th) => th.textContent ?? "");
    if (!names.length) return;
    table.classList.add("cards");
    for (const body of table.tBodies)
      for (const row of body.rows) Array.from(row.cells, (cell, i) => (cell.dataset.label = names[i] ?? ""));
  });
}
