// The canvas of one sample: slots as they were inserted and revealed, in reading order.
// One element per slot, made once; a step only changes classes and, where a slot shows something
// new, its content. A slot that was deleted is struck out for one step, and then gone. Layouts:
// "grown" is the canvas as it was at that step, where insertions and reveals push the rest apart;
// "final" keeps every token where it will stand at the end.

// Beyond this many slots nothing glides: it would cost more than it shows.
const MOST_GLIDING = 600;
const GLIDE_MS = 240;
const LONG_PIECE = 60;

class TextView {
  constructor() {
    this.body = make("div", { class: "ao-text" });
    this.element = make("div", { class: "ao-text-box", role: "region", tabindex: "0",
      "aria-label": "Text at this step" }, this.body);
    this.onslot = () => {};
    this.body.addEventListener("pointerover", (event) => this.onslot(this.slotOf(event.target)));
    this.body.addEventListener("pointerleave", () => this.onslot(null));
    this.parts = new Map(); // Slot -> {element, shown, class}
    this.order = [];
  }

  open(sample) {
    this.sample = sample;
    this.parts.clear();
    this.order = [];
    this.body.replaceChildren();
    this.element.style.minHeight = "";
    this.element.classList.toggle("is-live", sample.live);
    this.body.classList.toggle("has-segments", sample.segmented);
    this.body.classList.toggle("is-plain", !sample.recorded);
  }

  /** Show a step. `motion` is how many milliseconds things may glide; 0: they jump. */
  draw(step, { color, layout, motion }) {
    this.adopt();
    const glides = motion > 0 && this.order.length <= MOST_GLIDING;
    const before = glides ? this.places() : null;
    this.body.classList.toggle("is-final", layout === "final");
    const folded = layout === "grown" ? this.openSegments(step) : new Map();
    this.order.forEach((slot) => this.drawSlot(slot, step, { color, layout, folded }));
    if (glides) this.glide(before, Math.min(motion, GLIDE_MS));
    // The box never shrinks while a sample plays, so that what stands below it keeps still.
    const height = this.element.offsetHeight;
    if (height > (parseFloat(this.element.style.minHeight) || 0)) {
      this.element.style.minHeight = `${height}px`;
    }
  }

  /** Room for the whole sample, before its first step is shown. */
  reserve(options) {
    if (!this.sample.live) this.draw(this.sample.steps, { ...options, motion: 0 });
  }

  /** Elements for slots that have none: all at first, new ones while a sample is live. */
  adopt() {
    const slots = this.sample.slots;
    if (slots.length === this.order.length && slots.every((slot, i) => slot === this.order[i])) return;
    const kept = new Set(slots);
    for (const [slot, part] of this.parts) {
      if (!kept.has(slot)) {
        part.element.remove();
        this.parts.delete(slot);
      }
    }
    let previous = null;
    for (const slot of slots) {
      let part = this.parts.get(slot);
      if (!part) {
        part = { element: make("span", { class: "ao-slot" }), shown: undefined, ghost: false };
        this.parts.set(slot, part);
        if (previous) previous.after(part.element);
        else this.body.prepend(part.element);
      }
      previous = part.element;
    }
    this.order = [...slots];
    this.heads = new Set(); // the first slot of each segment
    const seen = new Set();
    this.order.forEach((slot, i) => {
      this.parts.get(slot).element.dataset.slot = i;
      if (slot.segment >= 0 && !seen.has(slot.segment)) this.heads.add(slot);
      seen.add(slot.segment);
    });
  }

  /** Segments of which nothing is shown yet: one line stands for all their slots. */
  openSegments(step) {
    const open = new Map(); // segment -> its first slot on the canvas, or null once some is shown
    if (!this.sample.segmented) return open;
    for (const slot of this.order) {
      if (slot.segment < 0 || !slot.isThere(step)) continue;
      if (slot.at(step)) open.set(slot.segment, null);
      else if (!open.has(slot.segment)) open.set(slot.segment, slot);
    }
    return open;
  }

  drawSlot(slot, step, { color, layout, folded }) {
    const part = this.parts.get(slot);
    const there = slot.isThere(step);
    const show = there ? slot.at(step) : null;
    const struck = slot.gone === step ? slot.at(step - 1) : null;
    const line = folded.get(slot.segment);
    const classes = ["ao-slot"];
    if (!there) classes.push("is-absent");
    else if (show) classes.push("is-shown");
    else classes.push("is-mask");
    if (slot.gone === step) classes.push(...(struck ? ["is-gone"] : ["is-gone", "is-mask"]));
    if (slot.insert === step && step > 0) classes.push("is-new");
    if (show && show.step === step && step > 0) classes.push("is-fresh");
    if (there && !show && slot.insert < step && slot.at(step - 1)) classes.push("is-again");
    if (slot.given) classes.push("is-given");
    if ((show || struck)?.piece === "") classes.push("is-empty");
    if (!show && line) classes.push(line === slot ? "is-line" : "is-folded");
    // In the final layout a slot keeps the room of what it will show; blank until it is inserted.
    const ghost = !show && layout === "final" && slot.last !== null && slot.stays;
    if (ghost) classes.push(slot.last.piece === "" ? "is-empty" : "is-ghost");
    if (ghost && slot.insert > step) classes.push("is-blank");
    const piece = show ? show.piece : ghost ? slot.last.piece : struck ? struck.piece : null;
    if (piece !== part.shown) this.fill(part, piece);
    part.element.className = classes.join(" ");
    if (ghost || slot.gone === step) part.element.setAttribute("aria-hidden", "true");
    else part.element.removeAttribute("aria-hidden");
    const paint = show ? COLORS[color](this.sample, show.step, show.logp) : null;
    if (paint) part.element.style.setProperty("--ao-c", paint);
    else part.element.style.removeProperty("--ao-c");
    part.state = show ? "shown" : "mask";
    this.tag(part, slot, show);
  }

  /** The content of a slot: ink for each line of its piece, and a mark for each line end. */
  fill(part, piece) {
    part.shown = piece;
    part.tagged = undefined;
    if (piece === null || piece === "") {
      part.element.replaceChildren();
      return;
    }
    const nodes = [];
    for (const run of piece.split(/(\r\n|\r|\n)/)) {
      if (run === "") continue;
      if (/^[\r\n]/.test(run)) {
        nodes.push(make("span", { class: run === "\r" ? "ao-break is-lone" : "ao-break" }, run));
      } else {
        nodes.push(make("span", { class: run.length > LONG_PIECE ? "ao-ink is-long" : "ao-ink" }, run));
      }
    }
    part.element.replaceChildren(...nodes);
  }

  /** In the margin of a revealed segment: its score, else the step that revealed it. */
  tag(part, slot, show) {
    if (!this.sample.segmented) return;
    const score = this.sample.scores.get(slot.segment);
    // Empty segments have no line of their own, so there is no margin for them.
    const named = show && show.piece !== "" && this.heads.has(slot);
    const text = named ? (score === undefined ? String(show.step) : signed(score)) : "";
    if (part.tagged === text) return;
    part.tagged = text;
    part.element.querySelector(".ao-tag")?.remove();
    if (!text) return;
    const title = `Segment ${slot.segment + 1}, revealed in step ${show.step}`
      + (score === undefined ? "" : `, score ${signed(score)}`);
    // The text of a tag is an attribute: what the element reads as stays the sample's own text.
    part.element.prepend(make("span", { class: "ao-tag", title, "data-text": text }));
  }

  /** The pieces that can glide and where they are. */
  places() {
    const places = new Map();
    for (const slot of this.order) {
      const { element, state } = this.parts.get(slot);
      if (!state || element.classList.contains("is-absent")) continue;
      const inks = state === "mask" || element.classList.contains("is-empty") ? [element]
        : element.querySelectorAll(".ao-ink");
      for (const ink of inks) {
        if (ink.offsetParent !== null) places.set(ink, { x: ink.offsetLeft, y: ink.offsetTop, state });
      }
    }
    return places;
  }

  glide(before, duration) {
    const easing = "cubic-bezier(.2, .7, .2, 1)";
    for (const [ink, now] of this.places()) {
      const was = before.get(ink);
      if (!was || was.state !== now.state) {
        ink.animate([{ opacity: 0, transform: "scale(.85)" }, { opacity: 1, transform: "none" }],
          { duration, easing });
        continue;
      }
      const [dx, dy] = [was.x - now.x, was.y - now.y];
      if (!dx && !dy) continue;
      // To another line things fade instead of flying across the text.
      const frames = dy && Math.abs(dx) > 40
        ? [{ opacity: 0.15 }, { opacity: 1 }]
        : [{ transform: `translate(${dx}px, ${dy}px)` }, { transform: "none" }];
      ink.animate(frames, { duration, easing });
    }
  }

  /** Mark the slots that give characters to these places of prompt and text. */
  highlight(spans) {
    let at = this.sample.prompt.length;
    for (const slot of this.order) {
      const end = at + (slot.last && slot.stays ? slot.last.piece.length : 0);
      const marked = spans.some((span) => span.at < end && span.end > at);
      this.parts.get(slot).element.classList.toggle("is-marked", marked);
      at = end;
    }
  }

  slotOf(target) {
    const element = target.closest(".ao-slot");
    return element ? Number(element.dataset.slot) : null;
  }
}
