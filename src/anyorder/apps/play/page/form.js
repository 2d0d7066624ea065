// One side of the form: a model and the options of its family. Names, choices, defaults and help all
// come from the server, which reads them off the family's own options; none are listed here.

import { describe } from "./stream.js";

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Put a message beside a field, or take it away (""). */
export function complain(box, message) {
  const place = box.querySelector(":scope > .error");
  place.textContent = message;
  place.hidden = !message;
  box.classList.toggle("is-wrong", Boolean(message));
  const input = box.querySelector("input, select, textarea");
  if (input) input.setAttribute("aria-invalid", String(Boolean(message)));
}

const OTHER = "\u0000other";

const words = (name) => name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());

export class Side {
  constructor(number, { models, chosen }) {
    this.number = number;
    this.about = null; // what the server said of the model
    this.onmodel = () => {};
    this.select = make("select", { id: `model-${number}`, onchange: () => this.chosen() });
    this.folder = make("input", { placeholder: "runs/my-model", "aria-label": "Folder of a model",
      spellcheck: "false", onchange: () => this.open(this.folder.value) });
    this.folder.hidden = true;
    this.summary = make("p", { class: "hint" });
    this.modelBox = make("div", { class: "field", "data-field": "model" },
      make("label", { for: this.select.id }, "Model"), this.select, this.folder, this.summary,
      make("p", { class: "error", role: "alert", hidden: true }));
    this.first = make("div", { class: "options" });
    this.more = make("div", { class: "options" });
    this.fold = make("details", {}, make("summary", {}, "More options"), this.more);
    this.title = make("h2", {}, `Side ${number}`);
    this.element = make("section", { class: "card side", "aria-label": `Side ${number}` },
      this.title, this.modelBox, this.first, this.fold);
    this.list(models, chosen);
  }

  /** The models that can be chosen. */
  list(known, chosen) {
    const title = ({ name, family }) => (name === family ? name : `${name} (${family})`);
    const group = (label, models) => (models.length ? [make("optgroup", { label },
      ...models.map((each) => make("option", { value: each.name }, title(each))))]
      : []);
    this.select.replaceChildren(
      ...group("Shipped", known.filter((each) => each.shipped)),
      ...group("On this machine", known.filter((each) => !each.shipped)),
      make("option", { value: OTHER }, "Another folder \u2026"));
    if (chosen) this.select.value = chosen;
    this.folder.hidden = this.select.value !== OTHER;
    if (!known.length) {
      this.summary.textContent = "No model is shipped or below runs/. Train one with `anyorder train "
        + "tiny/mdm --out runs/mdm`, or name the folder of one.";
    }
  }

  get model() {
    return this.select.value === OTHER ? this.folder.value.trim() : this.select.value;
  }

  choose(name) {
    this.select.value = name;
    if (this.select.value !== name) {
      this.select.value = OTHER;
      this.folder.value = name;
    }
    return this.chosen();
  }

  chosen() {
    this.folder.hidden = this.select.value !== OTHER;
    if (!this.folder.hidden && !this.folder.value) {
      this.folder.focus();
      return null;
    }
    return this.open(this.model);
  }

  /** Ask for the model's form and show it; what was set stays where the new family has it too. */
  async open(name) {
    this.clear();
    this.asking = name;
    this.summary.textContent = "Loading \u2026";
    try {
      const about = await describe(name);
      if (this.asking !== name) return; // another was chosen meanwhile
      this.about = about;
    } catch (error) {
      this.about = null;
      this.summary.textContent = "";
      this.fields([]);
      complain(this.modelBox, error.message);
      return;
    }
    this.summary.textContent = `${this.about.family}: ${this.about.summary}`;
    this.fields(this.about.form);
    this.onmodel(this);
  }

  fields(form) {
    const before = this.inputs ? this.raw() : {};
    this.inputs = new Map();
    const build = (field) => this.field(field, before[field.name]);
    this.first.replaceChildren(...form.filter((each) => each.prominent).map(build));
    this.more.replaceChildren(...form.filter((each) => !each.prominent).map(build));
    this.fold.hidden = !this.more.children.length;
  }

  field(field, before) {
    const id = `${field.name}-${this.number}`;
    const input = INPUTS[field.kind](field, id);
    this.inputs.set(field.name, { field, input });
    if (field.kind === "switch") input.checked = before === true;
    else if (before) input.value = before;
    const label = make("label", { for: id }, words(field.name));
    const error = make("p", { class: "error", role: "alert", hidden: true });
    const help = field.help ? [make("p", { class: "hint", id: `${id}-help` }, field.help)] : [];
    if (field.help) input.setAttribute("aria-describedby", `${id}-help`);
    const box = make("div", { class: `field is-${field.kind}`, "data-field": field.name, title: field.help });
    if (field.kind === "switch") box.append(make("label", { class: "switch" }, input, words(field.name)));
    else box.append(label, input);
    if (field.kind === "text" && field.choices.length) {
      box.append(make("datalist", { id: `${id}-names` },
        ...field.choices.map((value) => make("option", { value }))));
    }
    // What stands first explains itself, unless nothing can be seen of what happens by default.
    box.append(...(field.prominent && (field.default || field.choices.length) ? [] : help), error);
    return box;
  }

  /** What is in the inputs. */
  raw() {
    return Object.fromEntries([...this.inputs].map(([name, { field, input }]) => [name,
      field.kind === "switch" ? input.checked : input.value.trim()]));
  }

  /** What was set. A number that is none goes as it is: the library says what is wrong with it. */
  settings() {
    const set = Object.entries(this.raw()).filter(([, value]) => value !== "" && value !== false);
    return Object.fromEntries(set.map(([name, value]) => {
      const { kind } = this.inputs.get(name).field;
      const number = Number(value);
      return [name, (kind === "number" || kind === "whole") && Number.isFinite(number) ? number : value];
    }));
  }

  clear() {
    for (const box of this.element.querySelectorAll(".field")) complain(box, "");
  }

  /** Show a message beside its field; false: this side has no such field. */
  refuse(field, message) {
    const box = this.element.querySelector(`[data-field="${CSS.escape(field)}"]`);
    if (!box) return false;
    if (this.fold.contains(box)) this.fold.open = true;
    complain(box, message);
    const input = box.querySelector("input:not([hidden]), select");
    if (input) input.focus();
    return true;
  }
}

const INPUTS = {
  choice: (field, id) => make("select", { id },
    make("option", { value: "" }, field.default ? `default: ${field.default}` : "not set"),
    ...field.choices.map((value) => make("option", { value }, value))),
  text: (field, id) => make("input", { id, placeholder: field.default, list: `${id}-names`, spellcheck: "false" }),
  number: (field, id) => make("input", { id, placeholder: field.default, inputmode: "decimal" }),
  whole: (field, id) => make("input", { id, placeholder: field.default, inputmode: "numeric" }),
  switch: (field, id) => make("input", { id, type: "checkbox" }),
};
