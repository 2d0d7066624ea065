"""Writes docs/results.md and its figures from the stored records alone; the same bytes every time.

The files in questions/ make the sections. This file adds the parts that belong to all of them: the
short answers, the verdicts in one table, the statistics, the models and the runs.
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
"""Where models are trained; a finished model is copied into the folder of the study."""
OLD_NAME = "anyorder study "
"""The name of the command when the first records were made; a record is never rewritten."""


@dataclass(frozen=True)
class Written:
    """The page, its figures, and the sections behind them."""

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

Written by `{_command(study)}` from `{study.folder.as_posix()}`. [study.md](study.md) says how
to repeat the study, train the models and ask one question alone. The paper is
"{source()}".

All networks here have 0.42 million parameters (the mdm of the dial has 0.33, the planner 0.49).
Each was trained on one processor core, on the built-in corpus [stories](stories.md); [the table of
models](#models) has the times of those that the study trained. A rule decides from an interval
whether a trend of the paper holds (below). If it does not hold, its section examines the reason
that we suspect.
{_unfinished(study)}"""


def _command(study: Study) -> str:
    """The command that writes this page again, with the flags that differ from the defaults."""
    usual = StudyJob()
    words = [
        f"--{name} {value}"
        for name, value in vars(study.plan.sizes).items()
        if value != getattr(usual.sizes, name)
    ]
    words += [f"--folder {study.folder.as_posix()}"] if study.folder != usual.folder else []
    return study_command("--only page", *words)


def _unfinished(study: Study) -> str:
    """A warning at the top if runs are missing: claims then use only the seeds that are there."""
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
        f"\n**Not finished: {' and '.join(lacking)} are missing.** Verdicts use the runs that are "
        "there, for some questions one seed of three, and may change.\n"
    )


_STATISTICS = f"""\
## How to read the numbers

- Every cell is a mean over samples, with its 95 % interval in brackets. Intervals draw problems:
  the samples of a problem stay together, and differences are paired by problem. If there are
  several seeds, the row "all seeds" draws seeds and problems independently
  (`measure/intervals.py`), and each seed has its own row, whose interval draws problems. Three
  seeds say little about other seeds: read their rows.
- Two kinds of rates have Wilson's interval for the number of problems: a rate of one seed with one
  sample per problem, and a rate that is 0 or 1 on every problem. If two rates differ on no problem,
  their difference has Wilson's bound for no success in so many problems, on both sides.
- A claim that one thing is larger than another *holds* (yes) if the interval of the paired
  difference is above 0. It does *not* hold (no) if the interval is below 0, or if a measure other
  than a rate differs on no problem. Otherwise it is *undecided*. A claim that two things are alike
  holds if the interval lies within the stated margin, and does not hold if it lies outside. A claim
  with several parts holds if all parts hold, and does not hold if one part does not.
- Many claims are tested at 95 %: one in twenty untrue claims would look decided. A yes is about the
  sign; read the size beside it.
- Order scores stand beside two controls on the same programs: the steps of the sample sorted from
  left to right, and permuted at random. `ties` is the share of choices that a tie rule made.
- We chose the margins of some claims after we had seen the first {SEEN} problems of the corpus. So
  these problems are left out everywhere except in the race.
- Changed after we had seen seed 0 and part of seed 1: the second and third claim of S2 use the
  tenths of decoding that both families have (the second had been a no; its section has both forms,
  and their verdicts differ). A claim on the gap of S2 in k-LOC, a yes, was replaced by the last
  one. Rates that differ on no problem are undecided, not a no (three greedy claims of S4). The
  planner of S1 is judged by all metrics. The last two claims of S3 have a margin. The second claim
  of S5 is tested in both directions, the second claim of S6 against all models, and the remedies of
  the dial in two forms. S4 at temperature 1 was added after greedy S4, and after a race on the
  first 30 problems.
- Changed after we had seen everything: the last claim of S2 uses the same tenths. "Left to right"
  requires a tau beyond {CLEARLY:g}, not beyond 0. (Neither change changed a verdict.) The dial has
  the control of lines by wording. It also has flexlatent, to check the reason that we give for
  latentmdm; its claims were written before its models were trained. The table "In short" was made
  then: it takes the first claim of every section, and the order of the claims is older.
- All policies and sweep points that were run are shown, and every seed has its own row. Tables over
  tenths of decoding, and rows of controls, are over all seeds. A missing run is marked as missing.
"""


def _verdicts(sections: dict[str, Section]) -> str:
    rows = [
        (f"[{name}](#{_anchor(section)})", claim.says, claim.here, claim.holds)
        for name, section in sections.items()
        for claim in section.claims
    ]
    return "## All claims\n\n" + _table(("question", "claim", "here", "holds"), rows)


def _brief(sections: dict[str, Section]) -> str:
    """The first claim of every question; the README repeats this table exactly."""
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
        f"{len(theirs)} claims are from the paper or follow from it: {_tally(theirs)}; "
        f"{len(own)} are our own: {_tally(own)}.\n"
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
        parts.append("**Why? We check the reasons.** " + "\n\n".join(checks))
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
        "Minutes of wall-clock time of the last training in the row, while other processes used "
        "the machine; for flexmdm without its start. A dash: not recorded.\n"
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
    """The runs that are there, with the command from each card."""
    names = list(study.plan.runs)
    there = [(name, run) for name in names if (run := study.run(name)) is not None]
    rows = [(f"`{name}`", str(len(run)), f"`{_said(run.card.command)}`") for name, run in there]
    absent = [f"`{name}`" for name in names if study.run(name) is None]
    text = (
        f"## Runs\n\n{len(there)} of {len(names)} runs of the plan are done. Their cards, with "
        f"every setting and digest, are in `{(study.folder / 'runs').as_posix()}`.\n\n"
        "<details><summary>All runs</summary>\n\n"
        + _table(("run", "samples", "command"), rows)
        + "\n</details>\n"
    )
    if absent:
        text += f"\nNot run yet: {', '.join(absent)}.\n"
    return text


def _said(typed: str) -> str:
    """The command of a card without the folder of its traces, under today's name of the study."""
    line = typed.partition(" --out ")[0]
    return study_command(line.removeprefix(OLD_NAME)) if line.startswith(OLD_NAME) else line
