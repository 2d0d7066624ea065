"""Traces made by hand: one of every family, of one small program."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from anyorder.trace import Candidate, Trace

PROGRAM = [
    "def f(",
    "plums",
    ", ",
    "bags",
    "):",
    "\n",
    "    if ",
    "plums",
    " > ",
    "bags",
    ":",
    "\n",
]
PROGRAM += ["        ", "plums", " = ", "bags", "\n", "    return ", "plums"]
ODD = ["<b>&amp;", "</script>", "\r\n", "\t\tx", "\r", "\U0001f600é", "", " " * 5, "א", "y" * 90]


def spaced(count: int, steps: int, seed: int) -> list[int]:
    """Steps 1..steps for `count` tokens, shuffled."""
    spread = 1 + np.arange(count) * steps // max(1, count)
    return [int(step) for step in np.random.default_rng(seed).permutation(spread)]


def trace_of(pieces: list[str], reveal: list[int], **columns: Any) -> Trace:
    steps = columns.pop("steps", max(reveal, default=0))
    insert = columns.pop("insert_step", [0] * len(pieces))
    about: dict[str, Any] = {"task_id": "t/0", "sample": 0, "prompt": "Do it:\n"}
    return Trace(
        **{**about, **columns},
        text="".join(pieces),
        char_end=list(accumulate(map(len, pieces))),
        insert_step=insert,
        reveal_step=reveal,
        steps=steps,
    )


def mdm(task: str = "t/0", seed: int = 1) -> Trace:
    pieces = [*PROGRAM, *[""] * 8]
    reveal = spaced(len(pieces), len(pieces), seed)
    log_prob = np.linspace(-3, 0, len(pieces))
    return trace_of(
        pieces, reveal, task_id=task, family="mdm", policy="confidence", log_prob=log_prob
    )


def flexmdm(task: str = "t/0", seed: int = 2) -> Trace:
    insert = spaced(len(PROGRAM), 30, seed)
    later = spaced(len(PROGRAM), 10, seed + 1)
    reveal = [first + more for first, more in zip(insert, later, strict=True)]
    log_prob = [-0.01 * step for step in reveal]
    about = {"task_id": task, "family": "flexmdm", "policy": "confidence"}
    return trace_of(PROGRAM, reveal, insert_step=insert, steps=44, log_prob=log_prob, **about)


def ar(task: str = "t/0") -> Trace:
    steps = list(range(1, len(PROGRAM) + 1))
    return trace_of(PROGRAM, steps, insert_step=steps, task_id=task, family="ar")


def latentmdm() -> Trace:
    lines = [PROGRAM[:6], PROGRAM[6:12], PROGRAM[12:17], PROGRAM[17:], [""]]
    order = [2, 3, 4, 1, 5]
    pieces = [piece for line in lines for piece in line]
    segment = [number for number, line in enumerate(lines) for _ in line]
    candidates = [
        Candidate(step, number, None, "".join(line), -0.1 * number - step, order[number] == step)
        for step in range(1, 6)
        for number, line in enumerate(lines)
        if order[number] >= step
    ]
    return trace_of(
        pieces,
        [order[number] for number in segment],
        segment=segment,
        score=[-0.25 * number for number in segment],
        candidates=candidates,
        task_id="t/segments",
        family="latentmdm",
        policy="average",
    )
