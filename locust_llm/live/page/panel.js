// The panel as a whole, in a shadow tree: neither does Locust's style reach into it, nor ours out of it.

import { Charts } from "./charts.js";
import { Files, Objectives, Rates } from "./controls.js";
import { Feed } from "./feed.js";
import { Head } from "./head.js";
import { Figures, Listing, Names } from "./tables.js";
import { el, put } from "./words.js";

const ERRORS = [
  { label: "Kind", left: true, of: (row) => row.kind },
  { label: "Count", of: (row) => row.count },
  { label: "Name", left: true, of: (row) => row.name },
  { label: "Example", left: true, of: (row) => row.example },
];
const WORKERS = [
  { label: "Worker", left: true, of: (row) => row.name },
  { label: "State", left: true, of: (row) => row.state },
  { label: "Records", of: (row) => row.records },
  { label: "Clock offset, ms", of: (row) => scaled(row.clock_offset_us, 0.001), digits: 3 },
  { label: "CPU of one core, %", of: (row) => scaled(row.cpu, 100), digits: 2 },
];

function scaled(value, factor) {
  return value === undefined ? undefined : value * factor;
}

export class Panel {
  /** @param base URL of the routes; @param style text of the style sheet */
  constructor(base, style) {
    this.element = el("div", { id: "locust-llm" });
    const root = this.element.attachShadow({ mode: "open" });
    this.head = new Head();
    this.files = new Files(base);
    this.charts = new Charts();
    this.errors = new Listing("Errors", ERRORS, (row) => `${row.kind}\n${row.name}`);
    this.workers = new Listing("Workers", WORKERS, (row) => row.name);
    this.parts = [this.files, this.head, new Objectives(), new Rates(base), new Names(), new Figures()];
    const [, , objectives, rates, names, figures] = this.parts;
    this.all = el("div", { class: "llm" }, el("div", { class: "top" }, this.head.line, this.files.element),
      this.head.element, objectives.element, rates.element, this.charts.element, names.element, this.errors.element,
      figures.element, this.workers.element);
    root.append(el("style", {}, style), this.all);
    this.feed = new Feed(base, (news, points) => this.draw(news, points), (text) => this.head.cutOff(text));
  }

  /** Begin or end to show it. */
  show(shown) {
    this.element.hidden = !shown;
    this.theme();
    this.feed.show(shown);
  }

  /** Follow the page's theme: what counts is how dark what is behind us really is. */
  theme() {
    const [r, g, b] = (getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g) || [255, 255, 255]).map(Number);
    put(this.all, "data-theme", 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light");
  }

  draw(news, points) {
    this.theme();
    for (const part of this.parts) part.draw(news);
    this.charts.draw(news, points);
    this.errors.draw(news.errors || []);
    this.workers.draw(news.workers || []);
    put(this.all, "data-version", news.version ?? 0);
  }
}
