// The page: which view is shown, the line at the top, and keys that work everywhere.

import { button, fill, h, say } from "./dom.js";
import { get } from "./net.js";
import { clock } from "./format.js";
import { openHelp } from "./help.js";
import { RunsView } from "./runs.js";
import { RunView } from "./run.js";
import { StartView } from "./start.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));

/** What a link leads to: `#/k7x2m.2?view=time&e=1234`. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: decodeURIComponent(path ?? ""), query: new URLSearchParams(query ?? "") };
}

class Page {
  constructor() {
    /** @type {any} */
    this.session = null;
    /** @type {any} */
    this.view = null;
    this.name = "";
    this.state = h("span", { class: "connection", role: "status" });
    this.top = h("header", { class: "top" },
      h("a", { class: "brand", href: "#/", "aria-label": "remit: all runs" }, "remit"),
      h("nav", { "aria-label": "Where you are" }, (this.trail = h("span", { class: "trail" }))),
      h("span", { class: "grow" }), this.state,
      button("Keys ?", () => openHelp(), { class: "small", title: "Keyboard help" }));
    this.slot = h("div", { class: "slot" });
  }

  async begin() {
    try {
      this.session = await get("api/session");
    } catch (error) {
      this.#broken(/** @type {any} */ (error));
      return;
    }
    fill(app, this.top, this.slot);
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.#press(event));
    this.route();
  }

  route() {
    const { name, query } = place();
    const root = name.split(".")[0];
    if (this.view instanceof RunView && this.view.root === root) {
      this.view.go(name, query);
      return;
    }
    this.view?.close();
    this.connection("live");
    if (name === "") this.view = new RunsView(this);
    else if (name === "start") this.view = new StartView(this);
    else this.view = new RunView(this, name, query);
    fill(this.slot, this.view.element);
    this.trailTo(this.session.place);
    if (document.activeElement === document.body) this.view.list?.element.focus();
  }

  /** @param {string} text */
  trailTo(text) {
    say(this.trail, text);
  }

  /** @param {string} run */
  open(run) {
    location.hash = `#/${run}`;
  }

  /** A command line about this journal. @param {string} text */
  command(text) {
    return this.session.command.replace("{}", text);
  }

  /** Whether what is shown is up to date. @param {string} state @param {any} [problem] */
  connection(state, problem) {
    if (state === "live") {
      this.behind = 0;
      say(this.state, "");
    } else if (state === "ended") {
      if (problem?.status === 401) this.#broken(problem);
      else say(this.state, problem?.message ?? "");
    } else {
      this.behind = this.behind || Date.now() / 1000;
      say(this.state, `behind since ${clock(this.behind)}, retrying`);
    }
    this.state.classList.toggle("warn", state !== "live");
  }

  /** @param {any} error */
  #broken(error) {
    this.view?.close();
    const signIn = error.status === 401;
    fill(app, h("main", { id: "main", class: "state", tabindex: "-1" },
      h("h1", null, signIn ? "This page needs its token" : "The page cannot be shown"),
      h("p", null, signIn ? "Open the address that remit serve printed in its terminal; it ends with ?token=… A server that was started anew has a new token." : error.message),
      button("Try again", () => location.reload())));
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (target.closest("dialog")) return;
    if (target.matches("input, textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if ((event.key === "Enter" || event.key === " ") && target.matches("button, a, summary, [role=tab]")) return;
    let used = true;
    if (event.key === "?") openHelp();
    else if (event.key === "h" && this.view instanceof RunView) location.hash = "#/";
    else used = Boolean(this.view?.press(event));
    if (used) event.preventDefault();
  }
}

void new Page().begin();
