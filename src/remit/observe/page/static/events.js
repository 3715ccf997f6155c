// The events of a tree: rows on demand, and one event as it is in the journal.

import { fill, h, put, say } from "./dom.js";
import { clock, count, short } from "./format.js";
import { textBlock } from "./markup.js";
import { get } from "./net.js";
import { VirtualList } from "./virtual.js";

const PAGE = 200;
const KINDS = [
  ["", "all events"], ["run_started,run_ended,run_resumed", "starts and ends"], ["turn_started,reply_received,model_call_failed", "model calls"],
  ["call_started,call_ended", "tool calls"], ["approval_requested,approval_answered", "questions"], ["warned,model_call_failed,limit_met,overran", "trouble"],
];

export class EventsTab {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    /** @type {Map<number, any[]>} Pages that are there. */
    this.pages = new Map();
    /** @type {Set<number>} Pages that are on their way. */
    this.asked = new Set();
    this.total = 0;
    this.following = false;
    this.version = 0;
    this.waiting = -1;
    this.list = new VirtualList({
      height: 26, role: "listbox", label: "Events",
      make: makeRow, draw: (element, index) => this.#draw(element, index), key: (index) => String(index),
      opened: (index) => void this.#open(index), moved: (index) => void this.#open(index),
      looked: (first, last) => this.#need(first, last),
    });
    this.kinds = h("select", { "aria-label": "Kinds of events", on: { change: () => this.#anew() } }, KINDS.map(([value, text]) => h("option", { value }, text)));
    this.only = h("select", { "aria-label": "Whose events", on: { change: () => this.#anew() } }, h("option", { value: "" }, "of the whole tree"), h("option", { value: "below" }, "of the chosen run and its children"), h("option", { value: "only" }, "of the chosen run"));
    this.count = h("span", { class: "calm", role: "status" });
    this.problem = h("p", { class: "banner bad", role: "alert", hidden: true });
    this.raw = h("div", { class: "detail-body", tabindex: "0", role: "region", "aria-label": "The chosen event" }, h("p", { class: "calm" }, "Choose an event to see it as it is in the journal."));
    this.element = h("div", { class: "split events" },
      h("section", { class: "side", "aria-label": "Events" }, h("div", { class: "subbar" }, this.kinds, this.only, this.count), this.problem, this.list.element),
      h("section", { class: "detail", "aria-label": "Event" }, this.raw));
  }

  close() {
    this.list.close();
  }

  shown() {
    if (this.view.event) void this.#goTo(this.view.event);
  }

  get #run() {
    return this.only.value ? this.view.selected : this.view.root;
  }

  #anew() {
    this.version++;
    this.pages.clear();
    this.asked.clear();
    this.total = 0;
    this.list.current = -1;
    this.list.element.scrollTop = 0;
    void this.#load(0);
  }

  /** @param {string[]} changed */
  update(changed) {
    if (!this.view.tree.loaded) return;
    const plain = !this.kinds.value && !this.only.value;
    const now = this.view.tree.head.events ?? 0;
    if (plain && now === this.total && !changed.length) return;
    // The last page grows; the pages before it stay.
    const last = Math.floor(Math.max(0, this.total - 1) / PAGE);
    if (plain) this.#count(now);
    if (changed.length || !this.pages.size) void this.#load(last, true);
  }

  select() {
    if (this.only.value) this.#anew();
  }

  /** @param {number} total */
  #count(total) {
    this.total = total;
    say(this.count, count(total, "event"));
    this.list.update(total);
    if (this.following) this.list.toEnd();
  }

  /** @param {number} first @param {number} last */
  #need(first, last) {
    const from = Math.floor(Math.max(0, first) / PAGE);
    const to = Math.floor(Math.max(0, Math.min(this.total - 1, last)) / PAGE);
    for (let page = from; page <= to && this.total; page++) if (!this.pages.has(page) || this.#short(page)) void this.#load(page);
  }

  /** Whether a page that is there has fewer events than it could. @param {number} page */
  #short(page) {
    return (this.pages.get(page)?.length ?? 0) < Math.min(PAGE, this.total - page * PAGE);
  }

  /** @param {number} page @param {boolean} [again] */
  async #load(page, again = false) {
    if (this.asked.has(page) && !again) return;
    this.asked.add(page);
    const { version } = this;
    try {
      const found = await get(`api/runs/${encodeURIComponent(this.#run)}/events`, { from: page * PAGE, limit: PAGE, kind: this.kinds.value, only: this.only.value === "only" ? 1 : undefined });
      if (version !== this.version) return;
      this.pages.set(page, found.events);
      this.problem.hidden = true;
      this.#count(found.total);
      const { current } = this.list;
      // Somebody went to this event before it was there.
      if (this.waiting === current && Math.floor(current / PAGE) === page) void this.#open(current);
    } catch (error) {
      say(this.problem, /** @type {any} */ (error).message);
      this.problem.hidden = false;
    } finally {
      this.asked.delete(page);
    }
  }

  /** @param {number} index */
  #event(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  /** @param {any} row @param {number} index */
  #draw(row, index) {
    const event = this.#event(index);
    const { parts } = row;
    say(parts.seq, event ? String(event.seq) : "");
    say(parts.at, event ? clock(event.at) : "");
    say(parts.run, event ? `${event.agent} ${short(event.run).slice(5)}` : "");
    say(parts.kind, event ? event.kind.replace(/_/g, " ") : "…");
    say(parts.words, event ? event.words : "");
    put(row, "aria-description", event ? `Event ${event.seq}, ${event.kind.replace(/_/g, " ")}, ${event.agent}: ${event.words}` : "Loading");
    put(row, "aria-setsize", String(this.total));
    put(row, "aria-posinset", String(index + 1));
  }

  /** @param {number} index */
  async #open(index) {
    const event = this.#event(index);
    this.waiting = event ? -1 : index;
    if (!event) return;
    this.showing = event.seq;
    this.view.remember({ e: event.seq });
    try {
      const text = await get(`api/runs/${encodeURIComponent(this.view.root)}/events/${event.seq}`);
      if (this.showing !== event.seq) return;
      fill(this.raw, h("p", { class: "line" }, h("b", null, `Event ${event.seq}`), ` ${event.kind.replace(/_/g, " ")} `, h("a", { href: `#/${event.run}?e=${event.seq}` }, "in the conversation")), textBlock(text, this.view.root));
    } catch (error) {
      fill(this.raw, h("p", { class: "bad" }, /** @type {any} */ (error).message));
    }
  }

  /** @param {number} seq */
  async #goTo(seq) {
    try {
      const found = await get(`api/runs/${encodeURIComponent(this.view.root)}/events`, { after: seq - 1, limit: 1 });
      await this.#load(Math.floor(found.start / PAGE));
      this.list.go(found.start);
    } catch {
      // The list itself shows what is wrong.
    }
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.key === "/") this.kinds.focus();
    else if (event.key === "g") {
      this.following = !this.following;
      if (this.following) this.list.toEnd();
    } else return false;
    return true;
  }
}

function makeRow() {
  const parts = { seq: h("span", { class: "n" }), at: h("span", { class: "calm" }), run: h("span"), kind: h("span"), words: h("span", { class: "task" }) };
  const row = h("div", { class: "row event-row", role: "option" }, parts.seq, parts.at, parts.run, parts.kind, parts.words);
  row.parts = parts;
  return row;
}
