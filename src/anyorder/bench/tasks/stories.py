"""The task `stories`: held-out compositions of the built-in corpus.

The prompt is the story, the program a function `solve`. It is called with values for the story's
quantities, and its results are compared with the story's own arithmetic, which never runs a
program. The dials are those of the model's training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyorder.bench.checks import Calls
from anyorder.bench.tasks.problem import Problem, Wish, fill, find_template
from anyorder.data.corpora.stories import StoriesConfig, Story, problem, stories_digest

DIALS = ("layout", "wording", "state_layout", "seed")
CASES = 4
"""Calls for each program: enough for every path through its branches."""
TEMPLATES = {"raw": "{prompt}"}
FIELDS = ("prompt", "entry_point")


@dataclass(frozen=True)
class Stories:
    """Endless problems, `size` of them if no limit is given."""

    config: StoriesConfig
    size: int = 200
    template: str = TEMPLATES["raw"]
    name: str = "stories"
    extraction: str = "function"

    @property
    def digest(self) -> str:
        return stories_digest(self.config)

    @property
    def limits(self) -> Mapping[str, float]:
        return {"cpu_seconds": 5.0}

    def problems(self, limit: int | None) -> list[Problem]:
        count = self.size if limit is None else limit
        return [self.problem_at(index) for index in range(count)]

    def problem_at(self, index: int) -> Problem:
        """Any of the endless problems, by its number."""
        return self._problem(problem(self.config, index))

    def _problem(self, story: Story) -> Problem:
        cases = story.cases(CASES)
        check = Calls(
            function=story.entry_point,
            inputs=tuple(case.arguments for case in cases),
            expected=tuple(case.expected for case in cases),
        )
        values = {"prompt": story.prompt, "entry_point": story.entry_point}
        return Problem(
            task_id=f"stories/{story.index}",
            prompt=fill(self.template, values),
            entry_point=story.entry_point,
            checks=(check,),
            solution=story.program,
        )


def load_stories(trained_on: Mapping[str, Any], wish: Wish) -> Stories:
    """The task; `trained_on` is the data part of the model's recipe."""
    wish.variant_in("stories", ())
    if wish.data is not None:
        raise ValueError("stories are generated and take no --data: leave it out")
    dials = {}
    if trained_on.get("source") == "stories":
        dials = {name: trained_on[name] for name in DIALS if name in trained_on}
    config = replace(StoriesConfig.from_fields(dials), split="heldout")
    return Stories(config, template=find_template(wish.template, TEMPLATES, FIELDS, "stories"))
