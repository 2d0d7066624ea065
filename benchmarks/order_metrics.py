"""Order metrics: time for one trace of about 300 tokens in 512 steps, and its size on disk.

Programs are functions of the standard library, cut into pieces of the size of BPE tokens; each
piece gets a random insert and reveal step, an id and a log-probability. The times are CPU time of
one thread; no round uses results of an earlier one:

    prepare     text -> program, statements, Python tokens, blocks
    metrics     prepare, and all four metrics of every node in three scopes
    controls    metrics, and left to right, right to left and 8 random orders
    arness      global and local AR-ness, adjacent moves, tau

On disk: the run's traces.parquet divided by its traces, and a file with one trace alone.

    python benchmarks/order_metrics.py            half a minute
    python benchmarks/order_metrics.py --small    seconds, to try the script
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from anyorder.measure.arness_scores import sample_arness
from anyorder.measure.order_program import SCOPES, prepare
from anyorder.measure.order_scores import SEEDS, measure_sample
from anyorder.measure.order_table import OrderSetting
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.table import write_traces
from tables import show

DOMINATES = """
Parsing and tokenising the program (`prepare`) is more than half of a trace's metrics and is
Python's own; ten control orders add half as much again, because they share it. If all but Python's
own work were free, metrics would still take that half: they are about one and a half times this
floor. Nothing here is bound by memory or arithmetic.
"""

STEPS, TOKENS, SPREAD = 512, 300, 40
MILLISECONDS, BYTES = 10.0, 8_000
PIECE = re.compile(r"\n *| ?[^\W\d_]{1,6}| ?\d{1,2}| ?[^\w\s]{1,2}|\s+|.")
CONTROLS = ("left_to_right", "right_to_left", "random")


def programs(count: int) -> list[list[str]]:
    """Functions of about 300 pieces, from the standard library in the order of its files."""
    found = []
    for path in sorted(Path(ast.__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                pieces = PIECE.findall("".join(lines[node.lineno - 1 : node.end_lineno]))
                if abs(len(pieces) - TOKENS) <= SPREAD:
                    found.append(pieces)
        if len(found) >= count:
            break
    return found[:count]


def trace_of(pieces: list[str], number: int) -> Trace:
    """A trace as flexmdm leaves it: insertions first, reveals later, in random order."""
    chance = np.random.default_rng(number)
    insert = chance.integers(1, STEPS, size=len(pieces))
    reveal = insert + chance.integers(0, STEPS - insert + 1)
    return Trace(
        task_id=f"task/{number}",
        sample=0,
        prompt="",
        text="".join(pieces),
        prompt_ids=[],
        token_ids=[zlib.crc32(piece.encode()) % 151_643 for piece in pieces],
        char_end=np.cumsum([len(piece) for piece in pieces]),
        insert_step=insert,
        reveal_step=reveal,
        log_prob=-chance.exponential(0.5, size=len(pieces)).astype(np.float32),
        steps=STEPS,
        family="flexmdm",
        policy="confidence",
        seed=number,
    )


def milliseconds(work: Callable[[Trace], object], traces: list[Trace], rounds: int) -> list[float]:
    """The quickest of several rounds per trace, so that other work on the machine does not
    count."""
    best = []
    for trace in traces:
        times = []
        for _ in range(rounds):
            began = time.process_time()
            work(trace)
            times.append(1000 * (time.process_time() - began))
        best.append(min(times))
    return best


def sizes(traces: list[Trace]) -> tuple[float, int]:
    """Bytes per trace of a run, and of a file with the largest trace alone."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", RunCard("benchmark", {}))
        run.append(0, traces)
        run.finish()
        together = (run.folder / "traces.parquet").stat().st_size / len(traces)
        alone = []
        for number, trace in enumerate(traces):
            path = Path(folder) / f"{number}.parquet"
            write_traces(path, [trace])
            alone.append(path.stat().st_size)
    return together, max(alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--small", action="store_true", help="few traces, to try the script")
    small = parser.parse_args().small
    traces = [trace_of(p, n) for n, p in enumerate(programs(4 if small else 48))]
    rounds = 2 if small else 7
    scopes = tuple(SCOPES)
    plain = OrderSetting("exact", scopes, (), SEEDS)
    full = OrderSetting("exact", scopes, CONTROLS, SEEDS)
    rows = {
        "prepare": lambda trace: prepare(trace, scopes),
        "metrics": lambda trace: measure_sample(trace, plain),
        "controls": lambda trace: measure_sample(trace, full),
        "arness": sample_arness,
    }
    counts = [len(trace.pieces) for trace in traces]
    found = {name: milliseconds(work, traces, rounds) for name, work in rows.items()}
    lines = [
        [name, f"{statistics.median(times):.2f}", f"{max(times):.2f}"]
        for name, times in found.items()
    ]
    title = f"{len(traces)} traces of {min(counts)} to {max(counts)} tokens in {STEPS} steps"
    show(title, ["CPU milliseconds", "median", "slowest"], lines)
    together, alone = sizes(traces)
    lines = [
        ["a trace of a run", f"{together:,.0f}"],
        ["a file of one trace, at most", f"{alone:,}"],
    ]
    show("on disk", ["", "bytes"], lines)
    quick, small_enough = max(found["metrics"]) < MILLISECONDS, together < BYTES
    print(
        f"\nMetrics of every trace under {MILLISECONDS:g} ms: {'yes' if quick else 'no'}; ", end=""
    )
    print(f"a trace of a run under {BYTES:,} bytes: {'yes' if small_enough else 'no'}.")


if __name__ == "__main__":
    main()
