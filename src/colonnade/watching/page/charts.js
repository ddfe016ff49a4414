// Curves of several runs over one another, with uPlot: hover for values, drag to zoom.

/* global uPlot */
import { bytes, count, seconds, tick } from "./figures.js";
import { lastBefore } from "./runs.js";

export const AXES = {
  exchanges: { title: "exchanges", of: (line) => line.exchange ?? line.exchanges, show: count },
  seconds: { title: "seconds", of: (line) => line.at, show: seconds },
  epochs: { title: "epochs", of: (line) => line.epoch ?? line.epochs, show: count },
  bytes: { title: "bytes", of: (line) => sum(line.bytes_up, line.bytes_down), show: bytes },
};
const COLOURS = 8;

export class Chart {
  constructor(element, { name, show, values }) {
    this.element = element;
    this.name = name;
    this.showValue = show;
    this.valuesOf = values; // (run, x) → [xs, ys]
    this.plot = null;
    this.made = "";
    this.data = null;
    new ResizeObserver(() => this.#fit()).observe(element);
  }

  show(runs, axis, { log = false, at = null, theme = "" } = {}) {
    const shown = runs.filter((run) => run.shown);
    const tables = shown.map((run) => this.valuesOf(run, (line) => axisOf(run, line, axis)));
    const drawn = tables.some(([xs]) => xs.length);
    this.element.classList.toggle("empty", !drawn);
    const wanted = JSON.stringify([axis, log, theme, shown.map((run) => [run.place, run.facts.name])]);
    const data = drawn ? joined(tables) : [[], ...shown.map(() => [])];
    if (wanted !== this.made) {
      this.plot?.destroy();
      this.element.replaceChildren();
      this.made = wanted;
      this.plot = new uPlot(this.#options(shown, axis, log), data, this.element);
    } else {
      const zoomed = this.zoomed;
      const { min, max } = this.plot.scales.x;
      this.plot.setData(data, !zoomed);
      if (zoomed) this.plot.setScale("x", { min, max });
    }
    this.marks = at == null ? [] : shown.map((run) => xAt(run, at, axis));
  }

  #options(runs, axis, log) {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim();
    const line = style.getPropertyValue("--line").trim();
    const font = "12px system-ui, sans-serif";
    const axes = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font };
    return {
      width: Math.max(200, this.element.clientWidth),
      height: 200,
      cursor: { sync: { key: "page" }, points: { size: 7 }, drag: { x: true, y: false } },
      legend: { live: true },
      scales: { x: { time: false }, y: log ? { distr: 3 } : { range: uPlot.rangeNum ? padded : undefined } },
      axes: [
        { ...axes, values: (_, ticks) => ticks.map(AXES[axis].show), space: 70, size: 28 },
        { ...axes, values: (_, ticks) => ticks.map(tick), size: 50 },
      ],
      series: [
        { label: AXES[axis].title, value: (_, x) => (x == null ? "" : AXES[axis].show(x)) },
        ...runs.map((run) => ({
          label: runs.length > 1 ? (run.facts.name ?? "run") : this.name,
          stroke: colour(run),
          width: 2,
          spanGaps: true,
          points: { show: (plot) => plot.data[0].length < 40, size: 5 },
          value: (_, y) => (y == null ? "" : this.showValue(y)),
        })),
      ],
      hooks: {
        setSelect: [() => (this.zoomed = true)],
        draw: [(plot) => this.#mark(plot)],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => (this.zoomed = false))],
      },
    };
  }

  // The moment that was chosen, in every run.
  #mark(plot) {
    const pen = plot.ctx;
    for (const mark of this.marks ?? []) {
      if (mark == null) continue;
      const x = Math.round(plot.valToPos(mark, "x", true));
      pen.save();
      pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
      pen.setLineDash([4, 4]);
      pen.beginPath();
      pen.moveTo(x, plot.bbox.top);
      pen.lineTo(x, plot.bbox.top + plot.bbox.height);
      pen.stroke();
      pen.restore();
    }
  }

  #fit() {
    const width = this.element.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: 200 });
  }
}

export function colour(run) {
  const place = (run.place % COLOURS) + 1;
  return getComputedStyle(document.documentElement).getPropertyValue(`--run-${place}`).trim();
}

// From lines of metrics.
export function ofMetrics(value) {
  return (run, x) => points(run.metrics, x, value);
}

// From the label party's records, or those of the party whose own page it is; `value` is given a record and the one at least a second before.
export function ofRecords(value) {
  return (run, x) => {
    const records = run.series.get(run.facts.label_party) ?? [...run.series.values()][0] ?? [];
    const lines = [];
    let before = records[0];
    for (const record of records.slice(1)) {
      if (record.wall - before.wall < 1) continue;
      const found = value(record, before);
      if (found != null) lines.push({ ...record, found });
      before = record;
    }
    return points(lines, x, (line) => line.found);
  };
}

function points(lines, x, value) {
  const [xs, ys] = [[], []];
  for (const line of lines) {
    const [at, found] = [x(line), value(line)];
    if (at == null || found == null || !isFinite(found)) continue;
    if (xs.length && at <= xs.at(-1)) {
      if (at === xs.at(-1)) ys[ys.length - 1] = found;
      continue;
    }
    xs.push(at);
    ys.push(found);
  }
  return [xs, ys];
}

function axisOf(run, line, axis) {
  const found = AXES[axis].of(line);
  if (found != null || axis !== "bytes") return found;
  const place = lastBefore(run.metrics, line.at);
  return place < 0 ? null : AXES.bytes.of(run.metrics[place]);
}

function xAt(run, at, axis) {
  if (axis === "seconds") return at;
  const record = axis === "bytes" ? null : (run.record(run.facts.label_party, at) ?? run.record(run.parties[0], at));
  return record ? AXES[axis].of(record) : AXES[axis].of(run.metrics[lastBefore(run.metrics, at)] ?? {});
}

function joined(tables) {
  return tables.length === 1 ? tables[0] : uPlot.join(tables);
}

function padded(plot, low, high) {
  if (low == null) return [0, 1];
  const space = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low - space < 0 ? 0 : low - space, high + space];
}

function sum(up, down) {
  return up == null && down == null ? null : (up ?? 0) + (down ?? 0);
}
