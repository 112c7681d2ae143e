// Where the lines of an axis are. The one thing to know: linear axes begin at 0, logarithmic ones at a 1, 2 or 5.

/** Return a round number that is at least the value: the top of the axis. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((n) => n * size).find((n) => n >= value * 1.02) || 10 * size * 1.5;
}

/** Return the places of the lines of a linear axis. */
export function steps(top) {
  const first = Number(top.toPrecision(2)) / 10 ** Math.floor(Math.log10(top));
  const number = { 1: 4, 1.5: 3, 2: 4, 2.5: 5, 3: 3, 4: 4, 5: 5, 6: 3, 8: 4 }[first] || 4;
  return Array.from({ length: number + 1 }, (_, n) => (top * n) / number);
}

/** Return the 1, 2 or 5 of a decade at or below the value; with ``more``, so many places above that. */
export function floor(value, more = 0) {
  const size = Math.floor(Math.log10(value) + 1e-9);
  const place = value >= 5 * 10 ** size * 0.9999 ? 2 : value >= 2 * 10 ** size * 0.9999 ? 1 : 0;
  const all = 3 * size + place + more;
  return [1, 2, 5][((all % 3) + 3) % 3] * 10 ** Math.floor(all / 3);
}

/** Return the places of the lines of a logarithmic axis: each 1, 2, 5, or only each 1 where that is many. */
export function decades(bottom, top) {
  const all = [];
  for (let value = bottom; value <= top * 1.0001; value = floor(value, 1)) all.push(value);
  return all.length <= 8 ? all : all.filter((value, n) => n === 0 || /^0*\.?0*1/.test(String(value)) || value === top);
}

/** Return the seconds between the labels of a time axis, at most so many labels. */
export function spacing(span, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  return steps.find((step) => span / step <= most) || Math.ceil(span / most / 86400) * 86400;
}

/** Return a label of the axis. */
export function short(value) {
  const [scaled, letter] = value >= 1e6 ? [value / 1e6, "M"] : value >= 1e4 ? [value / 1e3, "k"] : [value, ""];
  return `${Number(scaled.toPrecision(3))}${letter}`;
}
