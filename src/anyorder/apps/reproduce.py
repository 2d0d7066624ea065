"""`anyorder reproduce`: sample a run again from its card, and compare trace by trace.

The card has the resolved configuration, so only the model and the task's data are needed; digests
show whether they are the same. Two samples are identical if tokens and steps are equal and
log-probabilities agree to 1e-4, because another batch size or processor changes the last digits of
a float. If the run was graded by its own task, the new samples are graded in the same way and the
verdicts are compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import Changes, GradeJob, SampleJob
from anyorder.apps.sample import sample_to_run
from anyorder.bench.grade import Grading, SampleKey, VerdictTable, gradings_of
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.run import CARD_FILE, VERDICTS_FILE
from anyorder.vocab import TEMPLATE_FILE

LOG_PROB_TOLERANCE = 1e-4
SAME_COLUMNS = (
    "prompt_ids",
    "token_ids",
    "text",
    "insert_step",
    "reveal_step",
    "steps",
    "forwards",
)
SHOWN = 5


@dataclass(frozen=True)
class Reproduction:
    """How the new run compares with the stored one."""

    run: str
    again: str | None
    """The folder of the new run, if it was kept."""
    samples: int
    identical: int
    differences: list[str]
    """The first samples that differ, and how."""
    notes: list[str]
    """Digests and versions that differ."""
    seconds: tuple[float, float]
    """Sampling time then and now."""
    verdicts: int = 0
    """Stored verdicts of the run's own task, over all extractions."""
    same_verdicts: int = 0
    """Stored verdicts that the new samples also got."""

    @property
    def reproduced(self) -> bool:
        return self.identical == self.samples and self.same_verdicts == self.verdicts


def reproduce(card: Path, changes: Changes, *, out: Path | None, command: str) -> Reproduction:
    """Sample the card's run again and compare; `out` keeps the new run."""
    stored = Run.open(card.parent if card.name == CARD_FILE else card)
    if not stored.complete:
        raise ValueError(f"{stored.folder} is unfinished: repeat the command that made it first")
    if out is not None and out.resolve() == stored.folder.resolve():
        raise ValueError(f"--out {out} is the run itself: choose another folder")
    job, options = recorded_job(stored, changes)
    with _folder(out) as folder, _chat_file(stored) as file:
        chat = job.chat if file is None else str(file)
        again = sample_to_run(replace(job, out=folder, chat=chat), options, command=command)
        result = compare(stored, again, kept=out is not None)
        return _with_verdicts(result, stored, again, job.data)


def recorded_job(run: Run, changes: Changes) -> tuple[SampleJob, dict[str, Any]]:
    """The sampling job and the decoding options that a card records."""
    config = run.card.config
    if "options" not in config:
        raise ValueError(
            f"{run.folder} was not sampled here ({run.card.command}): only runs of "
            "`anyorder sample` can be reproduced"
        )
    known = {field.name for field in fields(SampleJob)}
    recorded = {name: value for name, value in config.items() if name in known}
    # The card has the resolved length here; giving it would cap answers, which the run did not.
    if config["only_length_told"]:
        recorded["max_new_tokens"] = None
    if recorded["fill"] is not None:
        recorded["fill"] = Path(recorded["fill"])
    chat = config.get("chat") or {"mode": "off", "system": None, "prefill": None}
    recorded |= {"chat": chat["mode"], "system": chat["system"], "prefill": chat["prefill"]}
    recorded |= {"device": run.card.device, "dtype": run.card.dtype, "shard": None}
    recorded |= {name: value for name, value in vars(changes).items() if value is not None}
    given = {name: value for name, value in config["options"].items() if value is not None}
    return SampleJob(**recorded), given


def compare(stored: Run, again: Run, *, kept: bool) -> Reproduction:
    """Compare trace by trace, in the order of the stored run."""
    new = {(trace.task_id, trace.sample): trace for trace in again.traces()}
    differences, identical, samples = [], 0, 0
    times = [0.0, 0.0]
    for trace in stored.traces():
        samples += 1
        other = new.get((trace.task_id, trace.sample))
        wrong = ["it is missing"] if other is None else _unlike(trace, other)
        if wrong:
            differences.append(f"{trace.task_id} sample {trace.sample}: {', '.join(wrong)}")
        identical += not wrong
        times[0] += trace.seconds or 0.0
        times[1] += (other.seconds or 0.0) if other else 0.0
    return Reproduction(
        run=str(stored.folder),
        again=str(again.folder) if kept else None,
        samples=samples,
        identical=identical,
        differences=differences[:SHOWN],
        notes=_notes(stored.card, again.card),
        seconds=(times[0], times[1]),
    )


def _with_verdicts(result: Reproduction, stored: Run, again: Run, data: str | None) -> Reproduction:
    """Grade the new samples, and add the comparison of verdicts to the result."""
    if not (stored.folder / VERDICTS_FILE).is_file():
        return result
    task = stored.card.config["task"]
    recorded = [Grading(**settings) for settings in gradings_of(stored.folder).values()]
    different, compared = [], 0
    for grading in (each for each in recorded if each.task == task):
        then = _verdicts(stored, grading)
        job = GradeJob(
            data=data,
            extraction=grading.extraction,
            only=",".join(dict.fromkeys(task_id for task_id, _ in then)),
            timeout=grading.limits["cpu_seconds"],
            memory=grading.limits["memory_bytes"] >> 20,
            allow_weak_isolation=True,  # this machine may be weaker; the table has the level
        )
        grade_run(again.folder, job)
        now = _verdicts(again, grading)
        compared += len(then)
        different += [
            f"{task_id} sample {sample}: {verdict} before, {now.get((task_id, sample))} now"
            for (task_id, sample), verdict in then.items()
            if now.get((task_id, sample)) != verdict
        ]
    return replace(
        result,
        verdicts=compared,
        same_verdicts=compared - len(different),
        differences=(result.differences + different)[:SHOWN],
    )


def _verdicts(run: Run, grading: Grading) -> dict[SampleKey, str]:
    rows = VerdictTable(run.folder, grading).rows()
    return {(row["task_id"], row["sample"]): row["verdict"] for row in rows}


def _unlike(left: Trace, right: Trace) -> list[str]:
    """The columns in which two samples differ."""
    wrong = [
        name
        for name in SAME_COLUMNS
        if not np.array_equal(getattr(left, name), getattr(right, name))
    ]
    for name in ("events", "ghosts"):
        wrong += [] if getattr(left, name) == getattr(right, name) else [name]
    if not wrong and left.log_prob is not None and right.log_prob is not None:
        close = np.isclose(
            left.log_prob, right.log_prob, rtol=0, atol=LOG_PROB_TOLERANCE, equal_nan=True
        )
        wrong += [] if bool(close.all()) else ["log_prob"]
    return wrong


def _notes(then: RunCard, now: RunCard) -> list[str]:
    notes = then.differences(now)
    for name in sorted({*then.versions, *now.versions}):
        old, new = then.versions.get(name, "absent"), now.versions.get(name, "absent")
        if old != new:
            notes.append(f"{name} ({old} stored, {new} now)")
    if then.python != now.python:
        notes.append(f"python ({then.python} stored, {now.python} now)")
    return notes


@contextmanager
def _chat_file(run: Run) -> Iterator[Path | None]:
    """The job's chat template as a file, if the card has its text."""
    template = (run.card.config.get("chat") or {}).get("template")
    if template is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="anyorder-") as folder:
        path = Path(folder) / TEMPLATE_FILE
        path.write_bytes(template.encode())
        yield path


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the new run: `out`, or a temporary one."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="anyorder-") as folder:
        yield Path(folder) / "run"
