// Small helpers: elements, icons, colours, words. Colours are CSS expressions over the variables of
// player.css, so that a change of theme needs no script.

let nextId = 0;

function uniqueId(name) {
  nextId += 1;
  return `ao-${name}-${nextId}`;
}

/** An element: attributes by name, `on*` as listeners, children as nodes or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Outlines on a grid of 16 x 16.
const ICONS = {
  first: "M4 3.5v9M12.5 3.5 6.5 8l6 4.5z",
  back: "M10.5 3.5 5 8l5.5 4.5z",
  play: "M5 3l8 5-8 5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  next: "M5.5 3.5 11 8l-5.5 4.5z",
  last: "M12 3.5v9M3.5 3.5 9.5 8l-6 4.5z",
  down: "M4 6.5 8 10.5l4-4",
  passed: "M3.5 8.5 6.5 11.5l6-7",
  failed: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  compare: "M2.5 3.5h4.5v9H2.5zM9 3.5h4.5v9H9z",
  close: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 13.5 13.5",
  keys: "M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5 9.5h6",
};
const FILLED = new Set(["first", "back", "play", "next", "last"]);

function icon(name) {
  const path = makeSvg("path", { d: ICONS[name] });
  const kind = FILLED.has(name) ? "ao-icon is-filled" : "ao-icon";
  return makeSvg("svg", { viewBox: "0 0 16 16", class: kind, "aria-hidden": "true" }, path);
}

function iconButton(name, label, key, onclick) {
  const title = key ? `${label} (${key})` : label;
  return make("button", { type: "button", class: "ao-button", title, "aria-label": label, onclick },
    icon(name));
}

/** A choice of a few, as radio buttons in a row. */
function segmentedChoice(label, options, chosen, onchange) {
  const name = uniqueId("choice");
  const box = make("fieldset", { class: "ao-choice" },
    make("legend", { class: "ao-label" }, label));
  const inputs = new Map();
  for (const [value, text, title] of options) {
    const input = make("input", { type: "radio", name, value, class: "ao-hidden",
      onchange: () => onchange(value) });
    input.checked = value === chosen;
    inputs.set(value, input);
    box.append(make("label", { title }, input, make("span", {}, text)));
  }
  return { box, set: (value) => { inputs.get(value).checked = true; } };
}

const STOPS = 5;

/** The colour at `share` (0..1) of a ramp whose stops are --ao-<ramp>-0 .. 4. */
function rampColor(ramp, share) {
  const place = Math.min(1, Math.max(0, share)) * (STOPS - 1);
  const low = Math.min(STOPS - 2, Math.floor(place));
  const percent = Math.round((place - low) * 100);
  return `color-mix(in oklab, var(--ao-${ramp}-${low + 1}) ${percent}%, var(--ao-${ramp}-${low}))`;
}

function rampGradient(ramp) {
  const stops = Array.from({ length: STOPS }, (_, i) => `var(--ao-${ramp}-${i})`);
  return `linear-gradient(to right in oklab, ${stops.join(", ")})`;
}

// From certain (0) to one per cent (1). The root spreads the upper end, where most tokens are.
const UNSURE = Math.log(100);

function doubt(logp) {
  return Math.sqrt(Math.min(1, logp / 1000 / UNSURE));
}

/** How a token is coloured: null where there is nothing to say (given, or not known). */
const COLORS = {
  step: (sample, step) => (step > 0 ? rampColor("step", (step - 1) / Math.max(1, sample.scale - 1))
    : null),
  confidence: (sample, step, logp) => (step > 0 && logp >= 0 ? rampColor("doubt", doubt(logp))
    : null),
};

function percent(logp) {
  const share = 100 * Math.exp(-logp / 1000);
  if (share < 0.1) return "< 0.1 %";
  return `${share < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

/** A token as it is named in a sentence. */
function quoted(piece) {
  if (piece === "") return "end of text";
  const shown = piece.replace(/\r\n|\r|\n/g, "\u21b5").replace(/\t/g, "\u21e5");
  return shown.trim() === "" ? `${shown.length} ${shown.length === 1 ? "space" : "spaces"}`
    : `\u201c${shown}\u201d`;
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function signed(value) {
  return value.toFixed(2).replace("-", "\u2212");
}
