"""What a task gives: problems with their prompt, their checks and how an answer becomes a program.

A task gives problems in a fixed order, a digest of the data behind them for the run card, and the
published limits and extraction. It does not sample, run or judge programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anyorder.bench.checks import Check


@dataclass(frozen=True)
class Problem:
    """One problem of a task."""

    task_id: str
    prompt: str
    """What the model is given, after the template."""
    entry_point: str | None = None
    """The function to write; None: the whole program counts."""
    checks: tuple[Check, ...] = field(default=(), repr=False)
    """All must pass; without any, the problem cannot be graded and `note` says why."""
    prologue: str = ""
    """Trusted text before the program when it is graded: the imports that were published."""
    solution: str | None = field(default=None, repr=False)
    """The canonical complete program, where the data has one."""
    prefix: str = ""
    """What belongs before a completion to make a program of it."""
    note: str = ""
    """Why the problem cannot be graded, or how its published test was repaired."""


class Task(Protocol):
    """A source of problems."""

    @property
    def name(self) -> str:
        """As on the command line, with the variant: `mbpp:test`."""

    @property
    def digest(self) -> str:
        """Of the data, whatever file or compression it came in."""

    @property
    def extraction(self) -> str:
        """The default mode of measure/extract.py."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The published limits for one run of a program, as fields of the sandbox's Limits."""

    @property
    def template(self) -> str:
        """The text that prompts are made from."""

    def problems(self, limit: int | None) -> list[Problem]:
        """The first `limit` problems, or all."""


@dataclass(frozen=True)
class Benchmark:
    """A task whose problems are all there."""

    name: str
    digest: str
    extraction: str
    limits: Mapping[str, float]
    template: str
    found: tuple[Problem, ...] = field(repr=False)

    def problems(self, limit: int | None) -> list[Problem]:
        return list(self.found[:limit])


@dataclass(frozen=True)
class Wish:
    """What a caller of `find_task` asks for, beside the name."""

    data: str | None = None
    """A file or a dataset of the hub; None: the published dataset."""
    template: str | None = None
    """The name of a template or a file with one; None: the task's first."""
    variant: tuple[str, ...] = ()
    """The parts of the variant: ("sanitized",), ("378", "compat")."""

    def variant_in(self, task: str, known: Sequence[str]) -> set[str]:
        """The parts, all of them among those that `task` knows."""
        for part in self.variant:
            if part not in known:
                choices = f"choose one of {', '.join(known)}" if known else "it has none"
                raise ValueError(f"{task} has no variant {part!r}: {choices}")
        return set(self.variant)

    def name(self, task: str) -> str:
        """The task's name with the variant."""
        return f"{task}:{','.join(self.variant)}" if self.variant else task


PROLOGUE = """\
import math
import re
import sys
import time
import itertools
import functools
import collections
from typing import *
"""
"""What the paper's release puts before every HumanEval and MBPP program."""

CODE_LIMITS = {"cpu_seconds": 30.0}
"""Published: 30 seconds for a sample and all tests of its problem (paper, appendix D). There it is
wall-clock time, here time of the processor, which a busy machine does not change."""
