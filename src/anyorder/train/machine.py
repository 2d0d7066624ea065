"""What training asks of the machine: a device, threads, and a gentle stop.

Each is a small guard around the loop that puts back what it changed. None of this affects the
numbers, except that the count of threads may change the last bits of a sum.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch


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
