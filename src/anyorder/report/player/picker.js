// Choosing a sample: a button that names the present one, and behind it a list to search in.
// Only the rows in sight are elements, so a thousand samples cost as much as ten.

const ROW_HEIGHT = 48;
const ROWS_AROUND = 4;
const FILTERS = {
  all: () => true,
  passed: (about) => about.verdict === "passed",
  other: (about) => about.verdict !== null && about.verdict !== "passed",
};

class Picker {
  constructor(label) {
    this.label = label;
    this.onpick = () => {};
    this.source = null;
    this.found = [];
    this.at = 0;
    this.filter = "all";
    this.title = make("span", { class: "ao-pick-title" });
    this.button = make("button", { type: "button", class: "ao-pick", "aria-haspopup": "dialog",
      "aria-expanded": "false", onclick: () => this.toggle() },
    this.title, icon("down"));
    this.previous = iconButton("back", "Previous sample", "p", () => this.move(-1));
    this.next = iconButton("next", "Next sample", "n", () => this.move(1));
    this.listId = uniqueId("list");
    this.buildPanel();
    this.element = make("div", { class: "ao-picker" },
      this.previous, this.button, this.next, this.panel);
    document.addEventListener("pointerdown", this.outside = (event) => {
      if (!this.panel.hidden && !this.element.contains(event.target)) this.close();
    });
  }

  buildPanel() {
    this.search = make("input", { type: "search", class: "ao-search", role: "combobox",
      placeholder: "Search task, run, policy, verdict", "aria-label": "Search samples",
      "aria-expanded": "true", "aria-controls": this.listId, autocomplete: "off",
      spellcheck: "false", oninput: () => this.refresh(), onkeydown: (event) => this.key(event) });
    this.filters = segmentedChoice("Show", [["all", "All"], ["passed", "Passed"],
      ["other", "Not passed"]], "all", (value) => { this.filter = value; this.refresh(); });
    this.count = make("p", { class: "ao-quiet ao-count", role: "status" });
    this.rows = make("div", { class: "ao-rows" });
    this.list = make("div", { class: "ao-list", role: "listbox", id: this.listId, tabindex: "-1",
      "aria-label": "Samples", onscroll: () => this.paint() }, this.rows);
    this.panel = make("div", { class: "ao-panel", role: "dialog", "aria-label": "Choose a sample",
      hidden: true },
    make("div", { class: "ao-search-box" }, icon("search"), this.search),
    make("div", { class: "ao-panel-line" }, this.filters.box, this.count), this.list);
  }

  /** The samples to choose from, and the chosen one (null: one that is not in the list). */
  set(source, index, about) {
    this.source = source;
    this.index = index;
    this.title.replaceChildren(...describe(about, source.isNumbered));
    const words = [about.task, about.verdict, about.run, about.policy].filter(Boolean);
    this.button.setAttribute("aria-label", `${this.label}: ${words.join(", ")}`);
    const many = source.size > 1;
    this.button.disabled = !many && (source.size === 0 || index === 0);
    this.previous.hidden = this.next.hidden = !many;
    if (many && index !== null) {
      this.previous.disabled = index === 0;
      this.next.disabled = index === source.size - 1;
    }
  }

  move(by) {
    const index = (this.index ?? -by) + by;
    if (index >= 0 && index < this.source.size) this.onpick(index);
  }

  toggle() {
    if (this.panel.hidden) this.open();
    else this.close();
  }

  open() {
    if (this.button.disabled) return;
    this.panel.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.filters.box.hidden = !this.source.hasVerdicts;
    this.search.value = "";
    this.refresh();
    this.search.focus({ preventScroll: true });
  }

  close(refocus = false) {
    this.panel.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    if (refocus) this.button.focus({ preventScroll: true });
  }

  /** Search again: every word must occur somewhere in what describes the sample. */
  refresh() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.found = [];
    for (let index = 0; index < this.source.size; index += 1) {
      const about = this.source.about(index);
      if (!FILTERS[this.filter](about)) continue;
      const facts = [about.task, `#${about.sample}`, about.run, about.family, about.policy,
        about.verdict && about.verdict.replace("_", " ")].join(" ").toLowerCase();
      if (words.every((word) => facts.includes(word))) this.found.push(index);
    }
    this.count.textContent = plural(this.found.length, "sample");
    this.rows.style.height = `${this.found.length * ROW_HEIGHT}px`;
    this.choose(Math.max(0, this.found.indexOf(this.index)));
  }

  choose(at) {
    this.at = Math.min(this.found.length - 1, Math.max(0, at));
    const [top, height] = [this.at * ROW_HEIGHT, this.list.clientHeight];
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    if (top + ROW_HEIGHT > this.list.scrollTop + height) {
      this.list.scrollTop = top + ROW_HEIGHT - height;
    }
    this.paint();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_HEIGHT) - ROWS_AROUND);
    const count = Math.ceil(this.list.clientHeight / ROW_HEIGHT) + 2 * ROWS_AROUND;
    const rows = this.found.slice(first, first + count).map((index, i) => this.row(index, first + i));
    this.rows.replaceChildren(...rows);
    const active = this.rows.querySelector(".is-active");
    if (active) this.search.setAttribute("aria-activedescendant", active.id);
    else this.search.removeAttribute("aria-activedescendant");
  }

  row(index, place) {
    const about = this.source.about(index);
    return make("div", { class: place === this.at ? "ao-row is-active" : "ao-row", role: "option",
      id: `${this.listId}-${index}`, "aria-selected": String(index === this.index),
      "aria-setsize": this.found.length, "aria-posinset": place + 1,
      style: `top: ${place * ROW_HEIGHT}px; height: ${ROW_HEIGHT}px`,
      onclick: () => this.pick(index) }, ...describe(about, this.source.isNumbered));
  }

  pick(index) {
    this.close(true);
    this.onpick(index);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW_HEIGHT) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) this.choose(this.at + moves[event.key]);
    else if (event.key === "Enter" && this.found.length) this.pick(this.found[this.at]);
    else if (event.key === "Escape") this.close(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  destroy() {
    document.removeEventListener("pointerdown", this.outside);
  }
}

/** A sample in two short lines: its task and verdict, where it comes from. */
function describe(about, numbered) {
  const kind = [about.run, about.family === about.run ? null : about.family, about.policy];
  const source = kind.filter((word, i) => word && !kind.slice(0, i).some((other) => other
    && other.includes(word))).join(" \u00b7 ");
  const number = numbered && about.sample !== undefined ? ` #${about.sample}` : "";
  return [
    make("span", { class: "ao-row-main" }, make("span", { class: "ao-task" }, about.task || "sample"),
      make("span", { class: "ao-quiet" }, number), verdictMark(about.verdict)),
    make("span", { class: "ao-row-more ao-quiet" }, source || "\u00a0"),
  ];
}

function verdictMark(verdict) {
  if (!verdict) return null;
  const passed = verdict === "passed";
  return make("span", { class: passed ? "ao-verdict is-passed" : "ao-verdict is-failed" },
    icon(passed ? "passed" : "failed"), verdict.replace("_", " "));
}
