// Starting a run of an agent of this project, in the server's process.

import { button, copyable, fill, h, notice } from "./dom.js";
import { get, post } from "./net.js";

export class StartView {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.element = h("main", { id: "main", class: "view form", tabindex: "-1" }, h("h1", null, "Start a run"));
    if (page.session.may_start) void this.#load();
    else {
      this.element.append(h("div", { class: "state" },
        h("p", null, "This server does not start runs. Start it with: ", copyable("remit serve --allow-start")),
        h("p", null, "Or start a run in a terminal: ", copyable(page.command("run 'your task'")))));
    }
  }

  close() {}

  async #load() {
    let agents = [];
    try {
      agents = await get("api/agents");
    } catch (error) {
      notice(/** @type {any} */ (error).message, "bad");
    }
    this.agent = h("select", { id: "start-agent" }, agents.map((/** @type {any} */ one) => h("option", { value: one.name }, one.description ? `${one.name}: ${one.description}` : one.name)));
    this.prompt = h("textarea", { id: "start-prompt", rows: "8", required: true });
    this.model = h("input", { id: "start-model", placeholder: "the agent's, or the project's" });
    this.limits = h("input", { id: "start-limits", placeholder: "usd=0.5,seconds=5m" });
    this.problem = h("p", { class: "banner bad", role: "alert", hidden: true });
    this.send = h("button", { type: "submit", class: "primary" }, "Start");
    const field = (/** @type {string} */ id, /** @type {string} */ text, /** @type {any} */ input) => h("p", null, h("label", { for: id }, text), input);
    this.element.append(h("form", { on: { submit: (/** @type {Event} */ event) => void this.#start(event) } },
      field("start-agent", "Agent", this.agent), field("start-prompt", "Task", this.prompt),
      field("start-model", "Model", this.model), field("start-limits", "Limits", this.limits),
      h("p", { class: "calm" }, "The run lives in this server's process. When the server stops, it stops the run; the work so far is kept, and the run can be resumed. Calls that need approval are shown on this page."),
      this.problem, h("p", null, this.send, " ", button("Cancel", () => this.page.open("")))));
    this.prompt.focus();
  }

  /** @param {Event} event */
  async #start(event) {
    event.preventDefault();
    this.send.disabled = true;
    try {
      const wish = { agent: this.agent.value, prompt: this.prompt.value, model: this.model.value.trim(), limits: this.limits.value.trim() };
      const { run } = await post("api/runs", wish);
      this.page.open(run);
    } catch (error) {
      fill(this.problem, /** @type {any} */ (error).message);
      this.problem.hidden = false;
      this.send.disabled = false;
    }
  }

  press() {
    return false;
  }
}
