"""`anyorder race`: models race on one task under equal conditions; accuracy against time.

    plan (plan.py)  ->  rounds (here)  ->  grading (apps/grade)
                    ->  likelihood and infilling (beside.py)
                    ->  race.json, race.md, race.svg (results.py)

A round is one problem. Every lane decodes its samples of it, one at a time (batch 1), in one
process with a fixed number of threads. The order of the lanes is shuffled for each round, so that
noise on the machine hits all lanes alike. Timing comes first, before any worker process starts.

Wall seconds are the trace's: decoding alone (measure/passk.py). CPU seconds also include making the
trace, so on an idle machine they are a little higher.

Each stage stores its result in the race's folder. If you repeat the command after a kill, it
continues with the first round whose `rounds/00007.json` is missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import GradeJob, RaceJob, progress_bar
from anyorder.apps.race.beside import (
    DRAWS,
    NO_TEXT,
    Infilled,
    Nats,
    can_grade,
    infilled,
    nats_of,
    usable_texts,
)
from anyorder.apps.race.plan import (
    RACE_FILE,
    ROUNDS,
    Entrant,
    Lane,
    RacePlan,
    claim,
    fillers,
    planned,
    release,
)
from anyorder.apps.race.results import (
    Conditions,
    MeasuredLane,
    Results,
    markdown,
    save_figure,
    tables_of,
    timed,
    with_fronts,
)
from anyorder.apps.sample import SamplingTask
from anyorder.bench.checks import PASSED
from anyorder.data.keyed import Permutation
from anyorder.files import alone_in, replacing, write_json
from anyorder.report.tables import Table, interval_of
from anyorder.trace import Run, Trace


@dataclass(frozen=True)
class Round:
    """The record of one round, without its traces."""

    problem: str
    order: tuple[str, ...]
    """The keys of the lanes as they ran."""
    cpu_seconds: dict[str, list[float]]
    """By lane, one for each sample."""
    load: float | None
    """The machine's load average at the end of the round; None: this system has none."""


def round_order(lanes: int, seed: int, number: int) -> list[int]:
    """The order of the lanes in a round: a shuffle by seed and round, the same on resumption."""
    shuffled = Permutation(lanes, "race", seed, number)
    return [shuffled(place) for place in range(lanes)]


def run_rounds(
    lanes: Sequence[Lane],
    subject: SamplingTask,
    out: Path,
    advance: Callable[[int], None],
) -> list[Round]:
    """Run the rounds that are missing, and complete the lanes' runs."""
    runs = {lane.key: lane.run() for lane in lanes}
    problems = subject.problems
    (out / ROUNDS).mkdir(exist_ok=True)
    seed = lanes[0].card.seeds[0]
    done = {number: read for number in range(len(problems)) if (read := _read(out, number))}
    if len(done) < len(problems):
        # One sample of each lane that is not counted: kernels, memory and caches are set up once
        # per process, and the first lane would otherwise pay for all.
        for lane in lanes:
            lane.decode(0, 0)
    for number in range(len(problems)):
        if number not in done:
            order = [lanes[place] for place in round_order(len(lanes), seed, number)]
            # The round's file comes after its traces: it marks the round as complete.
            done[number] = _round(order, number, subject, runs)
            write_json(_path(out, number), vars(done[number]))
        advance(sum(lane.samples for lane in lanes))
    for run in runs.values():
        run.finish()
    return [done[number] for number in range(len(problems))]


def _round(
    order: Sequence[Lane], number: int, subject: SamplingTask, runs: dict[str, Run]
) -> Round:
    traces: dict[str, list[Trace]] = {}
    cpu: dict[str, list[float]] = {}
    for lane in order:
        traces[lane.key], cpu[lane.key] = [], []
        for sample in range(lane.samples):
            before = time.process_time()
            traces[lane.key].append(lane.decode(number, sample))
            cpu[lane.key].append(time.process_time() - before)
    for key, found in traces.items():  # extraction and writing stay outside the timed part
        runs[key].append(number, list(map(subject.with_program, found)))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Round(subject.problems[number].task_id, tuple(lane.key for lane in order), cpu, load)


def _path(out: Path, number: int) -> Path:
    return out / ROUNDS / f"{number:05d}.json"


def _read(out: Path, number: int) -> Round | None:
    path = _path(out, number)
    if not path.is_file():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        return Round(**record | {"order": tuple(record["order"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): restore it, or race in another --out"
        ) from None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit the network to `count` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


PAGE_FILE = "race.md"


@dataclass(frozen=True)
class FinishedRace:
    """A finished race."""

    results: Results
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    """race.json, race.md and the figure's files."""

    def to_record(self) -> dict[str, Any]:
        return self.results.to_record() | {"files": [str(path) for path in self.files]}


def race(job: RaceJob, *, progress: bool = True) -> FinishedRace:
    """Run a race, or the rest of it, and write its results."""
    plan = planned(job)
    can_grade(plan.subject.problems[0], plan.task, job)
    with alone_in(job.out), threads(job.threads):
        claim(plan)
        try:
            total = len(plan.subject.problems) * sum(lane.samples for lane in plan.lanes)
            with progress_bar("racing", total, shown=progress) as advance:
                rounds = run_rounds(plan.lanes, plan.subject, job.out, advance)
        except BaseException:
            release(plan)  # so that a corrected command can use the same folder
            raise
        # Only after all timing: grading starts processes, which would slow the lanes.
        measured = _graded(plan, rounds, progress)
        nats, texts = _likelihood(plan, progress)
        infill = _infill(plan, progress)
        results = _results(plan, rounds, measured, nats, texts, infill)
        return _write(plan, results)


def _graded(plan: RacePlan, rounds: list[Round], progress: bool) -> dict[str, MeasuredLane]:
    job = GradeJob(workers=plan.job.workers, allow_weak_isolation=plan.job.allow_weak_isolation)
    found = {}
    with progress_bar("grading", len(plan.lanes), shown=progress) as advance:
        for lane in plan.lanes:
            graded = grade_run(lane.folder, job, progress=False)
            passed: dict[str, list[bool]] = {each.task_id: [] for each in plan.subject.problems}
            for row in sorted(graded.reports[0].rows, key=lambda row: row.sample):
                passed[row.task_id].append(row.verdict == PASSED)
            found[lane.key] = _measured(lane, rounds, passed)
            advance(1)
    return found


def _measured(lane: Lane, rounds: list[Round], passed: dict[str, list[bool]]) -> MeasuredLane:
    table = Run.open(lane.folder).table(["task_id", "seconds", "forwards"])
    tasks, seconds, forwards = (column.to_pylist() for column in table.columns)
    places = [[at for at, task in enumerate(tasks) if task == each.problem] for each in rounds]
    return MeasuredLane(
        seconds=[[seconds[at] for at in rows] for rows in places],
        cpu_seconds=[each.cpu_seconds[lane.key] for each in rounds],
        forwards=[[forwards[at] for at in rows] for rows in places],
        passed=passed,
    )


def _likelihood(plan: RacePlan, progress: bool) -> tuple[dict[str, Nats], int]:
    """The likelihood of every entrant, stored in its folder; the number of texts."""
    if not plan.job.texts:
        return {}, 0
    models = [each.model for each in plan.entrants]
    texts = usable_texts(models, plan.task.problems(plan.job.texts))
    if not texts:
        return {each.name: Nats(NO_TEXT, False, None) for each in plan.entrants}, 0
    found = {}
    with progress_bar("likelihood", len(models) * len(texts), shown=progress) as advance:
        for each in plan.entrants:
            compute = partial(nats_of, each.model, texts, advance)
            about = {"texts": [text.task_id for text in texts], "draws": DRAWS}
            record = _stored(plan, each, "likelihood.json", about, compute)
            mean = record.pop("nats_per_answer")
            found[each.name] = Nats(**record, interval=None if mean is None else interval_of(mean))
    return found, len(texts)


def _infill(plan: RacePlan, progress: bool) -> dict[str, Infilled]:
    """The infilling of every entrant that supports it, stored in its folder."""
    gaps, options = plan.gaps, fillers(plan.job, plan.entrants)
    able = [each for each in plan.entrants if each.model in options]
    found = {}
    with progress_bar("infilling", len(able), shown=progress) as advance:
        for each in able if gaps else ():
            compute = partial(infilled, each.model, plan.task, gaps, options[each.model], plan.job)
            about = {"gaps": [gap.problem.task_id for gap in gaps], "seed": plan.job.seed}
            record = _stored(plan, each, "infill.json", about, compute)
            programs = tuple(tuple(row.values()) for row in record["programs"])
            found[each.name] = Infilled(record["told"], interval_of(record["rate"]), programs)
            advance(1)
    return found


def _stored(
    plan: RacePlan,
    entrant: Entrant,
    name: str,
    about: dict[str, Any],
    compute: Callable[[], Nats | Infilled],
) -> dict[str, Any]:
    """The stored result if it has the same inputs and weights; else compute and store it."""
    path = plan.job.out / entrant.name / name
    about = {**about, "digest": entrant.model.digest}
    if path.is_file():
        try:
            stored = json.loads(path.read_bytes())
        except ValueError:
            stored = {}  # damaged: computed again, since nothing timed is lost
        if stored.get("about") == about:
            return dict(stored["found"])
    found = compute().to_record()
    write_json(path, {"about": about, "found": found})
    return found


def _results(
    plan: RacePlan,
    rounds: list[Round],
    measured: dict[str, MeasuredLane],
    nats: dict[str, Nats],
    texts: int,
    infill: dict[str, Infilled],
) -> Results:
    loads = [each.load for each in rounds if each.load is not None]
    # Reversed, so that the first lane of each way of the first entrant wins.
    reference = {
        lane.way: lane.key for lane in reversed(plan.lanes) if lane.entrant is plan.entrants[0]
    }
    lanes = [timed(lane, measured[lane.key], measured[reference[lane.way]]) for lane in plan.lanes]
    same = ("samples", "temperature", "seed", "threads", "device")
    conditions = Conditions(
        task=plan.task.name,
        problems=len(plan.subject.problems),
        **{name: getattr(plan.job, name) for name in same},
        processors=os.cpu_count() or 1,
        load=sum(loads) / len(loads) if loads else None,
        reference=plan.entrants[0].name,
        reference_setting=plan.lanes[0].point.label,
    )
    return Results(
        conditions=conditions,
        fairness=plan.fairness,
        lanes=with_fronts(lanes),
        nats=nats,
        texts=texts,
        infill=infill,
        gaps=len(plan.gaps),
        gaps_left_out=plan.gaps_left_out,
    )


def _write(plan: RacePlan, results: Results) -> FinishedRace:
    tables = tuple(tables_of(results))
    page = plan.job.out / PAGE_FILE
    with replacing(page) as file:
        file.write(markdown(tables, f"A race on {plan.task.name}").encode())
    figures = save_figure(results, plan.job.out)
    files = (plan.job.out / RACE_FILE, page, *figures)
    # Last, so that "complete" means that the page and the figures are written.
    record = {"status": "complete", "settings": plan.settings, **results.to_record()}
    write_json(files[0], record)
    return FinishedRace(results, tables, files)
