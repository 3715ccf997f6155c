// One run: its conversation, its calls, its task and limits.

import { button, copy, copyable, fill, h, put, say } from "./dom.js";
import { count, duration, mark, money, number, short, spent, statusWords } from "./format.js";
import { callButton } from "./call.js";
import { textBlock } from "./markup.js";
import { get } from "./net.js";
import { Talk } from "./talk.js";

const TABS = [["talk", "Conversation"], ["calls", "Calls"], ["about", "Task and limits"]];

export class Detail {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    this.run = "";
    this.name = "talk";
    this.talk = new Talk(view);
    this.body = h("div", { class: "detail-body", id: "detail-panel", role: "tabpanel", tabindex: "0" });
    this.talk.scrollsIn(this.body);
    this.title = h("h2");
    this.status = h("span", { class: "status" });
    this.facts = h("p", { class: "facts" });
    this.stop = button("Stop", () => void view.stopRun(this.run), { class: "small" });
    this.sending = button("Send", () => void view.sendTo(this.run), { class: "small" });
    this.tablist = h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the chosen run" },
      TABS.map(([name, text]) => h("button", { type: "button", role: "tab", id: `detail-${name}`, "aria-controls": "detail-panel", on: { click: () => this.#tab(name), keydown: (/** @type {KeyboardEvent} */ event) => this.#turn(event) } }, text)));
    this.element = h("section", { class: "detail", "aria-label": "The chosen run" },
      h("div", { class: "detail-head" },
        h("div", { class: "line" }, this.title, this.status, h("span", { class: "grow" }), this.sending, this.stop,
          button("Link", () => void copy(view.link()), { class: "small", "aria-label": "Copy a link to this run" }),
          button("Command", () => void copy(view.page.command(`show ${short(this.run)} --messages`)), { class: "small", "aria-label": "Copy the command that shows this run in a terminal" })),
        this.facts),
      this.tablist, this.body);
    this.#mark();
  }

  /** Stand beside the list of a tab. @param {Element} parent */
  home(parent) {
    if (this.element.parentNode !== parent) parent.append(this.element);
  }

  close() {
    this.talk.close();
  }

  /** Show a run, at an event of it if one is named. @param {string} run @param {number} event */
  show(run, event) {
    this.run = run;
    if (event) this.name = "talk";
    this.#mark();
    this.#fill(event);
    this.tick();
  }

  /** Give the keyboard to the conversation. */
  open() {
    this.body.focus({ preventScroll: true });
    if (matchMedia("(max-width: 900px)").matches) this.element.scrollIntoView();
  }

  #mark() {
    for (const one of this.tablist.children) {
      const is = one.id === `detail-${this.name}`;
      put(one, "aria-selected", String(is));
      put(one, "tabindex", is ? "0" : "-1");
    }
    put(this.body, "aria-labelledby", `detail-${this.name}`);
  }

  /** @param {KeyboardEvent} event */
  #turn(event) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const names = TABS.map(([name]) => name);
    const next = names[(names.indexOf(this.name) + step + names.length) % names.length];
    this.#tab(next);
    document.getElementById(`detail-${next}`)?.focus();
  }

  /** @param {string} name */
  #tab(name) {
    if (name === this.name) return;
    this.name = name;
    this.#mark();
    this.#fill(0);
  }

  /** @param {number} event */
  #fill(event) {
    if (!this.run) return;
    if (this.name === "talk") {
      fill(this.body, this.talk.element);
      void this.talk.show(this.run, event);
    } else {
      this.talk.leave();
      void this.#load();
    }
  }

  async #load() {
    const { run, name } = this;
    try {
      const made = name === "about" ? await aboutOf(run) : await callsOf(this.view, run);
      if (run === this.run && name === this.name) fill(this.body, made);
    } catch (error) {
      if (run === this.run && name === this.name) fill(this.body, h("p", { class: "banner bad" }, /** @type {any} */ (error).message));
    }
  }

  /** @param {string[]} changed @param {any[]} texts */
  update(changed, texts) {
    if (!this.run) return;
    if (this.name === "talk") {
      if (changed.includes(this.run)) void this.talk.update();
      if (texts.some((one) => one.run === this.run) || changed.includes(this.run)) this.talk.write();
    } else if (changed.includes(this.run)) {
      const open = this.body.querySelector("details[open], .call-body");
      // What somebody has unfolded stays as it is.
      if (!open) void this.#load();
    }
  }

  tick() {
    const row = this.view.tree.rows.get(this.run);
    if (!row) return;
    const { tree } = this.view;
    const [, look] = mark(row.status, row.state);
    say(this.title, `${row.agent} ${short(row.id)}`);
    say(this.status, statusWords(row.status, row.state));
    put(this.status, "class", `status ${look}`);
    const cached = row.own.input ? Math.round((100 * (row.own.cached ?? 0)) / row.own.input) : 0;
    say(this.facts, [
      row.model ?? "",
      row.program ? "program" : `turn ${row.turn ?? 0}${row.turns ? ` of ${row.turns}` : ""}`,
      duration(tree.worked(row)),
      `own ${spent(row.own)}`,
      row.children ? `with children ${spent(row.sum)}` : "",
      cached ? `cache ${cached} %` : "",
      row.errors ? count(row.errors, "error") : "",
      row.status !== "completed" ? (row.doing ?? "") : "",
    ].filter(Boolean).join(" · "));
    const open = row.status === "running" && tree.head.live;
    this.stop.disabled = this.sending.disabled = !open;
    this.talk.tick();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (this.name !== "talk") return false;
    if (event.key === "[" || event.key === "]") this.talk.turn(event.key === "]" ? 1 : -1);
    else if (event.key === "g") this.talk.follow();
    else return false;
    return true;
  }
}

/** @param {any} view @param {string} run */
async function callsOf(view, run) {
  const list = h("ol", { class: "calls" });
  let from = 0;
  const more = button("Show more calls", () => void load(), { class: "small" });
  async function load() {
    const page = await get(`api/runs/${encodeURIComponent(run)}/calls`, { from, limit: 100 });
    for (const call of page.calls) list.append(h("li", null, callButton(view, run, call)));
    from += page.calls.length;
    more.hidden = from >= page.total;
    if (!page.total) list.append(h("li", { class: "calm" }, "This run has made no calls."));
  }
  await load();
  return h("div", { class: "talk" }, list, more);
}

/** @param {string} run */
async function aboutOf(run) {
  const about = await get(`api/runs/${encodeURIComponent(run)}/about`);
  const fact = (/** @type {string} */ name, /** @type {any} */ value) => (value ? [h("dt", null, name), h("dd", null, value)] : []);
  const section = (/** @type {string} */ title, /** @type {any} */ ...inside) => h("section", { class: "entry" }, h("h3", null, title), inside);
  return h("div", { class: "talk" },
    section("Task", textBlock(about.task, run)),
    about.error ? section("Error", h("p", { class: "bad" }, about.error)) : null,
    about.reason ? section("Reason", h("p", null, about.reason)) : null,
    (about.warnings ?? []).length ? section("Warnings", h("ul", null, about.warnings.map((/** @type {string} */ one) => h("li", null, one)))) : null,
    about.answer ? section("Answer", textBlock(about.answer, run)) : null,
    (about.artifacts ?? []).length ? section("Artifacts", h("ul", { class: "plain" }, about.artifacts.map((/** @type {any} */ one) => h("li", null, artifact(run, one))))) : null,
    section("Limits", h("dl", { class: "facts-list" }, Object.entries(about.limits ?? {}).flatMap(([name, value]) => fact(name, limitWords(name, value))))),
    section("Terms", h("dl", { class: "facts-list" },
      fact("model", about.model), fact("called by", (about.path ?? []).join(" › ")), fact("nickname", about.nickname), fact("key", about.key),
      fact("tools", (about.tools ?? []).join(", ")), fact("subagents", (about.subagents ?? []).join(", ")),
      fact("workspace", about.workspace), fact("sandbox", about.sandbox), fact("rules", (about.policy ?? []).join(", ")),
      fact("earlier messages", about.history ? number(about.history) : ""))),
    about.instructions?.chars ? h("details", { class: "entry" }, h("summary", null, "Instructions"), textBlock(about.instructions, run)) : null,
    h("p", null, copyable(run)));
}

/** @param {string} name @param {any} value */
function limitWords(name, value) {
  if (value === null) return "unlimited";
  if (typeof value !== "number") return String(value);
  if (name === "usd") return money(value);
  return name.includes("seconds") ? duration(value) : value.toLocaleString();
}

/** An artifact: opened here in pieces, or downloaded. @param {string} run @param {any} one */
export function artifact(run, one) {
  const path = `api/runs/${encodeURIComponent(run)}/artifacts/${one.id.split("/").map(encodeURIComponent).join("/")}`;
  const box = h("span", null);
  const open = button("Open", () => void load(), { class: "small", "aria-label": `Open ${one.name || one.id}` });
  const shown = h("pre", { class: "body", tabindex: "0", role: "region", "aria-label": one.name || one.id });
  let from = 0;
  async function load() {
    try {
      const piece = await get(path, { from });
      shown.append(piece.text);
      from += 100_000;
      if (!shown.isConnected) box.append(shown);
      open.textContent = "Show more";
      open.hidden = from >= piece.chars;
    } catch (error) {
      box.append(h("p", { class: "bad" }, /** @type {any} */ (error).message));
    }
  }
  box.append(h("code", null, one.name || one.id), ` ${number(one.chars ?? 0)} characters `, open, " ", h("a", { class: "button small", href: `${path}?download=1`, download: "" }, "Download"));
  return box;
}
