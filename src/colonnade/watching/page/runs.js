// What the page knows of a run: what came, and what follows from it at any moment.

const MOST = 1600;
const SILENT_SECONDS = 6;
const RATE_SECONDS = 2;

export class Run {
  constructor(place) {
    this.place = place;
    this.shown = true;
    this.clear();
  }

  clear() {
    this.facts = {};
    this.status = "";
    this.metrics = [];
    this.log = [];
    this.series = new Map(); // party → its records in order of time; what the label party sees of others, too
    this.seenBy = new Map(); // party → whose records they are
    this.scores = new Set(); // names of what was scored
    this.isVirtual = false; // whether its lines have virtual seconds
  }

  take(news) {
    if (news.reset) this.clear();
    if (news.facts) this.facts = news.facts;
    this.status = news.status;
    for (const samples of Object.values(news.samples ?? {})) for (const sample of samples) this.#takeSample(sample);
    for (const line of news.metrics ?? []) {
      while (this.metrics.length && this.metrics.at(-1).exchange > line.exchange) this.metrics.pop(); // it went back
      this.metrics.push({ ...line, at: line.virtual_seconds ?? line.wall_seconds });
      this.isVirtual ||= line.virtual_seconds != null;
      for (const name of Object.keys(this.scored(line) ?? {})) this.scores.add(name);
    }
    this.log = [...this.log, ...(news.log ?? [])].slice(-400);
  }

  #takeSample(sample) {
    const at = sample.virtual ?? sample.now;
    for (const [party, lane] of Object.entries(sample.parties)) {
      this.#add(party, party, { ...lane, at, wall: sample.now, time: sample.time, paused: sample.paused });
      for (const [peer, [connected, waiting, gone]] of Object.entries(lane.links ?? {})) {
        if (party !== this.facts.label_party) continue;
        const exchanges = lane.replies?.[peer];
        const seen = { at, wall: sample.now, time: sample.time, paused: false, seen: true, connected, waiting, gone };
        this.#add(peer, party, { ...seen, exchanges, begun: lane.status !== "waiting" });
      }
    }
  }

  #add(party, by, record) {
    const known = this.seenBy.get(party);
    if (known === party && by !== party) return; // it speaks for itself
    if (known !== by) this.series.set(party, []);
    this.seenBy.set(party, by);
    const records = this.series.get(party);
    while (records.length && records.at(-1).at > record.at) records.pop(); // the run went back to a checkpoint
    records.push(record);
    if (records.length > MOST) this.series.set(party, thinned(records));
  }

  get ended() {
    return ["finished", "stopped", "failed"].includes(this.status);
  }

  get isSimulated() {
    return this.facts.runtime === "simulate" || this.isVirtual;
  }

  get parties() {
    const all = new Set([...this.series.keys(), ...Object.keys(this.facts.summary?.parties ?? {})]);
    const label = this.facts.label_party;
    return [...all].sort((a, b) => (b === label) - (a === label) || a.localeCompare(b, "en", { numeric: true }));
  }

  // Whether the label party is among those who are seen: losses, metrics and staleness are its own.
  get seesLabelParty() {
    return !this.series.size || this.series.has(this.facts.label_party);
  }

  get end() {
    let end = this.metrics.at(-1)?.at ?? 0;
    for (const records of this.series.values()) end = Math.max(end, records.at(-1)?.at ?? 0);
    const summary = this.facts.summary ?? {};
    return Math.max(end, this.ended ? (summary.virtual_seconds ?? summary.wall_seconds ?? 0) : 0);
  }

  // --- at a moment ---

  record(party, at) {
    const records = this.series.get(party) ?? [];
    return records[lastBefore(records, at)];
  }

  // The record some time before, to tell a rate by.
  #before(party, at, wallSeconds = RATE_SECONDS) {
    const records = this.series.get(party) ?? [];
    const last = lastBefore(records, at);
    let place = last - 1;
    while (place > 0 && records[last].wall - records[place].wall < wallSeconds) place -= 1;
    return place >= 0 && place < last ? records[place] : undefined;
  }

  rate(party, at) {
    const now = this.record(party, at);
    const before = this.#before(party, at);
    if (!now || !before || now.wall <= before.wall) return null;
    return Math.max(0, (now.exchanges - before.exchanges) / (now.wall - before.wall));
  }

  working(party, at) {
    const now = this.record(party, at);
    const before = this.#before(party, at);
    if (!now || !before || now.busy == null || now.at <= before.at) return null;
    return Math.min(1, Math.max(0, (now.busy - before.busy) / (now.at - before.at)));
  }

  // "working", "waiting", "away", "gone", "paused", and why.
  state(party, at) {
    const now = this.record(party, at);
    const total = this.facts.summary?.parties?.[party];
    if (!now) return total ? ["gone", "ended"] : ["waiting", "not begun"];
    const isLast = now === (this.series.get(party) ?? []).at(-1);
    if (now.status === "finished" || (this.ended && isLast && at >= now.at)) return ["gone", now.status === "finished" ? "finished" : this.status];
    if (now.status === "away") return ["away", ""];
    if (now.seen) {
      if (now.gone) return ["gone", "left"];
      if (!now.connected) return ["away", now.begun ? "" : "not here yet"];
      return now.waiting ? ["waiting", "for the label party"] : ["working", ""];
    }
    if (now.paused) return ["paused", ""];
    for (const other of this.series.keys()) {
      const said = other === party ? null : this.record(other, at);
      if (said && !said.seen && (said.absent ?? []).includes(party)) return ["away", `${other} does not reach it`];
      if (said && !said.seen && said.time - now.time > SILENT_SECONDS) return ["away", "nothing heard of it"];
    }
    if (now.status === "waiting") return ["waiting", now.absent?.length ? `for ${now.absent.join(", ")}` : "to begin"];
    const busy = this.working(party, at);
    if (busy == null) return [now.status === "training" ? "working" : "waiting", ""];
    return busy >= 0.5 ? ["working", ""] : ["waiting", now.absent?.length ? `for ${now.absent.join(", ")}` : ""];
  }

  line(at, has) {
    for (let place = this.metrics.length - 1; place >= 0; place -= 1) {
      if (this.metrics[place].at <= at + 1e-9 && has(this.metrics[place])) return this.metrics[place];
    }
    return undefined;
  }

  scored(line) {
    return line.validation ?? line.metric ?? null;
  }

  // It is asked for at every line of a curve.
  get headline() {
    const named = this.facts.summary?.headline;
    if (named && this.scores.has(named)) return named;
    return ["accuracy", "auc", "rmse", "log_loss"].find((name) => this.scores.has(name)) ?? [...this.scores][0];
  }

  // Bytes and frames by message, of all who are seen.
  sent(at) {
    const all = new Map();
    const add = (kind, frames, size) => {
      const [f, s] = all.get(kind) ?? [0, 0];
      all.set(kind, [f + frames, s + size]);
    };
    let any = false;
    for (const party of this.series.keys()) {
      const now = this.record(party, at);
      if (!now || now.seen) continue;
      any = true;
      for (const [kind, [frames, size]] of Object.entries(now.sent ?? {})) add(kind, frames, size);
      const speaks = [...this.seenBy].some(([other, by]) => by === other && other !== party);
      if (!speaks) for (const [kind, [frames, size]] of Object.entries(now.received ?? {})) add(kind, frames, size);
    }
    if (!any) for (const [kind, size] of Object.entries(this.facts.summary?.bytes_by_message ?? {})) add(kind, null, size);
    return [...all].map(([kind, [frames, size]]) => ({ kind, frames, size })).sort((a, b) => b.size - a.size);
  }

  bytes(at) {
    return this.sent(at).reduce((sum, one) => sum + one.size, 0);
  }

  spent(at) {
    const found = [];
    for (const party of this.parties) {
      for (const [protects, told] of Object.entries(this.record(party, at)?.spent ?? {})) found.push({ party, protects, ...told });
    }
    return found;
  }

  // Share of the training that is done, and wall seconds that are left.
  progress(at) {
    const label = this.facts.label_party;
    const epochs = this.facts.epochs;
    const now = this.record(label, at);
    const done = now?.epochs ?? this.line(at, (line) => line.epoch != null)?.epoch;
    if (!epochs || done == null) return [null, null];
    const before = this.#before(label, at, 20);
    const speed = before && now.wall > before.wall ? (now.epochs - before.epochs) / (now.wall - before.wall) : 0;
    return [Math.min(1, done / epochs), speed > 0 ? Math.max(0, (epochs - done) / speed) : null];
  }
}

export function lastBefore(records, at) {
  let low = 0;
  let high = records.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (records[middle].at <= at + 1e-9) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// As runtimes/live_files.py keeps lines: the last quarter, and of those before enough to show the whole evenly.
function thinned(records) {
  const recent = records.length - MOST / 4;
  const apart = (records[recent].wall - records[0].wall) / (MOST / 2);
  let due = records[0].wall;
  return records.filter((record, place) => {
    if (place >= recent) return true;
    if (record.wall < due) return false;
    due = record.wall + apart;
    return true;
  });
}
