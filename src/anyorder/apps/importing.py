"""`anyorder import`: another library's traces (JSONL) -> a run folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from anyorder.files import alone_in, sha256_of
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.interchange import read_jsonl

PART = 512


def import_traces(path: Path, out: Path, *, command: str) -> tuple[Run, int]:
    """The run and how many samples it has. Nothing is written unless the whole file is right.

    Samples with tokens at step 0 may be right or a mistake; a note on standard error counts them.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file: name a .jsonl or .jsonl.gz file of traces")
    count, given = _count(read_jsonl(path))
    card = RunCard(command, {"import": path.name}, data_digest=sha256_of(path))
    with alone_in(out):
        run = Run.create(out, card)
        if not run.complete:
            traces = read_jsonl(path)
            for part in range(-(-count // PART)):
                run.append(part, list(islice(traces, PART)))
        run.finish()
    if given:
        have = "1 sample has" if given == 1 else f"{given} samples have"
        print(
            f"{have} tokens at step 0, which means given, not generated: "
            "add 1 to all steps if yours count from 0",
            file=sys.stderr,
        )
    return run, count


def _count(traces: Iterable[Trace]) -> tuple[int, int]:
    """How many traces there are, and how many of them have a token revealed at step 0."""
    count = given = 0
    for trace in traces:
        count += 1
        given += trace.reveal_step is not None and bool((trace.reveal_step == 0).any())
    return count, given
