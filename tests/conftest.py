"""What every test may use: one thread per process, and the real data files where there are any."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parent / "support"))  # its modules, by name

# A shell without job control starts what runs in the background deaf to Ctrl-C, and so would be the
# processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: a busy machine is no fault of the code. On a build server the examples are fixed, so
# that a change is judged by itself; at home they are new each time.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")


LONG_SECONDS = 1200
"""A long test may take so long, where the limit for all would be too short on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Syncing guards against power failure, which no test has, and every file waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """`data_file(name)` is a file of the data folder; the test is skipped where it is absent."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ANYORDER_DATA", beside))

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"no {name} in the data folder: set ANYORDER_DATA to where it is")
        return folder / name

    return find
