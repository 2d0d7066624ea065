"""The race itself: problem by problem, every lane in turn, so that noise hits all alike.

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
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anyorder.apps.race.plan import ROUNDS, Lane
from anyorder.apps.sample import SamplingTask
from anyorder.data.keyed import Permutation
from anyorder.files import replacing
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
