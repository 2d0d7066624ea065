"""Doing the demo's jobs in a few processes, with one bar for all of them.

Tiny networks gain nothing from a second thread, two jobs side by side do. Jobs resume by
themselves, so an interrupted demo goes on where it stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.pool import Pool

from anyorder.apps.demo_plan import Measuring, Sampling
from anyorder.apps.progress_bar import progress_bar

Job = Sampling | Measuring

PROCESSES = 2
UNITS = 10
"""Of the bar, for a job of weight 1."""


def do_all(
    jobs: Sequence[Job], doing: str, *, shown: bool = True, processes: int = PROCESSES
) -> None:
    """Do the jobs, in any order; the first error ends the work and is raised."""
    processes = max(1, min(processes, os.cpu_count() or 1, len(jobs)))
    total = sum(_units(job) for job in jobs)
    with (
        working_pool(processes) as pool,
        progress_bar(doing, total, shown=shown) as advance,
    ):
        for units in pool.imap_unordered(_do, jobs):
            advance(units)


def working_pool(processes: int) -> Pool:
    """Processes of one thread each; leaving its block ends them, also when the user interrupts.

    Whatever they were writing is whole: files are renamed when they are finished.
    """
    return get_context("spawn").Pool(processes, initializer=_begin)


def _begin() -> None:
    """In each process: one thread, and the parent decides what an interrupt means."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _do(job: Job) -> int:
    job.do()
    return _units(job)


def _units(job: Job) -> int:
    return max(1, round(job.weight * UNITS))
