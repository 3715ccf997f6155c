// The keys, in a dialog.

import { button, h } from "./dom.js";

const KEYS = [
  ["j k ↓ ↑", "next, previous row"],
  ["→ ←", "unfold, fold or go to the parent"],
  ["Enter", "open: a run, a call, an event"],
  ["/", "search; Esc leaves the field"],
  ["1 2 3 4", "tree, time, spending, events; in the list: all, live, asks, failed"],
  ["n N", "next, previous run in trouble (n: only while nothing is asked)"],
  ["a", "next question"],
  ["y r t n", "answer a question: once, for the run, for the tree, no with a reason"],

  ["f", "show only this branch; again: everything"],
  ["[ ]", "previous, next turn of the conversation"],
  ["g", "follow what is added"],
  ["s x", "send to the run, stop the run"],
  ["+ − 0", "time: zoom in, out, all of it"],
  ["h", "back to all runs"],
  ["?", "this help"],
];

export function openHelp() {
  const dialog = h("dialog", { class: "help", "aria-labelledby": "help-title", on: { close: () => dialog.remove() } },
    h("h2", { id: "help-title" }, "Keys"),
    h("table", null, h("tbody", null, KEYS.map(([keys, text]) => h("tr", null, h("th", { scope: "row" }, keys.split(" ").map((key) => h("kbd", null, key))), h("td", null, text))))),
    button("Close", () => dialog.close(), { class: "primary" }));
  document.body.append(dialog);
  dialog.showModal();
}
