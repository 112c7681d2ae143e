// One chart in SVG. The one thing to know: what is drawn is thinned to the lowest and highest of each pixel or two, so
// that a peak is seen however long the run, and a path is only touched when it changes.

import { ceiling, decades, floor, short, spacing, steps } from "./scale.js";
import { clock, el, number, put, say, svg } from "./words.js";

const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 22;
const BRIDGE = 5;
const PIXELS_A_STEP = 1.5;

/**
 * @param spec {key, title, unit, series: [{key, label, colour (1 to 7), dash ("", "dash", "dot"), of(point)}], empty};
 *   series may be a function of (points, view), empty is what is said where there are none
 * @param onHover called with a time (wall clock, s), or null
 */
export class Chart {
  constructor(spec, onHover) {
    this.spec = spec;
    this.hidden = new Set();
    this.width = 0;
    this.lines = new Map();
    this.keys = el("div", { class: "keys" });
    this.note = el("div", { class: "nothing" });
    this.grid = svg("g", { class: "grid" });
    this.flags = svg("g", { class: "flags" });
    this.paths = svg("g", { class: "lines", fill: "none" });
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.svg = svg("svg", { role: "img", "aria-label": `${spec.title}, ${spec.unit}`, height: HEIGHT });
    this.svg.append(this.grid, this.flags, this.paths, this.cursor);
    this.plot = el("div", { class: "plot" }, this.svg, this.note);
    const title = el("figcaption", {}, el("h3", {}, spec.title), el("span", { class: "soft" }, spec.unit));
    this.element = el("figure", { "data-chart": spec.key }, title, this.keys, this.plot);
    this.svg.addEventListener("pointermove", (event) => this.scale && onHover(this.timeAt(event)));
    this.svg.addEventListener("pointerleave", () => onHover(null));
    new ResizeObserver(([entry]) => this.resize(entry.contentRect.width)).observe(this.plot);
  }

  resize(width) {
    if (Math.abs(width - this.width) < 1) return;
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.setAttribute("width", width);
    if (this.last) this.draw(...this.last);
  }

  timeAt(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const { from, to } = this.scale;
    return Math.min(to, Math.max(from, from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (to - from)));
  }

  /**
   * @param points in order, only those in sight
   * @param view {started, step, from, to (wall s), marks: [{t, text}], why (text if there can be no data)}
   */
  draw(points, view) {
    this.last = [points, view];
    const series = typeof this.spec.series === "function" ? this.spec.series(points, view) : this.spec.series;
    this.series = series;
    this.renew(series);
    if (!this.width) return;
    const shown = series.filter((one) => !this.hidden.has(one.key));
    const values = new Map(shown.map((one) => [one.key, points.map(one.of)]));
    const found = [...values.values()].flat().filter((value) => value !== undefined);
    const any = found.length || series.some((one) => points.some((point) => one.of(point) !== undefined));
    say(this.note, any ? "" : view.why || this.spec.empty || "no data yet");
    const most = found.reduce((a, b) => Math.max(a, b), 0);
    const least = found.reduce((a, b) => (b > 0 ? Math.min(a, b) : a), Infinity);
    const log = Boolean(view.log && this.spec.unit === "ms" && least < Infinity);
    const bottom = log ? floor(least) : 0;
    const top = log ? floor(Math.max(most, bottom * 1.01) * 1.0001, 1) : ceiling(most);
    this.scale = { from: view.from, to: Math.max(view.to, view.from + 10), top, bottom, log };
    this.frame(view);
    for (const one of series) {
      const data = values.has(one.key) ? this.path(points, values.get(one.key), view) : "";
      put(this.lines.get(one.key).path, "d", data);
    }
  }

  /** Show the values at a time; without one the newest while the test runs. */
  point(at, points, view) {
    const latest = view.live ? newest(points, this.series) : undefined;
    const point = at === null ? latest : nearest(points, (at - view.started) / view.step);
    for (const one of this.series || []) say(this.lines.get(one.key).value, point ? number(one.of(point), 3) : "");
    if (at === null || !this.scale) return put(this.cursor, "visibility", "hidden");
    const x = this.x(at).toFixed(1);
    put(this.cursor, "x1", x);
    put(this.cursor, "x2", x);
    put(this.cursor, "visibility", "visible");
  }

  x(at) {
    const { from, to } = this.scale;
    return LEFT + ((at - from) / (to - from)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    const { top, bottom, log } = this.scale;
    const share = log ? Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom) : value / top;
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
  }

  path(points, values, view) {
    const parts = [];
    const per = this.perStep(view);
    const bridge = Math.max(BRIDGE, 2 * per);
    let [last, begun, single] = [-Infinity, "", false];
    const add = (i, value) => {
      const place = `${this.x(view.started + (i + 0.5) * view.step).toFixed(1)},${this.y(value).toFixed(1)}`;
      if (i - last > bridge) {
        if (single) parts.push("h0");
        parts.push(`M${place}`);
        single = true;
      } else if (place !== begun) {
        parts.push(`L${place}`);
        single = false;
      }
      [last, begun] = [i, place];
    };
    for (const [i, value] of thinned(points, values, per)) add(i, value);
    if (single) parts.push("h0");
    return parts.join("");
  }

  perStep(view) {
    const pixels = ((this.width - LEFT - RIGHT) * view.step) / (this.scale.to - this.scale.from);
    return Math.max(1, Math.round(PIXELS_A_STEP / pixels));
  }

  frame(view) {
    const { from, to, top, bottom, log } = this.scale;
    const nodes = [];
    for (const value of log ? decades(bottom, top) : steps(top)) {
      const y = this.y(value).toFixed(1);
      nodes.push(svg("line", { x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y, class: value > bottom ? "" : "base" }));
      nodes.push(svg("text", { x: LEFT - 6, y: Number(y) + 4, "text-anchor": "end" }, short(value)));
    }
    const every = spacing(to - from, Math.max(2, Math.floor((this.width - LEFT) / 70)));
    const first = Math.ceil((from - view.started) / every) * every;
    for (let at = first; at <= to - view.started + 1e-6; at += every) {
      const x = this.x(view.started + at);
      if (x > this.width - 14) break;
      nodes.push(svg("text", { x: x.toFixed(1), y: HEIGHT - 6, "text-anchor": "middle" }, clock(at)));
    }
    this.grid.replaceChildren(...nodes);
    const seen = view.marks.filter((mark) => mark.t >= from && mark.t <= to);
    this.flags.replaceChildren(...seen.map((mark) => {
      const x = this.x(mark.t).toFixed(1);
      const flag = svg("path", { d: `M${x},${TOP + 7}l-4,-7h8z` });
      const line = svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM });
      return svg("g", {}, svg("title", {}, `${clock(mark.t - view.started)} ${mark.text}`), line, flag);
    }));
  }

  renew(series) {
    const keys = series.map((one) => one.key).join("\n");
    if (keys === this.drawn) return;
    this.drawn = keys;
    const before = this.lines;
    this.lines = new Map(series.map((one) => [one.key, before.get(one.key) || this.line(one)]));
    this.keys.replaceChildren(...[...this.lines.values()].map((line) => line.key));
    this.paths.replaceChildren(...[...this.lines.values()].map((line) => line.path));
  }

  line(one) {
    const look = `c${one.colour} ${one.dash || ""}`;
    const path = svg("path", { class: look, "data-series": one.key });
    const sample = svg("svg", { width: 22, height: 8, class: "sample" }, svg("path", { d: "M1,4h20", class: look }));
    const value = el("b");
    const toggle = () => {
      const was = this.hidden.delete(one.key);
      if (!was) this.hidden.add(one.key);
      put(key, "aria-pressed", was);
      if (this.last) this.draw(...this.last);
    };
    const attributes = { type: "button", "aria-pressed": "true", title: "show or hide this line", onclick: toggle };
    const key = el("button", attributes, sample, one.label, value);
    return { path, key, value };
  }
}

/** Return [i, value] pairs, the lowest and the highest of so many steps in the order of their time. */
function thinned(points, values, per) {
  const kept = [];
  if (per < 2) {
    points.forEach((point, n) => values[n] !== undefined && kept.push([point.i, values[n]]));
    return kept;
  }
  for (let n = 0; n < points.length;) {
    const cell = Math.floor(points[n].i / per);
    let [low, high] = [-1, -1];
    for (; n < points.length && Math.floor(points[n].i / per) === cell; n += 1) {
      if (values[n] === undefined) continue;
      if (low < 0 || values[n] < values[low]) low = n;
      if (high < 0 || values[n] > values[high]) high = n;
    }
    if (low < 0) continue;
    for (const m of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) {
      // Both ends of a cell in a long run may be far apart; as one place they stay joined.
      kept.push([cell * per + (per - 1) / 2, values[m]]);
    }
  }
  return kept;
}

function newest(points, series) {
  for (let n = points.length - 1; n >= 0 && n > points.length - 6; n -= 1) {
    if (series?.some((one) => one.of(points[n]) !== undefined)) return points[n];
  }
  return undefined;
}

function nearest(points, i) {
  let best;
  for (const point of points) if (!best || Math.abs(point.i + 0.5 - i) < Math.abs(best.i + 0.5 - i)) best = point;
  return best && Math.abs(best.i + 0.5 - i) <= 3 ? best : undefined;
}
