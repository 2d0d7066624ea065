// When each token came: across the steps, down the text. A line from the step that inserted a slot
// to the dot where it was revealed, unless all slots are there from the start. Left to right is a
// diagonal, any order a cloud. It also serves to scrub with a pointer; the slider in the controls
// does the same for the keyboard.

const ORDER_WIDTH = 1000;
const ORDER_HEIGHT = 100;

class OrderView {
  constructor() {
    this.lines = makeSvg("g", { class: "ao-lives" });
    this.dots = make("div", { class: "ao-dots" });
    this.head = make("div", { class: "ao-playhead" });
    const svg = makeSvg("svg", { viewBox: `0 0 ${ORDER_WIDTH} ${ORDER_HEIGHT}`,
      preserveAspectRatio: "none", class: "ao-lives-svg" }, this.lines);
    this.plot = make("div", { class: "ao-plot" }, svg, this.dots, this.head);
    const caption = "When each token came: steps across, text down";
    this.element = make("figure", { class: "ao-order", "aria-hidden": "true" },
      make("figcaption", { class: "ao-label" }, caption), this.plot);
    this.onscrub = () => {};
    this.plot.addEventListener("pointerdown", (event) => {
      this.plot.setPointerCapture(event.pointerId);
      this.scrub(event);
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (this.plot.hasPointerCapture(event.pointerId)) this.scrub(event);
    });
  }

  scrub(event) {
    const box = this.plot.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    this.onscrub(Math.min(this.sample.steps, Math.round(share * this.sample.scale)));
  }

  open(sample) {
    this.sample = sample;
    this.element.hidden = !sample.recorded;
  }

  draw(step, { color }) {
    const shape = `${this.sample.slots.length}/${this.sample.steps}/${this.sample.scale}/${color}`;
    if (shape !== this.shape || this.drawnSample !== this.sample) this.build(color);
    this.shape = shape;
    this.drawnSample = this.sample;
    this.items.forEach(({ slot, line, dot }) => {
      line.setAttribute("class", slot.insert > step ? "is-later" : "");
      dot.className = slot.reveal > step ? "ao-dot is-later" : "ao-dot";
      dot.hidden = slot.last === null;
    });
    this.head.style.left = `${100 * step / Math.max(1, this.sample.scale)}%`;
  }

  build(color) {
    const { steps, scale } = this.sample;
    const slots = this.sample.slots.filter((slot) => slot.stays); // deleted ones have no place
    const across = Math.max(1, scale);
    const rows = Math.max(1, slots.length);
    this.lines.style.display = slots.some((slot) => slot.insert > 0) ? "" : "none";
    this.items = [];
    this.lines.replaceChildren();
    this.dots.replaceChildren();
    slots.forEach((slot, i) => {
      if (slot.given) return;
      const end = Math.min(slot.reveal, steps);
      const y = (i + 0.5) / rows;
      const [from, to] = [slot.insert, end].map((at) => ORDER_WIDTH * at / across);
      const line = makeSvg("line", { x1: from, x2: to, y1: y * ORDER_HEIGHT, y2: y * ORDER_HEIGHT });
      const dot = make("i", { class: "ao-dot",
        style: `left: ${100 * end / across}%; top: ${100 * y}%` });
      const paint = slot.last && COLORS[color](this.sample, slot.last.step, slot.last.logp);
      if (paint) dot.style.setProperty("--ao-c", paint);
      this.lines.append(line);
      this.dots.append(dot);
      this.items.push({ slot, line, dot });
    });
  }
}
