// What can be done from the tab: rates changed, files downloaded. And objectives, which are looked at beside them.

import { el, number, put, say } from "./words.js";

const FILES = ["report.html", "summary.json", "summary.csv"];
const RESULTS = { pass: ["good", "✓ pass"], fail: ["bad", "✗ fail"], undecided: ["warn", "? undecided"] };

/** The rates of an open-loop run, one field each. */
export class Rates {
  constructor(base) {
    Object.assign(this, { base, forms: new Map() });
    this.list = el("div", { class: "rates" });
    this.element = el("section", { hidden: true, "aria-label": "rates" }, this.list);
  }

  draw(news) {
    const rates = news.rates || [];
    this.element.hidden = !rates.length;
    const keys = new Set(rates.map((rate) => rate.stream));
    for (const [key, form] of this.forms) {
      if (!keys.has(key)) form.element.remove() || this.forms.delete(key);
    }
    for (const rate of rates) {
      if (!this.forms.has(rate.stream)) this.add(rate);
      const { input, now, button } = this.forms.get(rate.stream);
      say(now, `now ${number(rate.rate)}/s`);
      if (!input.dataset.touched && this.element.getRootNode().activeElement !== input) input.value = String(rate.rate);
      button.disabled = news.state !== "running";
    }
  }

  add(rate) {
    const id = `rate-${this.forms.size}`;
    const input = el("input", { id, inputmode: "decimal", autocomplete: "off", size: 8, value: rate.rate,
      oninput: () => { input.dataset.touched = "yes"; } });
    const button = el("button", { type: "submit" }, "Change");
    const now = el("span", { class: "soft" });
    const said = el("span", { class: "said", role: "status" });
    const submit = async (event) => {
      event.preventDefault();
      const [text, ok] = await this.change(rate.stream, input.value);
      put(said, "class", `said ${ok ? "good" : "bad"}`);
      say(said, text);
      if (ok) delete input.dataset.touched;
    };
    const label = rate.label || rate.stream || "all users";
    const element = el("form", { onsubmit: submit },
      el("label", { for: id }, `Requests started per second, ${label}`), input, button, now, said);
    this.forms.set(rate.stream, { element, input, button, now });
    this.list.append(element);
  }

  async change(stream, rate) {
    try {
      const answer = await fetch(`${this.base}rate`, { method: "POST", credentials: "same-origin",
        headers: { "Content-Type": "application/json" }, body: JSON.stringify({ stream, rate }) });
      return [answer.ok ? `changed to ${rate}/s` : (await answer.text()).trim().slice(0, 300), answer.ok];
    } catch {
      return ["Locust does not answer", false];
    }
  }
}

/** Objectives and goodput: what they ask, what is, whether it passes. */
export class Objectives {
  constructor() {
    this.list = el("ul", { class: "objectives" });
    this.element = el("section", { hidden: true, "aria-label": "objectives" }, this.list);
  }

  draw(news) {
    const lines = (news.objectives || []).map((one) => ({ ...one, words: RESULTS[one.state] || RESULTS.undecided }));
    const good = news.goodput;
    if (good?.share !== undefined) {
      const each = good.requests_per_s === undefined ? "" : `, ${number(good.requests_per_s)} good requests/s`;
      lines.push({ words: ["", "goodput"], text: good.text || "", value: `${number(good.share * 100, 3)} %${each}` });
    }
    this.element.hidden = !lines.length;
    while (this.list.children.length > lines.length) this.list.lastChild.remove();
    lines.forEach((line, n) => {
      const item = this.list.children[n] || this.list.appendChild(blank());
      const [state, text, value, rest] = item.children;
      const scope = line.scope && line.scope !== "total" ? line.scope : "";
      const margin = line.margin ? `margin ${line.margin}` : "";
      put(state, "class", line.words[0]);
      say(state, line.words[1]);
      say(text, line.text);
      say(value, line.value ?? "–");
      say(rest, [scope, margin].filter(Boolean).join(", "));
    });
  }
}

function blank() {
  return el("li", {}, el("b"), el("code"), el("span"), el("span", { class: "soft" }));
}

/** Links to the files. Those made on demand are fetched, so that a refusal is shown as its text. */
export class Files {
  constructor(base) {
    this.base = base;
    this.said = el("span", { class: "said", role: "status" });
    this.links = FILES.map((name) =>
      el("a", { href: base + name, download: "", onclick: (event) => this.take(event, name) }, name));
    this.log = el("a", { href: `${base}events.jsonl`, download: "",
      onclick: (event) => this.ready || event.preventDefault() }, "events.jsonl");
    this.element = el("div", { class: "files", role: "group", "aria-label": "downloads" },
      el("span", { class: "soft" }, "Download"), ...this.links, this.log, this.said);
  }

  draw(news) {
    this.ready = Boolean(news.run && news.total?.counts?.exchanges);
    const why = this.ready ? "as measured so far" : "there is nothing to download before the first exchange has ended";
    for (const link of [...this.links, this.log]) {
      put(link, "aria-disabled", !this.ready);
      put(link, "title", why);
    }
  }

  async take(event, name) {
    event.preventDefault();
    if (!this.ready || this.busy) return;
    this.busy = true;
    say(this.said, `making ${name} …`);
    put(this.said, "class", "said");
    try {
      const answer = await fetch(this.base + name, { credentials: "same-origin" });
      if (!answer.ok) throw new Error((await answer.text()).trim().slice(0, 300));
      const named = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") || "");
      const url = URL.createObjectURL(await answer.blob());
      el("a", { href: url, download: named ? named[1] : name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      say(this.said, "");
    } catch (error) {
      put(this.said, "class", "said bad");
      say(this.said, error.message);
    }
    this.busy = false;
  }
}
