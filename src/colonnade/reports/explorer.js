// Curves of a report to explore: hover for values, drag to zoom, double-click for all; another axis, a log scale.
// Without this script the page shows the same curves as pictures.
(() => {
  const box = document.querySelector(".explorer");
  const told = JSON.parse(document.getElementById("curves").textContent);
  const light = ["#0072b2", "#b36b00", "#00795a", "#8c5fb5", "#2a7fb0", "#a34f7e", "#6b5b2e", "#3d4a57"];
  const dark = ["#56b4e9", "#f0a93b", "#3ccf9f", "#c09be0", "#9ad4f5", "#e59bc4", "#cdbb82", "#b9c4cf"];
  const axes = Object.keys(told.axes);
  const shown = told.runs.map(() => true);
  let axis = axes[0];
  let plots = [];

  const made = (tag, ...inside) => {
    const element = document.createElement(tag);
    element.append(...inside);
    return element;
  };
  const number = (value) => (value == null ? "" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4))));
  const choice = (type, label, checked, changed) => {
    const input = made("input");
    Object.assign(input, { type, name: type === "radio" ? "explorer-axis" : "", checked });
    input.addEventListener("change", () => changed(input.checked));
    return made("label", input, ` ${label}`);
  };

  const controls = made("div");
  controls.className = "controls";
  for (const name of axes) {
    controls.append(choice("radio", told.axes[name], name === axis, () => ((axis = name), draw())));
  }
  let log = false;
  controls.append(choice("checkbox", "log scale of the loss", false, (on) => ((log = on), draw())));
  if (told.runs.length > 1) {
    told.runs.forEach((run, place) => controls.append(choice("checkbox", run.name, true, (on) => ((shown[place] = on), draw()))));
  }
  const save = made("button", "Data (CSV)");
  save.addEventListener("click", () => {
    const quoted = (word) => `"${String(word).replaceAll('"', '""')}"`;
    const lines = [["run", ...axes, "loss", told.metric ?? "metric"].map(quoted).join(",")];
    for (const run of told.runs) {
      run.loss.forEach((loss, at) => lines.push([quoted(run.name), ...axes.map((name) => run[name][at] ?? ""), loss ?? "", run.metric[at] ?? ""].join(",")));
    }
    const link = made("a");
    link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    link.download = "curves.csv";
    link.click();
  });
  controls.append(save);

  function points(run, what) {
    const [xs, ys] = [[], []];
    run[axis].forEach((x, at) => {
      const y = run[what][at];
      if (x == null || y == null || (xs.length && x < xs.at(-1))) return;
      if (x === xs.at(-1)) ys[ys.length - 1] = y;
      else (xs.push(x), ys.push(y));
    });
    return [xs, ys];
  }

  const withBand = (run) => [...points(run, "metric"), points(run, "low")[1], points(run, "high")[1]];

  function draw() {
    plots.forEach((plot) => plot.destroy());
    const style = getComputedStyle(document.documentElement);
    const [ink, line] = ["--muted", "--line"].map((name) => style.getPropertyValue(name).trim());
    const colours = matchMedia("(prefers-color-scheme: dark)").matches ? dark : light;
    const runs = told.runs.map((run, place) => ({ run, colour: colours[place % 8] })).filter((_, place) => shown[place]);
    plots = [["loss", "training loss"], ["metric", told.metric]].filter(([, name]) => name).map(([what, name]) => {
      const tables = runs.map(({ run }) => points(run, what));
      const curves = tables.length > 1 ? uPlot.join(tables) : (tables[0] ?? [[]]);
      const look = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
      // Around a metric the 95 % within which it may lie by the chance of its rows, as a band.
      const banded = what === "metric" && runs.every(({ run }) => run.low);
      const data = banded ? uPlot.join(runs.map(({ run }) => withBand(run))) : curves;
      const series = runs.flatMap(({ run, colour }) => {
        const line = { label: told.runs.length > 1 ? run.name : name, stroke: colour, width: 2, spanGaps: true, value: (_, y) => number(y) };
        const edge = { class: "band", label: "", width: 0, spanGaps: true, points: { show: false } };
        return banded ? [line, { ...edge }, { ...edge }] : [line];
      });
      const bands = banded ? runs.map(({ colour }, place) => ({ series: [3 * place + 3, 3 * place + 2], fill: `${colour}2e` })) : [];
      return new uPlot(
        {
          bands,
          width: box.clientWidth - 2,
          height: 220,
          cursor: { sync: { key: "report" }, drag: { x: true, y: false } },
          scales: { x: { time: false }, y: what === "loss" && log ? { distr: 3 } : {} },
          axes: [
            { ...look, label: what === "metric" || !told.metric ? told.axes[axis] : undefined, labelSize: 18, values: (_, ticks) => ticks.map(number) },
            { ...look, label: name, labelSize: 18, size: 52, values: (_, ticks) => ticks.map(number) },
          ],
          series: [
            { label: told.axes[axis], value: (_, x) => number(x) },
            ...series,
          ],
        },
        data,
        box,
      );
    });
  }

  const hidePictures = () => document.querySelectorAll(".curves").forEach((pictures) => pictures.classList.add("only-print"));
  document.addEventListener("DOMContentLoaded", hidePictures); // which come after this in the page
  box.hidden = false;
  box.append(controls);
  draw();
  let width = box.clientWidth;
  addEventListener("resize", () => box.clientWidth !== width && ((width = box.clientWidth), draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
