// The tables: figures per name and model, every figure of one of them, errors, workers. The one thing to know: a table
// keeps its rows and changes only the cells that are new, so that a selection and a scrolled place stay.

import { el, number, percent, put, say } from "./words.js";

const MOST_ROWS = 200;

const value = (name, statistic) => (row) => row[name]?.[statistic];
const BLOCKS = [
  ["ttft", "TTFT", "ms"], ["ttfvt", "TTFVT (first visible token)", "ms"], ["itl", "ITL per token", "ms"],
  ["icl", "ICL per chunk", "ms"], ["tpot", "TPOT (ITL in AIPerf, GuideLLM, NVIDIA)", "ms"],
  ["e2e_latency", "e2e latency", "ms"], ["stream_end", "end of stream", "ms"],
  ["output_tps_per_user", "output tokens per user", "1/s"], ["scheduled_ttft", "scheduled TTFT", "ms"],
  ["scheduled_latency", "scheduled latency", "ms"], ["schedule_lag", "schedule lag", "ms"],
  ["client_lag", "client lag", "ms"],
];
/** Of these it is plain why they are absent: the run is a closed loop, or the machine has no kernel stamps. */
const UNSAID = ["scheduled_ttft", "scheduled_latency", "schedule_lag", "client_lag"];
const STATISTICS = ["mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max"];

const COLUMNS = [
  { label: "Name", left: true, of: (row) => row.label },
  { label: "Ended", title: "exchanges that have ended", of: (row) => row.counts?.exchanges ?? 0 },
  { label: "Failed", of: (row) => row.failed ?? 0, say: (n, row) => (n ? `${n} (${percent(row.error_rate)})` : "0") },
  { label: "Requests/s", of: (row) => row.requests_per_s, digits: 3 },
  { label: "Output tokens/s", of: (row) => row.system_output_tps },
  { group: "TTFT, ms", label: "p50", of: value("ttft", "p50") },
  { group: "TTFT, ms", label: "p95", of: value("ttft", "p95") },
  { group: "TTFT, ms", label: "p99", of: value("ttft", "p99") },
  { group: "ITL, ms", label: "p50", of: value("itl", "p50"), absent: "itl" },
  { group: "ITL, ms", label: "p95", of: value("itl", "p95"), absent: "itl" },
  { group: "ITL, ms", label: "p99", of: value("itl", "p99"), absent: "itl" },
  { group: "TPOT, ms", label: "p50", of: value("tpot", "p50") },
  { group: "TPOT, ms", label: "p95", of: value("tpot", "p95") },
  { group: "e2e latency, ms", label: "p50", of: value("e2e_latency", "p50") },
  { group: "e2e latency, ms", label: "p95", of: value("e2e_latency", "p95") },
  { group: "e2e latency, ms", label: "p99", of: value("e2e_latency", "p99") },
  { group: "Tokens", label: "in", of: (row) => row.tokens?.input },
  { group: "Tokens", label: "out", of: (row) => row.tokens?.output },
];

/** A table whose rows have keys. */
class Table {
  constructor(columns, label, sortable = false) {
    Object.assign(this, { columns, rows: new Map(), order: null, shown: null });
    this.heads = columns.map((column, n) => {
      const attributes = { class: column.left ? "t" : "", title: column.title, scope: "col" };
      if (!sortable) return el("th", attributes, column.label);
      const button = el("button", { type: "button", title: "sort", onclick: () => this.sort(n) }, column.label);
      return el("th", attributes, button);
    });
    const groups = columns.some((column) => column.group) ? [el("tr", { class: "groups" }, ...spans(columns))] : [];
    this.body = el("tbody");
    this.more = el("p", { class: "soft" });
    const head = el("thead", {}, ...groups, el("tr", {}, ...this.heads));
    const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", {}, head, this.body));
    this.element = el("div", {}, scroll, this.more);
  }

  sort(n) {
    const down = this.order?.n === n ? !this.order.down : !this.columns[n].left;
    this.order = { n, down };
    this.heads.forEach((head, m) => put(head, "aria-sort", m === n ? (down ? "descending" : "ascending") : "none"));
    this.draw(this.shown);
  }

  /** @param rows [{key, pinned, …}]; pinned rows stay on top, as they come */
  draw(rows) {
    this.shown = rows;
    let sorted = rows.filter((row) => !row.pinned);
    if (this.order) {
      const { of } = this.columns[this.order.n];
      sorted = [...sorted].sort((a, b) => (this.order.down ? -1 : 1) * compare(of(a), of(b)));
    }
    const drawn = [...rows.filter((row) => row.pinned), ...sorted.slice(0, MOST_ROWS)];
    const keys = new Set(drawn.map((row) => row.key));
    for (const [key, line] of this.rows) {
      if (keys.has(key)) continue;
      line.row.remove();
      this.rows.delete(key);
    }
    drawn.forEach((row, place) => {
      let line = this.rows.get(row.key);
      if (!line) {
        const cells = this.columns.map((column) => el("td", { class: column.left ? "t" : "" }));
        line = { cells, row: el("tr", { class: row.pinned ? "total" : "" }, ...cells) };
        this.rows.set(row.key, line);
      }
      this.columns.forEach((column, n) => write(line.cells[n], column, row));
      if (this.body.children[place] !== line.row) this.body.insertBefore(line.row, this.body.children[place] || null);
    });
    const left = sorted.length - MOST_ROWS;
    say(this.more, left > 0 ? `${left} more rows are not shown here; summary.csv has all of them.` : "");
  }
}

/** Figures per name, with the total on top and models below. */
export class Names {
  constructor() {
    this.table = new Table(COLUMNS, "figures by name", true);
    this.element = el("section", {}, el("h2", {}, "By name"), this.table.element);
  }

  draw(news) {
    const names = (news.names || []).map((row) => ({ ...row, key: `n ${row.name} ${row.api} ${row.model}`,
      label: row.name, small: [row.api, row.model].filter(Boolean).join(", ") }));
    const models = (news.models || []).length > 1 ? news.models.map((row) => ({ ...row, key: `m ${row.model}`,
      label: row.model, small: "model, all names" })) : [];
    this.table.draw([{ ...news.total, key: "total", label: "All names", pinned: true }, ...names, ...models]);
  }
}

/** Every figure of the total, a name or a model. */
export class Figures {
  constructor() {
    const statistics = STATISTICS.map((name) => ({ label: name, of: (row) => row.block[name] }));
    this.table = new Table([
      { label: "Figure", left: true, of: (row) => row.label },
      ...statistics,
      { label: "n", title: "values", of: (row) => row.block.count },
    ], "every figure");
    this.choice = el("select", { "aria-label": "of", onchange: () => this.draw(this.news) });
    this.rest = el("p", { class: "soft" });
    this.element = el("section", {}, el("div", { class: "bar" }, el("h2", {}, "Every figure"), this.choice),
      this.table.element, this.rest);
  }

  draw(news) {
    this.news = news;
    const scopes = new Map([["All names", news.total || {}]]);
    for (const row of news.names || []) scopes.set([row.name, row.api, row.model].filter(Boolean).join(" · "), row);
    for (const row of (news.models || []).length > 1 ? news.models : []) scopes.set(`model ${row.model}`, row);
    const labels = [...scopes.keys()];
    if (labels.join("\n") !== this.labels) {
      const chosen = this.choice.value;
      this.labels = labels.join("\n");
      this.choice.replaceChildren(...labels.map((label) => el("option", { value: label }, label)));
      this.choice.value = scopes.has(chosen) ? chosen : labels[0];
    }
    const row = scopes.get(this.choice.value) || {};
    const absent = row.absent || {};
    const reasons = [];
    const rows = [];
    for (const [key, label, unit] of BLOCKS) {
      if (row[key]) rows.push({ key, label: `${label}, ${unit}`, block: row[key] });
      else if (absent[key] && !UNSAID.includes(key)) reasons.push(`No ${label}: ${absent[key]}.`);
    }
    this.table.draw(rows.length ? rows : [{ key: "none", label: "no exchange has ended yet", block: {} }]);
    const tokens = Object.entries(row.tokens || {}).map(([kind, n]) => `${kind} ${number(n)}`);
    const outcomes = Object.entries(row.counts || {}).filter(([kind]) => kind !== "exchanges")
      .map(([kind, n]) => `${kind} ${number(n)}`);
    if (outcomes.length) reasons.unshift(`Outcomes: ${outcomes.join(", ")}.`);
    if (tokens.length) reasons.unshift(`Tokens: ${tokens.join(", ")}.`);
    say(this.rest, reasons.join(" "));
  }
}

/** A plain table that is only there when it has rows. */
export class Listing {
  constructor(title, columns, key) {
    this.key = key;
    this.table = new Table(columns, title);
    this.element = el("section", { hidden: true }, el("h2", {}, title), this.table.element);
  }

  draw(rows) {
    this.element.hidden = !rows.length;
    this.table.draw(rows.map((row) => ({ ...row, key: this.key(row) })));
  }
}

function write(cell, column, row) {
  const content = column.of(row);
  const plain = typeof content === "number" ? number(content, column.digits) : content;
  const text = column.say ? column.say(content, row) : plain;
  if (column.left && row.small && column.label === "Name") {
    if (cell.childElementCount !== 1) cell.replaceChildren("", el("small"));
    if (cell.firstChild.nodeValue !== text) cell.firstChild.nodeValue = text;
    say(cell.lastChild, row.small);
    return;
  }
  say(cell, text === undefined || text === null || text === "" ? "–" : String(text));
  const why = content === undefined && column.absent && row.absent?.[column.absent];
  if (why) put(cell, "title", why);
}

function spans(columns) {
  const heads = [];
  for (let n = 0; n < columns.length;) {
    let to = n + 1;
    while (to < columns.length && columns[to].group && columns[to].group === columns[n].group) to += 1;
    heads.push(el("th", { colspan: to - n, class: columns[n].group ? "group" : "" }, columns[n].group || ""));
    n = to;
  }
  return heads;
}

function compare(a, b) {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
