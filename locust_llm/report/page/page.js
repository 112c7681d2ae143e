"use strict";
(() => {
  const PRINT_WIDTH = 680;
  const axis = { gridcolor: "#e6eaee", linecolor: "#aab2ba", zerolinecolor: "#cdd4da", ticks: "outside", tickcolor: "#aab2ba", automargin: true };
  const narrow = () => window.innerWidth < 560;
  const charts = [...document.querySelectorAll(".chart")];

  function layoutOf(spec) {
    const layout = {
      font: { family: 'system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif', size: narrow() ? 11 : 12.5, color: "#1b1f24" },
      margin: { l: narrow() ? 44 : 64, r: narrow() ? 8 : 16, t: 12, b: 44 },
      paper_bgcolor: "#fff", plot_bgcolor: "#fff", hoverlabel: { font: { size: 12 } },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      ...spec.layout,
    };
    for (const key of Object.keys(layout)) if (/^[xy]axis\d*$/.test(key)) layout[key] = { ...axis, ...layout[key] };
    return layout;
  }

  for (const element of charts) {
    const spec = JSON.parse(document.getElementById(element.id + "-data").textContent);
    Plotly.newPlot(element, spec.data, layoutOf(spec), { responsive: true, displayModeBar: false, doubleClick: "reset" });
  }
  for (const button of document.querySelectorAll("button[data-chart]")) {
    button.addEventListener("click", () => {
      const element = document.getElementById(button.dataset.chart);
      Plotly.downloadImage(element, { format: "svg", filename: button.dataset.chart, width: element.clientWidth, height: element.clientHeight });
    });
  }
  window.addEventListener("beforeprint", () => charts.forEach((c) => Plotly.relayout(c, { width: PRINT_WIDTH })));
  window.addEventListener("afterprint", () => charts.forEach((c) => Plotly.relayout(c, { width: null, autosize: true })));
})();
