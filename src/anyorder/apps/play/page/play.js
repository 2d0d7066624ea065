// The playground: the form on one side, the trace player on the other, one generation at a time.

import { Side, complain, make } from "./form.js";
import { Refused, generate, models, stop } from "./stream.js";

const tab = crypto.randomUUID();
const at = (id) => document.getElementById(id);
const [form, prompt, pick, gap, status, results] = ["form", "prompt", "pick", "gap", "status",
  "results"].map(at);

let sides = [];
let player = null;
let running = false;

const shared = (field) => form.querySelector(`.field[data-field="${CSS.escape(field)}"]`);

function clear() {
  for (const box of form.querySelectorAll(".field")) complain(box, "");
  at("problem").hidden = true;
}

/** Show a message beside the field that it is about. */
function refuse(error, side) {
  if (!(error instanceof Refused)) throw error;
  if (error.field && side && side.refuse(error.field, error.message)) return;
  const box = error.field && form.querySelector(`#form > .card .field[data-field="${CSS.escape(error.field)}"]`);
  if (box) {
    complain(box, error.message);
    box.querySelector("input, select, textarea").focus();
    return;
  }
  at("problem").textContent = error.message;
  at("problem").hidden = false;
}

// ---- prompts

/** The stories of the first side's model; what was picked stays picked. */
function offer(side) {
  if (side !== sides[0]) return;
  const picked = pick.value;
  pick.replaceChildren(make("option", { value: "" }, "Pick a story \u2026"),
    ...side.about.prompts.map(({ name }) => make("option", { value: name }, name)));
  const names = side.about.prompts.map((each) => each.name);
  if (names.includes(picked)) pick.value = picked;
  gap.disabled = !side.about.prompts.some((each) => each.gap);
  if (gap.disabled) gap.checked = false;
  if (!prompt.value && names.length) {
    [pick.value] = names;
    takeStory();
  } else if (gap.checked && pick.value) {
    takeStory(); // families write gaps differently
  }
}

function takeStory() {
  const story = sides[0].about && sides[0].about.prompts.find((each) => each.name === pick.value);
  if (!story) return;
  prompt.value = gap.checked && story.gap ? story.gap : story.text;
  complain(shared("prompt"), "");
}

function insertFill() {
  const { selectionStart: start, selectionEnd: end } = prompt;
  prompt.setRangeText("<fill>", start, end, "end");
  prompt.focus();
}

// ---- sides

function setCompare(both) {
  if (both && sides.length < 2) {
    const side = new Side(2, known);
    side.onmodel = offer;
    sides.push(side);
    at("sides").append(side.element);
    side.choose(sides[0].model || side.model);
  } else if (!both && sides.length > 1) {
    sides.pop().element.remove();
  }
  document.body.classList.toggle("has-two", sides.length > 1);
}

// ---- generating

function request(side) {
  return {
    tab,
    model: side.model,
    prompt: prompt.value,
    task: pick.value ? `${pick.value}${gap.checked ? "-gap" : ""}` : "prompt/0",
    seed: at("seed").value.trim(),
    pause: Number(at("pause").value),
    settings: side.inputs ? side.settings() : {},
  };
}

function busy(now) {
  running = now;
  at("generate").disabled = now;
  at("stop").disabled = !now;
  form.classList.toggle("is-running", now);
}

async function run() {
  if (running) return;
  clear();
  busy(true);
  let side = null;
  try {
    for (side of sides) {
      if (!await runSide(side)) break;
    }
  } catch (error) {
    if (status.dataset.waiting) tell("Not begun: see the message.");
    refuse(error, side);
  } finally {
    busy(false);
  }
}

function tell(text, waiting = false) {
  status.textContent = text;
  status.dataset.waiting = waiting ? "yes" : "";
}

/** It has begun: away with what was there. */
function makeRoom() {
  results.replaceChildren();
  at("hello").hidden = true;
  at("player").hidden = false;
  player.compare(null);
}

/** Where the form stands above, the reader should not have to look for what it began. */
function showStage() {
  const { top } = at("stage").getBoundingClientRect();
  if (top > window.innerHeight / 3) at("stage").scrollIntoView();
}

/** One generation; whether it came to its end. */
async function runSide(side) {
  const name = sides.length > 1 ? `Side ${side.number}` : "Generation";
  const asked = request(side);
  tell(`${name}: waiting \u2026`, true);
  let live = null;
  for await (const [kind, says] of generate(asked)) {
    if (kind === "begun") {
      if (side === sides[0]) makeRoom();
      live = player.live({ ...says, run: asked.model, family: side.about && side.about.family,
        policy: asked.settings.policy, task: asked.task, sample: 0 }, side.number - 1);
    } else if (kind === "step") {
      live.append(says);
      if (!says.step && side === sides[0]) showStage();
      tell(`${name}: step ${says.step}`);
    } else if (kind === "done") {
      live.finish(says.payload);
      tell(`${name}: done in ${says.steps} steps.`);
      results.append(outcome(side, says));
      return true;
    } else if (kind === "stopped") {
      if (live) live.fail(`Stopped after step ${says.step}`);
      tell(`${name}: stopped after step ${says.step}.`);
      return false;
    } else {
      if (live) live.fail("Failed");
      throw new Refused(says.message, null);
    }
  }
  throw new Refused("The generation broke off: see the terminal that runs `anyorder play`.", null);
}

function outcome(side, says) {
  const which = sides.length > 1 ? ` ${side.number}` : "";
  const href = URL.createObjectURL(new Blob([`${says.line}\n`], { type: "application/jsonl" }));
  const copy = make("button", { type: "button", class: "small", title: says.command,
    onclick: () => navigator.clipboard.writeText(says.command).then(
      () => tell("The command that makes this sample is on the clipboard."),
      () => tell(says.command), // the browser forbids it: then it can be read
    ) }, `Copy command${which}`);
  return make("span", {}, make("a", { class: "button small", href, download: says.file,
    title: "One line of JSON; `anyorder import` makes a run of it" }, `Save trace${which}`), copy);
}

// ---- start

let known = { models: [], chosen: null };

async function start() {
  player = window.AnyorderPlayer.create(at("player"), null, {});
  try {
    known = await models();
  } catch (error) {
    refuse(error, null);
    return;
  }
  const side = new Side(1, known);
  side.onmodel = offer;
  sides = [side];
  at("sides").append(side.element);
  if (side.model) await side.open(side.model);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.addEventListener("input", (event) => { // what is being mended is not wrong any more
  const box = event.target.closest(".field.is-wrong");
  if (box) complain(box, "");
});
at("stop").addEventListener("click", () => stop(tab).catch((error) => refuse(error, null)));
at("fill").addEventListener("click", insertFill);
pick.addEventListener("change", takeStory);
gap.addEventListener("change", takeStory);
at("compare").addEventListener("change", (event) => setCompare(event.target.checked));
prompt.addEventListener("input", () => { pick.value = ""; });
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});

start();
