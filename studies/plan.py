"""The plan of the study: models, runs and measures, as one table of plain records.

model_plan.py has the models. A run is a model, decoding options, a number of held-out problems and
a number of samples for each; `measures` names the measures that are stored besides the verdicts.
`Plan.runs` finds a run by model and kind (`mdm-layout1.greedy`); several questions may use it.
`Study.group` (view.py) finds the runs of one kind over the seeds of a family.

Nothing here trains, samples or reads files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from studies.free_setting import FreeSetting
from studies.model_plan import StudyModel, all_models

DIVERSE_POLICIES = ("left_to_right", "random", "confidence")
SIMILARITY_POLICIES: Mapping[str, Mapping[str, Any]] = {
    **{policy: {"policy": policy} for policy in ("confidence", "margin", "entropy")},
    "published": {"policy": "sampled", "mode": "compat"},
}
"""Three exact definitions of confidence, and the sampler of the Dream family."""
SEGMENT_POLICIES = ("average", "minimum", "first", "left_to_right", "random")
SEGMENT_KS = (1, 2, 4)
SEGMENT_DRAWS: Mapping[str, Mapping[str, Any]] = {"": {}, "-drawn": {"temperature": 1.0}}
INSERTION_TEMPERATURES = (1.0, 0.75, 0.6, 0.5)
TIED = {
    "untempered-random": {"posterior": "untempered", "ties": "random"},
    "untempered-leftmost": {"posterior": "untempered", "ties": "leftmost"},
    "filtered-random": {"posterior": "filtered", "ties": "random"},
    "filtered-leftmost": {"posterior": "filtered", "ties": "leftmost"},
}
Ties = Literal["random", "leftmost"]
BOTH_TIES: tuple[Ties, ...] = ("random", "leftmost")
FREE_LAYOUTS, FREE_WORDINGS = (0.0, 0.1, 0.25, 0.5, 1.0), (0.25, 1.0)

GREEDY: Mapping[str, Mapping[str, Any]] = {
    "mdm": {"policy": "confidence"},
    "flexmdm": {"policy": "confidence", "clock": "events"},
    "latentmdm": {"policy": "average", "k": 1},
    "flexlatent": {"policy": "average", "clock": "events"},
}
"""The best greedy options of each family; most questions read these runs."""
PUBLISHED = {"temperature": 0.2, "top_p": 0.95}
"""The settings of all policies in the similarity analysis of the paper (appendix B)."""

SEEN = 12
"""The margins of some claims were chosen after a look at this many problems of seed 0. These
problems are left out for all models, so that claims are tested on others."""

ORDER, ARNESS, PLACEMENT = "order", "arness", "placement"


@dataclass(frozen=True)
class Sizes:
    """How much is sampled; the first `SEEN` problems are not used."""

    problems: int = 212
    """Problems of runs with one sample per problem."""
    compared: int = 52
    """Problems whose programs are compared with left-to-right ones, which takes many samples."""
    reference: int = 32
    """Samples of left-to-right and random decoding, as in the paper."""
    attempted: int = 62
    """Problems of runs for pass@k."""
    attempts: int = 16
    """Samples for pass@k."""
    drawn: int = 8
    """Samples at temperature 1."""
    counted: int = 62
    """Problems of runs without a network."""
    draws: int = 4096
    """Renderings of each problem in runs without a network."""
    race: int = 30
    """Problems of the race."""


@dataclass(frozen=True)
class StudyRun:
    """One run: what is sampled, and what is stored."""

    model: str
    kind: str
    options: Mapping[str, Any]
    problems: int
    samples: int = 1
    measures: tuple[str, ...] = ()
    reference: str | None = None
    """The name of the run with which its programs are compared."""
    free: FreeSetting | None = None
    """Set if counted posteriors take the place of a model."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.model}.{self.kind}"


@dataclass(frozen=True)
class Plan:
    """All models and runs of the study."""

    sizes: Sizes = field(default_factory=Sizes)

    @cached_property
    def models(self) -> dict[str, StudyModel]:
        """By name."""
        return {model.name: model for model in all_models()}

    @cached_property
    def runs(self) -> dict[str, StudyRun]:
        """By name."""
        parts = (
            self._greedy(),
            self._similarity(),
            self._diverse(),
            self._segments(),
            self._insertion(),
            self._ties(),
            self._drawn(),
            self._free(),
        )
        found = [run for part in parts for run in part]
        assert len({run.name for run in found}) == len(found), "names are unique"
        return {run.name: run for run in found}

    def seeds_of(self, family: str) -> list[StudyModel]:
        """The models of one family, as they ship, by seed."""
        own = [
            model
            for model in self.models.values()
            if model.family == family and not model.dialled and model.shipped != "planner"
        ]
        return sorted(own, key=lambda model: model.seed)

    def dialled(self, family: str, dial: str) -> StudyModel:
        """The dial's model of one family and setting."""
        return self.models[f"{family}-dial-{dial}"]

    def _greedy(self) -> list[StudyRun]:
        """Every model of the four families, greedy, with all measures."""
        return [
            StudyRun(
                model.name,
                "greedy",
                GREEDY[model.family],
                self.sizes.problems,
                measures=(ORDER, ARNESS, PLACEMENT),
            )
            for model in self.models.values()
            if model.family in GREEDY and model.shipped != "planner"
        ]

    def _similarity(self) -> list[StudyRun]:
        many = self.sizes.reference
        found = []
        for model in self.seeds_of("mdm"):
            reference = f"{model.name}.similarity-left_to_right"
            own: dict[str, tuple[Mapping[str, Any], int]] = {
                policy: ({"policy": policy}, many) for policy in ("left_to_right", "random")
            }
            own |= {policy: (options, 1) for policy, options in SIMILARITY_POLICIES.items()}
            found += [
                StudyRun(
                    model.name,
                    f"similarity-{policy}",
                    {**options, **PUBLISHED},
                    self.sizes.compared,
                    samples,
                    (ARNESS,) if samples > 1 else (ORDER, ARNESS),
                    reference,
                )
                for policy, (options, samples) in own.items()
            ]
        planner = StudyRun(
            "planner-layout1",
            "similarity-planner",
            {"policy": "planner"},
            self.sizes.compared,
            many,
            (ARNESS,),
            "mdm-layout1.similarity-left_to_right",
        )
        return [*found, planner]

    def _diverse(self) -> list[StudyRun]:
        """The same at temperature 1, where the programs of one problem differ."""
        return [
            StudyRun(
                model.name,
                f"diverse-{policy}",
                {"policy": policy, "temperature": 1.0},
                self.sizes.compared,
                self.sizes.drawn,
                (ARNESS,),
                f"{model.name}.diverse-left_to_right",
            )
            for model in self.seeds_of("mdm")
            for policy in DIVERSE_POLICIES
        ]

    def _segments(self) -> list[StudyRun]:
        """Greedy, and drawn at temperature 1, where there are errors to avoid."""
        return [
            StudyRun(
                model.name,
                f"segments-{policy}-k{k}{ending}",
                {"policy": policy, "k": k, **tempered},
                self.sizes.problems,
                measures=(ORDER,) if k == 1 else (),
            )
            for model in self.seeds_of("latentmdm")
            for ending, tempered in SEGMENT_DRAWS.items()
            for policy in SEGMENT_POLICIES
            for k in SEGMENT_KS
        ]

    def _insertion(self) -> list[StudyRun]:
        fixed = {"policy": "sampled", "clock": "events", "temperature": 0.1}
        return [
            StudyRun(
                model.name,
                f"insertion-{value:g}",
                {**fixed, "insertion_temperature": value},
                self.sizes.attempted,
                self.sizes.attempts,
                (ORDER,) if value == 1 else (),
            )
            for model in self.seeds_of("flexmdm")
            for value in INSERTION_TEMPERATURES
        ]

    def _ties(self) -> list[StudyRun]:
        return [
            StudyRun(
                model.name,
                f"ties-{name}",
                {"policy": "confidence", **PUBLISHED, **rules},
                self.sizes.problems,
                measures=(ORDER, ARNESS),
            )
            for model in (self.dialled("mdm", "layout0"), *self.seeds_of("mdm"))
            for name, rules in TIED.items()
        ]

    def _drawn(self) -> list[StudyRun]:
        """flexlatent and its parents at temperature 1, each with its own policy."""
        return [
            StudyRun(
                f"{family}-layout1",
                "drawn",
                {**GREEDY[family], "temperature": 1.0},
                self.sizes.attempted,
                self.sizes.drawn,
                (ORDER, ARNESS),
            )
            for family in ("mdm", "flexmdm", "latentmdm", "flexlatent")
        ]

    def _free(self) -> list[StudyRun]:
        dials = [(layout, 0.0) for layout in FREE_LAYOUTS]
        dials += [(0.0, wording) for wording in FREE_WORDINGS]
        found = [
            self._free_run(FreeSetting(layout, wording, align, ties, self.sizes.draws))
            for layout, wording in dials
            for align in ("left", "right")
            for ties in BOTH_TIES
        ]
        draws = max(1, self.sizes.draws // 4)
        few = (FreeSetting(1.0, 0.0, draws=draws), FreeSetting(0.0, 1.0, draws=draws))
        return [*found, *(self._free_run(each, "-fewer") for each in few)]

    def _free_run(self, setting: FreeSetting, ending: str = "") -> StudyRun:
        setting = replace(setting, problems=self.sizes.counted)
        dials = f"layout{setting.layout:g}-wording{setting.wording:g}"
        kind = f"{dials}-{setting.align}-{setting.ties}{ending}"
        measures = (ORDER, ARNESS, PLACEMENT)
        return StudyRun("counted", kind, {}, setting.problems, measures=measures, free=setting)
