// Calls that wait for a person: the exact arguments or the change, and the answers.

import { button, fill, h, put, say, speak } from "./dom.js";
import { count, duration, money } from "./format.js";
import { get } from "./net.js";
import { textBlock } from "./markup.js";

/** Keys are ignored so long after the question changed: a key for the question before must not answer this one. */
const SETTLE_MS = 600;

export class QuestionBar {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    /** @type {any[]} In short, from the stream. */
    this.questions = [];
    this.request = "";
    /** @type {any} The whole question; null until it is there. */
    this.asked = null;
    this.since = 0;
    this.sent = "";
    this.title = h("h2", { class: "ask" });
    this.waited = h("span", { class: "calm" });
    this.body = h("div", { class: "question-body" });
    this.reason = h("input", { id: "deny-reason", autocomplete: "off", placeholder: "reason for the model", "aria-label": "Reason for the model", on: { keydown: (/** @type {KeyboardEvent} */ event) => this.#typed(event) } });
    this.answers = [
      button("Yes, once", () => void this.#answer("once"), { class: "primary", "aria-keyshortcuts": "y" }),
      button("Yes, for this run", () => void this.#answer("run"), { "aria-keyshortcuts": "r" }),
      button("Yes, for the tree", () => void this.#answer("tree"), { "aria-keyshortcuts": "t" }),
      button("No", () => void this.#deny(), { class: "danger", "aria-keyshortcuts": "n" }),
    ];
    ["y", "r", "t", "n"].forEach((key, place) => this.answers[place].append(" ", h("kbd", null, key)));
    this.next = button("Next question", () => this.#next(), { class: "small", "aria-keyshortcuts": "a" });
    this.element = h("section", { class: "question", "aria-label": "A question to you", hidden: true },
      h("div", { class: "line" }, this.title, this.waited, h("span", { class: "grow" }), this.next),
      this.body,
      h("div", { class: "line answers" }, this.answers, this.reason));
  }

  /** @param {any[]} questions */
  update(questions) {
    const known = new Set(this.questions.map((one) => one.request));
    for (const one of questions) if (!known.has(one.request)) speak(`${one.path.join(" › ")} asks: ${one.what}`);
    this.questions = questions;
    if (!questions.some((one) => one.request === this.request)) {
      const near = questions.find((one) => one.run === this.view.selected) ?? questions[0];
      this.#show(near?.request ?? "");
    }
    say(this.next, `Next question (${questions.length})`);
    this.next.hidden = questions.length < 2;
  }

  /** @param {string} request */
  #show(request) {
    this.request = request;
    this.asked = null;
    this.since = performance.now();
    this.reason.value = "";
    this.element.hidden = !request;
    this.#enable();
    if (request) void this.#load(request);
  }

  /** @param {string} request */
  async #load(request) {
    const short = this.questions.find((one) => one.request === request);
    say(this.title, `? ${short.path.join(" › ")} asks: ${short.what}`);
    fill(this.body, h("p", { class: "calm" }, "Loading the arguments."));
    try {
      const { questions } = await get(`api/runs/${encodeURIComponent(short.run)}/questions`);
      const found = questions.find((/** @type {any} */ one) => one.request === request);
      if (request !== this.request) return;
      if (!found) {
        fill(this.body, h("p", { class: "calm" }, "This question was answered or is no longer asked."));
        return;
      }
      this.asked = found;
      this.since = performance.now();
      this.#draw(found);
    } catch (error) {
      if (request !== this.request) return;
      fill(this.body, h("p", { class: "bad" }, /** @type {any} */ (error).message, " ", button("Try again", () => void this.#load(request), { class: "small" })));
    }
    this.#enable();
  }

  /** @param {any} asked */
  #draw(asked) {
    const part = (/** @type {string} */ name, /** @type {any} */ text) => h("div", { class: "part" }, h("h3", null, name), textBlock(text, asked.run, { exact: true }));
    fill(this.body,
      (asked.reasons ?? []).length ? h("p", { class: "calm" }, `Asked because of: ${asked.reasons.join(", ")}`) : null,
      h("p", { class: "calm" }, `Task: ${asked.task ?? ""}`),
      asked.preview ? part("change", asked.preview) : null,
      (asked.args ?? []).map((/** @type {any} */ one) => part(one.name, one.text)));
  }

  #enable() {
    const ready = Boolean(this.asked) && this.sent !== this.request;
    for (const one of this.answers) one.disabled = !ready;
    this.reason.disabled = !ready;
  }

  tick() {
    const short = this.questions.find((one) => one.request === this.request);
    if (!short) return;
    const usd = this.asked?.sum?.usd;
    say(this.waited, `waiting ${duration(this.view.tree.now - short.at)}${usd ? ` · spent ${money(usd)}` : ""} · ${count(this.questions.length, "question")}`);
    put(this.element, "data-request", this.request);
  }

  #next() {
    if (!this.questions.length) return;
    const place = this.questions.findIndex((one) => one.request === this.request);
    const next = this.questions[(place + 1) % this.questions.length];
    if (next.request !== this.request) this.#show(next.request);
    this.view.select(next.run);
    this.tick();
  }

  /** @param {"once" | "run" | "tree"} scope */
  async #answer(scope) {
    await this.#post("approve", { request: this.request, scope });
  }

  async #deny() {
    await this.#post("deny", { request: this.request, reason: this.reason.value.trim() });
  }

  /** @param {string} act @param {{ request: string }} body */
  async #post(act, body) {
    if (!this.asked || this.sent === body.request) return;
    this.sent = body.request;
    this.#enable();
    const done = await this.view.act(this.asked.run, act, body);
    if (!done && this.sent === body.request) this.sent = "";
    this.#enable();
    // The buttons are gone or disabled: the keyboard goes back to the list.
    if (done) this.view.list?.element.focus();
  }

  /** @param {KeyboardEvent} event */
  #typed(event) {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    void this.#deny();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (!this.questions.length) return false;
    const { key } = event;
    if (key === "a") {
      this.#next();
      return true;
    }
    const scopes = /** @type {Record<string, "once" | "run" | "tree">} */ ({ y: "once", r: "run", t: "tree" });
    if (!(key in scopes) && key !== "n") return false;
    if (!this.asked || performance.now() - this.since < SETTLE_MS) return true;
    if (key === "n") this.reason.focus();
    else void this.#answer(scopes[key]);
    return true;
  }
}
