// Colours the stages and layers of the step, view and replica that are chosen. It writes text, never markup.
"use strict";
(function () {
  const holder = document.getElementById("diagnosis-data");
  const data = JSON.parse(holder.textContent);
  const cells = new Map();
  for (const cell of document.querySelectorAll(".cell")) cells.set(cell.dataset.cell, cell);
  const only = document.getElementById("only");
  const detail = document.getElementById("detail");
  const pressed = document.querySelector('[data-view="step"][aria-pressed="true"]');
  const view = { step: pressed ? pressed.dataset.value : "0", mode: "injected", replica: "all" };
  let open = null;

  // Of a tensor compared for the whole batch only, a replica shows that.
  function entries() {
    const all = data.steps[view.step][view.mode];
    if (view.replica === "all") return all;
    const own = all.filter((entry) => String(entry[4]) === view.replica);
    const seen = new Set(own.map((entry) => entry[0]));
    return own.concat(all.filter((entry) => entry[4] === null && !seen.has(entry[0])));
  }

  function size(text) {
    const value = Number(text);
    return Number.isNaN(value) ? Infinity : value;
  }

  function worse(entry, other) {
    if (entry[1] !== other[1]) return entry[1] > other[1];
    return size(entry[2]) > size(other[2]);
  }

  function belongs(entry) {
    const own = data.cells[entry[0]];
    const stage = "stage-" + data.stages[entry[0]];
    return own === stage ? [own] : [own, stage];
  }

  function show(cell, entry) {
    cell.dataset.level = entry ? String(entry[1]) : "";
    const text = !entry ? "" : entry[1] === 0 ? "✓" : entry[2];
    const stage = cell.dataset.stage;
    cell.textContent = stage ? cell.dataset.title + (text ? " " + text : "") : text || "·";
    cell.title = cell.dataset.title + (entry ? ": deviation " + entry[2] + ", allowed " + entry[3] : ": not compared");
  }

  function draw() {
    const worst = new Map();
    for (const entry of entries()) {
      for (const name of belongs(entry)) {
        if (!worst.has(name) || worse(entry, worst.get(name))) worst.set(name, entry);
      }
    }
    for (const [name, cell] of cells) {
      delete cell.dataset.finding;
      show(cell, worst.get(name));
    }
    data.findings.forEach(function ([step, name], number) {
      const cell = cells.get(data.cells[name]);
      if (!cell || String(step) !== view.step) return;
      const earlier = cell.dataset.finding;
      cell.dataset.finding = earlier ? earlier + ", " + (number + 1) : String(number + 1);
    });
    for (const note of document.querySelectorAll("[data-mode]")) note.hidden = note.dataset.mode !== view.mode;
    for (const button of document.querySelectorAll("[data-view]")) {
      button.setAttribute("aria-pressed", String(view[button.dataset.view] === button.dataset.value));
    }
    fold();
    describe();
  }

  // A row stays for what is below it, too.
  function fold() {
    const rows = Array.from(document.querySelectorAll("#layers tbody tr"));
    const folding = only.getAttribute("aria-pressed") === "true";
    const differs = (row) => row.querySelector('.cell:not([data-level=""]):not([data-level="0"])');
    const kept = rows.filter((row) => !folding || differs(row)).map((row) => row.dataset.path);
    for (const row of rows) {
      const path = row.dataset.path;
      row.hidden = !kept.some((other) => other === path || other.startsWith(path + "/"));
    }
    document.getElementById("none").hidden = kept.length > 0;
  }

  // The tensors of the cell that was clicked.
  function describe() {
    for (const [name, cell] of cells) cell.setAttribute("aria-pressed", String(name === open));
    const chosen = entries().filter((entry) => belongs(entry).includes(open));
    detail.hidden = chosen.length === 0;
    if (!chosen.length) return;
    detail.querySelector("h3").textContent = cells.get(open).dataset.title;
    chosen.sort((a, b) => (worse(a, b) ? -1 : worse(b, a) ? 1 : 0));
    detail.querySelector("tbody").replaceChildren(...chosen.slice(0, 200).map(row));
  }

  function row(entry) {
    const line = document.createElement("tr");
    const replica = entry[4] === null ? "whole batch" : String(entry[4]);
    const mark = entry[1] === 0 ? "✓ " : "✕ ";
    for (const text of [mark + data.names[entry[0]], replica, entry[2], entry[3], entry[5]]) {
      line.appendChild(document.createElement("td")).textContent = text;
    }
    line.children[2].className = line.children[3].className = "number";
    return line;
  }

  for (const button of document.querySelectorAll("[data-view]")) {
    button.addEventListener("click", function () {
      view[button.dataset.view] = button.dataset.value;
      draw();
    });
  }
  for (const [name, cell] of cells) {
    cell.addEventListener("click", function () {
      open = open === name ? null : name;
      describe();
    });
  }
  for (const link of document.querySelectorAll("a[data-cell]")) {
    link.addEventListener("click", function () {
      Object.assign(view, { step: link.dataset.step, mode: "injected", replica: "all" });
      open = link.dataset.cell;
      draw();
    });
  }
  if (only) {
    only.addEventListener("click", function () {
      only.setAttribute("aria-pressed", String(only.getAttribute("aria-pressed") !== "true"));
      fold();
    });
    // A deep net opens with what matters.
    if (document.querySelectorAll("#layers tbody tr").length > 40) only.setAttribute("aria-pressed", "true");
    draw();
  }
  document.documentElement.dataset.drawn = "yes";
})();
