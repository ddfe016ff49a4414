// Lanes of a report: drag to zoom, double-click for all; with the keyboard + and −, ← and →, 0 for all.
// Without this script the page shows pictures of the first moments and of the whole run.
function lanesOf(box, told) {
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const height = told.parties.length > 12 ? 18 : 26;
  const made = (tag, css, words = "") => Object.assign(document.createElement(tag), { className: css, textContent: words });
  const number = (value) => String(Number(value.toPrecision(4)));
  let [from, to] = [0, told.end];
  let drag = null;

  const canvas = made("canvas", "");
  const said = made("p", "small");
  const save = made("button", "", "Data (CSV)");
  const controls = made("div", "controls");
  const hint = made("span", "small", "At work, darker for more of the time; red: away. Drag to zoom, double-click for all; with keys: + and −, ← and →, 0 for all.");
  controls.append(hint, save);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  said.setAttribute("aria-live", "polite");
  box.append(controls, canvas, said);

  // What share of a stretch a party was at work: from its pieces of work where they were recorded, else from its records.
  const knownUntil = told.parties.map(({ spans }) => (spans.length ? Math.max(...spans.map((span) => span[1])) : 0));
  function share(place, start, end) {
    const { records, spans } = told.parties[place];
    if (end <= knownUntil[place] || !records.length) {
      if (start >= knownUntil[place]) return null;
      const at = (what) => spans.reduce((sum, [a, b, kind]) => sum + (kind === what ? Math.max(0, Math.min(b, end) - Math.max(a, start)) : 0), 0);
      return { work: at("busy") / (end - start), away: at("away") / (end - start) };
    }
    const by = (moment, what) => {
      const next = records.findIndex(([time]) => time >= moment);
      if (next === 0) return records[0][what];
      if (next < 0) return records.at(-1)[what];
      const [before, after] = [records[next - 1], records[next]];
      return before[what] + ((after[what] - before[what]) * (moment - before[0])) / (after[0] - before[0]);
    };
    if (start >= records.at(-1)[0]) return null;
    const part = (what) => Math.min(1, Math.max(0, by(end, what) - by(start, what)) / (end - start));
    return { work: part(1), away: part(2) };
  }

  const left = 84;
  function draw() {
    const ratio = devicePixelRatio || 1;
    const width = box.clientWidth - 28;
    const tall = told.parties.length * (height + 6) + 24;
    Object.assign(canvas, { width: width * ratio, height: tall * ratio });
    Object.assign(canvas.style, { width: `${width}px`, height: `${tall}px`, margin: "0 14px", display: "block" });
    const style = getComputedStyle(document.documentElement);
    const [ink, line] = ["--muted", "--line"].map((name) => style.getPropertyValue(name).trim());
    const [work, gone] = isDark.matches ? ["#56b4e9", "#e0707f"] : ["#0072b2", "#c0392b"];
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    told.parties.forEach((party, place) => {
      const top = place * (height + 6);
      pen.globalAlpha = 1;
      pen.fillStyle = ink;
      pen.fillText(party.name.length > 12 ? `${party.name.slice(0, 11)}…` : party.name, 0, top + height / 2);
      pen.fillStyle = line;
      pen.fillRect(left, top, width - left, height);
      for (let x = left; x < width; x += 1) {
        const [start, end] = [x, x + 1].map((one) => from + ((one - left) / (width - left)) * (to - from));
        const found = share(place, start, end);
        if (!found) continue;
        for (const [part, colour] of [[found.away, gone], [found.work, work]]) {
          if (part <= 0) continue;
          pen.globalAlpha = 0.15 + 0.85 * Math.min(1, part);
          pen.fillStyle = colour;
          pen.fillRect(x, top, 1, height);
        }
      }
    });
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    for (const [moment, align] of [[from, "left"], [(from + to) / 2, "center"], [to, "right"]]) {
      pen.textAlign = align;
      pen.fillText(number(moment), align === "left" ? left : align === "right" ? width : (left + width) / 2, tall - 10);
    }
    if (drag) {
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(drag.start, drag.end), 0, Math.abs(drag.end - drag.start), tall - 24);
    }
    const whole = told.parties.map((party, place) => [party.name, share(place, from, to)]).filter(([, found]) => found);
    const shares = whole.map(([name, found]) => `${name} ${Math.round(100 * found.work)} %`).join(", ");
    canvas.setAttribute("aria-label", `From ${number(from)} to ${number(to)} ${told.unit}. At work: ${shares}.`);
    said.textContent = `${number(from)} to ${number(to)} ${told.unit}. At work: ${shares}.`;
  }

  function show(start, end) {
    const least = told.end / 1e5;
    const long = Math.min(told.end, Math.max(least, end - start));
    from = Math.min(Math.max(0, start), told.end - long);
    to = from + long;
    draw();
  }

  const moment = (x) => from + ((Math.max(left, x) - left) / (canvas.clientWidth - left)) * (to - from);
  canvas.addEventListener("pointerdown", (event) => {
    drag = { start: event.offsetX, end: event.offsetX };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => drag && ((drag.end = event.offsetX), draw()));
  canvas.addEventListener("pointerup", () => {
    const [start, end] = [drag.start, drag.end].sort((a, b) => a - b).map(moment);
    const wide = Math.abs(drag.end - drag.start) > 4;
    drag = null;
    if (wide) show(start, end);
  });
  canvas.addEventListener("pointercancel", () => ((drag = null), draw()));
  canvas.addEventListener("dblclick", () => show(0, told.end));
  canvas.addEventListener("keydown", (event) => {
    const [middle, half] = [(from + to) / 2, (to - from) / 2];
    const moves = {
      "+": [middle - half / 2, middle + half / 2],
      "-": [middle - 2 * half, middle + 2 * half],
      ArrowLeft: [from - half / 2, to - half / 2],
      ArrowRight: [from + half / 2, to + half / 2],
      0: [0, told.end],
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(...moves[event.key]);
  });
  save.addEventListener("click", () => {
    const quoted = (word) => `"${String(word).replaceAll('"', '""')}"`;
    const lines = ["party,from,to,what"];
    for (const { name, spans, records } of told.parties) {
      spans.forEach(([start, end, what]) => lines.push([quoted(name), start, end, what].join(",")));
      records.slice(1).forEach(([end, busy], at) => lines.push([quoted(name), records[at][0], end, `busy for ${Number((busy - records[at][1]).toPrecision(4))}`].join(",")));
    }
    const link = made("a", "");
    link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    link.download = "lanes.csv";
    link.click();
  });

  box.hidden = false;
  draw();
  let width = box.clientWidth;
  addEventListener("resize", () => box.clientWidth !== width && ((width = box.clientWidth), draw()));
  isDark.addEventListener("change", draw);
}
document.querySelectorAll("script[data-lanes]").forEach((data) => lanesOf(data.previousElementSibling, JSON.parse(data.textContent)));
document.querySelectorAll(".pictured").forEach((one) => one.classList.add("only-print"));
