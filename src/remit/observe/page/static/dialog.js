// A question to the person at the page, with one field.

import { button, h } from "./dom.js";

/**
 * The text that was written, or null when the dialog was left.
 * @param {string} title
 * @param {{ text: string, label: string, action: string, long?: boolean, empty?: boolean }} options
 * @returns {Promise<string | null>}
 */
export function ask(title, { text, label, action, long = false, empty = false }) {
  return new Promise((answer) => {
    /** @type {string | null} */
    let given = null;
    const field = long ? h("textarea", { rows: "5", id: "asked" }) : h("input", { id: "asked", autocomplete: "off" });
    const done = () => {
      if (!empty && !field.value.trim()) return;
      given = field.value;
      dialog.close();
    };
    field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && (!long || event.ctrlKey || event.metaKey) && !event.isComposing) {
        event.preventDefault();
        done();
      }
    });
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", on: { close: () => { dialog.remove(); answer(given); } } },
      h("h2", { id: "dialog-title" }, title), h("p", null, text),
      h("p", null, h("label", { for: "asked" }, label), field),
      h("p", { class: "actions" }, button(action, done, { class: "primary" }), " ", button("Cancel", () => dialog.close()), long ? h("span", { class: "calm" }, " Ctrl+Enter sends") : null));
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}
