// The statement tree beside the text: each node fills up as its Python tokens are revealed, and its
// name appears letter by letter, as far as it is known at that step.

const HIDDEN_LETTER = "\u00b7";

// Where a program was found in a text that is none as a whole (measure/syntax.py).
const TREE_TITLES = {
  fenced: "Statements of the fenced block",
  before_fence: "Statements before the fence",
  longest_lines: "Statements of the lines that parse",
};

class TreeView {
  constructor() {
    this.list = make("ol", { class: "ao-tree-list" });
    this.title = make("h3", { class: "ao-label" });
    this.element = make("section", { class: "ao-tree", "aria-label": "Statement tree" },
      this.title, this.list);
    this.onnode = () => {};
    this.list.addEventListener("pointerleave", () => this.onnode([]));
  }

  open(sample) {
    this.sample = sample;
    this.element.hidden = sample.tree === null;
    this.rows = [];
    this.list.replaceChildren();
    if (!sample.tree) return;
    this.title.textContent = TREE_TITLES[sample.tree.found] || "Statements";
    // The module itself is the list.
    for (const node of sample.tree.nodes.slice(1)) this.list.append(this.row(node));
  }

  row(node) {
    const ring = make("span", { class: "ao-ring", "aria-hidden": "true" });
    const name = make("code", { class: "ao-node-name" });
    const row = make("li", { class: "ao-node", style: `--ao-depth: ${node.depth - 1}` }, ring, name);
    row.addEventListener("pointerenter", () => this.onnode(node.tokens));
    this.rows.push({ node, row, ring, name, drawn: "" });
    return row;
  }

  draw(step) {
    for (const item of this.rows || []) {
      const { node } = item;
      const known = node.tokens.filter((token) => token.step <= step).length;
      const fresh = step > 0 && node.tokens.some((token) => token.step === step);
      const state = known === 0 ? "is-none" : known < node.tokens.length ? "is-part" : "is-full";
      item.row.className = `ao-node ${state}${fresh ? " is-fresh" : ""}`;
      item.ring.style.setProperty("--ao-share", known / Math.max(1, node.tokens.length));
      const name = this.nameAt(node, step);
      if (name !== item.drawn) {
        item.name.textContent = name;
        item.drawn = name;
      }
      item.row.title = `${node.kind}: ${known} of ${plural(node.tokens.length, "token")}`;
    }
  }

  nameAt(node, step) {
    let name = "";
    for (let i = 0; i < node.name.length; i += 1) {
      const hidden = this.sample.tree.revealOf[node.at + i] > step && node.name[i] !== " ";
      name += hidden ? HIDDEN_LETTER : node.name[i];
    }
    return name;
  }
}
