"""The verdicts: what can become of a program.

    passed    every check passed
    wrong     it ran, and a check did not pass
    error     it raised, or its process died
    timeout   it used up its processor time, or the clock ran out
    memory    it asked for more memory than it may have
    syntax    it is not Python
    no_code   the text held no program
    blocked   it tried what the sandbox forbids, and was ended for it

Quick to import: the workers need these names. The table of verdicts is verdict_table.py.
"""

from __future__ import annotations

from dataclasses import dataclass

PASSED, WRONG, ERROR, TIMEOUT = "passed", "wrong", "error", "timeout"
MEMORY, SYNTAX, NO_CODE, BLOCKED = "memory", "syntax", "no_code", "blocked"

VERDICTS = (PASSED, WRONG, ERROR, TIMEOUT, MEMORY, SYNTAX, NO_CODE, BLOCKED)

DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class Judged:
    """One program's verdict, as the judge gives it."""

    verdict: str
    detail: str = ""
    """Why, in one line."""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict
        object.__setattr__(self, "detail", one_line(self.detail))


class NotPassed(Exception):
    """Ends the judging of a program that has not failed by itself: the tests say no."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(f"{verdict}: {detail}")
        self.verdict = verdict
        self.detail = detail


def shown(verdict: str) -> str:
    """The name as people read it."""
    return verdict.replace("_", " ")


def one_line(text: str) -> str:
    """Any text as one printable line of bounded length."""
    text = " ".join(text[: 4 * DETAIL_CHARACTERS].split())
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= DETAIL_CHARACTERS else text[: DETAIL_CHARACTERS - 3] + "..."
