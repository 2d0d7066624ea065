"""Prompts to pick from in the playground: held-out stories, as they are and with a gap.

A gap is one line of the story's own program; how a family writes such a gap (of a given length, of
any length, not at all) is found out by asking it.
"""

from __future__ import annotations

from typing import Any

from anyorder.bench.tasks import Problem, find_task
from anyorder.decode.fill import ANSWER
from anyorder.model import Model

OFFERED = 24


def prompts_for(model: Model, count: int = OFFERED) -> list[dict[str, Any]]:
    """Name, prompt and, where the family can fill, the program with a gap."""
    problems = find_task("stories", model.trained_on).problems(count)
    return [
        {"name": problem.task_id, "text": problem.prompt, "gap": with_gap(model, problem)}
        for problem in problems
    ]


def with_gap(model: Model, problem: Problem) -> str | None:
    """The prompt and its program with the middle line missing; None: nothing to be filled in."""
    lines = (problem.solution or "").splitlines(keepends=True)
    if len(lines) < 3:
        return None
    middle = len(lines) // 2
    # Where segments are counted a line is one of them.
    segments, line = model.family.counts_segments, lines[middle].rstrip("\n")
    length = 1 if segments else len(model.vocab.encode(line))
    for mark in (f"<fill:{length}>\n", "<fill>\n"):
        text = "".join([problem.prompt, ANSWER, *lines[:middle], mark, *lines[middle + 1 :]])
        try:
            model.prepare(text)
        except ValueError:
            continue
        return text
    return None
