// Which charts there are, how much of the run they show, and one cursor for all of them.

import { Chart } from "./chart.js";
import { clock, el, put, say } from "./words.js";

const MOST_KINDS = 5;
const RANGES = [["all", 0], ["15 min", 900], ["5 min", 300], ["1 min", 60]];

const percentiles = (name) => [
  { key: "p50", label: "p50", colour: 1, of: (p) => p[`${name}_p50_ms`] },
  { key: "p95", label: "p95", colour: 2, dash: "dash", of: (p) => p[`${name}_p95_ms`] },
  { key: "p99", label: "p99", colour: 3, dash: "dot", of: (p) => p[`${name}_p99_ms`] },
];

const one = (key, label, colour, dash) => ({ key, label, colour, dash, of: (p) => p[key] });

const CHARTS = [
  { key: "output", title: "Output tokens", unit: "tokens/s", series: [one("output_tps", "output", 1)] },
  { key: "ttft", title: "Time to first token (TTFT)", unit: "ms", series: percentiles("ttft"), metric: "ttft" },
  { key: "itl", title: "Inter-token latency (ITL)", unit: "ms", series: percentiles("itl"), metric: "itl" },
  { key: "streams", title: "Streams and users", unit: "number", series: [
    one("in_flight", "in flight", 1), one("decoding", "decoding", 4, "dash"), one("users", "users", 7, "dot"),
  ] },
  { key: "requests", title: "Requests", unit: "1/s", series: (points) => [
    one("requests_per_s", "succeeded", 1),
    ...(points.some((p) => p.rate_asked !== undefined) ? [one("rate_asked", "asked rate", 7, "dot")] : []),
  ] },
  { key: "e2e", title: "End-to-end latency", unit: "ms", series: percentiles("e2e_latency").slice(0, 2),
    metric: "e2e_latency" },
  { key: "input", title: "Input tokens", unit: "tokens/s", series: [one("input_tps", "input", 4)] },
  { key: "errors", title: "Errors by kind", unit: "1/s", series: kinds, empty: "no errors" },
  { key: "lag", title: "Schedule lag", unit: "ms", series: [one("schedule_lag_p99_ms", "p99", 3)], spare: true,
    there: (points) => points.some((p) => p.schedule_lag_p99_ms !== undefined) },
  { key: "server", title: "Model server", unit: "requests", series: [
    one("server_running", "running", 1), one("server_waiting", "waiting", 2, "dash"),
  ], spare: true, there: (points) => points.some((p) => p.server_running !== undefined) },
  { key: "kv", title: "Model server, KV cache", unit: "% in use", series: [
    { key: "kv", label: "KV cache", colour: 3, of: (p) => p.server_kv_usage && p.server_kv_usage * 100 },
  ], spare: true, there: (points) => points.some((p) => p.server_kv_usage !== undefined) },
];

/** Errors a second by kind: the most frequent kinds, the others together. */
function kinds(points, { step }) {
  const counts = new Map();
  for (const point of points) {
    for (const [kind, n] of Object.entries(point.errors || {})) counts.set(kind, (counts.get(kind) || 0) + n);
  }
  const order = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const series = order.slice(0, MOST_KINDS).map((kind, n) => ({
    key: kind, label: kind, colour: [2, 3, 5, 4, 6][n], dash: ["", "dash", "dot", "dash", "dot"][n],
    of: (p) => (p.errors?.[kind] || 0) / step,
  }));
  const others = order.slice(MOST_KINDS);
  if (others.length) {
    series.push({ key: "\n", label: "others", colour: 7, dash: "dot",
      of: (p) => others.reduce((sum, kind) => sum + (p.errors?.[kind] || 0), 0) / step });
  }
  return series;
}

export class Charts {
  constructor() {
    this.range = 0;
    this.at = null;
    this.charts = CHARTS.map((spec) => new Chart(spec, (at) => this.hover(at)));
    this.when = el("span", { class: "when soft" });
    this.buttons = RANGES.map(([label, seconds]) =>
      el("button", { type: "button", "aria-pressed": String(!seconds), onclick: () => this.choose(seconds) }, label));
    this.log = false;
    this.scale = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle(),
      title: "latencies on a logarithmic axis" }, "log");
    this.marks = el("p", { class: "marks soft" });
    this.element = el("section", { class: "charts", "aria-label": "charts" },
      el("div", { class: "bar" }, el("h2", {}, "In time"), this.when, el("span", { class: "ranges", role: "group",
        "aria-label": "shown" }, this.scale, ...this.buttons)),
      el("div", { class: "grid2" }, ...this.charts.map((chart) => chart.element)), this.marks);
  }

  choose(seconds) {
    this.range = seconds;
    this.buttons.forEach((button, n) => put(button, "aria-pressed", RANGES[n][1] === seconds));
    if (this.news) this.draw(this.news, this.points);
  }

  toggle() {
    this.log = !this.log;
    put(this.scale, "aria-pressed", this.log);
    if (this.news) this.draw(this.news, this.points);
  }

  hover(at) {
    this.at = at;
    if (!this.news) return;
    const { started } = this.view;
    say(this.when, at === null ? "" : `at ${clock(at - started)} (${new Date(at * 1000).toLocaleTimeString()})`);
    for (const chart of this.charts) chart.point(at, this.seen, this.view);
  }

  draw(news, points) {
    [this.news, this.points] = [news, points];
    const series = news.series || {};
    const step = series.step_s || 1;
    const started = series.started ?? news.started ?? news.now;
    const last = points.length ? started + (points[points.length - 1].i + 1) * step : started;
    const from = this.range ? Math.max(started, last - this.range) : started;
    const marks = news.marks || [];
    this.view = { started, step, from, to: last, marks, live: news.state === "running", log: this.log };
    this.seen = points.filter((point) => started + (point.i + 1) * step > from);
    const absent = news.total?.absent || {};
    for (const chart of this.charts) {
      const { spec } = chart;
      if (spec.spare) chart.element.hidden = !spec.there(points);
      if (!chart.element.hidden) chart.draw(this.seen, { ...this.view, why: waiting(news) || absent[spec.metric] });
    }
    const words = marks.slice(-6).map((mark) => `${clock(mark.t - started)} ${mark.text}`);
    say(this.marks, words.length ? `▾ ${marks.length > 6 ? "… " : ""}${words.join(" · ")}` : "");
    this.hover(this.at);
  }
}

function waiting(news) {
  if (!news.run) return "no run yet: press Start";
  return news.state === "running" && !news.total?.counts?.exchanges ? "waiting for the first answers" : "";
}
