// The generation trace of the paper: at each step every open segment with the text proposed for it
// and its score. The row that the step committed stands out, segments revealed before are grey, and
// the stronger a row's colour, the better its score among the step's candidates.

class CandidatesView {
  constructor() {
    this.caption = make("h3", { class: "ao-label" });
    this.body = make("tbody");
    this.element = make("section", { class: "ao-candidates", "aria-label": "Candidates" },
      this.caption,
      make("div", { class: "ao-table-box" },
        make("table", {},
          make("thead", {}, make("tr", {},
            make("th", { scope: "col" }, "Segment"),
            make("th", { scope: "col" }, "Proposed text"),
            make("th", { scope: "col", class: "is-number" }, "Score"))),
          this.body)));
  }

  open(sample) {
    this.sample = sample;
    this.element.hidden = sample.candidates.length === 0;
    this.byStep = new Map();
    for (const candidate of sample.candidates) {
      if (!this.byStep.has(candidate.step)) this.byStep.set(candidate.step, []);
      this.byStep.get(candidate.step).push(candidate);
    }
    // What a segment is in the end, for the rows of those that are already there.
    this.segments = new Map();
    for (const slot of sample.slots) {
      if (slot.segment < 0) continue;
      const known = this.segments.get(slot.segment) || { text: "", reveal: 0 };
      known.text += slot.last ? slot.last.piece : "";
      known.reveal = Math.max(known.reveal, slot.reveal);
      this.segments.set(slot.segment, known);
    }
  }

  draw(step) {
    if (this.element.hidden) return;
    const proposed = this.byStep.get(step) || [];
    this.caption.textContent = proposed.length
      ? `Proposed in step ${step}`
      : step === 0 ? "Nothing is proposed before the first step" : `No proposal in step ${step}`;
    const scores = proposed.map((each) => each.score).filter((score) => score !== null);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    const rows = proposed.map((each) => ({
      ...each,
      share: each.score === null || high === low ? 1 : (each.score - low) / (high - low),
    }));
    const here = new Set(rows.map((row) => row.segment));
    for (const [segment, { text, reveal }] of this.segments) {
      if (!here.has(segment) && reveal <= step) rows.push({ segment, text, done: true });
    }
    rows.sort((a, b) => a.segment - b.segment);
    this.body.replaceChildren(...rows.map((row) => this.row(row)));
  }

  row({ segment, text, score = null, share = 0, taken = false, done = false }) {
    const kind = done ? "is-done" : taken ? "is-taken" : "";
    const shown = text.replace(/[\r\n]+$/, "");
    const note = taken ? make("span", { class: "ao-hidden" }, " (committed in this step)") : null;
    const row = make("tr", { class: kind },
      make("td", { class: "is-number" }, String(segment + 1)),
      make("td", {}, shown.trim() ? make("code", {}, shown)
        : make("span", { class: "ao-quiet" }, "empty"), note),
      make("td", { class: "is-number" }, score === null ? "" : signed(score)));
    row.style.setProperty("--ao-share", share.toFixed(3));
    return row;
  }
}
