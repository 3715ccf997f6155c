// One tree: its head, its tabs, its questions. What each tab shows is in its own file.

import { follow, post } from "./net.js";
import { button, copy, copyable, fill, h, notice, put, say } from "./dom.js";
import { allowed, count, duration, mark, money, number, short, statusWords } from "./format.js";
import { ask } from "./dialog.js";
import { Detail } from "./detail.js";
import { EventsTab } from "./events.js";
import { QuestionBar } from "./question.js";
import { SpendingTab } from "./spending.js";
import { TimeTab } from "./time.js";
import { Tree } from "./tree.js";
import { TreeTab } from "./treetab.js";

const VIEWS = ["tree", "time", "spending", "events"];

export class RunView {
  /** @param {any} page @param {string} run @param {URLSearchParams} query */
  constructor(page, run, query) {
    this.page = page;
    this.root = run.split(".")[0];
    this.selected = run;
    this.tree = new Tree();
    this.tree.head = { root: this.root, live: true };
    this.detail = new Detail(this);
    this.tabs = { tree: new TreeTab(this), time: new TimeTab(this), spending: new SpendingTab(this), events: new EventsTab(this) };
    this.name = "";
    this.questions = new QuestionBar(this);
    this.element = this.#build();
    this.event = Number(query.get("e")) || 0;
    this.#show(query.get("view") ?? "tree");
    this.stream = follow(`api/runs/${encodeURIComponent(this.root)}/stream`, {
      heard: (kind, data) => this.#hear(kind, data),
      state: (state, problem) => this.#state(state, problem),
    });
    this.ticking = setInterval(() => this.#tick(), 1000);
  }

  close() {
    this.stream.close();
    clearInterval(this.ticking);
    for (const tab of Object.values(this.tabs)) tab.close?.();
    this.detail.close();
  }

  get list() {
    return this.tab.list;
  }

  /** @returns {any} */
  get tab() {
    return /** @type {any} */ (this.tabs)[this.name];
  }

  #build() {
    this.title = h("h1", null, short(this.root));
    this.status = h("span", { class: "status" });
    this.facts = h("span", { class: "facts" });
    this.stop = button("Stop", () => void this.stopRun(this.root), { "aria-keyshortcuts": "x" });
    this.sending = button("Send", () => void this.sendTo(this.root), { "aria-keyshortcuts": "s" });
    this.resumed = button("Resume here", () => void this.#resume(), { class: "primary", hidden: true });
    this.banner = h("div", { class: "banner warn", hidden: true });
    this.trouble = h("div", { class: "banner bad", role: "alert", hidden: true });
    this.tablist = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of this run" },
      VIEWS.map((name) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", on: { click: () => this.#show(name, true), keydown: (/** @type {KeyboardEvent} */ event) => this.#turn(event) } }, name[0].toUpperCase() + name.slice(1))));
    this.panel = h("div", { id: "panel", class: "panel", role: "tabpanel" });
    return h("main", { id: "main", class: "view run", tabindex: "-1" },
      h("div", { class: "bar" }, this.title, this.status, this.facts, h("span", { class: "grow" }), this.resumed, this.sending, this.stop,
        button("Link", () => void copy(this.link()), { "aria-label": "Copy a link to this run" })),
      this.trouble, this.banner, this.tablist, this.panel, this.questions.element);
  }

  link() {
    return new URL(`#/${this.selected}`, document.baseURI).href;
  }

  /** @param {KeyboardEvent} event */
  #turn(event) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = VIEWS[(VIEWS.indexOf(this.name) + step + VIEWS.length) % VIEWS.length];
    this.#show(next, true);
    document.getElementById(`tab-${next}`)?.focus();
  }

  /** @param {string} name @param {boolean} [told] */
  #show(name, told = false) {
    if (!VIEWS.includes(name)) name = "tree";
    if (name !== this.name) {
      this.name = name;
      for (const one of this.tablist.children) {
        const is = one.id === `tab-${name}`;
        put(one, "aria-selected", String(is));
        put(one, "tabindex", is ? "0" : "-1");
      }
      put(this.panel, "aria-labelledby", `tab-${name}`);
      fill(this.panel, this.tab.element);
      this.tab.shown?.();
      this.tab.update?.([]);
    }
    if (told) this.remember();
  }

  /** Keep where we are in the address, without a step in the history. @param {Record<string, string | number>} [more] */
  remember(more) {
    const query = new URLSearchParams();
    if (this.name !== "tree") query.set("view", this.name);
    for (const [name, value] of Object.entries(more ?? {})) query.set(name, String(value));
    const text = query.toString();
    history.replaceState(null, "", `#/${this.selected}${text ? `?${text}` : ""}`);
  }

  /** Go to a run of this tree, by a link. @param {string} run @param {URLSearchParams} query */
  go(run, query) {
    this.event = Number(query.get("e")) || 0;
    // A link to an event of a conversation leads to the conversation.
    this.#show(query.get("view") ?? (this.event ? "tree" : this.name));
    this.select(run, { told: false });
  }

  /** Make a run the one that is looked at. @param {string} run @param {{ told?: boolean, list?: boolean }} [how] */
  select(run, { told = true, list = true } = {}) {
    if (!this.tree.rows.has(run)) return;
    const changed = run !== this.selected;
    this.selected = run;
    this.tree.reveal(run);
    if (list) this.tab.select?.(run);
    if (changed || this.event || !this.detail.run) this.detail.show(run, this.event);
    this.event = 0;
    if (told && changed) this.remember();
    this.#tick();
  }

  /** @param {string} kind @param {any} data */
  #hear(kind, data) {
    if (kind === "trouble") {
      fill(this.trouble, data.error);
      this.trouble.hidden = false;
      if (data.ended) this.stream.close();
      return;
    }
    this.trouble.hidden = true;
    const first = !this.tree.loaded;
    const changed = this.tree.apply(data);
    if (data.more) return;
    if (first) {
      if (!this.tree.rows.has(this.selected)) {
        notice(`This tree has no run ${short(this.selected)}.`, "bad");
        this.selected = this.root;
      }
      this.tree.arrange();
      this.select(this.selected, { told: false });
    }
    this.tab.update(changed);
    this.detail.update(changed, data.texts ?? []);
    this.questions.update(this.tree.head.questions ?? []);
    this.#tick();
  }

  /** @param {string} state @param {any} [problem] */
  #state(state, problem) {
    this.page.connection(state, problem);
    this.element.classList.toggle("behind", state !== "live");
    if (problem && problem.status !== 401) {
      fill(this.trouble, problem.message, " ", h("a", { href: "#/" }, "All runs"));
      this.trouble.hidden = false;
    }
  }

  /** What changes with time, or with the head. */
  #tick() {
    const { tree } = this;
    const row = tree.rows.get(this.root);
    if (!row) return;
    const state = tree.head.questions?.length ? "asks" : row.state;
    const [, look] = mark(row.status, state);
    say(this.title, `${short(this.root)} ${row.agent}`);
    say(this.status, statusWords(row.status, state));
    put(this.status, "class", `status ${look}`);
    const limit = row.limits?.seconds;
    const cap = row.limits?.usd;
    say(this.facts, [
      duration(tree.worked(row)) + (typeof limit === "number" ? `/${allowed(limit)}` : ""),
      `Σ ${number(row.sum.tokens ?? 0)}`,
      row.sum.usd === undefined ? "" : money(row.sum.usd) + (typeof cap === "number" ? `/${cap.toFixed(2)}` : ""),
      count(row.runs ?? 1, "run"),
      tree.head.owner ? (tree.head.hosted ? "in this server" : tree.head.owner) : "",
    ].filter(Boolean).join(" · "));
    document.title = `${state === "asks" ? "? " : ""}${short(this.root)} ${row.agent} · remit`;
    this.stop.disabled = this.sending.disabled = !tree.head.live;
    this.#interrupted();
    if (tree.head.live) this.tab.tick?.();
    this.detail.tick();
    this.questions.tick();
  }

  #interrupted() {
    const { head } = this.tree;
    const way = head.resumable ?? "";
    const key = `${way} ${head.status}`;
    if (this.told === key) return;
    this.told = key;
    this.banner.hidden = !way;
    this.resumed.hidden = way !== "here";
    if (!way) return;
    const gone = head.status === "interrupted" ? "The process of this run has ended. " : `It ended ${statusWords(head.status)} and can be resumed. `;
    const how = way === "program"
      ? ["A program started this run; resume it there: ", copyable(`remit.resume(store, "${this.root}", agent=..., model=...)`)]
      : ["Finished work is neither repeated nor paid for again. ", copyable(this.page.command(`resume ${short(this.root)}`))];
    fill(this.banner, gone, how);
  }

  // --- Acting ------------------------------------------------------------------------------------

  /** @param {string} run @param {string} act @param {object} body */
  async act(run, act, body) {
    try {
      const { done, message } = await post(`api/runs/${encodeURIComponent(run)}/${act}`, body);
      notice(message, done ? "" : "bad");
      return done;
    } catch (error) {
      notice(/** @type {any} */ (error).message, "bad");
      return false;
    }
  }

  /** @param {string} run */
  async stopRun(run) {
    const row = this.tree.rows.get(run);
    const below = (row?.runs ?? 1) - 1;
    const reason = await ask(`Stop ${row?.agent ?? ""} ${short(run)}?`, {
      text: `${below ? `This also stops ${count(below, "run")} below it. ` : ""}The work so far is kept.`,
      label: "Reason (recorded in the journal)", action: "Stop it", empty: true,
    });
    if (reason !== null) await this.act(run, "cancel", { reason });
  }

  /** @param {string} run */
  async sendTo(run) {
    const row = this.tree.rows.get(run);
    const text = await ask(`Send to ${row?.agent ?? ""} ${short(run)}`, { text: "The message joins the run's next turn.", label: "Message", action: "Send", long: true });
    if (text !== null) await this.act(run, "send", { text });
  }

  async #resume() {
    this.resumed.disabled = true;
    try {
      await post(`api/runs/${encodeURIComponent(this.root)}/resume`, {});
      notice("Resumed in this server's process.");
    } catch (error) {
      notice(/** @type {any} */ (error).message, "bad");
    }
    this.resumed.disabled = false;
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const { key } = event;
    if (this.questions.press(event)) return true;
    if (/^[1-4]$/.test(key)) this.#show(VIEWS[Number(key) - 1], true);
    else if (key === "x") void this.stopRun(this.selected);
    else if (key === "s") void this.sendTo(this.selected);
    else if (key === "n" || key === "N") this.select(this.tree.nextTrouble(this.selected, key === "n" ? 1 : -1));
    else return Boolean(this.tab.press?.(event)) || this.detail.press(event) || Boolean(this.list?.press(event));
    return true;
  }
}
