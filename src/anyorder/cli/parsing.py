"""How a verb reads its flags: a frozen dataclass, its docstrings as help, one line a mistake."""

from __future__ import annotations

import contextlib
import io
import shlex
from typing import Any, TypeVar

import tyro

from anyorder.cli import PROGRAM, UsageError

Flags = TypeVar("Flags")


def parse(flags: type[Flags], verb: str, words: list[str], **settings: Any) -> Flags:
    """The flags of a verb; `--help` prints and ends the program, bad usage is a `UsageError`.

    So is a value that a job refuses when it is made, before any file is looked at.
    """
    program = f"{PROGRAM} {verb}"
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            # One spelling per switch: --json, without a --no-json beside it.
            config = (tyro.conf.FlagCreatePairsOff,)
            return tyro.cli(flags, args=words, prog=program, config=config, **settings)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(f"{_one_line(complaint.getvalue())} (see {program} --help)") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _one_line(box: str) -> str:
    """The sentence inside the parser's framed message: no frame, no title, no pointer to help."""
    told = []
    for line in (line.strip(" |-─│╭╮╰╯├┤") for line in box.splitlines()):
        if line.startswith(("Argument helptext", "For full helptext", f"{PROGRAM} ")):
            break
        told += [line] if line else []
    return " ".join(told[1:] or told)


def command_line(verb: str, words: list[str]) -> str:
    """The command as it was typed, for the run card."""
    return shlex.join([PROGRAM, verb, *words])


def without(flag: str, words: list[str]) -> list[str]:
    """The words of a command but for one flag and its value: what a run card need not say."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == flag:
            skip = True
        elif not word.startswith(f"{flag}="):
            kept.append(word)
    return kept
