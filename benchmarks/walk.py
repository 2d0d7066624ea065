"""How many files of the package a command walks through: train, sample, measure and grade.

    python benchmarks/walk.py                        the four commands, as a table
    python benchmarks/walk.py sample mdm --prompt x  any other command

Each command runs in a fresh process, in an empty folder, under a profiler. The rule: a file below
`src/anyorder` is touched if at least one function defined in it was called, by whomever: a function
that a module calls while it is imported counts, too. Only functions with a name count: a lambda or
a comprehension is part of the code around it, as is the body of a class. All threads of the process
are seen; processes that it starts, such as those of the sandbox, are not. A file is imported if a
module of `sys.modules` came from it when the command ended.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

COMMANDS = (
    ("train", "tiny/flexmdm", "--steps", "2", "--warmup", "1", "--out", "model"),
    ("sample", "flexmdm", "--task", "stories", "--limit", "1", "--out", "run"),
    ("measure", "run"),
    ("grade", "run"),
)
"""In this order, in one folder: the last two read the run that `sample` wrote."""


@dataclass(frozen=True)
class Walk:
    """The files that one command touched, relative to the package."""

    argv: tuple[str, ...]
    touched: tuple[str, ...]
    """Files of which a function was called."""
    imported: tuple[str, ...]
    """Files that were imported, called or not."""

    @property
    def verb(self) -> str:
        return self.argv[0]

    @property
    def bench(self) -> bool:
        """Whether anything of `anyorder.bench` was imported."""
        return any(file.startswith("bench/") for file in self.imported)


def walk(argv: Sequence[str], folder: str | Path | None = None) -> Walk:
    """Run one command in a fresh process, in `folder` or in an empty one, and watch it."""
    with tempfile.TemporaryDirectory() as empty:
        found = Path(empty) / "walk.json"
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--watched", str(found), *argv],
            cwd=folder or empty,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"anyorder {' '.join(argv)} failed: {done.stderr.strip()}")
        record = json.loads(found.read_text(encoding="utf-8"))
    return Walk(tuple(argv), tuple(record["touched"]), tuple(record["imported"]))


def walk_all() -> list[Walk]:
    """The four commands of the table."""
    with tempfile.TemporaryDirectory() as folder:
        return [walk(argv, folder) for argv in COMMANDS]


class Watch:
    """A profiler that records the files of a package whose functions were called."""

    def __init__(self, package: Path) -> None:
        self.package = f"{package}{os.sep}"
        self.called: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # Only functions are optimised; bodies of modules and classes are not. "<lambda>" and the
        # like are no names: Python 3.12 no longer calls comprehensions, so they must not count.
        function = event == "call" and code.co_flags & inspect.CO_OPTIMIZED
        if function and code.co_name[0] != "<" and code.co_filename.startswith(self.package):
            self.called.add(code.co_filename)

    def files(self) -> list[str]:
        return self.relative(self.called)

    def relative(self, files: set[str]) -> list[str]:
        return sorted(Path(each).relative_to(self.package).as_posix() for each in files)


def _watched(found: Path, argv: list[str]) -> int:
    """In the fresh process: run the command and write what was recorded."""
    import anyorder.cli

    package = Path(anyorder.cli.__file__).resolve().parents[1]
    watch = Watch(package)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        code = anyorder.cli.main(argv)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    loaded = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
    imported = {each for each in loaded if each.startswith(watch.package)}
    record = {"touched": watch.files(), "imported": watch.relative(imported)}
    found.write_text(json.dumps(record), encoding="utf-8")
    return code


def main(argv: list[str]) -> int:
    if argv[:1] == ["--watched"]:
        return _watched(Path(argv[1]).resolve(), argv[2:])
    print("| verb | files touched | files imported | imports anyorder.bench |")
    print("|---|---:|---:|---|")
    for each in [walk(argv)] if argv else walk_all():
        bench = "yes" if each.bench else "no"
        print(f"| {each.verb} | {len(each.touched)} | {len(each.imported)} | {bench} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
