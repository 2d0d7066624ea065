// Payload -> samples. The format is described in report/traces.py, and so are live messages.
// A sample is a row of slots; each slot knows when it was inserted and what it showed from when on,
// so any step is a look-up and nothing is ever rebuilt. Nothing here touches the page.

const FORMAT = "anyorder-traces";
const VERSION = 1;
const UNKNOWN = -1;
const MASK_SIGN = "\u2581";

class Slot {
  constructor(insert, segment = -1) {
    this.insert = insert;
    this.segment = segment;
    this.gone = Infinity; // the step that deletes it
    this.shows = []; // {step, piece, logp} by step; piece null: masked again
  }

  /** Whether it is on the canvas after `step` steps. */
  isThere(step) {
    return this.insert <= step && step < this.gone;
  }

  /** What it shows after `step` steps; null while it is masked. */
  at(step) {
    let found = null;
    for (const show of this.shows) {
      if (show.step > step) break;
      found = show;
    }
    return found && found.piece !== null ? found : null;
  }

  show(step, piece, logp) {
    const last = this.shows[this.shows.length - 1];
    if (last && last.step === step) this.shows.pop();
    this.shows.push({ step, piece, logp });
  }

  get last() {
    const last = this.shows[this.shows.length - 1];
    return last && last.piece !== null ? last : null;
  }

  /** The step of the last reveal; Infinity while it is open (live). */
  get reveal() {
    return this.last ? this.last.step : Infinity;
  }

  get given() {
    return this.insert === 0 && this.reveal === 0;
  }

  /** Whether it is on the last canvas: part of the final text. */
  get stays() {
    return this.gone === Infinity;
  }
}

class Sample {
  constructor(about) {
    this.about = about; // run, family, policy, task, sample, verdict, forwards, ties, seconds
    this.prompt = about.prompt || "";
    this.slots = []; // all that ever were, left to right; those that were deleted too
    this.steps = 0;
    this.recorded = true; // false: only the text is known, no steps
    this.scores = new Map(); // segment -> score
    this.candidates = [];
    this.tree = null;
    this.live = false;
    this.segmented = false;
  }

  /** How many steps colours and the order plot reach over: while live, those that are planned. */
  get scale() {
    return Math.max(this.steps, this.live ? this.about.planned || 0 : 0);
  }

  /** The slots on the canvas after `step` steps, each with what it shows. */
  canvas(step) {
    const found = [];
    this.slots.forEach((slot, index) => {
      if (!slot.isThere(step)) return;
      const show = slot.at(step);
      found.push({ slot: index, piece: show ? show.piece : null, masked: !show });
    });
    return found;
  }

  text(step, mask = MASK_SIGN) {
    return this.canvas(step).map((item) => (item.masked ? mask : item.piece)).join("");
  }

  /** What the step did, as lists of slots: a reveal turns a mask into a token, an edit a token. */
  changes(step) {
    const found = { inserted: [], revealed: [], edited: [], remasked: [], deleted: [] };
    this.slots.forEach((slot, index) => {
      if (slot.insert === step) found.inserted.push(index);
      if (slot.gone === step) found.deleted.push(index);
      const show = slot.shows.find((each) => each.step === step);
      if (!show) return;
      const before = step > 0 && slot.insert < step ? slot.at(step - 1) : null;
      if (show.piece !== null) (before ? found.edited : found.revealed).push(index);
      else if (before) found.remasked.push(index);
    });
    return found;
  }
}

/** A column is a list, one number for all entries, or absent. */
function column(values, length, absent) {
  if (Array.isArray(values)) return values;
  return new Array(length).fill(values === undefined ? absent : values);
}

class Payload {
  constructor(json) {
    if (json.format !== FORMAT || json.version !== VERSION) {
      throw new Error(`not a payload of this player: ${json.format} ${json.version}`);
    }
    this.json = json;
    this.decoded = new Map();
  }

  get size() {
    return this.json.samples.length;
  }

  /** What the list of samples needs, without decoding any columns. */
  about(index) {
    const { strings, groups, samples } = this.json;
    const packed = samples[index];
    const words = (number) => (number === undefined ? null : strings[number]);
    return {
      ...groups[packed.group],
      task: strings[packed.task],
      sample: packed.sample,
      prompt: strings[packed.prompt],
      verdict: words(packed.verdict),
      forwards: packed.forwards,
      ties: packed.ties,
      seconds: packed.seconds,
      steps: packed.steps,
      tokens: packed.piece.length,
    };
  }

  sample(index) {
    // A few are kept: going back and forth between two samples should cost nothing.
    if (!this.decoded.has(index)) {
      if (this.decoded.size > 8) this.decoded.delete(this.decoded.keys().next().value);
      this.decoded.set(index, this.decode(index));
    }
    return this.decoded.get(index);
  }

  decode(index) {
    const { strings, trees, samples } = this.json;
    const packed = samples[index];
    const sample = new Sample(this.about(index));
    const count = packed.piece.length;
    sample.recorded = packed.steps !== undefined;
    sample.steps = packed.steps || 0;
    const insert = column(packed.insert, count, 0);
    const reveal = column(packed.reveal, count, 0);
    const logp = column(packed.logp, count, UNKNOWN);
    const segment = column(packed.segment, count, -1);
    const slots = packed.piece.map((_, i) => new Slot(insert[i], segment[i]));
    const ghosts = this.ghosts(packed.ghosts);
    const all = [...slots, ...ghosts.map((ghost) => ghost.slot)]; // as events number them
    for (const [step, slot, piece] of this.events(packed.events)) {
      all[slot].show(step, piece < 0 ? null : strings[piece], UNKNOWN);
    }
    packed.piece.forEach((piece, i) => slots[i].show(reveal[i], strings[piece], logp[i]));
    for (const { slot, reveal: at, piece } of ghosts) {
      if (at >= 0) slot.show(at, strings[piece], UNKNOWN);
    }
    sample.slots = ghosts.length ? inOrder(slots, ghosts) : slots;
    sample.segmented = segment.some((number) => number >= 0);
    for (const [number, score] of Object.entries(packed.score || {})) {
      sample.scores.set(Number(number), score / 1000);
    }
    sample.candidates = this.candidates(packed.candidates);
    if (packed.tree !== undefined) sample.tree = this.tree(trees[packed.tree], sample);
    return sample;
  }

  events(packed) {
    if (!packed) return [];
    const lists = [packed.step, packed.slot, packed.piece];
    const count = Math.max(...lists.map((values) => (Array.isArray(values) ? values.length : 1)));
    const [step, slot, piece] = lists.map((values) => column(values, count));
    return step.map((_, i) => [step[i], slot[i], piece[i]]);
  }

  /** The deleted slots, each with the final slot behind which it stood. */
  ghosts(packed) {
    if (!packed) return [];
    const { after } = packed;
    const [insert, reveal, gone, piece] = [packed.insert, packed.reveal, packed.delete, packed.piece]
      .map((values) => column(values, after.length));
    return after.map((place, i) => {
      const slot = new Slot(insert[i]);
      slot.gone = gone[i];
      return { after: place, slot, reveal: reveal[i], piece: piece[i] };
    });
  }

  candidates(packed) {
    if (!packed) return [];
    const count = packed.score.length;
    const step = column(packed.step, count);
    const segment = column(packed.segment, count);
    const piece = column(packed.piece, count);
    const taken = column(packed.taken, count);
    return packed.score.map((score, i) => ({
      step: step[i],
      segment: segment[i],
      text: this.json.strings[piece[i]],
      score: score === null ? null : score / 1000,
      taken: taken[i] === 1,
    }));
  }

  /** Nodes with their Python tokens, each token with its place and the step that completes it. */
  tree(packed, sample) {
    const strings = this.json.strings;
    const full = sample.prompt + sample.text(sample.steps);
    const revealOf = unitReveals(sample);
    const nodes = packed.kind.map((kind, number) => ({
      kind: strings[kind],
      depth: packed.depth[number],
      at: packed.at[number],
      name: full.slice(packed.at[number], packed.at[number] + packed.size[number]),
      tokens: [],
    }));
    let end = 0;
    packed.owner.forEach((owner, i) => {
      const at = end + packed.gap[i];
      end = at + packed.width[i];
      let step = 0;
      for (let unit = at; unit < end; unit += 1) step = Math.max(step, revealOf[unit]);
      nodes[owner].tokens.push({ at, end, step });
    });
    return { nodes, revealOf, found: strings[packed.found] };
  }
}

/** Per UTF-16 unit of prompt and text: the step that revealed it. */
function unitReveals(sample) {
  const steps = new Array(sample.prompt.length).fill(0);
  for (const slot of sample.slots.filter((each) => each.stays)) {
    for (let i = 0; i < slot.last.piece.length; i += 1) steps.push(slot.reveal);
  }
  return steps;
}

/** Final slots and deleted ones from left to right. */
function inOrder(slots, ghosts) {
  const behind = (place) => ghosts.filter(({ after }) => after === place).map(({ slot }) => slot);
  return [...behind(-1), ...slots.flatMap((slot, i) => [slot, ...behind(i)])];
}

/** All samples of a player, from one payload or several. */
class Library {
  constructor() {
    this.parts = [];
    this.size = 0;
    this.hasVerdicts = false;
    this.isNumbered = false; // some task has several samples
  }

  /** The number of the first sample of what is added. */
  add(json) {
    const payload = new Payload(json);
    const first = this.size;
    this.parts.push({ first, payload });
    this.size += payload.size;
    this.hasVerdicts ||= json.samples.some((packed) => packed.verdict !== undefined);
    this.isNumbered ||= json.samples.some((packed) => packed.sample > 0);
    return first;
  }

  about(index) {
    return this.find(index, (payload, own) => payload.about(own));
  }

  sample(index) {
    return this.find(index, (payload, own) => payload.sample(own));
  }

  find(index, use) {
    const { first, payload } = this.parts.findLast((part) => part.first <= index);
    return use(payload, index - first);
  }
}

/** A sample that grows while it is generated. */
class LiveSample extends Sample {
  constructor(about) {
    super(about);
    this.live = true;
    this.segmented = Boolean(about.segments);
    this.nextSegment = 0;
  }

  append(message) {
    const step = message.step;
    if (!Number.isInteger(step) || step < this.steps) {
      throw new Error(`step ${step} after step ${this.steps}: live steps come in order`);
    }
    // Places count what is on the canvas; deleted slots stay in `slots`, to go back to.
    const before = this.onCanvas();
    for (const at of message.delete || []) before[at].gone = step;
    for (const [at, tokens] of message.replace || []) {
      const open = before[at];
      const slots = tokens.map(([piece, logp]) => {
        const slot = new Slot(open.insert, open.segment);
        slot.show(step, piece, logp);
        return slot;
      });
      this.slots.splice(this.slots.indexOf(open), 1, ...slots);
    }
    for (const at of message.insert || []) {
      const segment = this.segmented ? this.nextSegment++ : -1;
      const left = this.onCanvas()[at - 1];
      this.slots.splice(left ? this.slots.indexOf(left) + 1 : 0, 0, new Slot(step, segment));
    }
    const now = this.onCanvas();
    for (const [at, piece, logp] of message.show || []) now[at].show(step, piece, logp);
    for (const at of message.hide || []) now[at].show(step, null, UNKNOWN);
    this.steps = step;
  }

  onCanvas() {
    return this.slots.filter((slot) => slot.stays);
  }
}
