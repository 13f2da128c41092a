"use strict";
// Figures are plain data in light colours; what each colour is in the dark comes with the page.
const DARK = JSON.parse(document.getElementById("dark").textContent);
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)");

function recolour(value, map) {
  if (typeof value === "string") return map[value] ?? value;
  if (Array.isArray(value)) return value.map((x) => recolour(x, map));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, x]) => [key, recolour(x, map)]));
  }
  return value;
}

function draw(isDark) {
  figures.forEach((figure, k) => {
    const { data, layout } = recolour(figure, isDark ? DARK : {});
    // A finger on a plot scrolls the page; only figures in space are turned by it.
    if (touch.matches && !layout.scene) layout.dragmode = false;
    const place = document.getElementById(`figure-${k}`);
    Plotly.react(place, data, layout, { displayModeBar: false, displaylogo: false, responsive: true }).then(() => {
      // So that print, where the page is narrower, can scale it.
      const { width, height } = place._fullLayout;
      place.style.aspectRatio = `${width} / ${height}`;
      for (const svg of place.querySelectorAll(".main-svg")) svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      move(figure, place);
    });
  });
}

// What a figure shows where its slider stands, if it has one.
function move(figure, place) {
  if (!figure.slider) return;
  const { traces, positions, texts } = figure.slider;
  const position = document.getElementById(`${place.id}-slider`).valueAsNumber;
  document.getElementById(`${place.id}-text`).textContent = texts[position];
  Plotly.restyle(place, structuredClone(positions[position]), traces);
}

// Smaller keys first; what has none stays below, whichever way the rest goes.
function sort(header) {
  const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
  const down = header.getAttribute("aria-sort") === "ascending";
  const numbers = header.dataset.kind === "number";
  const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const compare = (a, b) => (numbers ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true }));
  const rows = [...body.rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => (a === "" || b === "" ? (a === "") - (b === "") : (down ? -1 : 1) * compare(a, b)));
  for (const other of header.parentNode.cells) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map(([, row]) => row));
}

figures.forEach((figure, k) => {
  const place = document.getElementById(`figure-${k}`);
  document.getElementById(`${place.id}-slider`)?.addEventListener("input", () => move(figure, place));
});
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}
draw(dark.matches && !matchMedia("print").matches);
dark.addEventListener("change", () => draw(dark.matches));
addEventListener("beforeprint", () => draw(false));
addEventListener("afterprint", () => draw(dark.matches));
