"""Shares of one job: which of n processes this one is, and what falls to it.

`--shard i/n` says it; without the flag it is the rank under torchrun (RANK of WORLD_SIZE), the
index in a Slurm array (SLURM_ARRAY_TASK_ID of SLURM_ARRAY_TASK_COUNT), or both, ranks inside array
tasks. A job is cut into numbered pieces that do not depend on n, and share i takes the pieces i,
i + n, ...: any shares together make the same whole, whoever was killed, and a later command with
another n does what is left.

Not here: what a piece is (sampling.py: a batch; grade_shards.py: a problem).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Piece = TypeVar("Piece")

RANKS = ("RANK", "WORLD_SIZE")
ARRAY = "SLURM_ARRAY_TASK_"


@dataclass(frozen=True)
class Share:
    """Share number `index`, from 0, of `of`."""

    index: int = 0
    of: int = 1
    origin: str = ""
    """The variables that say so; empty: the command does."""

    @classmethod
    def parse(cls, text: str) -> Share:
        first, _, of = text.partition("/")
        if not (first.isdecimal() and of.isdecimal() and int(first) < int(of)):
            raise ValueError(f"--shard {text!r}: write i/n with 0 <= i < n, such as 0/4")
        return cls(int(first), int(of))

    @property
    def whole(self) -> bool:
        return self.of == 1

    @property
    def speaks(self) -> bool:
        """Whether this process tells how it goes: of the ranks in one terminal the first does."""
        return self.index == 0 or "RANK" not in self.origin

    def pick(self, pieces: Sequence[Piece]) -> list[Piece]:
        """What falls to this share."""
        return list(pieces[self.index :: self.of])

    def opening(self) -> str:
        """What to tell where the command did not say it."""
        return f"shard {self} of the run, by {self.origin}; --shard 0/1 would do all of it"

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


def share_here(given: str | None, environment: Mapping[str, str]) -> Share:
    """The share that a command says, or else the one of this process among its siblings."""
    if given is not None:
        return Share.parse(given)
    ranks, array = _ranks(environment), _array(environment)
    of = ranks.of * array.of
    if of == 1:
        return Share()
    origin = " and ".join(each.origin for each in (array, ranks) if each.of > 1)
    return Share(array.index * ranks.of + ranks.index, of, origin)


def _ranks(environment: Mapping[str, str]) -> Share:
    found = [environment.get(name, "") for name in RANKS]
    if not all(value.isdecimal() for value in found):
        return Share()
    return Share(int(found[0]), int(found[1]), "RANK/WORLD_SIZE")


def _array(environment: Mapping[str, str]) -> Share:
    """Ids may begin anywhere and have gaps of one size, as in --array=1-15:2."""
    found = [environment.get(ARRAY + name, "") for name in ("ID", "COUNT")]
    if not all(value.isdecimal() for value in found):
        return Share()
    number, count = map(int, found)
    first = int(environment.get(f"{ARRAY}MIN", 0))
    place, rest = divmod(number - first, int(environment.get(f"{ARRAY}STEP", 1)))
    if rest or not 0 <= place < count:
        raise ValueError(
            f"{ARRAY}ID={number} is not among {count} evenly spaced ids from {first} on: say which "
            f"share this is, such as --shard 0/{count}"
        )
    return Share(place, count, f"{ARRAY}ID/COUNT")


def device_here(device: str, environment: Mapping[str, str]) -> str:
    """The device of this process: a rank under torchrun has the GPU of its own number."""
    local = environment.get("LOCAL_RANK", "")
    return f"cuda:{local}" if device == "cuda" and local.isdecimal() else device


def workers_here(environment: Mapping[str, str]) -> int | None:
    """Grading processes of one rank, where several share a machine; None: it has it alone."""
    local = environment.get("LOCAL_WORLD_SIZE", "")
    if not local.isdecimal() or int(local) < 2:
        return None
    return max(1, len(os.sched_getaffinity(0)) // int(local))
