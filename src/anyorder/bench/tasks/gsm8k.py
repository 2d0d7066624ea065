"""The task `gsm8k`: grade-school word problems, answered by a program (LatentMDM, S-FLM).

The program defines `simple_math_problem()`. Its result is compared with the number after `####`,
commas removed: integers equal, else within 1e-3 (comparison "number"). The variant `compat` gives a
program the 13 builtins and the second of the published evaluator. `__import__` is among them,
because `import math` must work; the published evaluator allows no other module than math.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anyorder.bench.checks import Calls
from anyorder.bench.tasks.problem import (
    Benchmark,
    Columns,
    Hub,
    Problem,
    Wish,
    benchmark,
    fill,
    find_template,
    kind_of,
    read_rows,
)

HUB = Hub("openai/gsm8k", "main", "test")
KINDS: dict[str, Columns] = {"rows": {"question": str, "answer": str}}
ENTRY_POINT = "simple_math_problem"
PROLOGUE = "import math\n"
"""The extraction begins at `def`, so an import before it would be lost."""

TEMPLATES = {"raw": "{prompt}\n"}
FIELDS = ("prompt", "entry_point")

PUBLISHED_BUILTINS = (
    "abs",
    "min",
    "max",
    "sum",
    "len",
    "range",
    "enumerate",
    "int",
    "float",
    "str",
    "bool",
    "round",
    "print",
    "__import__",
)
LIMITS = {"cpu_seconds": 5.0}
PUBLISHED_LIMITS = {"cpu_seconds": 1.0}

_GOLD = re.compile(r"####\s*(-?[\d,]*\.?\d+)\s*$")


def load_gsm8k(trained_on: Mapping[str, Any], wish: Wish) -> Benchmark:
    """The questions of a file, the test split by default."""
    compat = bool(wish.variant_in("gsm8k", ("compat",)))
    template = find_template(wish.template, TEMPLATES, FIELDS, "gsm8k")
    rows = read_rows(wish.data, HUB)
    kind_of(rows, KINDS, "GSM8K")
    problems = [
        Problem(
            task_id=f"GSM8K/{number}",
            prompt=fill(template, {"prompt": row["question"], "entry_point": ENTRY_POINT}),
            entry_point=ENTRY_POINT,
            checks=(_check(gold(row["answer"], f"{rows.where}: row {number + 1}"), compat),),
            prologue=PROLOGUE,
        )
        for number, row in enumerate(rows.records)
    ]
    limits = PUBLISHED_LIMITS if compat else LIMITS
    return benchmark(wish.name("gsm8k"), rows, problems, template, "function", limits)


def gold(answer: str, where: str) -> int | float:
    """The number after ####."""
    match = _GOLD.search(answer)
    if match is None:
        raise ValueError(f"{where}: no number after ####: is this a file of GSM8K?")
    digits = match[1].replace(",", "")
    return float(digits) if "." in digits else int(digits)


def _check(answer: int | float, compat: bool) -> Calls:
    return Calls(
        function=ENTRY_POINT,
        inputs=((),),
        expected=(answer,),
        compare="number",
        builtins=PUBLISHED_BUILTINS if compat else None,
    )
