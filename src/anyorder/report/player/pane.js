// One side of the player: a sample with its picker, prompt, text, tree, order and candidates.

const NAMED_TOKENS = 4;

class Prompt {
  constructor(kind = "") {
    this.text = make("p", { class: "ao-prompt-text" });
    this.element = make("section", { class: `ao-prompt ${kind}`, "aria-label": "Prompt" },
      make("h3", { class: "ao-label" }, "Prompt"), this.text);
  }

  set(text) {
    if (text === this.shown) return;
    this.shown = text;
    this.element.hidden = text.trim() === "";
    this.text.textContent = text.replace(/\s+$/, "");
  }
}

class Pane {
  constructor(number) {
    this.number = number;
    this.picker = new Picker(`Sample on side ${number}`);
    this.facts = make("p", { class: "ao-facts ao-quiet", role: "status" });
    this.prompt = new Prompt();
    this.text = new TextView();
    this.tree = new TreeView();
    this.order = new OrderView();
    this.candidates = new CandidatesView();
    this.note = make("p", { class: "ao-note", role: "status" });
    this.detail = make("p", { class: "ao-detail ao-quiet", "aria-hidden": "true" });
    this.badge = make("span", { class: "ao-badge", "aria-hidden": "true" }, String(number));
    this.head = make("header", { class: "ao-head" }, this.badge, this.picker.element,
      this.facts);
    this.element = make("section", { class: "ao-pane", "aria-label": `Side ${number}` },
      this.head, this.prompt.element,
      make("div", { class: "ao-stage" },
        make("div", { class: "ao-main" }, this.text.element,
          make("div", { class: "ao-notes" }, this.note, this.detail)),
        this.tree.element),
      this.candidates.element, this.order.element);
    this.text.onslot = (slot) => this.inspect(slot);
    this.tree.onnode = (tokens) => this.text.highlight(tokens);
  }

  open(sample, options) {
    this.sample = sample;
    this.step = null;
    this.say(factsOf(sample));
    for (const view of this.views) view.open(sample);
    this.inspect(null);
    this.text.reserve(options);
  }

  /** The line beside the picker; `failed` where it says what went wrong. */
  say(text, failed = false) {
    this.facts.textContent = text;
    this.facts.classList.toggle("is-failed", failed);
  }

  get views() {
    return [this.text, this.tree, this.order, this.candidates];
  }

  draw(step, options) {
    for (const view of this.views) view.draw(step, options);
    this.step = step;
    this.note.textContent = this.sentence(step);
    this.note.setAttribute("aria-live", options.playing ? "off" : "polite");
    this.text.element.setAttribute("aria-label", `Text after step ${step}`);
  }

  /** What the step did, in words. */
  sentence(step) {
    const { sample } = this;
    if (!sample.recorded) return "Only the text was recorded, not when its tokens came.";
    if (step === 0) {
      return `Before the first step: ${beginning(sample)}.`;
    }
    const { inserted, revealed, edited, remasked, deleted } = sample.changes(step);
    const parts = [];
    if (inserted.length && !(revealed.length === inserted.length
      && inserted.every((slot) => revealed.includes(slot)))) {
      parts.push(`inserted ${plural(inserted.length, "slot")}`);
    }
    if (revealed.length) parts.push(`revealed ${this.named(revealed, step)}`);
    if (edited.length) parts.push(`changed ${this.words(edited, step - 1, false)} to `
      + this.words(edited, step));
    if (remasked.length) parts.push(`remasked ${this.named(remasked, step - 1, false)}`);
    if (deleted.length) parts.push(`deleted ${this.named(deleted, step - 1, false)}`);
    return `Step ${step}: ${parts.join(", ") || "nothing changed"}.`;
  }

  /** Some slots by what they show after a step. */
  named(slots, step, sure = true) {
    const { sample } = this;
    const segments = new Set(slots.map((index) => sample.slots[index].segment));
    if (sample.segmented && !segments.has(-1)) {
      return [...segments].map((number) => this.namedSegment(number)).join(" and ");
    }
    return this.words(slots, step, sure);
  }

  /** Some slots token by token. */
  words(slots, step, sure = true) {
    const words = slots.slice(0, NAMED_TOKENS).map((index) => {
      const show = this.sample.slots[index].at(step);
      if (!show) return "a mask";
      return quoted(show.piece) + (sure && show.logp >= 0 ? ` (${percent(show.logp)})` : "");
    });
    const more = slots.length - words.length;
    return more > 0 ? `${words.join(", ")} and ${more} more` : words.join(", ");
  }

  namedSegment(number) {
    const { slots, scores } = this.sample;
    const text = slots.filter((slot) => slot.segment === number)
      .map((slot) => (slot.last ? slot.last.piece : "")).join("").trim();
    const score = scores.has(number) ? ` (score ${signed(scores.get(number))})` : "";
    return `segment ${number + 1}, ${text ? quoted(text) : "empty"}${score}`;
  }

  /** What is known about the slot under the pointer. */
  inspect(index) {
    const slot = index === null ? null : this.sample.slots[index];
    if (!slot || this.step === null) {
      this.detail.textContent = "";
      return;
    }
    const show = slot.at(this.step < slot.gone ? this.step : slot.gone - 1);
    const facts = [show ? quoted(show.piece) : "masked slot"];
    facts.push(slot.insert ? `inserted in step ${slot.insert}` : "there from the start");
    if (show && show.step) facts.push(`revealed in step ${show.step}`);
    if (!slot.stays) facts.push(`deleted in step ${slot.gone}`);
    if (show && show.logp >= 0) facts.push(`probability ${percent(show.logp)}`);
    if (slot.segment >= 0) facts.push(`segment ${slot.segment + 1}`);
    this.detail.textContent = facts.join(" \u00b7 ");
  }

  destroy() {
    this.picker.destroy();
  }
}

/** What is there before anything was done: given tokens, tokens that will change, masked slots. */
function beginning(sample) {
  const canvas = sample.canvas(0);
  const given = canvas.filter((item) => sample.slots[item.slot].given).length;
  const masked = canvas.filter((item) => item.masked).length;
  const drafted = canvas.length - masked - given;
  const parts = [
    given && plural(given, "given token"),
    drafted && `${plural(drafted, "token")} that may change`,
    masked && plural(masked, "masked slot"),
  ].filter(Boolean);
  if (!masked && !drafted) parts.push("an empty canvas");
  return parts.join(" and ");
}

function factsOf(sample) {
  if (sample.live) return "Being generated";
  const { forwards, seconds } = sample.about;
  const facts = [plural(sample.slots.filter((slot) => slot.stays).length, "token")];
  if (sample.recorded) facts.push(plural(sample.steps, "step"));
  if (forwards !== undefined) facts.push(plural(forwards, "network call"));
  if (seconds !== undefined) facts.push(`${seconds.toFixed(2)} s`);
  return facts.join(" \u00b7 ");
}
