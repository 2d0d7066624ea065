"""A program in which many processes lock, make and remove one folder, as fast as they can.

`python lock_stress.py FOLDER PROCESSES ROUNDS` exits with 0 if the locks excluded each other and no
process met an error other than Busy. One process in `SHARING_EVERY` takes the shared lock.
"""

from __future__ import annotations

import mmap
import os
import random
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from anyorder import files
from anyorder.files import Busy, alone_in, together_in

Gate = tuple[int, int]  # the two ends of a pipe
SHARING_EVERY = 5

# A process that finds the folder locked sleeps up to this long. With pauses of up to 2 ms, dozens
# of processes that only ask keep the one that works from running, and the test takes minutes.
PAUSE_SECONDS = 0.06


def count_alone(folder: Path, counter: memoryview) -> None:
    """Add one in two steps: if two processes do so at once, one of the additions is lost."""
    with alone_in(folder):
        before = counter[0]
        time.sleep(0)  # let another process run
        counter[0] = before + 1


def watch_together(folder: Path, counter: memoryview) -> None:
    """See that no process counts while the lock is shared."""
    with together_in(folder):
        before = counter[0]
        time.sleep(0)  # let another process run
        assert counter[0] == before, "a process was alone in a shared folder"


def race(folder: Path, rounds: int, number: int, counter: memoryview) -> None:
    take = watch_together if number % SHARING_EVERY == 0 else count_alone
    pauses = random.Random(number)
    done = 0
    while done < rounds:
        try:
            take(folder, counter)
            done += 1
        except Busy:
            time.sleep(pauses.uniform(0, PAUSE_SECONDS))
        # Sometimes one process makes the folder and another one locks it first. Then neither of
        # them removes it, and there would be no race for the folder from then on.
        with suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()


def start(folder: Path, rounds: int, number: int, counter: memoryview, gate: Gate) -> int:
    """Fork a process that races as soon as this one closes the gate, and return its id."""
    process = os.fork()
    if process:
        return process
    os.close(gate[1])
    os.read(gate[0], 1)  # ends when no process has the other end open any more
    try:
        race(folder, rounds, number, counter)
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not become the parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(place: str, processes: int, rounds: int) -> None:
    files.WAIT_PAUSE = PAUSE_SECONDS  # or those that share would come in much less often
    folder = Path(place) / "deep" / "run"
    counter = memoryview(mmap.mmap(-1, 8)).cast("Q")  # memory that all processes share
    gate = os.pipe()
    started = [start(folder, rounds, number, counter, gate) for number in range(processes)]
    os.close(gate[1])
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started]
    counting = sum(number % SHARING_EVERY != 0 for number in range(processes))
    assert not any(codes), f"{sum(map(bool, codes))} of {processes} processes failed"
    assert counter[0] == counting * rounds, f"{counting * rounds - counter[0]} additions are lost"
    assert not list(Path(place).rglob(files.LOCK_FILE)), "a lock file is left"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
