"""Pages of Markdown whose marked blocks are run: what they are, and how.

A fence opens with its language and with words that say what becomes of it:

    ```python run            executed; in order, each in a process of its own, all in one folder
    ```bash run              likewise: `anyorder ...`, `python FILE ...` and `python -m NAME ...`, a
                             line each, and `cat > FILE <<'END'` with the lines of the file
    ```python file=mine.py   written to a file, which later blocks use
    ```text                  what the block before it prints, word for word

As a program, `python marked_blocks.py PAGE ...` runs each page in a new folder, named after it, and
prints as JSON, by the page's name, what went wrong (a message, or null) and what each block
printed. `run_pages` calls it, for test_docs.py and test_readme.py. Commands are forked from one
process that has imported everything, because starting Python anew for each would take most of the
time. So a line of bash here is a command and its words, nothing else; the long suite runs README.md
with a real bash as well (test_readme.py).
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

SECONDS = 900  # for a page; under 20 on an idle core
WRITTEN = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
HEAVY = (
    *("model", "apps.sample", "apps.train", "apps.grade", "apps.measure"),
    *("apps.placement", "apps.imports", "apps.show", "apps.report", "report.charts.pixel_figure"),
)


@dataclass(frozen=True)
class Block:
    language: str
    run: bool
    code: str
    line: int
    file: str | None = None


def blocks(text: str) -> list[Block]:
    """Every fenced block of a page."""
    found = []
    for match in FENCE.finditer(text):
        words = match[2].split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        line = text.count("\n", 0, match.start()) + 1
        unknown = [word for word in words if word != "run" and word.split("=")[0] not in _NAMED]
        assert not unknown, f"line {line}: a fence does not know {unknown}"
        found.append(Block(match[1] or "", "run" in words, match[3], line, **named))
    return found


_NAMED = ("file",)


@dataclass(frozen=True)
class Outcome:
    """What became of a page."""

    complaint: str | None
    """What went wrong; None: nothing."""
    printed: list[str]
    """What its blocks printed, each as one text, as far as they were run."""


def run_pages(pages: list[Path], folder: Path) -> dict[str, Outcome]:
    """Run each page in a folder of its own below `folder`: this file as a program."""
    done = subprocess.run(
        [sys.executable, __file__, *map(str, pages)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: Outcome(**found) for name, found in json.loads(done.stdout).items()}


def run_page(page: Path, outputs: list[str]) -> None:
    """Run the page in the current folder, and add what each block prints to `outputs`.

    AssertionError names the block that failed.
    """
    printed: str | None = None
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, the block at line {block.line}"
        if block.file is not None:
            Path(block.file).write_text(block.code, encoding="utf-8")
        elif block.language == "text":
            assert printed is None or printed == block.code, (
                f"{where} is not what is printed:\n{printed}"
            )
            printed = None
        elif block.run:
            printed = "".join(_forked(step, f"{where}:\n{block.code}") for step in _steps(block))
            outputs.append(printed)
        else:
            printed = None


def _steps(block: Block) -> list[Callable[[], Any]]:
    """What a block does, one process each."""
    if block.language == "python":
        code = compile(block.code, f"line {block.line}", "exec")
        return [lambda: exec(code, {"__name__": "__main__"})]
    assert block.language == "bash", f"line {block.line}: cannot run {block.language!r}"
    steps: list[Callable[[], Any]] = []
    # Between two files there are commands: the pieces are commands, name, content, commands, ...
    pieces = iter(WRITTEN.split(block.code))
    for commands, name, content in zip_longest(pieces, pieces, pieces):
        lines = commands.replace("\\\n", " ").splitlines()
        steps += [_command(words) for line in lines if (words := shlex.split(line, comments=True))]
        if name is not None:
            steps.append(partial(Path(name).write_text, content, encoding="utf-8"))
    return steps


def _command(words: list[str]) -> Callable[[], Any]:
    if words[0] == "anyorder":
        return lambda: sys.exit(import_module("anyorder.cli").main(words[1:]))
    assert words[0] == "python", f"cannot run {shlex.join(words)}"

    def script() -> None:
        if words[1] == "-m":
            sys.argv = words[2:]
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
            return
        sys.argv = words[1:]
        assert words[1].endswith(".py"), f"cannot run {shlex.join(words)}"
        runpy.run_path(words[1], run_name="__main__")

    return script


def _forked(step: Callable[[], Any], what: str) -> str:
    """Do it in a child; what it printed."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os._exit(_status(step))
        _, status = os.waitpid(child, 0)
        output.seek(0)
        errors.seek(0)
        printed = output.read()
        failed = os.waitstatus_to_exitcode(status) != 0
        assert not failed, f"{what}\n{printed}{errors.read()}"
    return printed


def _status(step: Callable[[], Any]) -> int:
    """What a process of its own would exit with."""
    status: Any = 0
    try:
        step()
    except SystemExit as stop:
        status = stop.code
    except BaseException:  # noqa: BLE001 - a child must never go on as its parent
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return status if isinstance(status, int) else int(status is not None)


def main(pages: list[Path]) -> dict[str, Outcome]:
    """Run each page in a folder of its own, below the current one."""
    for name in HEAVY:
        import_module(f"anyorder.{name}")
    sys.path[0] = ""  # blocks import the files that blocks before them wrote
    start = Path.cwd()
    outcomes: dict[str, Outcome] = {}
    for page in pages:
        folder = start / page.stem
        folder.mkdir()
        os.chdir(folder)
        complaint: str | None = None
        outputs: list[str] = []
        try:
            run_page(page, outputs)
        except AssertionError as error:
            complaint = str(error)
        outcomes[page.name] = Outcome(complaint, outputs)
    return outcomes


if __name__ == "__main__":
    found = main([Path(name).resolve() for name in sys.argv[1:]])
    print(json.dumps({name: asdict(outcome) for name, outcome in found.items()}))
