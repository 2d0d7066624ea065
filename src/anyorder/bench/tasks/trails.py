"""The task `trails`: held-out chains of the built-in corpus (docs/trails.md).

A program has no parameters: before each call the start of every chain is bound to a value. The
results are compared with the chain's own arithmetic, which never runs a program. No program that
follows another chain, leaves a step out or takes another operation passes.

The dials are those of the model's training. A model of a mixture is asked about one condition:

    trails            layout is free, the prompt says nothing of it
    trails:strict     layout 0: every place follows from the prompt
    trails:stated     the layout is free, and the prompt states it
    trails:told       the prompt lists the chain; with strict or stated, too: trails:strict,told
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from anyorder.bench.checks import Calls
from anyorder.bench.tasks.problem import Problem, Wish, fill, find_template
from anyorder.data.corpora.trails import Trail, TrailsConfig, TrailsDials, problem, trails_digest

TEMPLATES = {"raw": "{prompt}"}
FIELDS = ("prompt", "entry_point")
VARIANTS = ("strict", "stated", "told")
STRICT = {"layout": 0.0, "lines": 0.0, "shape": 0.0}


@dataclass(frozen=True)
class Trails:
    """Endless problems, `size` of them if no limit is given."""

    config: TrailsConfig
    size: int = 300
    template: str = TEMPLATES["raw"]
    name: str = "trails"
    extraction: str = "function"

    @property
    def digest(self) -> str:
        return trails_digest(self.config)

    @property
    def limits(self) -> Mapping[str, float]:
        return {"cpu_seconds": 5.0}

    def problems(self, limit: int | None) -> list[Problem]:
        count = self.size if limit is None else limit
        return [self.problem_at(index) for index in range(count)]

    def problem_at(self, index: int) -> Problem:
        """Any of the endless problems, by its number."""
        return self._problem(problem(self.config, index))

    def _problem(self, trail: Trail) -> Problem:
        cases = trail.cases()
        check = Calls(
            function=CALLED,
            inputs=tuple(case.starts for case in cases),
            expected=tuple(case.expected for case in cases),
        )
        values = {"prompt": trail.prompt, "entry_point": trail.entry_point}
        return Problem(
            task_id=f"{self.name}/{trail.index}",
            prompt=fill(self.template, values),
            entry_point=trail.entry_point,
            checks=(check,),
            prologue=_prologue(trail),
            solution=trail.program,
            facts={
                "anchor": trail.core.anchor,
                "anchor_name": trail.core.chains[0][trail.core.place],
                "language": "python",
            },
        )


CALLED = "solve_with"
"""The function that the checks call: it binds the starts, then calls the program's own."""


def _prologue(trail: Trail) -> str:
    names = ", ".join(trail.core.starts)
    return (
        f"def {CALLED}(*starts):\n    global {names}\n    {names}{',' * (trail.core.arms == 1)} = "
        f"starts\n    return {trail.entry_point}()\n"
    )


def load_trails(trained_on: Mapping[str, Any], wish: Wish) -> Trails:
    """The task; `trained_on` is the data part of the model's recipe, with its dials."""
    chosen = wish.variant_in("trails", VARIANTS)
    if wish.data is not None:
        raise ValueError("trails are generated and take no --data: leave it out")
    if chosen >= {"strict", "stated"}:
        raise ValueError("trails:strict has no layout to state: leave strict or stated out")
    dials: dict[str, Any] = {}
    if trained_on.get("source") == "trails":
        known = {field.name for field in fields(TrailsDials)}
        dials = {name: value for name, value in trained_on["trails"].items() if name in known}
        dials["seed"] = trained_on.get("seed", 0)
    dials["mixture"] = False
    if "strict" in chosen:
        dials |= STRICT | {"state_layout": False}
    if "stated" in chosen:
        dials |= {"state_layout": True}
        dials["layout"] = dials.get("layout") or 1.0
    if "told" in chosen:
        dials["told"] = True
    config = replace(TrailsConfig.from_fields(dials), split="heldout")
    template = find_template(wish.template, TEMPLATES, FIELDS, "trails")
    return Trails(config, template=template, name=wish.name("trails"))
