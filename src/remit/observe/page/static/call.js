// A tool call: one line, and when it is opened its arguments and its result.

import { button, fill, h } from "./dom.js";
import { precise, short } from "./format.js";
import { textBlock } from "./markup.js";
import { address, get } from "./net.js";

const SIGNS = /** @type {Record<string, [string, string]>} */ ({
  done: ["✓", "good"], failed: ["✗", "bad"], stopped: ["■", "warn"], "not finished": ["■", "warn"], asks: ["?", "ask"], running: ["●", "busy"], waiting: ["○", "calm"],
});

/**
 * @param {any} view
 * @param {string} run
 * @param {any} call As `CallLine` in api/openapi.json.
 */
export function callButton(view, run, call) {
  const [sign, look] = SIGNS[call.state] ?? ["·", "calm"];
  const body = h("div", { class: "call-body", hidden: true });
  const ms = call.ms === undefined || call.ms === null ? "" : precise(call.ms / 1000);
  const line = h("button", { type: "button", class: "call", "aria-expanded": "false", on: { click: () => void toggle() } },
    h("span", { class: `mark ${look}`, "aria-hidden": "true" }, sign), h("b", null, call.tool), " ",
    h("span", { class: "call-what" }, call.what ?? ""), h("span", { class: "call-end" }, `${call.state === "done" ? "" : call.state} ${call.summary ?? ""} ${ms}`.trim()));
  const box = h("div", { class: "call-box", data: { key: call.key } }, h("div", { class: "line" }, line, children(view, call)), body);
  async function toggle() {
    const open = body.hidden;
    body.hidden = !open;
    line.setAttribute("aria-expanded", String(open));
    if (open) await load();
  }
  async function load() {
    try {
      const found = await get(`api/runs/${encodeURIComponent(run)}/calls/${call.key}`);
      fill(body, inside(run, found));
    } catch (error) {
      fill(body, h("p", { class: "bad" }, /** @type {any} */ (error).message));
    }
  }
  box.opened = () => !body.hidden;
  box.open = () => { if (body.hidden) void toggle(); };
  return box;
}

/** @param {any} view @param {any} call */
function children(view, call) {
  const runs = [call.child, ...(call.code ?? [])].filter(Boolean);
  return runs.map((run) => button(`→ ${short(run)}`, () => view.select(run), { class: "small", title: "Go to this child" }));
}

/** @param {string} run @param {any} found As `CallView`. */
function inside(run, found) {
  const part = (/** @type {string} */ name, /** @type {any} */ ...content) => h("div", { class: "part" }, h("h4", null, name), content);
  return [
    (found.args ?? []).map((/** @type {any} */ one) => part(one.name, textBlock(one.text, run))),
    found.preview ? part("change", textBlock(found.preview, run)) : null,
    found.answer ? part("answer of a person", h("p", null, found.answer)) : null,
    found.result ? part("result", textBlock(found.result, run)) : null,
    (found.parts ?? []).map((/** @type {any} */ one) => partBlock(run, one)),
    found.note ? part("note to the model", h("pre", { class: "body", tabindex: "0", role: "region", "aria-label": "Note" }, found.note)) : null,
  ];
}

/** An image or a document. Remote ones are only named. @param {string} run @param {any} part */
export function partBlock(run, part) {
  const name = part.name || part.media_type || part.kind;
  if (!part.ref) return h("p", { class: "calm" }, `${part.kind} at ${part.url || "an unknown address"} (not loaded)`);
  const path = address(`api/runs/${encodeURIComponent(run)}/parts/${part.ref}`);
  const link = h("a", { href: path, download: "" }, `Download ${name} (${Math.ceil((part.bytes ?? 0) / 1000)} kB)`);
  if (part.kind !== "image") return h("p", null, link);
  return h("figure", null, h("img", { src: path, alt: `Image: ${name}`, loading: "lazy" }), h("figcaption", null, link));
}
