// Numbers, times and states in words: the same as the command line uses.

/** @param {number} count */
export function number(count) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (count >= size * 0.9995) {
      const amount = count / size;
      return `${amount.toFixed(amount < 9.95 ? 1 : 0)}${unit}`;
    }
  }
  return String(Math.round(count));
}

/** @param {number | null | undefined} usd */
export function money(usd) {
  if (usd === null || usd === undefined) return "";
  return usd > 0 && usd < 0.1 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

/** A short time with its fraction: `80 ms`, `1.2 s`, `41 s`, `2m05s`.
 * @param {number} seconds
 */
export function precise(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  return seconds < 60 ? `${Math.round(seconds)} s` : duration(seconds);
}

/** A limit on time, as short as it can be said.
 * @param {number} seconds
 */
export function allowed(seconds) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "m"]])) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}

/** @param {number} then @param {number} now */
export function ago(then, now) {
  const past = now - then;
  if (past < 10) return "now";
  for (const [size, unit] of /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "m"]])) {
    if (past >= size) return `${Math.floor(past / size)}${unit}`;
  }
  return `${Math.floor(past)}s`;
}

/** @param {number} at */
export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** @param {number} at */
export function date(at) {
  return new Date(at * 1000).toLocaleString();
}

const MARKS = /** @type {Record<string, [string, string]>} */ ({
  running: ["●", "busy"],
  waits: ["○", "calm"],
  asks: ["?", "ask"],
  completed: ["✓", "good"],
  failed: ["✗", "bad"],
  refused: ["✗", "bad"],
  cancelled: ["■", "warn"],
  interrupted: ["■", "warn"],
  incomplete: ["!", "warn"],
  over_budget: ["!", "warn"],
  timed_out: ["!", "warn"],
  stalled: ["!", "warn"],
});

/** The sign and the look of a state. The text beside it always says the same.
 * @param {string} status @param {string} [state]
 * @returns {[string, string]}
 */
export function mark(status, state = "") {
  if (status === "running" && (state === "asks" || state === "waits")) return MARKS[state];
  return MARKS[status] ?? ["·", "calm"];
}

/** @param {string} status @param {string} [state] */
export function statusWords(status, state = "") {
  if (status === "running" && state === "asks") return "asks";
  return status.replace(/_/g, " ");
}

/** Statuses that somebody should look at.
 * @param {string} status
 */
export function isTrouble(status) {
  return !["running", "completed", "cancelled"].includes(status);
}

/** @param {number} count @param {string} one @param {string} [others] */
export function count(count, one, others) {
  return `${count.toLocaleString()} ${count === 1 ? one : (others ?? `${one}s`)}`;
}

/** An id as people read it: the root shortened, the child's numbers whole.
 * @param {string} run
 */
export function short(run) {
  const [root, ...rest] = run.split(".");
  return [root.slice(0, 5), ...rest].join(".");
}

/** What was used, on one line. @param {any} amount */
export function spent(amount) {
  const about = amount?.estimated ? "~" : "";
  const tokens = amount?.tokens ?? 0;
  return [tokens ? `${about}${number(tokens)}` : "0", money(amount?.usd)].filter(Boolean).join(" ");
}
