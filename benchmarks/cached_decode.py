"""What the caches of mdm decoding (docs/fast_decoding.md) save, and what they cost.

    python benchmarks/cached_decode.py                    both tables, a quarter of an hour
    python benchmarks/cached_decode.py speed --small      seconds, to try the script
    python benchmarks/cached_decode.py stories --problems 100

`speed`: a bidirectional network with random weights, 12 layers of width 512, prompt 256, canvas
256, blocks of 32 slots closed in 8 steps each. The exact decoder and the cached ones run in this
process on the same weights, interleaved and repeated. The table has medians of CPU time, their
ratio to the exact decoder, and the ratio of computed columns. Random weights cannot show agreement;
the other table does.

`stories`: the shipped tiny mdm on held-out problems, one slot per step by confidence. The table has
the agreement with the exact decoder of the same block size, and the solved problems (in the
sandbox), paired by problem. Intervals are over problems (95 %, bootstrap). One thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import anyorder
from anyorder.apps.sample import agreement
from anyorder.bench.checks import PASSED
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, find_task
from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.measure.extract import extract
from anyorder.measure.intervals import difference_interval
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.trace import Trace
from anyorder.vocab import Vocab
from tables import show

DOMINATES = """
Matrix products of the layers, exact and cached. Time falls less than columns do: calls of 32
columns use the processor less well than calls of 512, attention still reads all keys, and the head
is the same. The column counts are the floor: each side must compute these columns, and no cache can
save more.
"""

CACHES: dict[str, dict[str, Any]] = {
    "exact": {},
    "prefix": {"cache": "prefix"},
    "block": {"cache": "block"},
    "block, refresh 4": {"cache": "block", "cache_refresh": 4},
}


@dataclass(frozen=True)
class Shape:
    """The sizes of the first table."""

    vocab_size: int = 8_000
    width: int = 512
    layers: int = 12
    mlp_width: int = 1536
    prompt: int = 256
    slots: int = 256
    block: int = 32
    steps: int = 64
    """8 for each block."""
    rounds: int = 3


SMALL = Shape(
    vocab_size=500, width=64, layers=2, mlp_width=128, prompt=32, slots=32, block=8, steps=16
)


def speed(shape: Shape) -> None:
    vocab = Vocab.words([f"<{i}>" for i in range(shape.vocab_size - 4)])
    config = TransformerConfig(
        vocab_size=vocab.size,
        width=shape.width,
        layers=shape.layers,
        heads=8,
        kv_heads=8,
        head_width=shape.width // 8,
        mlp_width=shape.mlp_width,
    )
    net = Transformer(config).eval()
    canvas = Canvas.of([[(7 * i) % 400 for i in range(shape.prompt)], shape.slots], vocab)
    ways = {
        name: MdmOptions(block=shape.block, steps=shape.steps, eos="forbid", **cache)
        for name, cache in CACHES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    rows: dict[str, Decoded] = {}
    for _ in range(shape.rounds):
        for name, options in ways.items():
            started = time.process_time()
            (rows[name],) = mdm.decode(net, vocab, [canvas], [0], options)
            times[name].append(time.process_time() - started)
    exact, base = rows["exact"].columns or 0, statistics.median(times["exact"])
    lines = []
    for name, row in rows.items():
        seconds, columns = statistics.median(times[name]), row.columns or 1
        ratios = (f"{base / seconds:.2f}", f"{exact / columns:.2f}")
        lines.append([name, row.forwards, f"{columns:,}", f"{seconds:.2f}", *ratios])
    title = f"random weights, float32, one row, medians of {shape.rounds} rounds, {shape}"
    show(title, ["", "forwards", "columns", "CPU s", "speed", "by columns"], lines)


def solved(problems: Sequence[Problem], traces: Sequence[Trace]) -> np.ndarray[Any, Any]:
    items = []
    for number, (problem, trace) in enumerate(zip(problems, traces, strict=True)):
        program = extract(
            trace.text, mode="function", entry_point=problem.entry_point, prefix=problem.prefix
        )
        items.append(Item(number, program, problem.checks, problem.prologue))
    passed = np.zeros(len(items))
    for verdict in grade(items, workers=1, limits=Limits(cpu_seconds=5.0)):
        passed[verdict.key] = verdict.verdict == PASSED
    return passed


def stories(name: str, count: int, blocks: Sequence[int]) -> None:
    model = anyorder.load(name)
    problems = find_task("stories", model.trained_on).problems(count)
    prompts = [problem.prompt for problem in problems]
    lines = []
    for block in blocks:
        exact = model.sample(prompts, block=block)
        right = solved(problems, exact)
        for cache, options in CACHES.items():
            traces = exact if not options else model.sample(prompts, block=block, **options)
            found = agreement(exact, traces, model.vocab.eos_id)
            passed = right if not options else solved(problems, traces)
            gap = difference_interval(passed, right)
            shares = (found.columns, found.tokens, found.steps, found.texts, float(passed.mean()))
            told = f"{gap.estimate:.3f} ({gap.low:.3f} to {gap.high:.3f})"
            lines.append([f"{block}, {cache}", *(f"{share:.3f}" for share in shares), told])
    head = ["block, cache", "columns", "tokens", "steps", "texts", "solved", "minus exact"]
    show(f"{name}, {count} held-out stories, one slot a step by confidence", head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["speed", "stories"])
    parser.add_argument("--small", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--model", default="mdm")
    parser.add_argument("--problems", type=int, default=None)
    parser.add_argument("--rounds", type=int, help="of the first table")
    parser.add_argument("--blocks", type=int, nargs="+", default=[8, 16, 32])
    job = parser.parse_args()
    torch.set_num_threads(1)  # idle threads spin, and their spinning would count as CPU time
    if job.what != "stories":
        shape = SMALL if job.small else Shape()
        speed(replace(shape, rounds=job.rounds or shape.rounds))
    if job.what != "speed":
        stories(job.model, job.problems or (8 if job.small else 100), job.blocks)


if __name__ == "__main__":
    main()
