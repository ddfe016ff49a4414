// Curves of a page to explore: hover for values, drag to zoom, double-click for all; another axis, a log scale, curves
// on and off. With the keyboard + and −, ← and →, 0 for all. Without this script the page shows pictures in their place.
(() => {
  const light = ["#0072b2", "#b36b00", "#00795a", "#8c5fb5", "#2a7fb0", "#a34f7e", "#6b5b2e", "#3d4a57"];
  const dark = ["#56b4e9", "#f0a93b", "#3ccf9f", "#c09be0", "#9ad4f5", "#e59bc4", "#cdbb82", "#b9c4cf"];
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const made = (tag, ...inside) => {
    const element = document.createElement(tag);
    element.append(...inside);
    return element;
  };
  const number = (value) => (value == null ? "" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4))));
  const choice = (type, group, label, checked, changed) => {
    const input = made("input");
    Object.assign(input, { type, name: group, checked });
    input.addEventListener("change", () => changed(input.checked));
    return made("label", input, ` ${label}`);
  };

  function explore(box, told, place) {
    const axes = Object.keys(told.axes);
    const shown = told.curves.map(() => true);
    let axis = axes[0];
    let log = Boolean(told.log);
    let plots = [];
    let range = null; // of the x-axis; null: all of it

    const controls = made("div");
    controls.className = "controls";
    if (axes.length > 1) {
      for (const name of axes) {
        controls.append(choice("radio", `explorer-axis-${place}`, told.axes[name], name === axis, () => ((axis = name), (range = null), draw())));
      }
    }
    const first = told.plots[0];
    const positive = told.curves.every((curve) => (curve[first.key] ?? []).every((y) => y == null || y > 0));
    log = log && positive;
    if (positive) controls.append(choice("checkbox", "", `log scale of the ${first.title}`, log, (on) => ((log = on), draw())));
    if (told.curves.length > 1) {
      told.curves.forEach((curve, at) => controls.append(choice("checkbox", "", curve.name, true, (on) => ((shown[at] = on), draw()))));
    }
    const save = made("button", "Data (CSV)");
    save.addEventListener("click", () => {
      const quoted = (word) => `"${String(word).replaceAll('"', '""')}"`;
      const columns = [...axes, ...told.plots.map((one) => one.key), ...["low", "high"].filter((key) => told.curves.some((curve) => curve[key]))];
      const title = (key) => told.axes[key] ?? told.plots.find((one) => one.key === key)?.title ?? `${key} end of the band`;
      const lines = [[told.what ?? "curve", ...columns.map(title)].map(quoted).join(",")];
      for (const curve of told.curves) {
        curve[axes[0]].forEach((_, at) => lines.push([quoted(curve.name), ...columns.map((key) => curve[key]?.[at] ?? "")].join(",")));
      }
      const link = made("a");
      link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
      link.download = `${told.file ?? "curves"}.csv`;
      link.click();
    });
    controls.append(save);
    if (told.note) controls.append(Object.assign(made("span", told.note), { className: "small whole" }));

    function points(curve, what) {
      const [xs, ys] = [[], []];
      curve[axis].forEach((x, at) => {
        const y = curve[what]?.[at];
        if (x == null || y == null || (xs.length && x < xs.at(-1))) return;
        if (x === xs.at(-1) && !curve.steps) ys[ys.length - 1] = y;
        else (xs.push(x), ys.push(y));
      });
      return [xs, ys];
    }

    const withBand = (curve) => [...points(curve, told.banded), points(curve, "low")[1], points(curve, "high")[1]];
    const zoom = (from, to) => {
      range = from == null ? null : [from, to];
      for (const plot of plots) {
        const xs = plot.data[0];
        if (xs.length) plot.setScale("x", { min: range ? range[0] : xs[0], max: range ? range[1] : xs.at(-1) });
      }
    };

    // In words, for who does not see the curves: where each begins and ends.
    const inWords = (title, curves, what) =>
      `${title} against ${told.axes[axis]}. ` +
      curves
        .map(({ curve }) => [curve.name, points(curve, what)[1]])
        .filter(([, ys]) => ys.length)
        .map(([name, ys]) => `${name}: from ${number(ys[0])} to ${number(ys.at(-1))}, between ${number(Math.min(...ys))} and ${number(Math.max(...ys))}.`)
        .join(" ");

    function pressed(event, plot) {
      const xs = plot.data[0];
      const { min, max } = plot.scales.x;
      if (event.ctrlKey || event.metaKey || event.altKey || !xs.length || min == null) return;
      const [middle, half] = [(min + max) / 2, (max - min) / 2];
      const moves = {
        "+": [middle - half / 2, middle + half / 2],
        "-": [Math.max(xs[0], middle - 2 * half), Math.min(xs.at(-1), middle + 2 * half)],
        ArrowLeft: min > xs[0] ? [min - Math.min(half / 2, min - xs[0]), max - Math.min(half / 2, min - xs[0])] : [min, max],
        ArrowRight: max < xs.at(-1) ? [min + Math.min(half / 2, xs.at(-1) - max), max + Math.min(half / 2, xs.at(-1) - max)] : [min, max],
        0: [null],
      };
      if (!moves[event.key]) return;
      event.preventDefault();
      zoom(...moves[event.key]);
    }

    function plotOf({ key, title }, curves, place, of) {
      const style = getComputedStyle(document.documentElement);
      const [ink, line] = ["--muted", "--line"].map((name) => style.getPropertyValue(name).trim());
      const look = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
      // Around what is banded, between which values it may lie, as a band.
      const banded = key === told.banded && curves.every(({ curve }) => curve.low);
      const tables = curves.map(({ curve }) => (banded ? withBand(curve) : points(curve, key)));
      const data = tables.length > 1 ? uPlot.join(tables) : (tables[0] ?? [[]]);
      const series = curves.flatMap(({ curve, colour }) => {
        const drawn = {
          label: told.curves.length > 1 ? curve.name : title,
          stroke: curve.ink ? ink : colour,
          width: curve.ink ? 1.5 : 2,
          dash: curve.ink ? [2, 4] : curve.dashed ? [8, 5] : undefined,
          spanGaps: true,
          value: (_, y) => number(y),
          ...(curve.points ? { paths: () => null, points: { show: true, size: 9, width: 2 } } : {}),
          ...(curve.steps ? { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, fill: `${colour}33` } : {}),
        };
        const edge = { class: "band", label: "", width: 0, spanGaps: true, points: { show: false } };
        return banded ? [drawn, { ...edge }, { ...edge }] : [drawn];
      });
      const bands = banded ? curves.map(({ colour }, at) => ({ series: [3 * at + 3, 3 * at + 2], fill: `${colour}2e` })) : [];
      const plot = new uPlot(
        {
          bands,
          width: Math.max(200, box.clientWidth - 2),
          height: of > 1 ? 220 : 280,
          cursor: { sync: { key: `explorer-${box.id || "page"}` }, drag: { x: true, y: false } },
          scales: { x: { time: false, distr: told.log_x ? 3 : 1 }, y: place === 0 && log ? { distr: 3 } : {} },
          axes: [
            { ...look, label: place === of - 1 ? told.axes[axis] : undefined, labelSize: 18, values: (_, ticks) => ticks.map((one) => (one == null ? "" : number(one))) },
            { ...look, label: title, labelSize: 18, size: 56, values: (_, ticks) => ticks.map((one) => (one == null ? "" : number(one))) },
          ],
          series: [{ label: told.axes[axis], value: (_, x) => number(x) }, ...series],
          hooks: { setSelect: [(one) => one.select.width > 0 && (range = [one.posToVal(one.select.left, "x"), one.posToVal(one.select.left + one.select.width, "x")])] },
        },
        data,
        box,
      );
      plot.over.addEventListener("dblclick", () => zoom(null));
      plot.root.tabIndex = 0;
      plot.root.setAttribute("role", "group");
      plot.root.setAttribute("aria-label", inWords(title, curves, key));
      plot.root.addEventListener("keydown", (event) => pressed(event, plot));
      return plot;
    }

    function draw() {
      const held = plots.findIndex((plot) => plot.root === document.activeElement);
      plots.forEach((plot) => plot.destroy());
      const colours = isDark.matches ? dark : light;
      const curves = told.curves.map((curve, at) => ({ curve, colour: colours[(curve.colour ?? at) % 8] })).filter((_, at) => shown[at]);
      plots = told.plots.map((one, at) => plotOf(one, curves, at, told.plots.length));
      if (range) zoom(...range);
      plots[held]?.root.focus();
    }

    box.hidden = false;
    box.append(controls);
    draw();
    let width = box.clientWidth;
    addEventListener("resize", () => box.clientWidth !== width && ((width = box.clientWidth), draw()));
    isDark.addEventListener("change", draw);
  }

  document.querySelectorAll("script[data-curves]").forEach((data, place) => explore(data.previousElementSibling, JSON.parse(data.textContent), place));
  document.querySelectorAll(".curves").forEach((pictures) => pictures.classList.add("only-print"));
})();
