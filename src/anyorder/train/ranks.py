"""The processes of one training: who is who, what they tell each other, how they end together.

`torchrun` starts W processes and numbers them in the environment; `joined` makes a group of them
(gloo on CPU, NCCL on GPUs) and takes it apart again. Without torchrun there is one process, and
everything here costs nothing. Rank 0 writes and speaks for all.

When one process fails, it says why; the others end without a word of their own, because what they
could say is only that somebody is missing.

Not here: networks, and what is added up when (spread.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from anyorder.train.machine import usable_device

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""By the type of device. On GPUs small messages about the training still go from CPU to CPU."""
TIMEOUT = timedelta(minutes=60)
"""How long a process waits for the others: one of them may write a large file."""
_FAILED = "anyorder/failed"


@dataclass(frozen=True)
class Ranks:
    """This process among those of the training."""

    rank: int = 0
    count: int = 1
    """W"""
    local_rank: int = 0
    """Its number on its machine."""
    local_count: int = 1
    """Processes on its machine."""

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """What `name` is to this process: with several, each has a GPU of its own."""
        device = torch.device(name)
        if self.count == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise ValueError(f"device={name!r} for {self.count} processes: give cuda, one GPU each")
        return torch.device("cuda", self.local_rank)

    def micro_batches(self, accumulate: int) -> range:
        """Which of a step's micro batches are this process's: r, r + W, ..."""
        if accumulate % self.count:
            nearest = -(-accumulate // self.count) * self.count
            raise ValueError(
                f"accumulate={accumulate} micro batches do not divide among {self.count} "
                f"processes: give a multiple of {self.count}, such as accumulate={nearest}, or "
                "start another number of processes"
            )
        return range(self.rank, accumulate, self.count)

    def wait(self) -> None:
        """Until all have come here."""
        if self.count > 1:
            self.largest(0)  # on the CPU, where a failed process is noticed at once

    @contextmanager
    def one_before_others(self) -> Iterator[None]:
        """Rank 0 goes in alone; the others when it is done."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def largest(self, number: int) -> int:
        """The largest of all processes' numbers."""
        if self.count == 1:
            return number
        told = torch.tensor(number)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return int(told)

    def of_first(self, number: int) -> int:
        """What rank 0 gave."""
        return self.largest(number if self.first else -(1 << 62))

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def gathered(self, values: Tensor) -> list[Tensor]:
        """Everybody's, in the order of their ranks."""
        if self.count == 1:
            return [values]
        every = [torch.empty_like(values) for _ in range(self.count)]
        dist.all_gather(every, values)
        return every


ALONE = Ranks()


def launched() -> Ranks:
    """What the environment says of this process, before any group is made."""
    names = {"rank": "RANK", "count": "WORLD_SIZE"}
    names |= {"local_rank": "LOCAL_RANK", "local_count": "LOCAL_WORLD_SIZE"}
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return ALONE
    missing = [name for name in (*names.values(), "MASTER_ADDR", "MASTER_PORT")
               if name not in os.environ]  # fmt: skip
    if missing:
        raise ValueError(
            f"RANK and WORLD_SIZE are set and {', '.join(missing)} not: start several processes "
            "with torchrun, or unset them for one"
        )
    return Ranks(**{field: int(os.environ[name]) for field, name in names.items()})


def present() -> Ranks:
    """This process in the group that there is; alone without one."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    found = launched()
    return Ranks(dist.get_rank(), dist.get_world_size(), found.local_rank, found.local_count)


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """In a group of all processes that were started together; alone where there is one."""
    ranks = launched()
    if ranks.count == 1 or dist.is_initialized():
        yield present()
        return
    kind = torch.device(device).type
    if kind not in BACKENDS:
        raise ValueError(f"device={device!r} cannot train with several processes: cpu or cuda")
    if kind == "cuda":
        torch.cuda.set_device(usable_device(str(ranks.device(device))))
    store, _, _ = next(iter(rendezvous("env://", ranks.rank, ranks.count, timeout=TIMEOUT)))
    dist.init_process_group(
        BACKENDS[kind],
        store=PrefixStore("group", store),
        rank=ranks.rank,
        world_size=ranks.count,
        timeout=TIMEOUT,
    )
    try:
        yield ranks
    except Exception as error:
        last_word = _last_word(ranks, store, error)
        if last_word is None:
            raise
        raise last_word from error
    # Only now: after a failure NCCL would wait here for messages that nobody sends any more, before
    # the error is told. The end of the process takes the group apart without waiting.
    dist.destroy_process_group()


def _last_word(ranks: Ranks, store: Store, error: Exception) -> BaseException | None:
    """What this process should end with; None: the error itself."""
    try:
        spoken = store.add(_FAILED, 1) > 1
    except RuntimeError:  # the store has ended with its process, which had its reason to
        spoken = True
    if spoken:
        return SystemExit(1)
    if _is_missing_somebody(error):
        return ValueError(
            f"a process of this training has ended without a message (seen by rank {ranks.rank}: "
            f"{str(error).splitlines()[0]}): look for a lack of memory, then repeat the command "
            "to go on from the last checkpoint"
        )
    if isinstance(error, ValueError | OSError):
        return ValueError(f"rank {ranks.rank} of {ranks.count}: {error}")
    return None


def _is_missing_somebody(error: Exception) -> bool:
    """Whether a message between processes failed, rather than something in this one."""
    kinds = (dist.DistBackendError, dist.DistNetworkError)
    said = str(error).lower()
    return isinstance(error, kinds) or (
        isinstance(error, RuntimeError) and ("gloo" in said or "connection" in said)
    )
