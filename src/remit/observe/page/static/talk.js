// A run's conversation: pages of entries, patched while the run is active.

import { button, fill, h, say } from "./dom.js";
import { clock, mark, spent } from "./format.js";
import { callButton, partBlock } from "./call.js";
import { textBlock } from "./markup.js";
import { get } from "./net.js";

const PAGE = 40;
const CHANGES = 200;
/** Entries that are elements at once; those that are far away are dropped. */
const MOST = 400;

export class Talk {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    this.run = "";
    this.total = 0;
    this.seq = 0;
    /** @type {Map<number, any>} Entries that are shown, by their place. */
    this.entries = new Map();
    this.first = 0;
    this.following = true;
    this.busy = false;
    this.again = false;
    this.loaded = false;
    this.shown = 0;
    this.earlier = button("", () => void this.#page(-1), { class: "small wide-button" });
    this.later = button("", () => void this.#page(1), { class: "small wide-button" });
    this.list = h("div", { class: "entries" });
    this.writing = h("pre", { class: "body writing", tabindex: "0", role: "region", "aria-label": "The reply so far", hidden: true });
    this.note = h("p", { class: "calm note", hidden: true });
    this.element = h("div", { class: "talk" }, this.earlier, this.list, this.later, this.writing, this.note);
  }

  /** @param {HTMLElement} box */
  scrollsIn(box) {
    this.box = box;
    box.addEventListener("scroll", () => {
      if (this.element.isConnected) this.following = box.scrollTop + box.clientHeight >= box.scrollHeight - 40;
    }, { passive: true });
  }

  close() {
    this.run = "";
  }

  leave() {
    this.run = "";
  }

  get last() {
    return this.first + this.entries.size;
  }

  /** @param {string} run @param {number} event */
  async show(run, event) {
    const token = ++this.shown;
    this.loaded = this.again = false;
    this.run = run;
    this.entries.clear();
    this.list.replaceChildren();
    this.writing.hidden = this.note.hidden = this.earlier.hidden = this.later.hidden = true;
    const length = this.view.tree.rows.get(run)?.entries ?? 0;
    const live = this.view.tree.rows.get(run)?.status === "running";
    // A finished run is read from its beginning, an active one at its end.
    let from = live ? Math.max(0, length - PAGE) : 0;
    this.following = live && !event;
    try {
      if (event) from = await this.#placeOf(run, event);
      const page = await this.#get(run, { from, limit: PAGE });
      if (token !== this.shown) return;
      this.first = from;
      this.seq = page.seq;
      this.total = page.total;
      this.#put(page.entries);
    } catch (error) {
      if (token === this.shown) fill(this.list, h("p", { class: "banner bad" }, /** @type {any} */ (error).message));
      return;
    }
    this.#ends();
    this.write();
    this.loaded = true;
    if (this.again) void this.update();
    const box = /** @type {HTMLElement} */ (this.box);
    if (event) this.#point(event);
    else box.scrollTop = this.following ? box.scrollHeight : 0;
  }

  /** @param {string} run @param {object} query @returns {Promise<any>} */
  #get(run, query) {
    return get(`api/runs/${encodeURIComponent(run)}/messages`, /** @type {any} */ (query));
  }

  /** Where the entry with an event is, a few entries before it. @param {string} run @param {number} event */
  async #placeOf(run, event) {
    let low = 0;
    let high = Math.max(0, (this.view.tree.rows.get(run)?.entries ?? 1) - 1);
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      const { entries } = await this.#get(run, { from: middle, limit: 1 });
      if (entries[0] && entries[0].seq <= event) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low - 3);
  }

  /** Mark the entry of an event. @param {number} event */
  #point(event) {
    let found = null;
    for (const one of this.entries.values()) if (one.seq <= event) found = one.element;
    found?.classList.add("pointed");
    found?.scrollIntoView({ block: "center" });
  }

  /** @param {1 | -1} step */
  async #page(step) {
    const { run } = this;
    const box = /** @type {HTMLElement} */ (this.box);
    const from = step > 0 ? this.last : Math.max(0, this.first - PAGE);
    const limit = step > 0 ? PAGE : this.first - from;
    const page = await this.#get(run, { from, limit });
    if (run !== this.run) return;
    const below = box.scrollHeight - box.scrollTop;
    if (step < 0) this.first = from;
    this.#put(page.entries);
    if (step < 0) box.scrollTop = box.scrollHeight - below;
    this.#trim(step);
    this.#ends();
  }

  /** @param {1 | -1} step */
  #trim(step) {
    const places = [...this.entries.keys()].sort((a, b) => a - b);
    const spare = places.length - MOST;
    if (spare <= 0) return;
    const gone = step > 0 ? places.slice(0, spare) : places.slice(-spare);
    for (const place of gone) {
      this.entries.get(place).element.remove();
      this.entries.delete(place);
    }
    if (step > 0) this.first += spare;
  }

  /** Show entries: in place of what was there, or where they belong. @param {any[]} entries */
  #put(entries) {
    for (const entry of entries) {
      const before = this.entries.get(entry.n);
      if (before && before.changed === entry.changed) continue;
      const element = entryElement(this.view, this.run, entry, before?.element);
      if (before) before.element.replaceWith(element);
      else {
        let next = null;
        for (const [n, one] of this.entries) if (n > entry.n && (next === null || n < next.n)) next = { n, element: one.element };
        this.list.insertBefore(element, next?.element ?? null);
      }
      this.entries.set(entry.n, { seq: entry.seq, changed: entry.changed, turn: entry.turn ?? 0, element });
    }
  }

  #ends() {
    this.earlier.hidden = this.first <= 0;
    say(this.earlier, `Show earlier (${this.first.toLocaleString()} entries)`);
    const left = this.total - this.last;
    this.later.hidden = left <= 0;
    say(this.later, `Show later (${left.toLocaleString()} entries)`);
  }

  /** Take in what changed. One question to the server at a time. */
  async update() {
    if (this.busy || !this.loaded) {
      this.again = true;
      return;
    }
    this.busy = true;
    this.again = false;
    const { run, shown } = this;
    try {
      const page = await this.#get(run, { changed: this.seq, limit: CHANGES });
      if (run !== this.run || shown !== this.shown) return;
      const atEnd = this.last >= this.total;
      const known = page.entries.filter((/** @type {any} */ one) => one.n >= this.first && (one.n < this.last || atEnd));
      this.#put(known);
      this.total = page.total;
      if (page.entries.length === CHANGES) {
        // More changed than fits into one answer.
        void this.show(run, 0);
        return;
      }
      this.seq = page.seq;
      this.#trim(1);
      this.#ends();
      this.write();
    } catch {
      // The stream says what is wrong with the server.
    } finally {
      this.busy = false;
      if (this.again && this.run) void this.update();
    }
  }

  /** Show what the model is writing, and stay at the end if that is where the reader is. */
  write() {
    const text = this.view.tree.writing.get(this.run)?.text ?? "";
    this.writing.hidden = !text;
    if (text) say(this.writing, text);
    const row = this.view.tree.rows.get(this.run);
    const { head } = this.view.tree;
    this.note.hidden = !(row?.status === "running" && head.live && !head.hosted && row.doing);
    say(this.note, `Now: ${row?.doing ?? ""}. Another process runs this: text appears when a reply is complete.`);
    const box = /** @type {HTMLElement} */ (this.box);
    if (this.following && this.last >= this.total) box.scrollTop = box.scrollHeight;
  }

  tick() {}

  /** @param {1 | -1} step */
  turn(step) {
    const box = /** @type {HTMLElement} */ (this.box);
    const top = box.getBoundingClientRect().top;
    const turns = [...this.list.querySelectorAll("[data-turn]")];
    const next = step > 0
      ? turns.find((one) => one.getBoundingClientRect().top > top + 8)
      : turns.reverse().find((one) => one.getBoundingClientRect().top < top - 8);
    if (next) next.scrollIntoView({ block: "start" });
    else if (step > 0 && !this.later.hidden) void this.#page(1);
    else if (step < 0 && !this.earlier.hidden) void this.#page(-1);
  }

  follow() {
    const box = /** @type {HTMLElement} */ (this.box);
    if (this.last < this.total) void this.#toEnd();
    this.following = true;
    box.scrollTop = box.scrollHeight;
  }

  async #toEnd() {
    const { run } = this;
    const from = Math.max(0, this.total - PAGE);
    const page = await this.#get(run, { from, limit: PAGE });
    if (run !== this.run) return;
    this.entries.clear();
    this.list.replaceChildren();
    this.first = from;
    this.#put(page.entries);
    this.#ends();
    this.write();
  }
}

const TITLES = /** @type {Record<string, string>} */ ({ task: "Task", reply: "Reply", message: "Message", failed: "Model call failed", note: "", step: "Step", child: "Child", end: "End" });

/** @param {any} view @param {string} run @param {any} entry @param {any} [before] */
function entryElement(view, run, entry, before) {
  const title = entry.kind === "reply" ? `Turn ${entry.turn}` : TITLES[entry.kind] ?? entry.kind;
  const facts = [entry.purpose, entry.origin, entry.model, entry.usage?.tokens ? spent(entry.usage) : "", cached(entry.usage), entry.again ? "from the journal, after a resume" : ""].filter(Boolean).join(" · ");
  const link = h("a", { class: "at", href: `#/${run}?e=${entry.seq}`, title: "Link to this entry" }, clock(entry.at));
  const opened = new Set([...(before?.querySelectorAll(".call-box") ?? [])].filter((one) => one.opened()).map((one) => one.dataset.key));
  const unfolded = Boolean(before?.querySelector("details.thinking[open]"));
  const calls = (entry.calls ?? []).map((/** @type {any} */ call) => {
    const box = callButton(view, run, call);
    if (opened.has(call.key)) box.open();
    return box;
  });
  const [sign, look] = entry.kind === "end" ? mark(entry.status) : ["", entry.kind === "failed" ? "bad" : ""];
  const words = entry.words ? h("p", { class: `words ${look}` }, `${sign} ${entry.words}`.trim()) : null;
  return h("article", { class: `entry kind-${entry.kind}`, data: entry.kind === "reply" ? { turn: entry.turn } : {} },
    h("header", { class: "line" }, title ? h("h3", null, title) : null, h("span", { class: "calm" }, facts), h("span", { class: "grow" }), link),
    words,
    entry.thinking ? h("details", { class: "thinking", open: unfolded }, h("summary", null, "Thinking"), textBlock(entry.thinking, run)) : null,
    entry.text ? textBlock(entry.text, run) : null,
    (entry.parts ?? []).map((/** @type {any} */ part) => partBlock(run, part)),
    entry.status === "length" ? h("p", { class: "warn" }, "The reply was cut at the model's limit.") : entry.status === "refusal" ? h("p", { class: "bad" }, "The model refused.") : null,
    calls,
    entry.child ? button(`→ ${entry.child}`, () => view.select(entry.child), { class: "small" }) : null);
}

/** @param {any} usage */
function cached(usage) {
  return usage?.input && usage.cached ? `cache ${Math.round((100 * usage.cached) / usage.input)} %` : "";
}
