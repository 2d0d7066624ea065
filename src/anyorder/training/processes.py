"""The processes of one training: their ranks, messages and common end; rows of tensors.

**Processes.** `torchrun` starts W processes and numbers them in the environment; `joined` makes a
group of them (gloo on CPU, NCCL on GPUs). Without torchrun there is one process, and nothing here
costs time. Rank 0 writes files and prints. If one process fails, it reports why; the others end
silently, because they only know that a message is missing.

**The machine.** A device, threads and stop signals, each a guard that restores what it changed.
Only the number of threads may change the numbers, in the last bits of a sum.

**Rows.** A sharded tensor is cut along its first dimension: with S processes, process s has the
rows s c, ..., (s + 1) c - 1 of n, where c = ceil(n / S); the last ones may have fewer, or none.

    stem.safetensors                    all rows
    stem-00001-of-00002.safetensors     the rows of process 1 of 2; a tensor is the rows of all
                                        files in the order of their numbers. A tensor without rows
                                        (a step count) is in the first file

So any number of processes can read files written by any other number. Not here: sharding
(distributed.py), the content of checkpoints (checkpoint.py).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from anyorder.hub.weights import usable_device


@contextmanager
def steady_torch(threads: int, device: str) -> Iterator[None]:
    """Inside the block: `threads` threads (0: unchanged) and, on CPU, sums in a fixed order.

    Otherwise threads race to add up the gradient of an index with repeats. A fixed order costs
    nothing on one thread; on a GPU it would cost speed, so it is left alone.
    """
    count = torch.get_num_threads()
    ordered = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic  # its settings are properties that types do not show
    fills = memory.fill_uninitialized_memory
    torch.set_num_threads(threads or count)
    if device == "cpu" and not ordered:
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_num_threads(count)
        torch.use_deterministic_algorithms(ordered, warn_only=warn_only)
        memory.fill_uninitialized_memory = fills


class StopSignals:
    """Notes the first SIGINT or SIGTERM, so that the step can end; a second one acts at once.

    `grace`: seconds in which further signals count as the first. torchrun forwards to its
    processes a signal that the terminal has already sent them.
    """

    def __init__(self, grace: float = 0.0) -> None:
        self.received: str | None = None
        self._grace, self._since = grace, 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received, self._since = signal.Signals(number).name, time.monotonic()
            if not self._grace:
                self.__exit__()  # the next signal meets the earlier handler and acts at once
        elif time.monotonic() - self._since > self._grace:
            self.__exit__()
            signal.raise_signal(number)


BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""By the type of device. With GPUs, small messages about the training still use the CPU."""
TIMEOUT = timedelta(minutes=60)
"""How long a process waits for the others; rank 0 may write a large file meanwhile."""
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
        """Whether this process writes files and prints."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """This process's device for `name`; of several processes each has its own GPU."""
        device = torch.device(name)
        if self.count == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise ValueError(
                f"device={name!r} names one GPU for {self.count} processes: give device=cuda, and "
                "each process takes its own"
            )
        return torch.device("cuda", self.local_rank)

    def micro_batches(self, accumulate: int) -> range:
        """The numbers of this process's micro batches in a step: r, r + W, ..."""
        if accumulate % self.count:
            nearest = -(-accumulate // self.count) * self.count
            raise ValueError(
                f"accumulate={accumulate} micro batches do not divide among {self.count} "
                f"processes: give a multiple of {self.count}, such as accumulate={nearest}, or "
                "start another number of processes"
            )
        return range(self.rank, accumulate, self.count)

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.count > 1:
            self.largest(0)  # over gloo, which notices a failed process at once

    @contextmanager
    def one_before_others(self) -> Iterator[None]:
        """Run the block in rank 0 first, then in the others."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def largest(self, number: int) -> int:
        """The largest number over all processes."""
        if self.count == 1:
            return number
        value = torch.tensor(number)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return int(value)

    def of_first(self, number: int) -> int:
        """The number of rank 0, in all processes."""
        return self.largest(number if self.first else -(1 << 62))

    def total(self, values: Tensor) -> Tensor:
        """Sum over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def gathered(self, values: Tensor) -> list[Tensor]:
        """The tensors of all processes, in the order of their ranks."""
        if self.count == 1:
            return [values]
        every = [torch.empty_like(values) for _ in range(self.count)]
        dist.all_gather(every, values)
        return every


ALONE = Ranks()


def launched() -> Ranks:
    """This process's place from the environment, before a group is made."""
    names = {"rank": "RANK", "count": "WORLD_SIZE"}
    names |= {"local_rank": "LOCAL_RANK", "local_count": "LOCAL_WORLD_SIZE"}
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return ALONE
    missing = {*names.values(), "MASTER_ADDR", "MASTER_PORT"} - os.environ.keys()
    if missing:
        raise ValueError(
            f"RANK and WORLD_SIZE are set, but not {', '.join(sorted(missing))}: start several "
            "processes with torchrun, or unset both to train in one process"
        )
    return Ranks(**{field: int(os.environ[name]) for field, name in names.items()})


def present() -> Ranks:
    """This process in the current group; `ALONE` without one."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    found = launched()
    return Ranks(dist.get_rank(), dist.get_world_size(), found.local_rank, found.local_count)


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Join the group of all processes that were started together; `ALONE` if there is one."""
    ranks = launched()
    if ranks.count == 1 or dist.is_initialized():
        yield present()
        return
    kind = torch.device(device).type
    if kind not in BACKENDS:
        raise ValueError(f"device={device!r} cannot train with several processes: give cpu or cuda")
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
        last_error = _last_error(ranks, store, error)
        if last_error is None:
            raise
        raise last_error from error
    # Not after a failure: NCCL would wait for messages that never come, before the error is
    # printed. The end of the process removes the group without waiting.
    dist.destroy_process_group()


def _last_error(ranks: Ranks, store: Store, error: Exception) -> BaseException | None:
    """The exception that this process should end with; None: the error itself."""
    try:
        reported = store.add(_FAILED, 1) > 1  # atomic: only the first process to fail reports
    except RuntimeError:  # the process that holds the store has ended, and has reported why
        reported = True
    if reported:
        return SystemExit(1)
    if _is_lost_peer(error):
        return ValueError(
            f"a process of this training has ended without a message (seen by rank {ranks.rank}: "
            f"{str(error).splitlines()[0]}): look for a lack of memory, then repeat the command "
            "to go on from the last checkpoint"
        )
    if isinstance(error, ValueError | OSError):
        return ValueError(f"rank {ranks.rank} of {ranks.count}: {error}")
    return None


def _is_lost_peer(error: Exception) -> bool:
    """Whether a message between processes failed, and not something in this process."""
    kinds = (dist.DistBackendError, dist.DistNetworkError)
    said = str(error).lower()
    return isinstance(error, kinds) or (
        isinstance(error, RuntimeError) and ("gloo" in said or "connection" in said)
    )


Rows = tuple[int, int]
"""The first row, and the one after the last."""


def local(tensor: Tensor) -> Tensor:
    """The rows of a tensor that this process holds, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def rows_of(tensor: Tensor) -> Rows | None:
    """Which rows those are; None: the tensor is not sharded."""
    if not isinstance(tensor, DTensor):
        return None
    mesh = tensor.device_mesh
    dimension = mesh.ndim - 1  # the mesh is (machines x) processes; rows are cut in a machine
    return cut(tensor.shape[0], mesh.size(dimension), mesh.get_local_rank(dimension))


def cut(rows: int, shards: int, shard: int) -> Rows:
    """The rows of one shard."""
    each = -(-rows // shards)
    return min(shard * each, rows), min((shard + 1) * each, rows)


@torch.no_grad()
def put(tensor: Tensor, whole: Tensor) -> None:
    """Fill a tensor from the whole values; a sharded one takes this process's rows."""
    rows = rows_of(tensor)
    local(tensor).copy_(whole if rows is None else whole[rows[0] : rows[1]])


def like(shard: Tensor, model: Tensor) -> Tensor:
    """A tensor sharded like `model`, made from this process's shard."""
    if not isinstance(model, DTensor):
        return shard
    return DTensor.from_local(
        shard.to(local(model).device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=model.shape,
        stride=model.stride(),
    )


def whole_of(tensor: Tensor) -> Tensor:
    """All rows, in every process; all processes must call it for the same tensor."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def file_names(stem: str, shards: int | None) -> list[str]:
    """The files of one kind of tensors: one, or one for each shard."""
    if shards is None:
        return [f"{stem}.safetensors"]
    return [f"{stem}-{shard:05d}-of-{shards:05d}.safetensors" for shard in range(shards)]


def save_shard(path: Path, tensors: Mapping[str, Tensor], shard: int) -> None:
    """Write this process's rows; tensors without rows go into the first shard."""
    found = {
        name: local(tensor).detach().contiguous().cpu()
        for name, tensor in tensors.items()
        if rows_of(tensor) is not None or shard == 0
    }
    save_file(found, path)


class TensorReader:
    """The tensors in one file or in the files of all shards, read on request."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self._stack = ExitStack()
        self._files: list[Any] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shapes of the whole tensors, by name."""

    def __enter__(self) -> TensorReader:
        with ExitStack() as opening:  # closes the others if one is unreadable
            for path in self.paths:
                try:
                    file = opening.enter_context(safe_open(path, framework="pt"))
                except (SafetensorError, OSError) as error:
                    raise ValueError(f"{path} cannot be read ({error}): restore it") from error
                self._files.append(file)
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    self._note(name, tuple(file.get_slice(name).get_shape()), path)
            self._stack = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files = []
        self._stack.close()

    def _note(self, name: str, shape: tuple[int, ...], path: Path) -> None:
        before = self.shapes.get(name)
        if before is None:
            self.shapes[name] = shape
        elif shape and before[1:] == shape[1:]:
            self.shapes[name] = (before[0] + shape[0], *shape[1:])
        else:
            raise ValueError(f"{path}: {name} has another shape than in the files before it")

    def rows(self, name: str, rows: Rows | None = None) -> Tensor:
        """Some rows of a tensor, from the files that have them; None: all."""
        shape = self.shapes[name]
        if not shape:
            return self._files[0].get_tensor(name)
        first, last = (0, shape[0]) if rows is None else rows
        found, start = [], 0
        holding = [file for file in self._files if name in file.keys()]  # noqa: SIM118
        for file in holding:
            part = file.get_slice(name)
            count = part.get_shape()[0]
            begin, end = max(first - start, 0), min(last - start, count)
            if begin < end:
                found.append(part[begin:end])
            start += count
        if not found:
            return holding[0].get_tensor(name)[:0]
        return found[0] if len(found) == 1 else torch.cat(found)

    def read(self, name: str, model: Tensor) -> Tensor:
        """The tensor, sharded like `model`: this process reads only its rows."""
        return like(self.rows(name, rows_of(model)), model)
