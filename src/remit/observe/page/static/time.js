// The time view: a bar per run on one axis, what each run did, and what the end of the tree waited for.

import { button, h, put, say } from "./dom.js";
import { precise, short, spent } from "./format.js";
import { get } from "./net.js";
import { drawName } from "./treetab.js";
import { VirtualList } from "./virtual.js";

/** What a run does: its colour, and how much of the row's height it takes, so that colour is not the only difference. */
const KINDS = /** @type {Record<string, { text: string, colour: string, high: number }>} */ ({
  model: { text: "model", colour: "--bar-model", high: 1 },
  tools: { text: "tools", colour: "--bar-tools", high: 0.7 },
  children: { text: "children", colour: "--bar-children", high: 0.25 },
  queue: { text: "queue", colour: "--bar-queue", high: 0.12 },
  person: { text: "waits for a person", colour: "--bar-person", high: 0.5 },
});
const BAR = 14;
const LEAST_S = 0.005;

export class TimeTab {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    this.tree = view.tree;
    /** @type {Map<string, any[]>} */
    this.bars = new Map();
    /** @type {[string, number, number][]} */
    this.critical = [];
    /** What is zoomed to, in seconds after the start; null: everything. @type {[number, number] | null} */
    this.zoom = null;
    this.asked = 0;
    this.visible = [0, 0];
    this.list = new VirtualList({
      height: 26, role: "tree", label: "Runs over time",
      make: makeRow, draw: (element, index) => this.#draw(element, this.tree.shown[index]), key: (index) => this.tree.shown[index],
      moved: (index) => view.select(this.tree.shown[index], { list: false }),
      opened: (index) => this.#open(index),
      acted: (index) => view.tabs.tree.toggle(index, () => this.update()),
      pressed: (event, index) => this.#fold(event, index),
      looked: (first, last) => this.#looked(first, last),
    });
    this.list.element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.axis = h("canvas", { class: "axis", "aria-hidden": "true" });
    this.range = h("span", { class: "calm", role: "status" });
    this.path = h("input", { type: "checkbox", id: "critical", on: { change: () => this.list.draw() } });
    this.path.checked = true;
    this.element = h("div", { class: "time" },
      h("div", { class: "subbar" },
        button("Zoom in", () => this.#zoom(0.5), { class: "small", "aria-keyshortcuts": "+" }), button("Zoom out", () => this.#zoom(2), { class: "small", "aria-keyshortcuts": "-" }),
        button("Earlier", () => this.#pan(-0.5), { class: "small", "aria-keyshortcuts": "<" }), button("Later", () => this.#pan(0.5), { class: "small", "aria-keyshortcuts": ">" }),
        button("All", () => this.#set(null), { class: "small", "aria-keyshortcuts": "0" }), this.range,
        h("label", { for: "critical", class: "check" }, this.path, "critical path"),
        h("span", { class: "grow" }),
        h("ul", { class: "legend", "aria-label": "Meaning of the bars" }, Object.entries(KINDS).map(([kind, { text }]) => h("li", null, h("span", { class: `swatch bar-${kind}`, "aria-hidden": "true" }), text)))),
      h("div", { class: "time-head" }, h("span", { class: "time-name" }, "run"), this.axis, h("span", { class: "n" }, "time")),
      this.list.element);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.recolour = () => { this.colours = null; this.list.draw(); });
  }

  close() {
    this.list.close();
    this.scheme.removeEventListener("change", this.recolour);
    clearTimeout(this.later);
  }

  shown() {
    this.update();
  }

  select() {
    this.#place();
  }

  #place() {
    this.list.current = this.tree.places.get(this.view.selected) ?? -1;
    this.list.update(this.tree.shown.length);
  }

  /** @param {string[]} [changed] */
  update(changed) {
    this.#place();
    if (!changed || changed.length || !this.bars.size) this.#ask();
  }

  tick() {
    this.list.draw();
    if (this.tree.head.live) this.#ask();
  }

  get start() {
    return this.tree.rows.get(this.tree.head.root)?.start ?? 0;
  }

  /** The window, in seconds since 1970. @returns {[number, number]} */
  get window() {
    const { start } = this;
    if (this.zoom) return [start + this.zoom[0], start + this.zoom[1]];
    const root = this.tree.rows.get(this.tree.head.root);
    return [start, Math.max(start + LEAST_S, root?.end ?? this.tree.until)];
  }

  /** @param {[number, number] | null} zoom */
  #set(zoom) {
    this.zoom = zoom;
    this.#ask(true);
    this.list.draw();
  }

  /** @param {number} factor @param {number} [where] The part of the window, 0 to 1, that stays where it is. */
  #zoom(factor, where = 0.5) {
    const [from, to] = this.window;
    const middle = from + (to - from) * where;
    const width = Math.max(LEAST_S, (to - from) * factor);
    this.#set([middle - width * where - this.start, middle + width * (1 - where) - this.start]);
  }

  /** @param {number} part */
  #pan(part) {
    const [from, to] = this.window;
    const move = (to - from) * part;
    this.#set([from + move - this.start, to + move - this.start]);
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = this.axis.getBoundingClientRect();
    this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  }

  /** @param {number} first @param {number} last */
  #looked(first, last) {
    this.#drawAxis();
    if (this.visible[0] === first && this.visible[1] === last) return;
    this.visible = [first, last];
    this.#ask();
  }

  /** Ask for the bars on the screen: at most 4 times a second. @param {boolean} [soon] */
  #ask(soon = false) {
    if (this.later && !soon) return;
    clearTimeout(this.later);
    this.later = setTimeout(() => void this.#load(), soon ? 20 : Math.max(20, 250 - (performance.now() - this.asked)));
  }

  async #load() {
    this.later = undefined;
    if (!this.element.isConnected || !this.tree.loaded) return;
    this.asked = performance.now();
    const [first, last] = this.visible;
    const runs = this.tree.shown.slice(Math.max(0, first - 5), Math.max(last, first + 40) + 5).slice(0, 120);
    const [start, end] = this.window;
    try {
      const found = await get(`api/runs/${encodeURIComponent(this.view.root)}/times`, { runs: runs.join(","), start, end });
      for (const bar of found.bars) this.bars.set(bar.run, bar.pieces);
      this.critical = found.critical;
      this.list.draw();
    } catch {
      // The stream says what is wrong with the server.
    }
  }

  /** @param {number} index */
  #open(index) {
    const run = this.tree.shown[index];
    const row = this.tree.rows.get(run);
    const end = row.end ?? this.tree.until;
    this.view.select(run, { list: false });
    this.#set(this.zoomed === run ? null : [row.start - this.start, Math.max(row.start + LEAST_S, end) - this.start]);
    this.zoomed = this.zoomed === run ? "" : run;
  }

  /** @param {KeyboardEvent} event @param {number} index */
  #fold(event, index) {
    return this.view.tabs.tree.fold(event, index, this.list, () => this.update());
  }

  /** The colours of the page as the canvas knows them: a style sheet's `light-dark()` means nothing there. */
  #palette() {
    // Before the element is in the document, no colour is known.
    if (!this.colours?.text) {
      const probe = h("span");
      this.element.append(probe);
      const colour = (/** @type {string} */ name) => {
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe).color;
      };
      this.colours = Object.fromEntries([...Object.entries(KINDS).map(([kind, one]) => [kind, colour(one.colour)]), ["line", colour("--line")], ["text", colour("--calm")], ["critical", colour("--bad")]]);
      probe.remove();
    }
    return this.colours;
  }

  /** A canvas with as many dots as the screen has. @param {HTMLCanvasElement} canvas @param {number} height */
  #canvas(canvas, height) {
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return { pen, width };
  }

  #drawAxis() {
    const { pen, width } = this.#canvas(this.axis, 20);
    const [from, to] = this.window;
    const colours = this.#palette();
    const step = niceStep((to - from) / Math.max(2, width / 90));
    pen.fillStyle = colours.text;
    pen.strokeStyle = colours.line;
    pen.font = "11px system-ui, sans-serif";
    for (let at = Math.ceil((from - this.start) / step) * step; at <= to - this.start; at += step) {
      const x = ((at + this.start - from) / (to - from)) * width;
      pen.fillRect(x, 14, 1, 6);
      if (x < width - 40) pen.fillText(tickWords(at, step), x + 3, 12);
    }
    say(this.range, `${tickWords(from - this.start, step / 10)} to ${tickWords(to - this.start, step / 10)}`);
  }

  /** @param {any} element @param {string} run */
  #draw(element, run) {
    const row = this.tree.rows.get(run);
    if (!row) return;
    drawName(element, this.tree, row);
    say(element.parts.task, row.label || row.task || "");
    say(element.parts.time, precise(this.tree.worked(row)));
    const { pen, width } = this.#canvas(element.parts.canvas, BAR);
    const [from, to] = this.window;
    const colours = this.#palette();
    const x = (/** @type {number} */ at) => ((at - from) / (to - from)) * width;
    const pieces = this.bars.get(run) ?? [];
    /** @type {Record<string, number>} */
    const sums = {};
    for (const [begin, until, kind] of pieces) {
      const high = BAR * (KINDS[kind]?.high ?? 0.5);
      pen.fillStyle = colours[kind] ?? colours.line;
      pen.fillRect(x(begin), (BAR - high) / 2, Math.max(1, x(until) - x(begin)), high);
      sums[kind] = (sums[kind] ?? 0) + until - begin;
    }
    if (this.path.checked) {
      pen.fillStyle = colours.critical;
      for (const [of, begin, until] of this.critical) if (of === run) pen.fillRect(x(begin), BAR - 2, Math.max(1, x(until) - x(begin)), 2);
    }
    const parts = Object.entries(sums).map(([kind, seconds]) => `${KINDS[kind]?.text ?? kind} ${precise(seconds)}`).join(", ");
    const words = `${row.agent} ${short(run)}, began after ${precise(row.start - this.start)}. ${parts}. Own ${spent(row.own)}, with children ${spent(row.sum)}.${row.doing ? ` ${row.doing}` : ""}`;
    put(element, "aria-description", words);
    put(element, "title", words);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const { key } = event;
    if (key === "+" || key === "=") this.#zoom(0.5);
    else if (key === "-" || key === "−") this.#zoom(2);
    else if (key === "0") this.#set(null);
    else if (key === "<" || key === ",") this.#pan(-0.5);
    else if (key === ">" || key === ".") this.#pan(0.5);
    else return this.view.tabs.tree.narrow(event, () => this.update());
    return true;
  }
}

/** @param {number} least Seconds. */
function niceStep(least) {
  const size = 10 ** Math.floor(Math.log10(Math.max(least, 1e-6)));
  return [1, 2, 5, 10].map((times) => times * size).find((step) => step >= least) ?? size * 10;
}

/** @param {number} seconds @param {number} step */
function tickWords(seconds, step) {
  if (step < 1) return `${seconds.toFixed(Math.min(3, Math.max(1, Math.ceil(-Math.log10(step)))))}s`;
  const whole = Math.round(seconds);
  if (Math.abs(whole) < 120) return `${whole}s`;
  return `${Math.floor(whole / 60)}m${String(Math.abs(whole) % 60).padStart(2, "0")}`;
}

function makeRow() {
  const parts = { fold: h("span", { class: "fold", "data-act": "fold", "aria-hidden": "true" }), mark: h("span", { class: "mark", role: "img" }), agent: h("span", { class: "agent" }), task: h("span", { class: "task" }), canvas: h("canvas", { class: "bar-canvas", "aria-hidden": "true" }), time: h("span", { class: "n" }) };
  const row = h("div", { class: "row time-row", role: "treeitem" }, h("span", { class: "what" }, parts.fold, parts.mark, parts.agent, parts.task), parts.canvas, parts.time);
  row.parts = parts;
  return row;
}
