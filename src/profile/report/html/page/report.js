// SPDX-License-Identifier: MIT
// The charts of the report: everything they show is in the element "data", and in tables beside them.
(function () {
  "use strict";
  var pages = JSON.parse(document.getElementById("data").textContent);
  if (typeof Chart === "undefined") { document.body.classList.add("nochart"); return; }
  var style = getComputedStyle(document.body), ink;
  var palette = ["#2f7ed8", "#d1641a", "#2a9d6f", "#a4439c", "#8a6d1d", "#c23b4e", "#4d5fc1", "#5b7083"];
  // Charts take their colors from the style sheet: again when the page turns dark or is printed.
  function takeColors() {
    ink = style.color;
    Chart.defaults.color = style.getPropertyValue("--soft").trim();
    Chart.defaults.borderColor = style.getPropertyValue("--line").trim();
    Object.values(Chart.instances).forEach(function (c) { c.update("none"); });
  }
  takeColors();
  // Functions, as a chart copies the values of its scales when it is made.
  Chart.defaults.scale.grid.color = function () { return Chart.defaults.borderColor; };
  Chart.defaults.scale.ticks.color = Chart.defaults.scale.title.color = function () { return Chart.defaults.color; };
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.font.family = style.fontFamily;

  function time(ms) {
    if (ms === null) return "–";
    if (Math.abs(ms) >= 1000) return (ms / 1000).toPrecision(4) + " s";
    if (Math.abs(ms) >= 1) return ms.toPrecision(4) + " ms";
    return (ms * 1000).toPrecision(4) + " µs";
  }
  function axis(text, more) {
    return Object.assign({ title: { display: true, text: text } }, more || {});
  }
  function draw(id, config) {
    var canvas = document.getElementById(id);
    if (canvas) new Chart(canvas, config);
  }
  // Vertical lines with a name, at values of the x axis.
  var marks = {
    id: "marks",
    afterDatasetsDraw: function (chart, args, options) {
      var area = chart.chartArea, g = chart.ctx;
      (options.at || []).forEach(function (mark, i) {
        var x = chart.scales.x.getPixelForValue(mark.value);
        if (!(x >= area.left && x <= area.right)) return;
        var left = x > area.right - 60;
        g.save();
        g.strokeStyle = palette[5];
        g.fillStyle = ink;
        g.setLineDash([4, 3]);
        g.beginPath();
        g.moveTo(x, area.top);
        g.lineTo(x, area.bottom);
        g.stroke();
        g.font = "12px sans-serif";
        g.textAlign = left ? "right" : "left";
        g.setLineDash([]); // a rim, as names stand on bars and lines
        g.lineWidth = 4;
        g.lineJoin = "round";
        g.strokeStyle = style.getPropertyValue("--paper").trim();
        g.strokeText(mark.name, x + (left ? -4 : 4), area.top + 12 + 13 * (i % 4));
        g.fillText(mark.name, x + (left ? -4 : 4), area.top + 12 + 13 * (i % 4));
        g.restore();
      });
    }
  };
  Chart.register(marks);

  pages.runs.forEach(function (run, i) {
    draw("latency-" + i, {
      type: "line",
      data: {
        datasets: [
          { label: "slowest of each group of steps", data: run.latency.most, borderColor: palette[1], borderWidth: 1, pointRadius: 0 },
          { label: "median of each group", data: run.latency.middle, borderColor: palette[0], borderWidth: 1.5, pointRadius: 0 }
        ].slice(run.latency.single ? 1 : 0).map(function (set) {
          if (run.latency.single) set.label = "step time";
          return set;
        })
      },
      options: {
        parsing: false, normalized: true, interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: { x: axis("step", { type: "linear" }), y: axis("ms", { beginAtZero: true }) },
        plugins: { tooltip: { callbacks: { label: function (c) { return c.dataset.label + ": " + time(c.parsed.y); } } } }
      }
    });
    draw("histogram-" + i, {
      type: "bar",
      data: { datasets: [{ label: "steps", data: run.histogram.bars, backgroundColor: palette[0], barPercentage: 1, categoryPercentage: 1 }] },
      options: {
        parsing: false,
        scales: { x: axis("ms" + (run.histogram.beyond ? "; the last bar has " + run.histogram.beyond + " steps beyond" : ""),
          { type: "linear", min: run.histogram.low, max: run.histogram.high, offset: false, grid: { offset: false } }),
          y: axis("steps", { type: "logarithmic", min: 0.7, ticks: { callback: function (v) { return /^10*$/.test(String(v)) ? v : ""; } } }) },
        plugins: { legend: { display: false }, marks: { at: run.histogram.marks },
          tooltip: { callbacks: { title: function (c) { return time(c[0].parsed.x); } } } }
      }
    });
    draw("memory-" + i, {
      type: "line",
      data: {
        datasets: run.memory.map(function (ledger, k) {
          return { label: ledger.name, data: ledger.points, borderColor: palette[k % palette.length], borderWidth: 1.5, pointRadius: 0 };
        })
      },
      options: {
        parsing: false, normalized: true, interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: { x: axis("step", { type: "linear" }), y: axis("change since the start, MB", { suggestedMin: 0, suggestedMax: 1 }) }
      }
    });
  });
  if (pages.compared) draw("compared", {
    type: "line",
    data: {
      datasets: pages.compared.map(function (side, k) {
        return { label: "AB"[k] + ": " + side.name + (side.beyond ? ", " + side.beyond.toPrecision(2) + " % beyond" : ""), data: side.points,
          stepped: "middle", borderColor: palette[k], backgroundColor: palette[k] + "40", fill: true, borderWidth: 1.5, pointRadius: 0 };
      })
    },
    options: { parsing: false, interaction: { mode: "index", intersect: false },
      scales: { x: axis("ms", { type: "linear" }), y: axis("% of the steps", { beginAtZero: true }) } }
  });
  if (pages.overview) draw("overview", {
    type: "bar",
    data: {
      labels: pages.overview.names,
      datasets: [
        { label: "median", data: pages.overview.median, backgroundColor: palette[0] },
        { label: "P95", data: pages.overview.p95, backgroundColor: palette[1] }
      ]
    },
    options: { indexAxis: "y", scales: { x: axis("ms", { beginAtZero: true }), y: { ticks: { autoSkip: false } } } }
  });
  if (pages.implementations) {
    draw("implementations-speed", {
      type: "bar",
      data: {
        labels: pages.implementations.map(function (implementation) { return implementation.name; }),
        datasets: [{ label: "median step", data: pages.implementations.map(function (implementation) { return implementation.median; }), backgroundColor: palette }]
      },
      options: {
        indexAxis: "y", scales: { x: axis("ms", { beginAtZero: true }), y: { ticks: { autoSkip: false } } },
        plugins: { legend: { display: false }, tooltip: { callbacks: { label: function (c) { return time(c.parsed.x); } } } }
      }
    });
    draw("implementations-energy", {
      type: "line",
      data: {
        labels: pages.implementations[0].energy.map(function (e, i) { return i; }),
        datasets: pages.implementations.map(function (implementation, k) {
          return { label: implementation.name, data: implementation.energy, borderColor: palette[k % palette.length], borderWidth: 1.5, pointRadius: 0 };
        })
      },
      options: { interaction: { mode: "index", intersect: false }, scales: { x: axis("frame"), y: axis("energy less its own mean, meV/atom") } }
    });
    var first = pages.implementations[0].forces, reach = Math.max.apply(null, first.map(Math.abs));
    draw("implementations-forces", {
      type: "scatter",
      data: {
        datasets: pages.implementations.slice(1).map(function (implementation, k) {
          return { label: implementation.name, data: implementation.forces.map(function (f, i) { return { x: first[i], y: f }; }),
            backgroundColor: palette[(k + 1) % palette.length], pointRadius: 1.5 };
        }).concat([{ label: "the same", data: [{ x: -reach, y: -reach }, { x: reach, y: reach }], showLine: true, pointRadius: 0,
          borderColor: palette[7], borderWidth: 1, borderDash: [4, 3] }])
      },
      options: { scales: { x: axis("component by " + pages.implementations[0].name + ", eV/Å"), y: axis("eV/Å") } }
    });
  }
  if (pages.scaling) draw("scaling", {
    type: "scatter",
    data: {
      datasets: [
        { label: "median step", data: pages.scaling.points, backgroundColor: palette[0], pointRadius: 4 },
        { label: pages.scaling.name, data: pages.scaling.fit, showLine: true, pointRadius: 0, borderColor: palette[1], borderWidth: 1.5 }
      ]
    },
    options: {
      scales: { x: axis("atoms", { type: "logarithmic" }), y: axis("ms", { type: "logarithmic" }) },
      plugins: { tooltip: { callbacks: { label: function (c) { return c.parsed.x + " atoms: " + time(c.parsed.y); } } } }
    }
  });
  function colorsForPaper(on) {
    document.documentElement.classList.toggle("printing", on);
    takeColors();
  }
  window.addEventListener("beforeprint", function () {
    var width = 660; // px, of a sheet of A4 or letter paper within its margins
    document.querySelectorAll("details:not(footer details)").forEach(function (d) { d.open = true; });
    colorsForPaper(true);
    Object.values(Chart.instances).forEach(function (c) { c.resize(Math.min(c.width, width), c.height); });
  });
  window.addEventListener("afterprint", function () {
    colorsForPaper(false);
    Object.values(Chart.instances).forEach(function (c) { c.resize(); });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", takeColors);
})();
