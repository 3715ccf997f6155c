// The list of runs: those that wait for a person first, then the newest.

import { follow, get } from "./net.js";
import { button, copyable, fill, h, put, say, speak } from "./dom.js";
import { ago, count, duration, mark, money, number, short, statusWords } from "./format.js";
import { VirtualList } from "./virtual.js";

const AGES = [["", "any age"], ["3600", "last hour"], ["86400", "last day"], ["604800", "last week"]];
const STATUSES = [["", "all"], ["live", "live"], ["asks", "asks"], ["failed", "failed"]];
const FAILED = ["failed", "refused", "timed_out", "stalled", "over_budget", "incomplete", "interrupted"];

export class RunsView {
  /** @param {any} page What the views share: the session, and going elsewhere. */
  constructor(page) {
    this.page = page;
    /** @type {Map<string, any>} */
    this.rows = new Map();
    /** @type {any[]} */
    this.shown = [];
    this.filter = { q: "", status: "", agent: "", age: "" };
    this.total = 0;
    this.next = "";
    this.ahead = 0;
    this.loading = false;
    this.element = this.#build();
    this.stream = follow("api/stream", {
      heard: (kind, data) => this.#hear(kind, data),
      state: (state, problem) => this.#state(state, problem),
    });
    this.ticking = setInterval(() => this.list.draw(), 1000);
    void this.#more();
  }

  close() {
    this.stream.close();
    clearInterval(this.ticking);
    this.list.close();
  }

  #build() {
    this.search = h("input", {
      type: "search", class: "search", placeholder: "Search  /", "aria-label": "Search runs by task, agent or id",
      on: { input: () => this.#filter({ q: this.search.value }) },
    });
    this.statuses = h("div", { class: "choice", role: "group", "aria-label": "Filter by status" },
      STATUSES.map(([value, text]) => button(text, () => this.#filter({ status: value }), { data: { value }, "aria-pressed": String(value === "") })));
    this.agents = h("select", { "aria-label": "Filter by agent", on: { change: () => this.#filter({ agent: this.agents.value }) } }, h("option", { value: "" }, "any agent"));
    this.ages = h("select", { "aria-label": "Filter by age", on: { change: () => this.#filter({ age: this.ages.value }) } },
      AGES.map(([value, text]) => h("option", { value }, text)));
    this.summary = h("span", { class: "summary" });
    this.trouble = h("div", { class: "banner bad", role: "alert", hidden: true });
    this.empty = h("div", { class: "state", hidden: true });
    this.list = new VirtualList({
      height: 34, role: "listbox", label: "Runs",
      make: () => this.#row(), draw: (element, index) => this.#draw(element, this.shown[index]),
      key: (index) => this.shown[index].root,
      opened: (index) => this.page.open(this.#target(this.shown[index])),
      looked: (_, last) => { if (last >= this.shown.length - 5) void this.#more(); },
    });
    this.list.element.classList.add("runs");
    return h("main", { id: "main", class: "view", tabindex: "-1" },
      h("div", { class: "bar" },
        h("h1", null, "Runs"), this.search, this.statuses, this.agents, this.ages,
        h("span", { class: "grow" }), this.summary,
        this.page.session.may_start ? h("a", { class: "button primary", href: "#/start" }, "Start a run") : null),
      this.trouble,
      h("div", { class: "heads runs-row", "aria-hidden": "true" },
        ["", "run", "agent", "task", "tokens", "cost", "runs", "began"].map((text) => h("span", null, text))),
      this.empty, this.list.element);
  }

  /** A run that asks opens where it asks. @param {any} one */
  #target(one) {
    return one.questions?.[0]?.run ?? one.root;
  }

  /** @param {Record<string, string>} change */
  #filter(change) {
    Object.assign(this.filter, change);
    for (const one of this.statuses.children) put(one, "aria-pressed", String(one.dataset.value === this.filter.status));
    this.next = "";
    this.asked = undefined;
    this.#arrange();
    clearTimeout(this.later);
    this.later = setTimeout(() => void this.#more(true), 200);
  }

  /** Runs beyond those that the stream keeps up to date. @param {boolean} [anew] */
  async #more(anew = false) {
    if (this.loading || (!anew && this.asked === this.next && this.asked !== undefined)) return;
    this.loading = true;
    const { q, status, agent, age } = this.filter;
    const since = age ? Math.floor(Date.now() / 1000 - Number(age)) : undefined;
    this.asked = this.next;
    try {
      const page = await get("api/runs", { q, status, agent, since, before: this.next, limit: 200 });
      for (const row of page.runs) if (!this.rows.has(row.root)) this.rows.set(row.root, row);
      this.total = page.total;
      this.next = page.next;
      if (page.next === "") this.asked = "";
      this.#arrange();
    } catch (error) {
      this.#fail(error);
    } finally {
      this.loading = false;
    }
  }

  /** @param {string} kind @param {any} data */
  #hear(kind, data) {
    if (kind === "trouble") {
      fill(this.trouble, h("b", null, "The journal cannot be read. "), data.error);
      this.trouble.hidden = false;
      return;
    }
    this.trouble.hidden = true;
    this.ahead = data.now - Date.now() / 1000;
    for (const row of data.rows ?? []) {
      const before = this.rows.get(row.root)?.questions?.length ?? 0;
      if ((row.questions?.length ?? 0) > before) speak(`${row.agent} asks: ${row.questions[0].what}`);
      this.rows.set(row.root, row);
    }
    for (const root of data.gone ?? []) this.rows.delete(root);
    this.total = data.total ?? this.total;
    this.#arrange();
  }

  /** @param {string} state @param {any} [problem] */
  #state(state, problem) {
    this.page.connection(state, problem);
    this.element.classList.toggle("behind", state !== "live");
    if (problem?.status === 503) this.#fail(problem);
  }

  /** @param {any} error */
  #fail(error) {
    fill(this.trouble, error.message);
    this.trouble.hidden = false;
  }

  #arrange() {
    const { q, status, agent, age } = this.filter;
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const since = age ? Date.now() / 1000 - Number(age) : 0;
    const agents = new Set();
    const found = [];
    for (const one of this.rows.values()) {
      agents.add(one.agent);
      if (agent && one.agent !== agent) continue;
      if (one.started_at < since || !hasStatus(one, status)) continue;
      const told = `${one.root} ${one.agent} ${one.task ?? ""} ${one.status}`.toLowerCase();
      if (words.every((word) => told.includes(word))) found.push(one);
    }
    const asks = (/** @type {any} */ one) => (one.questions?.length ? 1 : 0);
    found.sort((a, b) => asks(b) - asks(a) || b.started_at - a.started_at || (a.root < b.root ? 1 : -1));
    const current = this.shown[this.list.current]?.root;
    this.shown = found;
    this.list.current = found.findIndex((one) => one.root === current);
    this.#offer(agents);
    this.list.update(found.length);
    const asking = [...this.rows.values()].reduce((sum, one) => sum + (one.questions?.length ?? 0), 0);
    say(this.summary, [asking ? count(asking, "question waits", "questions wait") : "", count(this.total, "run")].filter(Boolean).join(" · "));
    this.summary.classList.toggle("asking", asking > 0);
    document.title = asking ? `(${asking}) remit` : "remit";
    this.#showEmpty();
  }

  /** @param {Set<string>} agents */
  #offer(agents) {
    const names = [...agents].sort();
    if (this.agents.options.length === names.length + 1) return;
    fill(this.agents, h("option", { value: "" }, "any agent"), names.map((name) => h("option", { value: name }, name)));
    this.agents.value = this.filter.agent;
  }

  #showEmpty() {
    const none = this.shown.length === 0;
    this.empty.hidden = !none;
    this.list.element.hidden = none;
    if (!none) return;
    if (this.total && this.rows.size) {
      fill(this.empty, h("p", null, "No run matches."), button("Show all runs", () => {
        this.search.value = this.agents.value = this.ages.value = "";
        this.#filter({ q: "", status: "", agent: "", age: "" });
      }));
    } else if (this.trouble.hidden) {
      fill(this.empty, h("h2", null, "No runs yet"),
        h("p", null, `The journal is ${this.page.session.place || "empty"}. Runs appear here when they start.`),
        h("p", null, "See one without a key: ", copyable(this.page.command("demo"))));
    }
  }

  #row() {
    const parts = { mark: h("span", { class: "mark", role: "img" }), id: h("code"), agent: h("span", { class: "agent" }), task: h("span", { class: "task" }), doing: h("span", { class: "doing" }), tokens: h("span", { class: "n" }), cost: h("span", { class: "n" }), runs: h("span", { class: "n" }), began: h("span", { class: "n" }) };
    const row = h("a", { class: "row runs-row", role: "option", tabindex: "-1" },
      parts.mark, parts.id, parts.agent, h("span", { class: "what" }, parts.task, parts.doing), parts.tokens, parts.cost, parts.runs, parts.began);
    row.parts = parts;
    return row;
  }

  /** @param {any} row @param {any} one */
  #draw(row, one) {
    const { parts } = row;
    const now = Date.now() / 1000 + this.ahead;
    const question = one.questions?.[0];
    const [sign, look] = mark(one.status, question ? "asks" : "");
    say(parts.mark, sign);
    put(parts.mark, "class", `mark ${look}`);
    put(parts.mark, "aria-label", statusWords(one.status, question ? "asks" : ""));
    say(parts.id, short(one.root));
    say(parts.agent, one.agent);
    say(parts.task, one.task ?? "");
    const more = (one.questions?.length ?? 0) > 1 ? ` and ${one.questions.length - 1} more` : "";
    const doing = question
      ? `asks: ${question.what}${more}, waits ${duration(now - question.at)}`
      : one.status === "running" ? (one.unread ? "running" : one.doing ?? "running") : one.status === "completed" ? "" : statusWords(one.status);
    say(parts.doing, doing);
    put(parts.doing, "class", `doing ${question ? "ask" : one.status === "running" ? "" : look}`);
    say(parts.tokens, one.tokens ? number(one.tokens) : "");
    say(parts.cost, one.usd ? money(one.usd) + (one.cap_usd ? `/${one.cap_usd.toFixed(2)}` : "") : "");
    say(parts.runs, String(one.runs || 1));
    say(parts.began, ago(one.started_at, now));
    put(row, "href", `#/${this.#target(one)}`);
    put(row, "aria-description", `${one.agent}, ${question ? doing : statusWords(one.status)}. ${one.task ?? ""}. ${one.tokens ?? 0} tokens, ${count(one.runs || 1, "run")}, began ${ago(one.started_at, now).replace(/(\d.*)/, "$1 ago")}.`);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.key === "/") this.search.focus();
    else if (event.key === "a") this.list.go(this.shown.findIndex((one) => one.questions?.length));
    else if (/^[1-4]$/.test(event.key)) this.#filter({ status: STATUSES[Number(event.key) - 1][0] });
    else return this.list.press(event);
    return true;
  }
}

/** @param {any} one @param {string} status */
function hasStatus(one, status) {
  if (status === "live") return one.status === "running";
  if (status === "asks") return Boolean(one.questions?.length);
  if (status === "failed") return FAILED.includes(one.status);
  return true;
}

