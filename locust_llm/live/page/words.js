// Numbers, times and elements. The one thing to know: text becomes text nodes, never markup: names come from users.

/** Return a number with so many significant digits, thin spaces between thousands, "–" where there is none. */
export function number(value, digits = 4) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  const decimals = Number.isInteger(value) ? 0 : Math.max(0, Math.min(3, digits - 1 - size), -size);
  const [whole, part] = value.toFixed(Math.min(decimals, 6)).split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") : whole;
  return part ? `${grouped}.${part}` : grouped;
}

/** Return a share as per cent. */
export function percent(share) {
  if (share === undefined) return "–";
  return `${share > 0 && share < 0.0001 ? "<0.01" : number(share * 100, share < 0.1 ? 2 : 3)} %`;
}

/** Return milliseconds as [number, unit]: seconds from ten thousand on. */
export function time(ms, digits = 3) {
  return ms >= 10000 ? [number(ms / 1000, digits), "s"] : [number(ms, digits), "ms"];
}

/** Return seconds as 0:42, 12:07 or 1:02:03. */
export function clock(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(s % 60)}` : `${minutes}:${two(s % 60)}`;
}

/** Return seconds in words: "40 s", "3 min", "1 h 20 min". */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Make an element. Strings among the children are text. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Make an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

/** Set an element's text if it is another: what is selected stays selected, and nothing is laid out for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute if it is another. */
export function put(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
