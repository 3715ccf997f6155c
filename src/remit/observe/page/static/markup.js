// Elements from what the server parsed. Unknown ones become text: nothing here can make a script.

import { button, h } from "./dom.js";
import { get } from "./net.js";

const TAGS = /** @type {Record<string, string>} */ ({
  p: "p", ul: "ul", ol: "ol", li: "li", quote: "blockquote", table: "table", thead: "thead", tbody: "tbody", tr: "tr",
  th: "th", td: "td", em: "em", b: "strong", del: "del", code: "code", br: "br", hr: "hr",
  h1: "h3", h2: "h4", h3: "h5", h4: "h6", h5: "h6", h6: "h6", s: "span", pre: "pre",
});
const ALIGNS = ["left", "center", "right"];
const LETTERS = /^[a-z]$/;

/** @param {any[] | undefined} nodes @returns {(Node | string)[]} */
export function build(nodes) {
  return (nodes ?? []).map((node) => (typeof node === "string" ? node : element(node)));
}

/** @param {any} node */
function element(node) {
  if (node.t === "a") return link(node);
  if (node.t === "pre") return block(node);
  const tag = TAGS[node.t];
  if (!tag) return h("span", null, build(node.c));
  const made = h(tag, { start: node.t === "ol" && node.n > 1 ? node.n : null }, build(node.c));
  if (node.t === "s" && LETTERS.test(node.k ?? "")) made.className = `tok-${node.k}`;
  else if (ALIGNS.includes(node.k)) made.className = `to-${node.k}`;
  if (node.t === "table") return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, made);
  return made;
}

/** Code, that keyboards can scroll. @param {any} node */
function block(node) {
  const coded = node.k ? ` code-${/^[a-z0-9+]+$/.test(node.k) ? node.k : "text"}` : "";
  return h("pre", { class: `body${coded}`, tabindex: "0", role: "region", "aria-label": node.k ? `Code, ${node.k}` : "Text" }, build(node.c));
}

/** A link says where it leads, and is opened on its own. @param {any} node */
function link(node) {
  const where = node.host ? h("span", { class: "host" }, ` (${node.host})`) : null;
  if (!/^(https?:|mailto:)/i.test(node.href ?? "")) return h("span", { class: "nolink" }, build(node.c), where);
  return h("a", { href: node.href, target: "_blank", rel: "noopener noreferrer nofollow external", class: "foreign" }, build(node.c), where);
}

/**
 * A text, and a button for the rest of a long one.
 * @param {any} text As `Text` in api/openapi.json.
 * @param {string} run
 * @param {{ exact?: boolean }} [how] `exact`: what cannot be seen is shown too.
 */
export function textBlock(text, run, { exact = false } = {}) {
  const box = h("div", { class: "text" }, build(text.nodes));
  let shown = text.shown ?? 0;
  const chars = text.chars ?? 0;
  if (shown >= chars || !text.ref) return box;
  const rest = h("pre", { class: "body", tabindex: "0", role: "region", "aria-label": "The rest of the text" });
  const more = button("", () => void load(), { class: "small" });
  const label = () => { more.textContent = `Show more: ${(chars - shown).toLocaleString()} of ${chars.toLocaleString()} characters are not shown`; };
  async function load() {
    more.disabled = true;
    try {
      const path = `api/runs/${encodeURIComponent(run)}/text/${text.ref.split("/").map(encodeURIComponent).join("/")}`;
      const piece = await get(path, { from: shown, exact: exact ? 1 : undefined });
      rest.append(piece.text);
      if (!rest.isConnected) more.before(rest);
      shown = Math.min(chars, piece.start + 100_000);
    } catch (error) {
      more.textContent = /** @type {any} */ (error).message;
    }
    more.disabled = false;
    if (shown >= chars) more.remove();
    else label();
  }
  label();
  box.append(more);
  return box;
}
