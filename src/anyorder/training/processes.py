"""The processes of one training: who is who, what they tell each other, how they end together.

`torchrun` starts W processes and numbers them in the environment; `joined` makes a group of them
(gloo on CPU, NCCL on GPUs) and takes it apart again. Without torchrun there is one process, and
everything here costs nothing. Rank 0 writes and speaks for all.

When one process fails, it says why; the others end without a word of their own, because what they
could say is only that somebody is missing.

Not here: networks, and what is added up when (spread.py).

What training asks of the machine: a device, threads, and a gentle stop.

Each is a small guard around the loop that puts back what it changed. None of this affects the
numbers, except that the count of threads may change the last bits of a sum.

Tensors in parts: which rows of a tensor a process holds, and files that hold rows.

A sharded tensor is cut along its first dimension like a loaf: with S processes, process s has the
rows s c, ..., (s + 1) c - 1 of n, where c = ceil(n / S); the last ones may have fewer, or none.
Everything that is not sharded counts as one part with all rows.

    stem.safetensors                    all rows
    stem-00001-of-00002.safetensors     those of process 1 of 2; a tensor is the rows of all files,
                                        in the order of their numbers. One without rows to divide
                                        (a step count) is in the first file

So files written by any number of processes can be read by any other, row by row. Not here: which
tensors a checkpoint has, digests, and when files are written (checkpoint.py).
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
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor


def usable_device(name: str) -> torch.device:
    """The device called `name`, when this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device, dtype=torch.float64)  # noise and ranking need it
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here ({reason}): try cpu") from error
    return device


@contextmanager
def steady_torch(threads: int, device: str) -> Iterator[None]:
    """Use `threads` threads inside (0: as many as before) and, on CPU, sums in a fixed order.

    Without the second, the gradient of an index with repeats is added up by racing threads. The
    order costs nothing on one thread; on a GPU it would cost speed and is not asked for.
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
    """Notes the first SIGINT or SIGTERM, so that a step is finished; a second one acts at once.

    grace: seconds in which another one says the same again. torchrun passes on to its processes
    what a terminal has sent them already.
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
                self.__exit__()
        elif time.monotonic() - self._since > self._grace:
            self.__exit__()
            signal.raise_signal(number)


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


Rows = tuple[int, int]
"""The first row, and the one after the last."""


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def rows_of(tensor: Tensor) -> Rows | None:
    """Which rows that part is; None: the tensor is not sharded."""
    if not isinstance(tensor, DTensor):
        return None
    mesh = tensor.device_mesh
    dimension = mesh.ndim - 1  # of a mesh machines x processes: within a machine
    return cut(tensor.shape[0], mesh.size(dimension), mesh.get_local_rank(dimension))


def cut(rows: int, parts: int, part: int) -> Rows:
    """The rows of one part."""
    each = -(-rows // parts)
    return min(part * each, rows), min((part + 1) * each, rows)


@torch.no_grad()
def put(tensor: Tensor, whole: Tensor) -> None:
    """Give a tensor its values, of which this process keeps its own."""
    rows = rows_of(tensor)
    local(tensor).copy_(whole if rows is None else whole[rows[0] : rows[1]])


def like(part: Tensor, model: Tensor) -> Tensor:
    """A tensor that is sharded as `model` is, from this process's part."""
    if not isinstance(model, DTensor):
        return part
    return DTensor.from_local(
        part.to(local(model).device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=model.shape,
        stride=model.stride(),
    )


def whole_of(tensor: Tensor) -> Tensor:
    """All rows, in every process; all must ask for the same tensor."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def file_names(stem: str, parts: int | None) -> list[str]:
    """The files that hold one kind of tensors: one, or one for each part."""
    if parts is None:
        return [f"{stem}.safetensors"]
    return [f"{stem}-{part:05d}-of-{parts:05d}.safetensors" for part in range(parts)]


def save_part(path: Path, tensors: Mapping[str, Tensor], part: int) -> None:
    """Write this process's rows; what has no rows is the first part's."""
    found = {
        name: local(tensor).detach().contiguous().cpu()
        for name, tensor in tensors.items()
        if rows_of(tensor) is not None or part == 0
    }
    save_file(found, path)


class TensorReader:
    """The tensors in one file, or in the files of all parts, each read when it is asked for."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self._stack = ExitStack()
        self._files: list[Any] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Of the whole tensors, by name."""

    def __enter__(self) -> TensorReader:
        with ExitStack() as opening:  # closed again should one of them be unreadable
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """Some rows of a tensor, from whichever files have them; None: all."""
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
        """The tensor as `model` is sharded: this process reads its rows only."""
        return like(self.rows(name, rows_of(model)), model)
