// What a look tells: the state of the run, whether its figures can be trusted, and the figures that matter most.

import { duration, el, number, percent, put, say, time } from "./words.js";

const VERDICTS = {
  sound: ["good", "✓", "The measurement is sound"],
  doubtful: ["warn", "!", "Some figures are doubtful"],
  overloaded: ["bad", "✗", "The client is overloaded: do not trust the latencies"],
  unknown: ["", "…", "Too early to judge the measurement"],
};
const TILES = [
  ["output", "Output tokens/s", (head) => [number(head.output_tps, 3)],
    (head) => `input ${number(head.input_tps, 3)}`],
  ["ttft", "TTFT p50", (head) => time(head.ttft_p50_ms), (head) => p95(head.ttft_p95_ms)],
  ["itl", "ITL p50", (head) => time(head.itl_p50_ms), (head) => p95(head.itl_p95_ms)],
  ["flight", "In flight", (head) => [number(head.in_flight)],
    (head) => `${number(head.decoding)} decoding, ${number(head.users)} users`],
  ["requests", "Requests/s", (head) => [number(head.requests_per_s, 3)], (_, news) => ended(news)],
  ["errors", "Error rate", (head) => percent(head.error_rate).split(" "),
    (_, news) => `${number(news.total?.failed ?? 0)} failed`],
];
const STATES = { ready: "ready", running: "running", stopping: "stopping", stopped: "stopped" };

export class Head {
  constructor() {
    this.state = el("b", { class: "state" });
    this.progress = el("span", { class: "progress" });
    this.trouble = el("div", { class: "trouble", role: "alert", hidden: true });
    this.verdict = el("strong");
    this.reason = el("span", { class: "reason" });
    this.reasons = el("ul");
    this.more = el("details", {}, el("summary", {}, this.verdict, this.reason), this.reasons);
    this.box = el("div", { class: "verdict" }, this.more);
    this.notes = el("ul", { class: "incomplete", hidden: true });
    this.tiles = TILES.map(([key, label, big, small]) => {
      const parts = { number: el("span"), unit: el("small"), more: el("div", { class: "more" }) };
      parts.element = el("div", { class: "tile", "data-tile": key }, el("div", { class: "name" }, label),
        el("div", { class: "value" }, parts.number, " ", parts.unit), parts.more);
      return { ...parts, big, small };
    });
    this.of = el("span", { class: "soft" });
    this.line = el("div", { class: "line" }, this.state, this.progress, this.of);
    this.element = el("header", {}, this.trouble, this.box, this.notes,
      el("div", { class: "tiles" }, ...this.tiles.map((tile) => tile.element)));
  }

  /** Show that the page is cut off from Locust, or, with "", that it is not any more. */
  cutOff(text) {
    this.trouble.hidden = !text;
    say(this.trouble, text);
  }

  draw(news) {
    const head = news.head || {};
    put(this.state, "data-state", news.state);
    say(this.state, STATES[news.state] || news.state || "–");
    say(this.progress, progress(news));
    say(this.of, head.of && news.run ? `figures of the ${head.of}` : "");
    const reasons = news.verdict?.reasons || [];
    const [class_, mark, words] = news.run ? VERDICTS[news.verdict?.state] || VERDICTS.unknown
      : ["", "▸", "No run yet: press Start in Locust's page. Figures appear with the first tokens."];
    put(this.box, "class", `verdict ${class_}`);
    say(this.verdict, `${mark} ${words}`);
    const more = reasons.length > 1 ? ` (and ${reasons.length - 1} more)` : "";
    say(this.reason, reasons.length ? reasons[0].effect + more : "");
    const lines = reasons.map((reason) => `${reason.level}: ${reason.effect}`);
    list(this.reasons, lines.length ? lines : ["Nothing to distrust was found."]);
    const incomplete = news.incomplete || [];
    this.notes.hidden = !incomplete.length;
    list(this.notes, incomplete);
    for (const tile of this.tiles) {
      const [value, unit] = tile.big(head);
      say(tile.number, value);
      say(tile.unit, value === "–" ? "" : unit || "");
      say(tile.more, tile.small(head, news));
    }
  }
}

function p95(ms) {
  return ms === undefined ? "p95 –" : `p95 ${time(ms).join(" ")}`;
}

function ended(news) {
  const n = number(news.total?.counts?.exchanges ?? 0);
  const asked = news.progress?.requests_asked;
  return asked ? `${n} of ${number(asked)} ended` : `${n} ended`;
}

function progress(news) {
  if (!news.run) return "";
  const parts = [];
  if (news.elapsed_s !== undefined) parts.push(duration(news.elapsed_s));
  const { requests_asked: asked, run_time_s: time_, remaining_s: left } = news.progress || {};
  if (asked) parts.push(`${number(news.progress.ended ?? 0)} of ${number(asked)} requests`);
  if (time_) parts.push(`of ${duration(time_)}`);
  if (left !== undefined && news.state === "running") parts.push(`about ${duration(left)} left`);
  return `${parts.join(" · ")} · ${news.run}`;
}

function list(element, texts) {
  while (element.children.length > texts.length) element.lastChild.remove();
  texts.forEach((text, n) => {
    if (element.children[n]) say(element.children[n], text);
    else element.append(el("li", {}, text));
  });
}
