// Draws the figures. Text from the record is in JSON or already escaped; nothing here writes markup.
"use strict";
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const line = style.getPropertyValue("--line").trim();
    const soft = style.getPropertyValue("--soft").trim();
    const card = style.getPropertyValue("--card").trim();
    const axis = { gridcolor: line, linecolor: line, tickcolor: line };
    return {
      ...layout,
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  }

  function draw(figure) {
    const data = JSON.parse(document.getElementById(figure.dataset.figure).textContent);
    const log = document.querySelector(`button[data-log="${figure.dataset.figure}"]`);
    if (log) data.layout.yaxis.type = log.getAttribute("aria-pressed") === "true" ? "log" : "linear";
    const options = { responsive: true, displaylogo: false, modeBarButtons: BUTTONS };
    options.toImageButtonOptions = { filename: figure.dataset.figure, scale: 2 };
    return Plotly.react(figure, data.data, themed(data.layout), options);
  }

  const figures = Array.from(document.querySelectorAll("[data-figure]"));
  const drawAll = () => Promise.all(figures.map(draw));

  for (const button of document.querySelectorAll("button[data-shows]")) {
    button.addEventListener("click", function () {
      for (const other of button.parentElement.children) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      const figure = document.getElementById("split-figure");
      figure.dataset.figure = button.dataset.shows;
      draw(figure);
    });
  }

  for (const button of document.querySelectorAll("button[data-log]")) {
    button.addEventListener("click", function () {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      draw(document.querySelector(`[data-figure="${button.dataset.log}"]`));
    });
  }

  dark.addEventListener("change", drawAll);
  drawAll().then(function () {
    document.documentElement.dataset.plots = "drawn";
  });
})();
