// Numbers for people.

export function count(value) {
  if (value == null || !isFinite(value)) return "–";
  if (Math.abs(value) >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  if (Number.isInteger(value)) return String(value);
  return value.toPrecision(value < 1 ? 2 : 3);
}

export function bytes(value) {
  if (value == null || !isFinite(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (Math.abs(value) >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${place && value < 100 ? value.toPrecision(3) : Math.round(value)} ${units[place]}`;
}

export function seconds(value) {
  if (value == null || !isFinite(value)) return "–";
  if (value < 0.0005) return "0 s";
  if (value < 10) return `${value.toPrecision(3)} s`;
  if (value < 100) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

export function score(value) {
  return value == null || !isFinite(value) ? "–" : value.toFixed(4);
}

// A tick of an axis: no more digits than it needs.
export function tick(value) {
  if (value == null || !isFinite(value)) return "";
  return Math.abs(value) >= 1000 ? count(value) : String(Number(value.toPrecision(3)));
}

export function share(value) {
  return value == null || !isFinite(value) ? "–" : `${Math.round(100 * value)} %`;
}

// A new element with a class, text and children; never any markup.
export function made(tag, name = "", ...inside) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside);
  return element;
}
