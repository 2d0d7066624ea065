"""What the demo runs: plain jobs, each of which is a command that anybody can repeat.

Every run is sampled and graded by itself; measures are taken afterwards, of several runs at once.
Not here: how jobs are shared between processes (demo_work.py), what is told (demo_story.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyorder.apps.commands import command
from anyorder.apps.grade_job import GradeJob
from anyorder.apps.jobs import SampleJob
from anyorder.apps.measure_job import MeasureJob

PROBLEMS = 60
SAMPLES = 4
"""Of each problem, where chance decides: enough for pass@1 to pass@4."""
FEW_STEPS = 32
"""Of the families that change all slots in every step."""
INSERTION_TEMPERATURES = (1.0, 0.6)
SEGMENT_POLICIES = ("average", "minimum", "first", "left_to_right", "random")
KS = (1, 2, 4)
LINES = tuple(f"latentmdm-{policy}-k1" for policy in ("average", "minimum", "first", "random"))
GRADING = GradeJob(workers=1)


@dataclass(frozen=True)
class Sampling:
    """Sample a run, and execute its programs."""

    job: SampleJob
    options: Mapping[str, Any]
    weight: float = 1.0
    """How long it takes, roughly, for the progress bar and for a good order."""

    @property
    def folder(self) -> Path:
        """Of the run."""
        assert self.job.out is not None
        return self.job.out

    def commands(self) -> list[str]:
        """What does the same by hand."""
        return [
            command("sample", self.job, self.options),
            command("grade", GRADING, named=[str(self.folder)]),
        ]

    def do(self) -> None:
        """Do it, or what is left of it."""
        from anyorder.apps.grading import grade_run
        from anyorder.apps.sampling import sample_to_run

        line = command("sample", self.job, self.options)
        sample_to_run(self.job, dict(self.options), command=line, progress=False)
        grade_run(self.folder, GRADING, progress=False)


@dataclass(frozen=True)
class Measuring:
    """Measure finished runs."""

    job: MeasureJob
    weight: float = 1.0

    def commands(self) -> list[str]:
        """What does the same by hand."""
        return [command("measure", self.job)]

    def do(self) -> None:
        """Do it; measures that are there are taken again."""
        from anyorder.apps.measuring import measure_runs

        measure_runs(self.job, progress=False)


@dataclass(frozen=True)
class Plan:
    """All jobs of a demo in one folder."""

    out: Path
    problems: int = PROBLEMS
    models: Mapping[str, str] = field(default_factory=dict)
    """Other models than the shipped ones, by family."""

    def samplings(self) -> list[Sampling]:
        """All runs, the longest first: what is short fills the gaps at the end."""
        several = {"samples": SAMPLES}
        growing = [
            self._run(
                f"flexmdm-insertion-{value:g}",
                {"clock": "events", "insertion_temperature": value},
                weight=12,
                **several,
            )
            for value in INSERTION_TEMPERATURES
        ]
        growing.append(self._run("flexmdm-steps", {"clock": "steps"}, weight=20, **several))
        drawn = [
            self._run(f"{family}-drawn", {"temperature": 1.0}, weight=4, **several)
            for family in ("mdm", "ar")
        ]
        greedy = [
            self._run("flexlatent", {"clock": "events", "candidates": True}, weight=3),
            self._run("ar", {}),
            *(self._run(f"mdm-{p}", {"policy": p}) for p in ("confidence", "random")),
            self._run("mdm-left_to_right", {"policy": "left_to_right"}),
            self._run("planner", {"policy": "planner"}),
            *(
                self._run(name, {"steps": FEW_STEPS, "temperature": 0.0})
                for name in ("duo", "sflm")
            ),
        ]
        segments = [
            self._run(
                f"latentmdm-{policy}-k{k}",
                {"policy": policy, "k": k} | ({"candidates": True} if policy == "average" else {}),
            )
            for k in KS
            for policy in SEGMENT_POLICIES
        ]
        return [*growing, *drawn, *greedy, *segments]

    def measurings(self) -> list[Measuring]:
        """What is measured of them."""
        grown = [f"flexmdm-insertion-{value:g}" for value in INSERTION_TEMPERATURES]
        return [
            self._compared("mdm", ("mdm-confidence", "mdm-random"), "mdm-left_to_right", stride=8),
            self._compared("planner", ("planner",), "mdm-left_to_right", stride=8),
            self._compared("latentmdm", LINES, "latentmdm-left_to_right-k1"),
            self._order(*grown, "flexmdm-steps", "flexlatent"),
            self._order("ar", "ar-drawn", "mdm-left_to_right", "mdm-drawn"),
            self._order("latentmdm-left_to_right-k1"),
            self._order("duo", "sflm"),
        ]

    def commands(self) -> list[str]:
        """Everything by hand, in order."""
        jobs: list[Sampling | Measuring] = [*self.samplings(), *self.measurings()]
        return [line for job in jobs for line in job.commands()]

    def _run(
        self, name: str, options: dict[str, Any], *, weight: float = 1.0, samples: int | None = None
    ) -> Sampling:
        family = name.partition("-")[0]
        job = SampleJob(
            model=self.models.get(family, family),
            task="stories",
            limit=self.problems,
            samples=samples,
            out=self.out / name,
        )
        return Sampling(job, options, weight)

    def _compared(
        self, family: str, runs: tuple[str, ...], reference: str, stride: int | None = None
    ) -> Measuring:
        job = MeasureJob(
            runs=tuple(self.out / name for name in runs),
            reference=self.out / reference,
            placement=self.models.get(family, family),
            stride=stride,
        )
        return Measuring(job, weight=3)

    def _order(self, *runs: str) -> Measuring:
        job = MeasureJob(runs=tuple(self.out / name for name in runs), only="order,arness")
        return Measuring(job)
