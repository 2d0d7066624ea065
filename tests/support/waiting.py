"""Waiting for what another process brings, however long a busy machine takes over it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 240
"""Seconds: so long that only a fault uses them up."""


def wait_until(
    happened: Callable[[], bool], *, pause: float = 0.005, seconds: float = PATIENCE
) -> None:
    """Return once something has happened; if it never does, that is an error."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(pause)


def kill_after(
    process: subprocess.Popen[Any],
    happened: Callable[[], bool],
    delay: float = 0.0,
    *,
    seconds: float = PATIENCE,
) -> None:
    """Kill a process `delay` seconds after something has happened.

    The process must be one that never ends by itself, however late its killer comes.
    """
    try:
        wait_until(lambda: happened() or process.poll() is not None, seconds=seconds)
        time.sleep(delay)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert happened()
