// Polls the data and keeps the points. The one thing to know: it asks only while somebody looks, each second while a
// test runs, and less often if an answer costs the load generator more than a hundredth of that.

const RUNNING_MS = 1000;
const RESTING_MS = 3000;
const SLOWEST_MS = 5000;
const RETRY_MS = 15000;
const SHARE = 0.01;
const COSTS = 8;

export class Feed {
  /**
   * @param base URL of the routes, with a slash at its end
   * @param onNews called with (snapshot, points): all points known, in order
   * @param onTrouble called with a text, or "" when it is over
   */
  constructor(base, onNews, onTrouble) {
    Object.assign(this, { base, onNews, onTrouble, points: new Map(), since: 0, key: "" });
    Object.assign(this, { on: false, busy: false, timer: 0, failures: 0, costs: [] });
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** Begin or end to ask: whether the panel is shown. */
  show(shown) {
    this.on = shown;
    this.look();
  }

  /** Ask now, if somebody looks. */
  look() {
    clearTimeout(this.timer);
    if (this.on && !document.hidden && !this.busy) this.ask();
  }

  async ask() {
    this.busy = true;
    let wait = RESTING_MS;
    try {
      wait = await this.fetch();
      if (this.failures) this.onTrouble("");
      this.failures = 0;
    } catch (error) {
      this.failures += 1;
      wait = Math.min(RETRY_MS, 1000 * 2 ** this.failures);
      this.onTrouble(`${error.message}. Asking again in ${Math.round(wait / 1000)} s.`);
    }
    this.busy = false;
    clearTimeout(this.timer);
    if (this.on && !document.hidden) this.timer = setTimeout(() => this.ask(), wait);
  }

  async fetch() {
    let answer;
    try {
      answer = await fetch(`${this.base}data?since=${this.since}`, { credentials: "same-origin" });
    } catch {
      throw new Error("Locust does not answer: it has ended, or the network is gone");
    }
    if (answer.redirected || answer.status === 401) throw new Error("You are logged out: load the page again");
    if (!answer.ok) throw new Error(`Locust answers ${answer.status}: ${(await answer.text()).slice(0, 200)}`);
    const news = await answer.json();
    const series = news.series || { points: [] };
    const key = [news.run, news.epoch, series.layout, series.started].join(" ");
    if (key !== this.key) {
      this.points.clear();
      const partial = this.since > 0;
      [this.key, this.since] = [key, 0];
      if (partial) return this.fetch();
    }
    for (const point of series.points) this.points.set(point.i, point);
    this.since = news.version || 0;
    this.onNews(news, [...this.points.values()].sort((a, b) => a.i - b.i));
    // Others have their turn while an answer is made, and count into its time: the cheapest of some is nearest.
    const made = Number(/dur=([\d.]+)/.exec(answer.headers.get("Server-Timing"))?.[1] || 0);
    this.costs = [...this.costs, made].slice(-COSTS);
    const cost = Math.min(...this.costs);
    const rest = news.state === "running" || news.state === "stopping" ? RUNNING_MS : RESTING_MS;
    return Math.min(SLOWEST_MS, Math.max(rest, cost / SHARE));
  }
}
