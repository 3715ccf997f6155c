// Spending: the limits of the tree, and what each branch has used of them.

import { h, put, say, fill } from "./dom.js";
import { duration, money, number } from "./format.js";
import { drawName } from "./treetab.js";
import { VirtualList } from "./virtual.js";

export class SpendingTab {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    this.tree = view.tree;
    this.limits = h("div", { class: "limits" });
    this.list = new VirtualList({
      height: 26, role: "tree", label: "Spending of each run",
      make: makeRow, draw: (element, index) => drawRow(element, this.tree, this.tree.shown[index]), key: (index) => this.tree.shown[index],
      moved: (index) => { view.select(this.tree.shown[index], { list: false }); this.#limits(); },
      acted: (index) => view.tabs.tree.toggle(index, () => this.update()),
      pressed: (event, index) => view.tabs.tree.fold(event, index, this.list, () => this.update()),
    });
    this.element = h("div", { class: "time" }, this.limits,
      h("div", { class: "heads spend-row", "aria-hidden": "true" }, ["run", "own", "Σ tokens", "cache", "reserved", "requests", "calls", "own $", "Σ $", "share"].map((text) => h("span", null, text))),
      this.list.element);
  }

  close() {
    this.list.close();
  }

  select() {
    this.update();
  }

  update() {
    this.list.current = this.tree.places.get(this.view.selected) ?? -1;
    this.list.update(this.tree.shown.length);
    this.#limits();
  }

  tick() {
    this.#limits();
  }

  /** The limits that are set on the chosen run, or else on the nearest run above it. */
  #limits() {
    let row = this.tree.rows.get(this.view.selected);
    while (row?.parent && !used(row, this.tree).length) row = this.tree.rows.get(row.parent);
    if (!row) return;
    const lines = used(row, this.tree);
    const key = JSON.stringify([row.id, lines]);
    if (key === this.told) return;
    this.told = key;
    fill(this.limits, h("h2", null, `Limits of ${row.agent}`), lines.length
      ? h("ul", { class: "plain" }, lines.map(([name, spent, held, limit, words]) => h("li", { class: "limit" },
        h("span", null, name), meter(name, spent, held, limit), h("span", { class: "n" }, words))))
      : h("p", { class: "calm" }, "No limits on money, tokens, requests, calls or time."));
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    return this.view.tabs.tree.narrow(event, () => this.update());
  }
}

/** The limits of a run: name, spent, reserved, limit, and all of it in words. @param {any} row @param {any} tree @returns {[string, number, number, number, string][]} */
function used(row, tree) {
  const now = /** @type {[string, number, number, (n: number) => string][]} */ ([
    ["usd", row.sum.usd ?? 0, 0, money], ["tokens", row.sum.tokens ?? 0, row.held ?? 0, number], ["requests", row.sum.requests ?? 0, 0, String],
    ["calls", row.calls ?? 0, 0, String], ["delegations", (row.runs ?? 1) - 1, 0, String], ["seconds", Math.floor(tree.worked(row)), 0, duration],
  ]);
  return now.flatMap(([name, spent, held, words]) => {
    const limit = row.limits?.[name];
    if (typeof limit !== "number") return [];
    const left = Math.max(0, limit - spent - held);
    return [[name, spent, held, limit, `${words(spent)} used${held ? `, ${words(held)} reserved` : ""}, ${words(left)} left of ${words(limit)}`]];
  });
}

/** @param {string} name @param {number} spent @param {number} held @param {number} limit */
function meter(name, spent, held, limit) {
  const part = (/** @type {number} */ n) => `${Math.min(100, limit ? (100 * n) / limit : 100)}%`;
  const full = h("span", { class: spent > limit * 0.8 ? "used much" : "used" });
  const kept = h("span", { class: "held" });
  full.style.width = part(spent);
  kept.style.width = part(Math.min(held, Math.max(0, limit - spent)));
  return h("span", { class: "meter", role: "img", "aria-label": `${name}: ${Math.round(limit ? (100 * spent) / limit : 100)} % used` }, full, kept);
}

const COLUMNS = ["own", "sum", "cache", "held", "requests", "calls", "usd", "usdsum"];

function makeRow() {
  const parts = /** @type {any} */ ({ fold: h("span", { class: "fold", "data-act": "fold", "aria-hidden": "true" }), mark: h("span", { class: "mark", role: "img" }), agent: h("span", { class: "agent" }), task: h("span", { class: "task" }), used: h("span", { class: "used" }) });
  for (const name of COLUMNS) parts[name] = h("span", { class: "n" });
  const row = h("div", { class: "row spend-row", role: "treeitem" }, h("span", { class: "what" }, parts.fold, parts.mark, parts.agent, parts.task), COLUMNS.map((name) => parts[name]), h("span", { class: "meter", "aria-hidden": "true" }, parts.used));
  row.parts = parts;
  return row;
}

/** @param {any} element @param {any} tree @param {string} run */
function drawRow(element, tree, run) {
  const row = tree.rows.get(run);
  if (!row) return;
  const { parts } = element;
  const root = tree.rows.get(tree.head.root);
  drawName(element, tree, row);
  say(parts.task, row.label || row.task || "");
  say(parts.own, number(row.own.tokens ?? 0));
  say(parts.sum, number(row.sum.tokens ?? 0));
  const cache = row.sum.input ? `${Math.round((100 * (row.sum.cached ?? 0)) / row.sum.input)} %` : "";
  say(parts.cache, cache);
  say(parts.held, row.held ? number(row.held) : "");
  say(parts.requests, String(row.sum.requests ?? 0));
  say(parts.calls, String(row.calls ?? 0));
  say(parts.usd, money(row.own.usd));
  say(parts.usdsum, money(row.sum.usd));
  const whole = root?.sum.usd || root?.sum.tokens || root?.sum.requests || 0;
  const part = root?.sum.usd ? row.sum.usd : root?.sum.tokens ? row.sum.tokens : row.sum.requests;
  parts.used.style.width = `${whole ? Math.min(100, (100 * (part ?? 0)) / whole) : 0}%`;
  put(element, "aria-description", `${row.agent}: own ${number(row.own.tokens ?? 0)} tokens ${money(row.own.usd)}, with children ${number(row.sum.tokens ?? 0)} tokens ${money(row.sum.usd)}, ${row.sum.requests ?? 0} requests, ${row.calls ?? 0} calls${cache ? `, cache ${cache}` : ""}.`);
}
