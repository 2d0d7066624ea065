"""docs/results.md and its figures, from the stored records alone; the same bytes every time.

What the sections say is questions/; here they are written down, between what holds for all of them:
the answers in short, the verdicts in one table, the statistics, the models and the runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.files import replacing
from anyorder.measure import source
from studies.cells import NO, UNDECIDED, UNKNOWN, YES, Claim
from studies.model_plan import StudyModel
from studies.plan import SEEN
from studies.questions.all import QUESTIONS
from studies.questions.section import CLEARLY, NOTHING, OWN, Section, Table
from studies.study_job import StudyJob, study_command
from studies.view import Study

IMAGES = "images/results"
TRAINED_IN = "runs/study/models"
"""Where trainings are done; what is finished is copied into the study's folder."""
OLD_NAME = "anyorder study "
"""What the command was called when the first records were made; a record is never rewritten."""


@dataclass(frozen=True)
class Written:
    """The page, its figures, and what they were made from."""

    page: Path
    figures: tuple[Path, ...]
    sections: dict[str, Section]

    @property
    def claims(self) -> dict[str, tuple[Claim, ...]]:
        """By question, with their verdicts."""
        return {name: section.claims for name, section in self.sections.items()}

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "page": str(self.page),
            "figures": [str(path) for path in self.figures],
            "claims": {
                name: [{"says": each.says, "here": each.here, "holds": each.holds} for each in own]
                for name, own in self.claims.items()
            },
        }


def write_page(study: Study, page: Path) -> Written:
    """Write the page and its figures."""
    sections = {name: question.section(study) for name, question in QUESTIONS.items()}
    images = page.parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    figures = []
    for section in sections.values():
        for drawing in section.figures:
            figures.append(images / f"{drawing.name}.svg")
            with replacing(figures[-1]) as file:
                file.write(drawing.svg().encode())
    with replacing(page) as file:
        file.write(markdown(study, sections).encode())
    return Written(page, tuple(figures), sections)


def markdown(study: Study, sections: dict[str, Section]) -> str:
    """The whole page."""
    parts = [_head(study), _brief(sections), _verdicts(sections), _STATISTICS]
    parts += [_section(name, section) for name, section in sections.items()]
    parts += [_models(study), _runs(study)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _head(study: Study) -> str:
    return f"""\
# Results: the paper's questions, asked of tiny models

Written by `{_command(study)}` from `{study.folder.as_posix()}`; how to repeat it, train
the models and ask one question alone: [study.md](study.md). The paper is
"{source()}".

Everything here is about networks of 0.42 million parameters (the dial's mdm 0.33, the planner 0.49)
on the built-in corpus [stories](stories.md), each trained on one processor core;
[the table of models](#models) has the times of those that the study trained. Whether a trend of the
paper holds is decided by rule from an interval, below; where it does not hold, its section looks at
the reason that we suspect.
{_unfinished(study)}"""


def _command(study: Study) -> str:
    """What writes this page again: the flags that are not the usual ones."""
    usual = StudyJob()
    words = [
        f"--{name} {value}"
        for name, value in vars(study.plan.sizes).items()
        if value != getattr(usual.sizes, name)
    ]
    words += [f"--folder {study.folder.as_posix()}"] if study.folder != usual.folder else []
    return study_command("--only page", *words)


def _unfinished(study: Study) -> str:
    """Said at once where the plan is not done: claims then rest on the seeds that are there."""
    runs = {name: study.run(name) for name in study.plan.runs}
    there = sum(run is not None for run in runs.values())
    lacking = [f"{len(runs) - there} of {len(runs)} runs"] if there < len(runs) else []
    unpaired = sum(
        run is not None and study.plan.runs[name].reference is not None and not run.compared
        for name, run in runs.items()
    )
    lacking += [f"{unpaired} comparisons with left-to-right programs"] if unpaired else []
    lacking += ["the race"] if study.race is None else []
    if not lacking:
        return ""
    return (
        f"\n**Not finished: {' and '.join(lacking)} are missing.** Verdicts rest on what is there, "
        "for some questions on one seed of three, and may change.\n"
    )


_STATISTICS = f"""\
## How to read the numbers

- Every cell is a mean over samples with its 95 % interval in brackets. Problems are what is drawn:
  a problem's samples stay together, and differences are paired by problem. Where there are several
  seeds, the row "all seeds" draws seeds and problems independently (`measure/intervals.py`), and
  each seed has a row of its own, whose interval draws problems. Three seeds tell little about other
  seeds: read their rows.
- A rate of one seed with one sample a problem, and one that is 0 or 1 on every problem, has
  Wilson's interval for that many problems. Of two rates that differ on no problem, the difference
  has Wilson's bound for none in so many, on both sides.
- A claim that one thing is larger than another *holds* (yes) if the interval of the paired
  difference is above 0, does *not* hold (no) if it is below 0 or if a measure other than a rate
  differs on no problem, and is *undecided* otherwise. A claim that two things are alike holds if
  the interval lies within the stated margin, and does not if it lies outside. A claim of several
  parts holds if all do, and does not if one does not.
- Many claims are tested at 95 %: one in twenty that is not so would pass for decided. A yes is
  about the sign; read the size beside it.
- Order scores stand between their controls on the same programs: the sample's own steps sorted
  from left to right, and permuted at random. `ties` is the share of choices that a tie rule made.
- The margins of some claims were chosen with the first {SEEN} problems of the corpus in view, so
  these are left out everywhere, the race excepted.
- Changed after seed 0 and part of seed 1 had been seen: S2's second and third claim, now on the
  tenths of decoding that both families have (the second had been a no; its section has both forms,
  whose verdicts differ); a claim on S2's gap in k-LOC, a yes, dropped for the last one; rates that
  differ on no problem, undecided in place of no (three greedy claims of S4); S1's planner, now by
  all metrics; S3's last two, with a margin; S5's second, in both directions; S6's second, against
  all models; the dial's remedies, in two forms. S4 at temperature 1 was added after greedy S4, and
  after a race on the first 30 problems.
- Changed when everything had been seen: S2's last claim, on the same tenths; left to right asks for
  a tau beyond {CLEARLY:g}, not beyond 0 (no verdict changed by either); the control of lines by
  wording, added to the dial, and flexlatent, as a check of the reason given for latentmdm there
  (its claims were written before its models were trained). The table in short was made then: it
  takes the first claim of every section, in an order that is older.
- All policies and sweep points that were run are shown, and every seed in a row of its own; tables
  over tenths of decoding and rows of controls are over all seeds. What is missing says so.
"""


def _verdicts(sections: dict[str, Section]) -> str:
    rows = [
        (f"[{name}](#{_anchor(section)})", claim.says, claim.here, claim.holds)
        for name, section in sections.items()
        for claim in section.claims
    ]
    return "## All claims\n\n" + _table(("", "claim", "here", "holds"), rows)


def _brief(sections: dict[str, Section]) -> str:
    """The first claim of every question; the README repeats this table, to the letter."""
    rows = []
    for section in sections.values():
        first = section.claims[0]
        rows.append((section.title, first.says, first.here, first.holds, _tally(section.claims)))
    heads = ("question", "first claim", "here", "holds", "all its claims")
    claims = [claim for section in sections.values() for claim in section.claims]
    own = [claim for claim in claims if claim.source.startswith(OWN)]
    theirs = [claim for claim in claims if not claim.source.startswith(OWN)]
    return (
        f"## In short\n\n{_table(heads, rows)}\n"
        f"Of the {len(theirs)} claims that are the paper's or follow from it: {_tally(theirs)}; of "
        f"the {len(own)} of our own: {_tally(own)}.\n"
    )


def _tally(claims: Sequence[Claim]) -> str:
    count = Counter(claim.holds for claim in claims)
    return ", ".join(
        f"{count[verdict]} {verdict}" for verdict in (YES, NO, UNDECIDED, UNKNOWN) if count[verdict]
    )


def _anchor(section: Section) -> str:
    kept = (c for c in section.title.lower() if c.isalnum() or c in " -")
    return "".join(kept).replace(" ", "-")


def _section(name: str, section: Section) -> str:
    parts = [f"## {section.title}", section.asks, section.how, f"By `{study_command(name)}`."]
    if section.claims:
        heads = ("claim", "where it comes from", "here", "holds")
        rows = [(each.says, each.source, each.here, each.holds) for each in section.claims]
        parts.append(_table(heads, rows).rstrip("\n"))
    parts += [f"![{figure.alt}]({IMAGES}/{figure.name}.svg)" for figure in section.figures]
    parts += [_titled(table) for table in section.tables]
    checks = [each for each in section.checks if each]
    if checks:
        parts.append("**Why, and a check of that.** " + "\n\n".join(checks))
    parts += section.notes
    return "\n\n".join(part for part in parts if part) + "\n"


def _titled(table: Table) -> str:
    note = f"\n\n{table.note}" if table.note else ""
    return f"**{table.title}**\n\n{_table(table.heads, table.rows)}".rstrip("\n") + note


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _models(study: Study) -> str:
    rows = [_model_row(study, model) for model in study.plan.models.values()]
    heads = ("model", "family", "corpus", "seed", "minutes", "made by")
    note = (
        "Minutes of the last training named in the row, by the clock, while others used the "
        "machine: of flexmdm without its start. A dash: not recorded.\n"
    )
    return f"## Models\n\n{_table(heads, rows)}\n{note}"


def _model_row(study: Study, model: StudyModel) -> tuple[str, ...]:
    dial = ("the dial, " if model.dialled else "") + model.dial
    dial += ", right-aligned canvas" if model.align == "right" else ""
    if model.shipped is not None:
        state = f"ships with the package as `{model.shipped}`"
    elif study.trained(model):
        state = "; ".join(f"`{' '.join(each.words(TRAINED_IN))}`" for each in model.trainings)
    else:
        state = "not trained yet"
    seconds = study.seconds(model)
    minutes = NOTHING if seconds is None else f"{seconds / 60:.0f}"
    return model.name, model.family, dial, str(model.seed), minutes, state


def _runs(study: Study) -> str:
    """Which runs are there, with the command in each card."""
    names = list(study.plan.runs)
    there = [(name, run) for name in names if (run := study.run(name)) is not None]
    rows = [(f"`{name}`", str(len(run)), f"`{_said(run.card.command)}`") for name, run in there]
    absent = [f"`{name}`" for name in names if study.run(name) is None]
    text = (
        f"## Runs\n\n{len(there)} of {len(names)} runs of the plan are there. The cards, with "
        f"every setting and digest, are in `{(study.folder / 'runs').as_posix()}`.\n\n"
        "<details><summary>All runs</summary>\n\n"
        + _table(("run", "samples", "command"), rows)
        + "\n</details>\n"
    )
    if absent:
        text += f"\nNot run yet: {', '.join(absent)}.\n"
    return text


def _said(typed: str) -> str:
    """A card's command without where its traces went, and the study by its name of today."""
    line = typed.partition(" --out ")[0]
    return study_command(line.removeprefix(OLD_NAME)) if line.startswith(OLD_NAME) else line
