// The rows of a tree as they came, and which of them are shown: folded branches, a focus, a search.

/** @typedef {any} Row As `Row` in api/openapi.json. */

export class Tree {
  constructor() {
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Map<string, string[]>} Children in the order of their start. */
    this.children = new Map();
    /** @type {any} As `Head` in api/openapi.json. */
    this.head = null;
    /** @type {Set<string>} */
    this.folded = new Set();
    this.focus = "";
    this.search = "";
    /** Seconds that the server's clock is ahead of ours. */
    this.ahead = 0;
    /** @type {Map<string, { turn: number, text: string }>} What models are writing. */
    this.writing = new Map();
    /** @type {string[]} The runs that are shown, from the top. */
    this.shown = [];
    /** @type {Map<string, number>} */
    this.places = new Map();
    this.loaded = false;
  }

  get now() {
    return Date.now() / 1000 + this.ahead;
  }

  /** What its clocks go by. */
  get until() {
    return this.head?.live ? this.now : (this.head?.at ?? this.now);
  }

  /** Take in a patch. Gives the ids of the rows that changed. @param {any} patch @returns {string[]} */
  apply(patch) {
    if (patch.reset) {
      this.rows.clear();
      this.children.clear();
    }
    this.ahead = patch.now - Date.now() / 1000;
    if (patch.head) this.head = patch.head;
    let grown = Boolean(patch.reset);
    for (const row of patch.rows ?? []) {
      if (!this.rows.has(row.id)) {
        grown = true;
        if (row.parent) {
          const siblings = this.children.get(row.parent);
          if (siblings) siblings.push(row.id);
          else this.children.set(row.parent, [row.id]);
        }
      }
      this.rows.set(row.id, row);
      if (row.status !== "running") this.writing.delete(row.id);
    }
    for (const one of patch.texts ?? []) this.#write(one);
    if (!patch.more && !this.loaded) {
      this.loaded = true;
      this.#foldDeep();
    }
    if (grown || this.search) this.arrange();
    return (patch.rows ?? []).map((/** @type {Row} */ row) => row.id);
  }

  /** @param {any} one */
  #write(one) {
    const before = this.writing.get(one.run);
    const text = before && before.turn === one.turn && before.text.length >= one.at ? before.text.slice(0, one.at) : "";
    this.writing.set(one.run, { turn: one.turn, text: text + one.text });
  }

  /** In a large tree, branches below the second level begin folded. */
  #foldDeep() {
    if (this.rows.size <= 300) return;
    for (const run of this.children.keys()) if (this.depth(run) >= 2) this.folded.add(run);
  }

  /** @param {string} run */
  depth(run) {
    return run.split(".").length - 1;
  }

  /** Work out which rows are shown. Only needed when runs are added, folded, or searched for. */
  arrange() {
    const top = this.rows.has(this.focus) ? this.focus : this.head?.root;
    this.shown = [];
    if (!top || !this.rows.has(top)) return;
    const wanted = this.search ? this.#found() : null;
    const left = [top];
    while (left.length) {
      const run = /** @type {string} */ (left.pop());
      if (wanted && !wanted.has(run)) continue;
      this.shown.push(run);
      if (this.folded.has(run) && !wanted) continue;
      const below = this.children.get(run) ?? [];
      for (let place = below.length - 1; place >= 0; place--) left.push(below[place]);
    }
    this.places = new Map(this.shown.map((run, place) => [run, place]));
  }

  /** Runs that match the search, and those above them. */
  #found() {
    const words = this.search.toLowerCase().split(/\s+/).filter(Boolean);
    /** @type {Set<string>} */
    const found = new Set();
    for (const row of this.rows.values()) {
      if (!matches(row, words)) continue;
      for (let run = row.id; run && !found.has(run); run = this.rows.get(run)?.parent ?? "") found.add(run);
    }
    return found;
  }

  /** @param {string} run */
  toggle(run) {
    if (!this.folded.delete(run)) this.folded.add(run);
    this.arrange();
  }

  /** Unfold what is above a run, so that it is shown. @param {string} run */
  reveal(run) {
    let changed = false;
    if (this.focus && run !== this.focus && !run.startsWith(`${this.focus}.`)) {
      this.focus = "";
      changed = true;
    }
    for (let above = this.rows.get(run)?.parent; above; above = this.rows.get(above)?.parent) {
      changed = this.folded.delete(above) || changed;
    }
    if (this.search && !this.places.has(run)) {
      this.search = "";
      changed = true;
    }
    if (changed) this.arrange();
  }

  /** Seconds on a run's own clock. @param {Row} row */
  worked(row) {
    const since = row.since ?? null;
    return (row.worked_s ?? 0) + (since === null ? 0 : Math.max(0, this.now - since));
  }

  /** How many runs below a folded one are not shown. @param {Row} row */
  hidden(row) {
    return this.folded.has(row.id) && !this.search ? (row.runs ?? 1) - 1 : 0;
  }

  /** The nearest run from `from` on, in one direction, that is in trouble. @param {string} from @param {1 | -1} step */
  nextTrouble(from, step) {
    const all = [...this.rows.values()];
    const start = all.findIndex((row) => row.id === from);
    for (let n = 1; n <= all.length; n++) {
      const row = all[(start + n * step + all.length * 2) % all.length];
      if (row.errors || !["running", "completed", "cancelled"].includes(row.status)) return row.id;
    }
    return "";
  }
}

/** @param {Row} row @param {string[]} words */
function matches(row, words) {
  const told = `${row.id} ${row.agent} ${row.label ?? ""} ${row.task ?? ""} ${row.status} ${row.doing ?? ""}`.toLowerCase();
  return words.every((word) => told.includes(word));
}
