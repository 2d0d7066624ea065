"""`anyorder race`: models against one another on one task, accuracy against time, fairly.

    plan (race_plan.py)  ->  rounds (race_rounds.py)  ->  grading (grading.py)
                         ->  likelihood (race_likelihood.py)  ->  infilling (race_infill.py)
                         ->  race.json, race.md, race.svg (race_results, race_tables, race_figure)

Every stage keeps what it has found in the race's folder, so a command that was killed goes on where
it stopped; timing comes first and alone, before any other process is started. A folder holds one
race: the same models, weights and settings.

The race itself: problem by problem, every lane in turn, so that noise hits all alike.

A round is one problem. In it every lane decodes its samples, one at a time (batch 1), in an order
that is shuffled anew for each round; all in one process, with the same number of threads. Before
the first round of every start each lane decodes one sample that counts for nothing: whatever is
prepared once (kernels, memory, caches) is prepared then.

A sample's wall seconds are its trace's: decoding alone (bench/timing.py). Its CPU seconds are those
of the process from before the call until its trace is there, the making of the trace included, so
that they are a little above wall seconds where nobody else runs. A round's samples are written when
it is over, then `rounds/00007.json`, which says that it is: a race that was killed goes on with the
first round that is missing.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    fill_all,
    judged,
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
    write_json,
)
from anyorder.apps.race.results import (
    Conditions,
    MeasuredLane,
    Results,
    markdown,
    tables_of,
    timed,
    with_fronts,
)
from anyorder.apps.sample import SamplingTask
from anyorder.bench.checks import PASSED
from anyorder.data.keyed import Permutation
from anyorder.files import alone_in, replacing
from anyorder.measure.intervals import Interval
from anyorder.report.tables import Table
from anyorder.trace import Run, Trace


@dataclass(frozen=True)
class Round:
    """What is known of a round besides its traces."""

    problem: str
    order: tuple[str, ...]
    """The keys of the lanes as they ran."""
    cpu_seconds: dict[str, list[float]]
    """By lane, one for each sample."""
    load: float | None
    """The machine's load average when it was over; None: this system does not tell."""


def round_order(lanes: int, seed: int, number: int) -> list[int]:
    """In which order the lanes run in a round: a shuffle of its own."""
    shuffled = Permutation(lanes, "race", seed, number)
    return [shuffled(place) for place in range(lanes)]


def run_rounds(
    lanes: Sequence[Lane],
    subject: SamplingTask,
    out: Path,
    advance: Callable[[int], None],
) -> list[Round]:
    """Every round, or those that are missing; the lanes' runs are then complete."""
    runs = {lane.key: lane.run() for lane in lanes}
    problems = subject.problems
    (out / ROUNDS).mkdir(exist_ok=True)
    seed = lanes[0].card.seeds[0]
    done = {number: read for number in range(len(problems)) if (read := _read(out, number))}
    if len(done) < len(problems):
        for lane in lanes:
            lane.decode(0, 0)
    for number in range(len(problems)):
        if number not in done:
            order = [lanes[place] for place in round_order(len(lanes), seed, number)]
            done[number] = _round(order, number, subject, runs)
            _write_round(out, number, done[number])
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
    for key, found in traces.items():  # programs are found, files written, when nobody is timed
        runs[key].append(number, list(map(subject.with_program, found)))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Round(subject.problems[number].task_id, tuple(lane.key for lane in order), cpu, load)


def _path(out: Path, number: int) -> Path:
    return out / ROUNDS / f"{number:05d}.json"


def _write_round(out: Path, number: int, done: Round) -> None:
    with replacing(_path(out, number)) as file:
        file.write(json.dumps(vars(done)).encode() + b"\n")


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
    """So many threads for the network, for as long as it lasts."""
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
        """As JSON."""
        return self.results.to_record() | {"files": [str(path) for path in self.files]}


def race(job: RaceJob, *, progress: bool = True) -> FinishedRace:
    """Run a race, or what is left of it, and write what it found."""
    plan = planned(job)
    can_grade(plan.subject.problems[0], plan.task, job)
    with alone_in(job.out), threads(job.threads):
        claim(plan)
        try:
            rounds = _timed(plan, progress)
        except BaseException:
            release(plan)  # the corrected command shall find its folder free
            raise
        measured = _graded(plan, rounds, progress)
        nats, texts = _likelihood(plan, progress)
        infill = _infill(plan, progress)
        results = _results(plan, rounds, measured, nats, texts, infill)
        return _write(plan, results)


def _timed(plan: RacePlan, progress: bool) -> list[Round]:
    total = len(plan.subject.problems) * sum(lane.samples for lane in plan.lanes)
    with progress_bar("racing", total, shown=progress) as advance:
        return run_rounds(plan.lanes, plan.subject, plan.job.out, advance)


def _graded(plan: RacePlan, rounds: list[Round], progress: bool) -> dict[str, MeasuredLane]:
    """The numbers of every lane."""
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
    rows = {task_id: ([], []) for task_id in passed}  # type: dict[str, tuple[list[float], list[float]]]
    for task_id, seconds, forwards in zip(*(c.to_pylist() for c in table.columns), strict=True):
        rows[task_id][0].append(seconds)
        rows[task_id][1].append(forwards)
    return MeasuredLane(
        seconds=[rows[each.problem][0] for each in rounds],
        cpu_seconds=[each.cpu_seconds[lane.key] for each in rounds],
        forwards=[rows[each.problem][1] for each in rounds],
        passed=passed,
    )


def _likelihood(plan: RacePlan, progress: bool) -> tuple[dict[str, Nats], int]:
    """Of every entrant; kept in its folder."""
    if not plan.job.texts:
        return {}, 0
    models = [each.model for each in plan.entrants]
    texts = usable_texts(models, plan.task.problems(plan.job.texts))
    if not texts:
        return {each.name: Nats(NO_TEXT, False, None) for each in plan.entrants}, 0
    found = {}
    with progress_bar("likelihood", len(models) * len(texts), shown=progress) as advance:
        for each in plan.entrants:

            def compute(model: Any = each.model) -> dict[str, Any]:
                return nats_of(model, texts, advance).to_record()

            about = {"texts": [text.task_id for text in texts], "draws": DRAWS}
            record = _kept(plan, each, "likelihood.json", about, compute)
            mean = record.pop("nats_per_answer")
            found[each.name] = Nats(**record, interval=None if mean is None else _interval(mean))
    return found, len(texts)


def _infill(plan: RacePlan, progress: bool) -> dict[str, Infilled]:
    """Of every entrant that can; kept in its folder."""
    gaps, options = plan.gaps, fillers(plan.job, plan.entrants)
    able = [each for each in plan.entrants if each.model in options]
    found = {}
    with progress_bar("infilling", len(able), shown=progress) as advance:
        for each in able if gaps else ():

            def compute(model: Any = each.model) -> dict[str, Any]:
                programs = fill_all(model, gaps, options[model], plan.job.seed)
                return judged(model, plan.task, gaps, programs, plan.job).to_record()

            about = {"gaps": [gap.problem.task_id for gap in gaps], "seed": plan.job.seed}
            record = _kept(plan, each, "infill.json", about, compute)
            programs = tuple(tuple(row.values()) for row in record["programs"])
            found[each.name] = Infilled(record["told"], _interval(record["rate"]), programs)
            advance(1)
    return found


def _kept(
    plan: RacePlan,
    entrant: Entrant,
    name: str,
    about: dict[str, Any],
    compute: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """What a file of the entrant's folder holds, if it is about the same; else it is made."""
    path = plan.job.out / entrant.name / name
    about = {**about, "digest": entrant.model.digest}
    if path.is_file():
        try:
            stored = json.loads(path.read_bytes())
        except ValueError:
            stored = {}
        if stored.get("about") == about:
            return dict(stored["found"])
    found = compute()
    write_json(path, {"about": about, "found": found})
    return dict(found)


def _interval(record: dict[str, Any]) -> Interval:
    """As it was stored; null is NaN."""
    told: dict[str, Any] = {
        key: math.nan if value is None else value for key, value in record.items()
    }
    return Interval(**told)


def _results(
    plan: RacePlan,
    rounds: list[Round],
    measured: dict[str, MeasuredLane],
    nats: dict[str, Nats],
    texts: int,
    infill: dict[str, Infilled],
) -> Results:
    loads = [each.load for each in rounds if each.load is not None]
    reference = {
        lane.way: lane.key for lane in reversed(plan.lanes) if lane.entrant is plan.entrants[0]
    }
    lanes = [timed(lane, measured[lane.key], measured[reference[lane.way]]) for lane in plan.lanes]
    job = plan.job
    conditions = Conditions(
        task=plan.task.name,
        problems=len(plan.subject.problems),
        samples=job.samples,
        temperature=job.temperature,
        seed=job.seed,
        threads=job.threads,
        device=job.device,
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
    from anyorder.apps.race.results import save_figure

    tables = tuple(tables_of(results))
    page = plan.job.out / PAGE_FILE
    with replacing(page) as file:
        file.write(markdown(tables, f"A race on {plan.task.name}").encode())
    figures = save_figure(results, plan.job.out)
    files = (plan.job.out / RACE_FILE, page, *figures)
    record = {"status": "complete", "settings": plan.settings, **results.to_record()}
    write_json(files[0], record)
    return FinishedRace(results, tables, files)
