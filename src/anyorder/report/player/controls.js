// The common controls below the panes, and the list of keys. They call the player and show its
// state; they hold none themselves.

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

const KEYS = [
  ["\u2190 \u2192", "one step back, one step on (with Shift: ten)"],
  ["Home End", "first step, last step"],
  ["Space", "play, pause"],
  ["+ \u2212", "faster, slower"],
  ["/", "search for a sample"],
  ["p n", "previous sample, next sample"],
  ["c", "two samples side by side, or one"],
  ["1 2", "which side the keys above choose for"],
  ["o", "colour by step or by confidence"],
  ["?", "this list"],
];

class Controls {
  constructor(player) {
    this.player = player;
    this.play = iconButton("play", "Play", "Space", () => player.toggle());
    this.play.classList.add("ao-play");
    this.slider = make("input", { type: "range", class: "ao-slider", min: "0", step: "1",
      "aria-label": "Step", oninput: () => player.go(Number(this.slider.value)) });
    this.counter = make("output", { class: "ao-counter" });
    this.follow = make("button", { type: "button", class: "ao-button is-text", hidden: true,
      onclick: () => player.last() }, "Follow");
    this.buttons = make("div", { class: "ao-transport", role: "group", "aria-label": "Steps" },
      iconButton("first", "First step", "Home", () => player.first()),
      iconButton("back", "Step back", "\u2190", () => player.back()),
      this.play,
      iconButton("next", "Step forward", "\u2192", () => player.next()),
      iconButton("last", "Last step", "End", () => player.last()));
    this.speed = make("select", { class: "ao-select", "aria-label": "Speed",
      onchange: () => player.setSpeed(Number(this.speed.value)) },
    ...SPEEDS.map((speed) => make("option", { value: speed }, `${speed}\u00d7`)));
    this.color = segmentedChoice("Colour", [
      ["step", "Step", "When a token was revealed"],
      ["confidence", "Confidence", "The probability the model gave to the token"],
    ], "step", (value) => player.setColor(value));
    this.layout = segmentedChoice("Layout", [
      ["grown", "As it grew", "The canvas as it was at each step"],
      ["final", "Final places", "Every token where it stands at the end"],
    ], "grown", (value) => player.setLayout(value));
    this.sync = segmentedChoice("Together", [
      ["step", "In step", "Both sides at the same step"],
      ["progress", "By progress", "Both sides at the same share of their steps"],
    ], "step", (value) => player.setSync(value));
    this.compare = make("button", { type: "button", class: "ao-button is-text",
      title: "Two samples side by side (c)", onclick: () => player.toggleCompare() });
    this.legend = make("div", { class: "ao-legend", role: "img" });
    this.help = new Help();
    this.bar = make("div", { class: "ao-line ao-controls", role: "group", "aria-label": "Playing" },
      this.buttons, this.slider, this.counter,
      make("label", { class: "ao-choice ao-speed" },
        make("span", { class: "ao-label" }, "Speed"), this.speed),
      this.follow);
    this.more = make("div", { class: "ao-line ao-options", role: "group", "aria-label": "View" },
      this.color.box, this.legend, this.layout.box, this.sync.box,
      make("span", { class: "ao-gap" }), this.compare,
      iconButton("keys", "Keyboard", "?", () => this.help.open()));
  }

  draw(state) {
    this.slider.max = String(state.steps);
    this.slider.value = String(state.step);
    this.slider.setAttribute("aria-valuetext", `Step ${state.step} of ${state.steps}`);
    const share = state.steps ? state.step / state.steps : 0;
    this.slider.style.setProperty("--ao-share", share.toFixed(4));
    this.counter.textContent = `${state.step} / ${state.steps}`;
    const label = state.playing ? "Pause" : "Play";
    if (this.play.getAttribute("aria-label") !== label) {
      this.play.setAttribute("aria-label", label);
      this.play.title = `${label} (Space)`;
      this.play.replaceChildren(icon(state.playing ? "pause" : "play"));
    }
    this.speed.value = String(state.speed);
    this.color.set(state.color);
    this.layout.set(state.layout);
    this.sync.set(state.sync);
    const both = state.samples.length > 1;
    this.sync.box.hidden = !both;
    this.compare.hidden = !state.canCompare;
    if (this.compare.dataset.both !== String(both)) {
      this.compare.dataset.both = String(both);
      this.compare.replaceChildren(icon(both ? "close" : "compare"), both ? "One sample" : "Compare");
    }
    this.follow.hidden = !state.live || state.step === state.steps;
    this.drawLegend(state.color);
  }

  drawLegend(color) {
    if (this.legend.dataset.color === color) return;
    this.legend.dataset.color = color;
    const { ramp, label, marks } = LEGENDS[color];
    this.legend.setAttribute("aria-label", label);
    const bar = make("span", { class: "ao-ramp", style: `background: ${rampGradient(ramp)}` });
    const signs = make("span", { class: "ao-marks" }, ...marks.map(([share, text]) => make("span",
      { style: `left: ${100 * share}%`, class: share === 0 ? "is-first" : share === 1 ? "is-last" : "" },
      text)));
    this.legend.replaceChildren(bar, signs);
  }
}

const LEGENDS = {
  step: {
    ramp: "step",
    label: "From the first step to the last",
    marks: [[0, "first step"], [1, "last step"]],
  },
  confidence: {
    ramp: "doubt",
    label: "From certain to a probability of one per cent or less",
    marks: [1, 0.5, 0.1, 0.01].map((share) => [doubt(-1000 * Math.log(share)),
      `${Math.round(100 * share)} %`]),
  },
};

class Help {
  constructor() {
    const close = make("button", { type: "button", class: "ao-button is-text",
      onclick: () => this.element.close() }, "Close");
    const rows = KEYS.map(([keys, text]) => make("tr", {},
      make("th", { scope: "row" }, ...keys.split(" ").map((key) => make("kbd", {}, key))),
      make("td", {}, text)));
    this.element = make("dialog", { class: "ao-help", "aria-label": "Keyboard" },
      make("h3", {}, "Keyboard"), make("table", {}, make("tbody", {}, ...rows)), close);
    // Keys pressed in here are not meant for the player behind.
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "?") this.element.close();
      event.stopPropagation();
    });
  }

  open() {
    if (!this.element.open) this.element.showModal();
  }
}
