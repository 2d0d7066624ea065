// The trace player: AnyorderPlayer.create(element, payload, options). What it can be told to do is
// the class below, up to the line that says so; docs/player.md describes it.
//
// There is one clock, a whole number of steps, for both sides. In step, each side shows that step
// of its own, the last one when it has no more; by progress, the same share of its steps.

const STEPS_PER_SECOND = 8;
const DEFAULTS = { sample: 0, compare: null, step: null, color: "step", layout: "grown",
  sync: "step", speed: 1 };

class Player {
  constructor(element, payload, options = {}) {
    const unknown = Object.keys(options).filter((name) => !(name in DEFAULTS));
    if (unknown.length) throw new Error(`no option ${unknown[0]}: ${Object.keys(DEFAULTS).join(", ")}`);
    this.options = { ...DEFAULTS, ...options };
    this.library = new Library();
    if (payload) this.library.add(payload);
    this.panes = [];
    this.indices = [];
    this.active = 0;
    this.clock = 0;
    this.timer = null;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.controls = new Controls(this);
    this.shared = new Prompt("ao-shared");
    this.sides = make("div", { class: "ao-sides" }, this.shared.element);
    this.root = make("div", { class: "ao-player", tabindex: "0", role: "group",
      "aria-label": "Trace player. Press question mark for the keys." },
    this.sides, this.controls.bar, this.controls.more, this.controls.help.element);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.element = element;
    element.replaceChildren(this.root);
    this.resizes = new ResizeObserver(() => this.resized());
    this.resizes.observe(this.root);
    if (this.library.size) {
      this.select(this.options.sample);
      if (this.options.compare !== null) this.select(this.options.compare, 1);
      this.go(this.options.step ?? this.steps);
    } else {
      this.draw();
    }
  }

  /** Show sample number `index` of the payload on a side (0 or 1). The step is kept. */
  select(index, side = 0) {
    if (!(index >= 0 && index < this.library.size)) {
      throw new Error(`no sample ${index}: there are ${this.library.size}`);
    }
    const ended = this.panes.length === 0 || this.clock === this.steps;
    this.put(this.library.sample(index), index, side);
    if (ended) this.clock = this.steps;
    this.draw();
    this.tell("select", { side, index });
  }

  /** Put a second sample beside the first, or take it away (null). */
  compare(index) {
    if (index === null) this.removeSide();
    else this.select(index, 1);
  }

  /** Go to a step of the common clock. */
  go(step) {
    const near = Math.abs(step - this.clock) <= 2;
    this.clock = Math.min(this.steps, Math.max(0, Math.round(step)));
    this.draw(near);
    this.tell("step", { step: this.clock, steps: this.steps });
  }

  next(count = 1) { this.pause(); this.go(this.clock + count); }

  back(count = 1) { this.pause(); this.go(this.clock - count); }

  first() { this.pause(); this.go(0); }

  last() { this.pause(); this.go(this.steps); }

  /** Play on; at the end, from the beginning. */
  play() {
    if (this.timer !== null || !this.panes.length) return;
    if (this.clock >= this.steps) this.go(0);
    let due = performance.now() + this.interval;
    const tick = (now) => {
      if (this.timer === null) return;
      if (now >= due) {
        const count = 1 + Math.floor((now - due) / this.interval);
        due += count * this.interval;
        this.go(this.clock + count);
      }
      if (this.clock >= this.steps && !this.isLive) this.pause();
      else this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
    this.draw();
    this.tell("play");
  }

  pause() {
    if (this.timer === null) return;
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.draw();
    this.tell("pause");
  }

  toggle() {
    if (this.timer === null) this.play();
    else this.pause();
  }

  setSpeed(speed) { this.set("speed", speed, SPEEDS); }

  setColor(color) { this.set("color", color, Object.keys(COLORS)); }

  setLayout(layout) { this.set("layout", layout, ["grown", "final"]); }

  setSync(sync) { this.set("sync", sync, ["step", "progress"]); }

  /** Choose which side keys act on. */
  focusSide(side) {
    if (side < this.panes.length) this.active = side;
    this.draw();
  }

  /** More samples for the list; the number of the first of them. */
  add(payload) {
    const first = this.library.add(payload);
    this.panes.forEach((pane, side) => this.name(side));
    return first;
  }

  /** A sample that is being generated, on a side; `about.planned` steps, where that is known. */
  live(about = {}, side = 0) {
    const sample = new LiveSample(about);
    this.pause();
    this.put(sample, null, side);
    if (side === 0 && this.panes.length === 1) this.clock = 0;
    this.draw();
    return {
      append: (message) => this.append(sample, message),
      finish: (payload) => this.finish(sample, payload),
      fail: (text) => this.fail(sample, text),
      sample,
    };
  }

  state() {
    return {
      step: this.clock,
      steps: this.steps,
      playing: this.timer !== null,
      samples: [...this.indices],
      sideSteps: this.panes.map((_, side) => this.stepOf(side)),
      active: this.active,
      live: this.isLive,
      canCompare: this.panes.length > 1 || this.library.size > 1,
      color: this.options.color,
      layout: this.options.layout,
      sync: this.options.sync,
      speed: this.options.speed,
    };
  }

  /** The slots that a side shows now: {slot, piece, masked}. */
  canvas(side = 0) { return this.panes[side].sample.canvas(this.stepOf(side)); }

  /** The text that a side shows now, `mask` for each masked slot. */
  text(side = 0, mask = MASK_SIGN) { return this.panes[side].sample.text(this.stepOf(side), mask); }

  destroy() {
    this.pause();
    this.resizes.disconnect();
    this.panes.forEach((pane) => pane.destroy());
    this.root.remove();
  }

  // ---- From here on: how it does so.

  get steps() {
    return Math.max(0, ...this.panes.map((pane) => pane.sample.steps));
  }

  get interval() {
    return 1000 / (STEPS_PER_SECOND * this.options.speed);
  }

  get isLive() {
    return this.panes.some((pane) => pane.sample.live);
  }

  stepOf(side) {
    const own = this.panes[side].sample.steps;
    if (this.options.sync === "step" || !this.steps) return Math.min(this.clock, own);
    return Math.round(own * this.clock / this.steps);
  }

  clockOf(side, step) {
    const own = this.panes[side].sample.steps;
    return this.options.sync === "step" || !own ? step : Math.round(this.steps * step / own);
  }

  set(name, value, allowed) {
    if (!allowed.includes(value)) throw new Error(`${name}: ${value} is none of ${allowed.join(", ")}`);
    this.options[name] = value;
    if (name === "layout") this.reserve();
    this.draw();
  }

  put(sample, index, side) {
    if (side > this.panes.length) throw new Error("fill side 0 first");
    const added = side === this.panes.length;
    if (added) this.addSide(side);
    this.indices[side] = index;
    this.panes[side].open(sample, this.options);
    if (added) this.reserve(); // the other side has become narrower
    this.clock = Math.min(this.clock, this.steps);
    this.name(side);
  }

  name(side) {
    this.panes[side].picker.set(this.library, this.indices[side], this.panes[side].sample.about);
  }

  addSide(side) {
    const pane = new Pane(side + 1);
    pane.picker.onpick = (index) => this.select(index, side);
    pane.order.onscrub = (step) => { this.pause(); this.go(this.clockOf(side, step)); };
    pane.element.addEventListener("pointerdown", () => {
      if (this.active !== side) this.focusSide(side);
    });
    this.panes.push(pane);
    this.sides.append(pane.element);
    this.root.classList.toggle("has-two", this.panes.length > 1);
  }

  removeSide() {
    if (this.panes.length < 2) return;
    const pane = this.panes.pop();
    this.indices.pop();
    pane.element.remove();
    pane.destroy();
    this.active = 0;
    this.root.classList.remove("has-two");
    this.clock = Math.min(this.clock, this.steps);
    this.reserve();
    this.draw();
  }

  toggleCompare() {
    if (this.panes.length > 1) this.removeSide();
    else if (this.library.size > 1) this.select(this.partner(), 1);
  }

  /** What to compare with: the same problem in another run, else the next sample. */
  partner() {
    const index = this.indices[0] ?? 0;
    const here = this.panes[0].sample.about;
    let best = (index + 1) % this.library.size;
    let rank = 0;
    for (let other = 0; other < this.library.size; other += 1) {
      const about = this.library.about(other);
      if (other === index || about.task !== here.task) continue;
      const kind = 1 + 2 * (about.family !== here.family) + (about.run !== here.run);
      if (kind > rank) [best, rank] = [other, kind];
    }
    return best;
  }

  draw(gliding = false) {
    const motion = gliding && !this.still.matches ? this.interval * 0.9 : 0;
    const playing = this.timer !== null;
    // At high speed things would still be on their way when the next step comes.
    const moves = motion > 60 || (motion > 0 && !playing) ? Math.max(motion, playing ? 0 : 200) : 0;
    const { color, layout } = this.options;
    this.sharePrompt();
    this.panes.forEach((pane, side) => {
      pane.draw(this.stepOf(side), { color, layout, motion: moves, playing });
      pane.element.classList.toggle("is-active", this.panes.length > 1 && side === this.active);
    });
    this.controls.draw(this.state());
  }

  /** Two answers to one prompt: it stands once above both. */
  sharePrompt() {
    const [one, two] = this.panes.map((pane) => pane.sample.prompt);
    const same = this.panes.length > 1 && one === two;
    this.shared.set(same ? one : "");
    for (const pane of this.panes) pane.prompt.set(same ? "" : pane.sample.prompt);
  }

  /** Measure again how much room each text needs. */
  reserve() {
    for (const pane of this.panes) {
      pane.text.element.style.minHeight = "";
      pane.text.reserve(this.options);
    }
  }

  resized() {
    const width = this.root.clientWidth;
    if (width === this.width) return;
    const known = this.width !== undefined;
    this.width = width;
    if (!known) return;
    this.reserve();
    this.draw();
  }

  append(sample, message) {
    const following = this.clock === this.steps;
    sample.append(message);
    if (following) this.clock = this.steps;
    this.draw(following);
    this.tell("step", { step: this.clock, steps: this.steps });
  }

  /** The generation is over; `payload` holds it as a trace, with its tree, where there is one. */
  finish(sample, payload) {
    sample.live = false;
    const side = this.panes.findIndex((pane) => pane.sample === sample);
    if (side < 0) return;
    if (payload) {
      const following = this.clock === this.steps;
      const index = this.add(payload);
      this.put(this.library.sample(index), index, side);
      if (following) this.clock = this.steps;
    } else {
      this.panes[side].say(factsOf(sample));
    }
    this.draw();
    this.tell("finish", { side, index: this.indices[side] });
  }

  fail(sample, text) {
    sample.live = false;
    const pane = this.panes.find((each) => each.sample === sample);
    if (!pane) return;
    this.draw();
    pane.say(text, true);
  }

  tell(kind, detail = {}) {
    this.element.dispatchEvent(new CustomEvent(`anyorder:${kind}`, { detail }));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("select, input:not([type=range])");
    if (field) return;
    // Space and Enter on a button press that button.
    if (event.key === " " && event.target.closest("button")) return;
    const action = this.actions(event)[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  actions(event) {
    const count = event.shiftKey ? 10 : 1;
    const faster = (by) => this.setSpeed(SPEEDS[Math.min(SPEEDS.length - 1,
      Math.max(0, SPEEDS.indexOf(this.options.speed) + by))]);
    const picker = this.panes[this.active] && this.panes[this.active].picker;
    return {
      ArrowRight: () => this.next(count),
      ArrowLeft: () => this.back(count),
      Home: () => this.first(),
      End: () => this.last(),
      " ": () => this.toggle(),
      "+": () => faster(1),
      "=": () => faster(1),
      "-": () => faster(-1),
      "/": () => picker && picker.open(),
      n: () => picker && picker.move(1),
      p: () => picker && picker.move(-1),
      c: () => this.toggleCompare(),
      o: () => this.setColor(this.options.color === "step" ? "confidence" : "step"),
      1: () => this.focusSide(0),
      2: () => this.focusSide(1),
      "?": () => this.controls.help.open(),
    };
  }
}

window.AnyorderPlayer = {
  create: (element, payload, options) => new Player(element, payload, options),
};
