// The page: takes what the server sends, shows the chosen run at the chosen moment, and asks runs to pause or stop.

import { AXES, Chart, colour, ofMetrics, ofRecords } from "./charts.js";
import { bytes, count, made, score, seconds, share } from "./figures.js";
import { Lanes, legend, moment as momentWords } from "./lanes.js";
import { Run } from "./runs.js";

const STEPS = 1000;
const at = (id) => document.getElementById(id);
const runs = [];
let chosen = 0;
let moment = null; // of the chosen run; null: as it is now
let axis = "exchanges";
let connected = false;
let over = false; // the server has said that it ends
let pending = false;

const charts = {
  loss: new Chart(at("loss"), { name: "loss", show: score, values: ofMetrics((line) => line.loss) }),
  metric: new Chart(at("metric"), {
    name: "metric",
    show: score,
    values: (run, x) => ofMetrics((line) => run.scored(line)?.[run.headline])(run, x),
  }),
  rate: new Chart(at("rate"), {
    name: "exchanges per second",
    show: count,
    values: ofRecords((now, before) => Math.max(0, (now.exchanges - before.exchanges) / (now.wall - before.wall))),
  }),
  staleness: new Chart(at("staleness"), { name: "staleness", show: count, values: ofRecords((now) => now.staleness?.mean) }),
};
const lanes = new Lanes(at("lanes"), (part) => choose(part * run().end));
const run = () => runs[chosen] ?? new Run(0);

// --- what comes ---

function listen() {
  const source = new EventSource("events");
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    while (runs.length < (news.runs ?? news.run + 1)) runs.push(new Run(runs.length));
    runs[news.run].take(news);
    connected = true;
    soon();
  };
  source.addEventListener("end", () => {
    over = true;
    source.close();
    soon();
  });
  source.onerror = () => {
    connected = false;
    soon();
  };
}

function soon() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    show();
  });
}

// --- what is shown ---

function show() {
  const now = run();
  const end = now.end;
  const then = moment == null ? end : Math.min(moment, end);
  showHead(now);
  showRuns();
  showProgress(now, then);
  showTiles(now, then);
  lanes.show(now, then, end);
  showMoment(now, then, end);
  const mark = moment == null ? null : then;
  const how = { at: mark, theme: theme() };
  charts.loss.show(runs, axis, { ...how, log: at("log-scale").checked });
  for (const name of ["metric", "rate", "staleness"]) charts[name].show(runs, axis, how);
  at("metric-title").textContent = metricTitle(now);
  const hidden = !runs.some((one) => one.seesLabelParty);
  for (const name of ["loss", "metric", "staleness"]) at(name).closest("figure").hidden = hidden;
  at("log-scale").closest("label").hidden = hidden;
  showBytes(now, then);
  showBudget(now, then);
  showLog(now, then, end);
}

function showHead(now) {
  const { name, algorithm, data, runtime, seed, own_view: own } = now.facts;
  text("name", name ?? "Colonnade");
  document.title = `${name ?? "run"} · ${now.status} · Colonnade`;
  const about = [algorithm, data, runtime, seed == null ? null : `seed ${seed}`];
  text("about", [...about, own && `seen by ${own}`].filter(Boolean).join(" · "));
  const status = at("status");
  text("status", now.status || "…");
  status.className = `chip ${(now.status || "").replace(" ", "-")}`;
  const steered = ["running", "paused", "waiting"].includes(now.status) && now.facts.may_ask && connected;
  at("pause").disabled = at("stop").disabled = !steered;
  text("pause", now.status === "paused" ? "Go on" : "Pause");
  const notice = at("notice");
  const words = noticeOf(now);
  notice.hidden = !words;
  if (notice.textContent !== words) notice.textContent = words;
}

function noticeOf(now) {
  if (over) return "The page's server has ended. What you see is the last it said; colonnade watch shows the run again.";
  if (!connected && runs.length) return "The page's server does not answer. Trying again …";
  if (now.status === "silent") return "This run has written nothing for a while: it was killed, or its machine is gone.";
  if (now.status === "failed") return [...now.log].reverse().find((line) => line.event === "failed")?.message ?? "The run failed.";
  if (now.status === "waiting") {
    const label = now.record(now.facts.label_party, now.end) ?? [...now.series.values()].at(0)?.at(-1);
    if (label?.absent?.length) return `Waiting for ${label.absent.join(", ")}.`;
  }
  return "";
}

function showRuns() {
  const nav = at("runs");
  nav.hidden = runs.length < 2;
  if (nav.hidden) return;
  const wanted = JSON.stringify([chosen, theme(), runs.map((one) => [one.facts.name, one.status, one.shown])]);
  if (nav.dataset.shown === wanted) return;
  nav.dataset.shown = wanted;
  nav.replaceChildren(
    ...runs.map((one, place) => {
      const box = made("input");
      Object.assign(box, { type: "checkbox", checked: one.shown, title: "draw its curves" });
      box.setAttribute("aria-label", `draw the curves of ${one.facts.name}`);
      box.addEventListener("change", () => {
        one.shown = box.checked;
        soon();
      });
      const dot = made("i", "dot");
      dot.style.background = colour(one);
      const button = made("button", "", dot, ` ${one.facts.name ?? "run"} `, made("span", "quiet", one.status));
      button.setAttribute("aria-pressed", String(place === chosen));
      button.addEventListener("click", () => pick(place));
      return made("span", "pick", box, button);
    }),
  );
}

function showProgress(now, then) {
  const [done, left] = now.progress(then);
  const bar = at("done");
  bar.hidden = done == null && !now.seesLabelParty;
  if (done == null) bar.removeAttribute("value");
  else bar.value = now.status === "finished" && moment == null ? 1 : done;
  const words = [done == null ? "" : share(now.status === "finished" && moment == null ? 1 : done)];
  if (left != null && !now.ended && moment == null && now.status !== "paused") words.push(`about ${seconds(left)} left`);
  text("left", words.filter(Boolean).join(", "));
}

function showTiles(now, then) {
  const label = now.facts.label_party;
  const record = now.record(label, then) ?? [...now.series.values()][0]?.at(-1);
  const summary = now.facts.summary ?? {};
  const final = now.ended && moment == null;
  const loss = now.line(then, (line) => line.loss != null)?.loss;
  const scored = now.line(then, (line) => now.scored(line)?.[now.headline] != null);
  const rates = now.parties.includes(label) ? now.rate(label, then) : now.rate(now.parties[0], then);
  const stale = record?.staleness ?? (final ? summary.staleness : null);
  const metrics = now.metrics.length > 0;
  const tiles = [
    ["exchanges", count(record?.exchanges ?? summary.exchanges), record?.epochs == null ? "" : `${record.epochs.toFixed(2)} of ${count(now.facts.epochs)} epochs`],
    ["per second", final ? "–" : count(rates), "exchanges, wall time"],
    ...(metrics ? [["loss", score(loss), "training, since the last line"]] : []),
    ...(metrics && now.headline ? [metricTile(now, scored, final)] : []),
    ...(stale ? [["staleness", count(stale.mean), `at most ${count(stale.max)} exchanges`]] : []),
    ["sent", bytes(now.bytes(then)), "all messages so far"],
    ["time", seconds(then), now.isSimulated ? `virtual; ${seconds(record?.wall ?? summary.wall_seconds)} wall` : "of the run"],
  ];
  const box = at("tiles");
  while (box.children.length > tiles.length) box.lastChild.remove();
  tiles.forEach(([name, value, note], place) => {
    let tile = box.children[place];
    if (!tile) {
      tile = made("div", "tile", made("span", "quiet"), made("b"), made("small", "quiet"));
      box.append(tile);
    }
    tile.dataset.name = name;
    [name, value, note].forEach((word, part) => {
      if (tile.children[part].textContent !== word) tile.children[part].textContent = word;
    });
  });
}

function showMoment(now, then, end) {
  const slider = at("moment");
  slider.value = end > 0 ? Math.round((STEPS * then) / end) : STEPS;
  slider.setAttribute("aria-valuetext", momentWords(now, then));
  text("when", momentWords(now, then));
  at("live").setAttribute("aria-pressed", String(moment == null));
  text("live", now.ended ? "End" : "Live");
}

function showBytes(now, then) {
  const sent = now.sent(then);
  const most = Math.max(1, ...sent.map((one) => one.size));
  bars(
    at("bytes"),
    sent.map((one) => [one.kind, one.size / most, bytes(one.size), one.frames == null ? "" : `${count(one.frames)} ×`]),
    "Nothing was sent yet.",
  );
}

function showBudget(now, then) {
  const facts = now.facts.budget;
  text("budget-note", facts ? `by row (δ = ${facts.delta < 1e-3 ? facts.delta.toExponential() : facts.delta})` : "");
  const spent = now.spent(then);
  const box = at("budget");
  const wanted = JSON.stringify([spent, facts?.limits]);
  if (box.dataset.shown === wanted) return;
  box.dataset.shown = wanted;
  if (!spent.length) {
    const otherwise = facts ? "Nothing noised was released yet." : "No value is noised in this run: there is no budget.";
    box.replaceChildren(made("p", "quiet", otherwise));
    return;
  }
  const heads = ["", "rows", "left: all, middle half, median", "least", "half", "ε spent at most"];
  const table = made("table", "bars budgets", made("tr", "quiet", ...heads.map((word) => column(word))));
  table.append(...spent.map((one) => budgetRow(one, facts)));
  box.replaceChildren(table);
}

// What is left of each row's budget: from the least to the most, the middle half of the rows, and the median.
function budgetRow({ protects, rows, mu2 }, facts) {
  const limit = facts?.limits?.[protects.startsWith("labels") ? "labels" : "columns"]?.mu2;
  const left = mu2.map((cost) => (limit ? Math.max(0, 1 - cost / limit) : null));
  const head = made("th", "", protects);
  head.scope = "row";
  const cell = made("td", "bar-cell");
  if (limit) {
    const [most, upper, half, lower, least] = left;
    const scale = made("div", "scale", part("range", least, most), part("middle", lower, upper), part("median", half, half));
    scale.setAttribute("role", "img");
    scale.setAttribute("aria-label", `${protects}: at least ${share(least)} left, half of the rows have ${share(half)} or more`);
    cell.append(scale);
  }
  const figures = [share(left[4]), share(left[2]), count(epsilonOf(facts, mu2[4]))].map((word) => made("td", "number", word));
  return made("tr", "", head, made("td", "number quiet", count(rows)), cell, ...figures);
}

function part(name, from, to) {
  const bar = made("i", name);
  bar.style.left = `${100 * from}%`;
  bar.style.width = `${100 * (to - from)}%`;
  return bar;
}

function column(word) {
  const head = made(word ? "th" : "td", "", word);
  if (word) head.scope = "col";
  return head;
}

// The next higher ε of the server's table: never one too small.
function epsilonOf(facts, mu2) {
  return facts?.epsilon_of_mu2.find(([cost]) => cost >= mu2)?.[1] ?? Infinity;
}

function bars(box, rows, otherwise) {
  const wanted = JSON.stringify(rows);
  if (box.dataset.shown === wanted) return;
  box.dataset.shown = wanted;
  if (!rows.length) {
    box.replaceChildren(made("p", "quiet", otherwise));
    return;
  }
  const table = made("table", "bars");
  for (const [name, part, value, note] of rows) {
    const cell = made("td", "bar-cell");
    if (part != null) {
      const bar = made("i");
      bar.style.width = `${100 * part}%`;
      cell.append(bar);
    }
    const head = made("th", part == null && !value ? "group" : "", name);
    head.scope = "row";
    table.append(made("tr", "", head, cell, made("td", "number", value), made("td", "number quiet", note)));
  }
  box.replaceChildren(table);
}

function showLog(now, then, end) {
  const list = at("log");
  const limit = moment == null || then >= end ? Infinity : momentTime(now, then);
  const lines = now.log.filter((line) => line.time <= limit);
  const notes = now.metrics
    .filter((line) => line.note && line.at <= then)
    .map((line) => ({ at: line.at, level: "note", party: line.party, message: line.note }));
  const wanted = JSON.stringify([lines.length, lines.at(-1), notes.length, now.facts.name]);
  if (list.dataset.shown === wanted) return;
  list.dataset.shown = wanted;
  const follows = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
  const all = [...notes, ...lines].slice(-200);
  list.replaceChildren(
    ...all.map((line) => {
      const when = line.time ? new Date(1000 * line.time).toLocaleTimeString("en-GB") : seconds(line.at);
      return made("li", line.level, made("time", "", when), made("b", "", line.party ?? ""), made("span", "", line.message));
    }),
  );
  if (!all.length) list.append(made("li", "quiet", "Nothing was said yet."));
  if (follows) list.scrollTop = list.scrollHeight;
}

function momentTime(now, then) {
  for (const records of [now.series.get(now.facts.label_party) ?? [], ...now.series.values()]) {
    const later = records.find((record) => record.at > then);
    if (later) return later.time;
  }
  return Infinity;
}

function metricTile(now, scored, final) {
  const name = words(now.headline);
  const tested = now.facts.summary?.test?.[now.headline];
  return final && tested != null ? [name, score(tested), "test rows, at the end"] : [name, score(scored && now.scored(scored)[now.headline]), rowsOf(scored)];
}

function metricTitle(now) {
  const scored = now.line(Infinity, (line) => now.scored(line));
  return now.headline ? `${capital(words(now.headline))}, ${rowsOf(scored)}` : "Metric";
}

function rowsOf(line) {
  return line?.validation ? "validation rows" : "test rows";
}

const words = (name) => name.replaceAll("_", " ");
const capital = (word) => word[0].toUpperCase() + word.slice(1);

function text(id, words) {
  const element = at(id);
  if (element.textContent !== words) element.textContent = words;
}

// --- what is done ---

function choose(then) {
  const end = run().end;
  moment = then >= end * (1 - 0.5 / STEPS) ? null : Math.max(0, then);
  soon();
}

function pick(place) {
  if (place >= runs.length) return;
  chosen = place;
  moment = null;
  soon();
}

async function ask(what) {
  const answer = await fetch("ask", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ run: chosen, ask: what }),
  });
  if (!answer.ok) {
    at("notice").hidden = false;
    at("notice").textContent = await answer.text();
  }
}

function pauseOrGoOn() {
  if (!at("pause").disabled) ask(run().status === "paused" ? "go on" : "pause");
}

function stopIfSure() {
  if (at("stop").disabled || at("sure").open) return;
  const { runtime, name } = run().facts;
  const whose = runtime === "network" ? "Only this party stops; the others wait for it, or go on, as their settings say." : "Every party saves its state.";
  at("sure-words").textContent = `${name}: ${whose} It can be resumed later.`;
  at("sure").returnValue = "no";
  at("sure").showModal();
}

function theme() {
  const own = document.documentElement.dataset.theme;
  return own || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function turnTheme() {
  document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
  soon();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const keys = { p: pauseOrGoOn, s: stopIfSure, t: turnTheme, l: () => choose(Infinity), "?": () => at("help").showModal() };
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const inside = event.target.closest("input, ol");
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (keys[key]) keys[key]();
  else if (step && !inside) choose((moment ?? run().end) + step * (run().end / 100));
  else if (/^[1-9]$/.test(key)) pick(Number(key) - 1);
  else return;
  event.preventDefault();
}

at("pause").addEventListener("click", pauseOrGoOn);
at("stop").addEventListener("click", stopIfSure);
at("sure").addEventListener("close", () => at("sure").returnValue === "yes" && ask("stop"));
at("theme").addEventListener("click", turnTheme);
at("keys").addEventListener("click", () => at("help").showModal());
at("live").addEventListener("click", () => choose(Infinity));
at("moment").addEventListener("input", (event) => choose((event.target.value / STEPS) * run().end));
at("log-scale").addEventListener("change", soon);
document.addEventListener("keydown", pressed);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
addEventListener("resize", soon);
for (const [name, { title }] of Object.entries(AXES)) {
  const button = made("input");
  Object.assign(button, { type: "radio", name: "axis", value: name, checked: name === axis });
  button.addEventListener("change", () => {
    axis = name;
    soon();
  });
  at("axis").append(made("label", "", button, made("span", "", title)));
}
legend(at("lane-legend"));
setInterval(soon, 1000);
listen();
