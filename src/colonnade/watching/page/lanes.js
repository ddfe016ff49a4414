// Parties as lanes: what each does now, and how busy it was over the whole run.

import { count, made, seconds, share } from "./figures.js";

const GAP_SECONDS = 6; // real time without a record: the party was not there
const STATES = ["working", "waiting", "away", "gone", "paused"];

export class Lanes {
  constructor(list, choose) {
    this.list = list;
    this.choose = choose; // is given a moment, by a click on a strip
    this.rows = new Map();
    this.run = null;
  }

  show(run, at, end) {
    const parties = run.parties;
    if (this.run !== run || parties.length !== this.rows.size || parties.some((party) => !this.rows.has(party))) {
      this.run = run;
      this.rows = new Map(parties.map((party) => [party, this.#row(party, run)]));
      this.list.replaceChildren(...[...this.rows.values()].map((row) => row.element));
    }
    for (const [party, row] of this.rows) this.#update(row, run, party, at, end);
  }

  #row(party, run) {
    const strip = made("canvas", "strip");
    const row = {
      state: made("span", "chip"),
      why: made("span", "why quiet"),
      strip,
      busy: made("span", "number"),
      exchanges: made("span", "number"),
      rate: made("span", "number"),
    };
    const role = party === run.facts.label_party ? made("span", "role", "labels") : "";
    const name = made("span", "party", made("b", "", party), role);
    row.element = made("div", "lane", name, made("span", "now", row.state, row.why), strip, row.busy, row.exchanges, row.rate);
    row.element.setAttribute("role", "listitem");
    strip.addEventListener("click", (event) => {
      const box = strip.getBoundingClientRect();
      this.choose((event.clientX - box.left) / box.width);
    });
    return row;
  }

  #update(row, run, party, at, end) {
    const [state, why] = run.state(party, at);
    if (row.state.textContent !== state) {
      row.state.textContent = state;
      row.state.className = `chip ${state}`;
    }
    row.why.textContent = why;
    const total = run.facts.summary?.parties?.[party] ?? {};
    const record = run.record(party, at);
    const ended = run.ended && at >= end;
    const busy = (ended ? whole(total) : null) ?? run.working(party, at);
    set(row.busy, share(busy), "working");
    set(row.exchanges, count(record?.exchanges ?? total.exchanges), "exchanges");
    set(row.rate, state === "gone" ? "" : `${count(run.rate(party, at))} /s`, "");
    const spoken = `${party} is ${state}${why ? ` (${why})` : ""}, ${share(busy)} of its time at work`;
    row.strip.setAttribute("role", "img");
    row.strip.setAttribute("aria-label", spoken);
    this.#draw(row.strip, run, party, at, end);
  }

  #draw(strip, run, party, at, end) {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(strip.clientWidth * ratio);
    const height = Math.round(strip.clientHeight * ratio);
    if (!width || !height) return;
    if (strip.width !== width || strip.height !== height) Object.assign(strip, { width, height });
    const pen = strip.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = Object.fromEntries(STATES.map((state) => [state, style.getPropertyValue(`--${state}`)]));
    pen.clearRect(0, 0, width, height);
    const records = run.series.get(party) ?? [];
    const x = (moment) => (end > 0 ? (moment / end) * width : 0);
    const box = (from, to, what, part = 1) => {
      pen.fillStyle = colour[what];
      const [left, right] = [Math.floor(x(from)), Math.ceil(x(to))]; // whole pixels: no seams between neighbours
      pen.clearRect(left, 0, right - left, part === 1 ? height : 0);
      pen.fillRect(left, Math.round(height * (1 - part)), Math.max(1, right - left), Math.round(height * part));
    };
    for (let place = 1; place < records.length; place += 1) {
      const [before, now] = [records[place - 1], records[place]];
      const long = now.at - before.at;
      if (long <= 0) continue;
      if (now.seen) {
        box(before.at, now.at, now.gone ? "gone" : now.connected ? "waiting" : "away", 1);
        const rate = (now.exchanges ?? 0) - (before.exchanges ?? 0);
        if (now.connected && rate > 0) box(before.at, now.at, "working", now.waiting ? 0.5 : 0.85);
        continue;
      }
      const away = ((now.away ?? 0) - (before.away ?? 0)) / long;
      if (away > 0.5 || (!run.isSimulated && long > GAP_SECONDS && now.time - before.time > GAP_SECONDS)) {
        box(before.at, now.at, "away");
        continue;
      }
      box(before.at, now.at, before.status === "finished" ? "gone" : "waiting");
      box(before.at, now.at, "working", Math.min(1, Math.max(0, (now.busy - before.busy) / long)));
    }
    if (!records.length) box(0, end, "gone");
    if (at < end) {
      pen.fillStyle = style.getPropertyValue("--ink");
      pen.fillRect(Math.min(width - ratio, x(at)), 0, 2 * ratio, height);
    }
  }
}

function whole(total) {
  const busy = total.busy_seconds;
  const all = busy + (total.idle_seconds ?? 0) + (total.away_seconds ?? 0);
  return busy == null || !all ? null : busy / all;
}

function set(element, text, title) {
  if (element.textContent !== text) element.textContent = text;
  if (element.title !== title) element.title = title;
}

export function legend(element) {
  const words = {
    working: "working (as high as its share of the time)",
    waiting: "waiting",
    away: "away",
    gone: "gone or finished",
  };
  element.replaceChildren(...Object.entries(words).map(([state, word]) => made("span", "", made("i", `dot ${state}`), ` ${word}`)));
}

export function moment(run, at) {
  return `${seconds(at)}${run.isSimulated ? " virtual" : ""}`;
}
