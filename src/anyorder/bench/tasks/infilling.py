"""The task `humaneval-infilling`: a gap in a solved HumanEval problem (Bavarian et al. 2022).

    humaneval-infilling:single-line         1,033 gaps of one line
    humaneval-infilling:multi-line          5,815 gaps of whole lines
    humaneval-infilling:random-span         1,640 gaps that begin and end anywhere
    humaneval-infilling:random-span-light   164 of that kind, one for each problem

A file holds gaps of one kind, and its ids say which. A program is text before the gap + what was
filled in + text behind it, and nothing is cut or stripped; it must pass HumanEval's own tests. The
gaps of one problem are not independent: rates are means over gaps, intervals draw problems.

Prompts hold the mark `<fill>` at the gap, and `<answer>` behind the docstring, where the prompt of
`humaneval` ends. Each model reads the gap in its own way (apps/infilling.py).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from anyorder.bench.checks import Script
from anyorder.bench.tasks.problem import (
    PROLOGUE,
    Benchmark,
    BenchmarkRows,
    Columns,
    Hub,
    Problem,
    Row,
    Wish,
    benchmark,
    fill,
    find_template,
    kind_of,
    needed_setup,
    parsed,
    read_each,
    read_rows,
)

NAME = "humaneval-infilling"
DATASET = "loubnabnl/humaneval_infilling"
KINDS = {
    "single-line": "SingleLineInfilling",
    "multi-line": "MultiLineInfilling",
    "random-span": "RandomSpanInfilling",
    "random-span-light": "RandomSpanInfillingLight",
}
"""Variant -> how its ids begin; the first is the default."""
COLUMNS: Columns = dict.fromkeys(
    ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test"), str
)
EXTRACTION = "infill"
LIMITS = {"cpu_seconds": 3.0}
"""Published as wall-clock time."""

GAP, ANSWER = "<fill>", "<answer>"
"""The marks of decode/canvas.py."""
FIELDS = ("prompt", "gap", "suffix", "entry_point")
RAW = "raw"
TEMPLATES = {
    RAW: "{prompt}{gap}{suffix}",
    "boundary": "{prompt}<infill-boundary>{gap}<infill-boundary>{suffix}",
}


def load_infilling(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """The gaps of a file, or of one kind on the hub."""
    wanted = sorted(wish.variant_in(NAME, tuple(KINDS)))
    if len(wanted) > 1:
        raise ValueError(f"{NAME} has one kind of gaps at a time: choose {' or '.join(wanted)}")
    template = find_template(wish.template, TEMPLATES, FIELDS, NAME)
    if template.count("{gap}") != 1:
        raise ValueError(f"template {wish.template}: a prompt has one gap: write {{gap}} once")
    config = f"HumanEval-{KINDS[wanted[0] if wanted else 'single-line']}"
    rows = read_rows(wish.data, Hub(DATASET, config))
    kind_of(rows, {"rows": COLUMNS}, "HumanEval-Infilling")
    kind = _variant(rows)
    if wanted and wanted != [kind]:
        raise ValueError(f"{rows.where} holds {kind} gaps: use it with --task {NAME}:{kind}")
    shared = _Shared()
    problems = read_each(rows, lambda row, where: _problem(row, where, template, shared))
    return benchmark(f"{NAME}:{kind}", rows, problems, template, EXTRACTION, LIMITS)


def _variant(rows: BenchmarkRows) -> str:
    """The kind of gaps that a file holds."""
    begins = {row["task_id"].partition("/")[0] for row in rows.records}
    for kind, begin in KINDS.items():
        if begins == {begin}:
            return kind
    known = ", ".join(KINDS.values())
    raise ValueError(
        f"{rows.where}: ids begin with {', '.join(sorted(begins)[:3])}: give a file whose ids all "
        f"begin with one of {known}"
    )


class _Shared:
    """What the gaps of one problem share; made once."""

    def __init__(self) -> None:
        self.checks: dict[tuple[str, str], tuple[Script, ...]] = {}
        self.heads: dict[str, str] = {}


def _problem(row: Row, where: str, template: str, shared: _Shared) -> Problem:
    before, middle, after = row["prompt"], row["canonical_solution"], row["suffix"]
    program, entry_point = before + middle + after, row["entry_point"]
    _, *name = row["task_id"].split("/")
    if len(name) != 3:
        raise ValueError(f"{where}: {row['task_id']!r} is no id of a gap: remove or repair it")
    if GAP.rstrip(">") in before + after or ANSWER in before + after:
        raise ValueError(f"{where} spells {GAP} or {ANSWER}, which are marks: remove the row")
    group = "/".join(name[:2])
    if group not in shared.heads:
        shared.heads[group] = head_of(program, entry_point)
    key = (entry_point, row["test"])
    if key not in shared.checks:
        code = f"{row['test']}\ncheck({entry_point})\n"
        setup = needed_setup(code, (PROLOGUE, program), (entry_point,))
        shared.checks[key] = (Script(code, setup, (entry_point,)),)
    head = shared.heads[group]
    marked = f"{head}{ANSWER}{before[len(head) :]}" if before.startswith(head) else before
    values = {"prompt": marked, "gap": GAP, "suffix": after, "entry_point": entry_point}
    return Problem(
        task_id=row["task_id"],
        prompt=fill(template, values),
        entry_point=entry_point,
        checks=shared.checks[key],
        solution=program,
        prefix=before,
        suffix=after,
        middle=middle,
        group=group,
    )


def head_of(program: str, entry_point: str) -> str:
    """The program up to the docstring of its entry point, that included; "" if it has none."""
    for node in reversed(parsed(program).body):
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            for inner in node.body:
                if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                    return "".join(program.splitlines(keepends=True)[: inner.end_lineno])
    return ""
