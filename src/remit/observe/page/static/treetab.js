// The tree: a row per run, and beside it what the chosen run said and did.

import { h, put, say } from "./dom.js";
import { count, duration, mark, money, number, precise, short, statusWords } from "./format.js";
import { VirtualList } from "./virtual.js";

const INDENT = 14;
const DEEPEST = 10;

export class TreeTab {
  /** @param {any} view */
  constructor(view) {
    this.view = view;
    this.tree = view.tree;
    this.list = new VirtualList({
      height: 28, role: "tree", label: "Runs of this tree",
      make: makeRow, draw: (element, index) => drawRow(element, this.tree, this.tree.shown[index]),
      key: (index) => this.tree.shown[index],
      moved: (index) => view.select(this.tree.shown[index], { list: false }),
      opened: () => view.detail.open(),
      acted: (index) => this.toggle(index, () => this.update()),
      pressed: (event, index) => this.fold(event, index, this.list, () => this.update()),
    });
    this.search = h("input", {
      type: "search", class: "search", placeholder: "Search the tree  /", "aria-label": "Search the tree by agent, task, status or id",
      on: { input: () => this.#search() },
    });
    this.found = h("span", { class: "calm", role: "status" });
    this.element = h("div", { class: "split" },
      h("section", { class: "side", "aria-label": "Tree" }, h("div", { class: "subbar" }, this.search, this.found), this.list.element),
      view.detail.element);
  }

  close() {
    this.list.close();
  }

  shown() {
    this.view.detail.home(this.element);
  }

  #search() {
    this.tree.search = this.search.value.trim();
    this.tree.arrange();
    this.update();
  }

  update() {
    const { tree } = this;
    this.list.current = tree.places.get(this.view.selected) ?? -1;
    this.list.update(tree.shown.length);
    if (this.search.value.trim() !== tree.search) this.search.value = tree.search;
    const below = tree.focus ? `only below ${short(tree.focus)} (f: all)` : "";
    say(this.found, tree.search ? count(tree.shown.length, "run") : below);
  }

  tick() {
    this.list.draw();
  }

  /** @param {string} run */
  select(run) {
    this.update();
    const place = this.tree.places.get(run);
    if (place !== undefined) this.list.go(place, false);
  }

  /** Fold or unfold the row that was clicked. @param {number} index @param {() => void} changed */
  toggle(index, changed) {
    this.tree.toggle(this.tree.shown[index]);
    changed();
  }

  /** Arrow keys that fold, unfold, or go to the parent; for all tabs with a tree. @param {KeyboardEvent} event @param {number} index @param {VirtualList} list @param {() => void} changed */
  fold(event, index, list, changed) {
    const { tree } = this;
    const run = tree.shown[index];
    if (!run) return false;
    const row = tree.rows.get(run);
    const folded = tree.folded.has(run);
    if (event.key === "ArrowRight") {
      if (folded) tree.toggle(run);
      else if (row.children) list.go(index + 1);
    } else if (event.key === "ArrowLeft") {
      if (!folded && row.children) tree.toggle(run);
      else if (row.parent && tree.places.has(row.parent)) list.go(/** @type {number} */ (tree.places.get(row.parent)));
    } else {
      return false;
    }
    changed();
    return true;
  }

  /** Show only the chosen branch, or everything. @param {KeyboardEvent} event @param {() => void} changed */
  narrow(event, changed) {
    if (event.key !== "f") return false;
    this.tree.focus = this.tree.focus ? "" : this.view.selected;
    this.tree.arrange();
    changed();
    return true;
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.key !== "/") return this.narrow(event, () => this.update());
    this.search.focus();
    return true;
  }
}

/** An empty row of a tree; the time and spending views have their own columns in `rest`. */
export function makeRow() {
  const parts = { fold: h("span", { class: "fold", "data-act": "fold", "aria-hidden": "true" }), mark: h("span", { class: "mark", role: "img" }), agent: h("span", { class: "agent" }), task: h("span", { class: "task" }), doing: h("span", { class: "doing" }), ownTokens: h("span", { class: "own" }), tokens: h("span"), ownCost: h("span", { class: "own" }), cost: h("span"), time: h("span", { class: "n time" }) };
  const row = h("div", { class: "row tree-row", role: "treeitem" },
    h("span", { class: "what" }, parts.fold, parts.mark, parts.agent, parts.task, parts.doing), h("span", { class: "n" }, parts.ownTokens, parts.tokens), h("span", { class: "n" }, parts.ownCost, parts.cost), parts.time);
  row.parts = parts;
  return row;
}

/** What a row says of itself wherever it stands. @param {any} element @param {any} tree @param {any} row */
export function drawName(element, tree, row) {
  const { parts } = element;
  const depth = Math.min(DEEPEST, tree.depth(row.id) - (tree.focus ? tree.depth(tree.focus) : 0));
  parts.fold.style.marginLeft = `${depth * INDENT}px`;
  const folded = tree.folded.has(row.id) && !tree.search;
  say(parts.fold, row.children ? (folded ? "▸" : "▾") : "");
  const [sign, look] = mark(row.status, row.state);
  say(parts.mark, sign);
  put(parts.mark, "class", `mark ${look}`);
  put(parts.mark, "aria-label", statusWords(row.status, row.state));
  say(parts.agent, row.agent);
  put(element, "aria-level", String(tree.depth(row.id) + 1));
  put(element, "aria-expanded", row.children ? String(!folded) : null);
  const siblings = row.parent ? (tree.children.get(row.parent) ?? []) : [row.id];
  put(element, "aria-setsize", String(siblings.length));
  // The id's last number is the place among the siblings, counted from 1.
  put(element, "aria-posinset", row.parent ? row.id.slice(row.id.lastIndexOf(".") + 1) : "1");
  return look;
}

/** @param {any} element @param {any} tree @param {string} run */
function drawRow(element, tree, run) {
  const row = tree.rows.get(run);
  if (!row) return;
  const { parts } = element;
  const look = drawName(element, tree, row);
  say(parts.task, row.label || row.task || "");
  const hidden = tree.hidden(row);
  const doing = row.status === "running" ? (row.doing ?? "") : row.status === "completed" ? "" : (row.doing ?? statusWords(row.status));
  say(parts.doing, hidden ? `${doing} (+${hidden.toLocaleString()} below)` : doing);
  put(parts.doing, "class", `doing ${row.status === "running" && row.state !== "asks" ? "" : look}`);
  const own = row.own.tokens ?? 0;
  const sum = row.sum.tokens ?? 0;
  say(parts.ownTokens, row.children ? `${number(own)} ` : "");
  say(parts.tokens, row.children ? `Σ ${number(sum)}` : number(own));
  say(parts.ownCost, row.children && row.own.usd !== undefined ? `${money(row.own.usd)} ` : "");
  say(parts.cost, row.children && row.sum.usd !== undefined ? `Σ ${money(row.sum.usd)}` : money(row.own.usd));
  const worked = tree.worked(row);
  say(parts.time, row.status === "running" || worked >= 10 ? duration(worked) : precise(worked));
  element.title = `${short(row.id)} ${row.model ?? ""}`;
  put(element, "aria-description", `${row.agent}, ${statusWords(row.status, row.state)}. ${row.label || row.task || ""}. ${doing}. Own ${own} tokens, in all ${sum}.`);
}
