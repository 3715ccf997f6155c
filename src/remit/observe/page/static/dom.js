// Building elements. Nothing here, or anywhere in the page, parses HTML: text is text.

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * An element. `props`: `class`, `on` (listeners by event), `data`, and attributes; null and false leave one out.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "on") for (const [kind, listen] of Object.entries(value)) element.addEventListener(kind, listen);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/**
 * @param {Node} parent
 * @param {(Child | Child[])[]} children
 */
export function add(parent, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  }
}

/**
 * Put children in place of those that are there.
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
}

/**
 * Set an element's text, unless it is that already: an unchanged text keeps its selection.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Set or remove an attribute, if that changes something.
 * @param {Element} element
 * @param {string} name
 * @param {string | null} value
 */
export function put(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * A button.
 * @param {string} text
 * @param {() => void} act
 * @param {Record<string, any>} [props]
 */
export function button(text, act, props) {
  return h("button", { type: "button", on: { click: act }, ...props }, text);
}

/** A notice for a few seconds, read aloud by screen readers.
 * @param {string} text
 * @param {"" | "bad"} [look]
 */
export function notice(text, look = "") {
  const box = document.getElementById("notices");
  const one = h("p", { class: `notice ${look}` }, text);
  box?.append(one);
  setTimeout(() => one.remove(), look ? 9000 : 5000);
}

/** Say something to screen readers only.
 * @param {string} text
 */
export function speak(text) {
  const box = document.getElementById("spoken");
  if (box) say(box, text);
}

/**
 * Copy a text, and say so.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notice(`Copied: ${text}`);
  } catch {
    notice(`Cannot copy here. The text: ${text}`, "bad");
  }
}

/**
 * A command line or a link, with a button that copies it.
 * @param {string} text
 */
export function copyable(text) {
  return h("span", { class: "copyable" }, h("code", null, text), button("Copy", () => void copy(text), { class: "small", "aria-label": `Copy: ${text}` }));
}
