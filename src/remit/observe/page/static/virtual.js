// A list of any length: rows of one height, of which only those on the screen are elements.

/**
 * @typedef {object} Options
 * @property {number} height Of a row, in pixels.
 * @property {string} role Of the list: `listbox` or `tree`.
 * @property {string} label
 * @property {() => HTMLElement} make An empty row.
 * @property {(element: any, index: number) => void} draw Show an item in a row.
 * @property {(index: number) => string} key What an item is known by.
 * @property {(index: number) => void} [opened] Enter, or a click.
 * @property {(index: number) => void} [acted] A click on the part of a row with `data-act`.
 * @property {(index: number) => void} [moved] Another item is the current one.
 * @property {(event: KeyboardEvent, index: number) => boolean} [pressed] Further keys; whether it was one.
 * @property {(first: number, last: number) => void} [looked] Which items are on the screen.
 */

const SPARE = 6;
let lists = 0;

export class VirtualList {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.count = 0;
    this.current = -1;
    this.name = `list${++lists}`;
    this.element = document.createElement("div");
    this.element.className = "virtual";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", options.role);
    this.element.setAttribute("aria-label", options.label);
    this.space = document.createElement("div");
    this.space.className = "space";
    this.space.setAttribute("role", "presentation");
    this.element.append(this.space);
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    /** @type {HTMLElement[]} */
    this.spare = [];
    this.waiting = false;
    this.element.addEventListener("focus", () => this.#begin());
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => void this.press(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
  }

  close() {
    this.resized.disconnect();
  }

  /** The list has so many items, all of which may have changed. @param {number} count */
  update(count) {
    if (count !== this.count) {
      this.count = count;
      this.space.style.height = `${count * this.options.height}px`;
      if (this.current >= count) this.current = count - 1;
    }
    this.#begin();
    this.draw();
  }

  /** A list with the keyboard has a current item. */
  #begin() {
    if (this.current >= 0 || !this.count || document.activeElement !== this.element) return;
    this.current = 0;
    this.draw();
  }

  /** Draw before the next frame, once however often it is asked. */
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#drawNow();
    });
  }

  #drawNow() {
    const { height, draw, make } = this.options;
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor(top / height) - SPARE);
    const last = Math.min(this.count, Math.ceil((top + this.element.clientHeight) / height) + SPARE);
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        this.rows.delete(index);
        row.hidden = true;
        row.removeAttribute("id");
        this.spare.push(row);
      }
    }
    for (let index = first; index < last; index++) {
      let row = this.rows.get(index);
      if (!row) {
        row = this.spare.pop() ?? make();
        row.hidden = false;
        row.style.transform = `translateY(${index * height}px)`;
        if (!row.isConnected) this.space.append(row);
        this.rows.set(index, row);
        row.dataset.index = String(index);
        row.id = `${this.name}-${index}`;
      }
      const is = index === this.current;
      if (row.classList.contains("current") !== is) row.classList.toggle("current", is);
      if (row.getAttribute("aria-selected") !== String(is)) row.setAttribute("aria-selected", String(is));
      draw(row, index);
    }
    if (this.current >= first && this.current < last) this.element.setAttribute("aria-activedescendant", `${this.name}-${this.current}`);
    else this.element.removeAttribute("aria-activedescendant");
    this.options.looked?.(Math.floor(top / height), Math.min(this.count, Math.ceil((top + this.element.clientHeight) / height)));
  }

  /** Make an item the current one and bring it into view. @param {number} index @param {boolean} [tell] */
  go(index, tell = true) {
    if (index < 0 || index >= this.count) return;
    const changed = index !== this.current;
    this.current = index;
    this.show(index);
    this.draw();
    if (changed && tell) this.options.moved?.(index);
  }

  /** @param {number} index */
  show(index) {
    const { height } = this.options;
    const top = index * height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + height > scrollTop + clientHeight) this.element.scrollTop = top + height - clientHeight;
  }

  get atEnd() {
    return this.element.scrollTop + this.element.clientHeight >= this.count * this.options.height - 4;
  }

  toEnd() {
    this.element.scrollTop = this.count * this.options.height;
  }

  /** A key that moves through the list. Whether it was one. @param {KeyboardEvent} event */
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.options.height) - 1);
    const moves = /** @type {Record<string, number>} */ ({
      ArrowDown: this.current + 1,
      j: this.current + 1,
      ArrowUp: this.current - 1,
      k: this.current - 1,
      PageDown: this.current + page,
      PageUp: this.current - page,
      Home: 0,
      End: this.count - 1,
    });
    if (event.key in moves) {
      this.go(Math.max(0, Math.min(this.count - 1, moves[event.key])));
    } else if (event.key === "Enter" && this.current >= 0) {
      this.options.opened?.(this.current);
    } else if (!this.options.pressed?.(event, this.current)) {
      return false;
    }
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const target = /** @type {Element} */ (event.target);
    const row = /** @type {HTMLElement | null} */ (target.closest("[data-index]"));
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const index = Number(row.dataset.index);
    this.go(index);
    if (target.closest("[data-act]")) {
      this.options.acted?.(index);
      return;
    }
    this.options.opened?.(index);
  }
}
