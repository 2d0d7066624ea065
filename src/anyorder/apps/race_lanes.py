"""The lanes of a race: an entrant at one point in one way, as an ordinary run folder.

A lane's run is what `anyorder sample MODEL --task T --batch 1 ...` makes, card and all (the command
is in the card), so that `grade`, `measure`, `report` and `reproduce` take it like any other. Only
the order in which its samples were made is the race's (race_rounds.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyorder.apps.commands import command
from anyorder.apps.jobs import SampleJob
from anyorder.apps.race_families import SEVERAL, Point, points_of, ways
from anyorder.apps.race_job import RaceJob
from anyorder.apps.sampling_plan import Subject, plan_run
from anyorder.model import Model, Request
from anyorder.trace import Run, RunCard, Trace

ROUNDS = "rounds"
"""The folder of what is known of the rounds."""


@dataclass(frozen=True)
class Entrant:
    """A model that races."""

    name: str
    """Unique in the race, and the name of its folder."""
    model: Model = field(repr=False)


@dataclass(frozen=True)
class Lane:
    """One entrant, one point, one way."""

    entrant: Entrant
    point: Point
    way: str
    options: Any
    """Resolved."""
    card: RunCard = field(repr=False)
    requests: tuple[tuple[Request, ...], ...] = field(repr=False)
    """The samples of each problem."""
    folder: Path

    @property
    def key(self) -> str:
        """Its name in the race."""
        return f"{self.entrant.name}/{self.folder.name}"

    @property
    def samples(self) -> int:
        """Of each problem."""
        return len(self.requests[0])

    def decode(self, number: int, sample: int) -> Trace:
        """One sample of a problem, alone in its batch."""
        request, model = self.requests[number][sample], self.entrant.model
        [trace] = model.decode([request], self.options, self.card.seeds[0])
        return trace

    def run(self) -> Run:
        """Its folder, new or as it was left."""
        return Run.create(self.folder, self.card)


def named(models: Sequence[Model]) -> list[Entrant]:
    """Entrants by the last part of their model's name, with a number where that is taken."""
    counts = Counter({ROUNDS: 1})  # the race's own folder beside theirs
    found = []
    for model in models:
        short = "".join(c if c.isalnum() or c in "-_." else "_" for c in Path(model.name).name)
        counts[short] += 1
        found.append(Entrant(short if counts[short] == 1 else f"{short}-{counts[short]}", model))
    if len({each.name for each in found}) < len(found):
        raise ValueError("two models would share a name: rename one of their folders")
    return found


def make_lanes(
    job: RaceJob,
    entrants: Sequence[Entrant],
    subject: Subject,
    grids: Mapping[str, Sequence[Point]],
) -> list[Lane]:
    """All lanes, checked: nothing is written or computed."""
    found = []
    for entrant in entrants:
        for point in points_of(entrant.name, entrant.model.family, grids, entrant.model.net):
            given = ways(entrant.model.family, job.temperature, job.samples)
            for way, options in given.items():
                try:
                    found.append(_lane(job, entrant, point, way, options, subject))
                except ValueError as error:
                    where = f"{entrant.name} at {point.label or 'its defaults'}"
                    raise ValueError(f"{where}: {error}") from None
    twice = [key for key, count in Counter(lane.key for lane in found).items() if count > 1]
    if twice:
        raise ValueError(f"two settings would share the folder {twice[0]}: leave one out")
    return found


def _lane(
    job: RaceJob,
    entrant: Entrant,
    point: Point,
    way: str,
    options: Mapping[str, Any],
    subject: Subject,
) -> Lane:
    model, drawn = entrant.model, way == SEVERAL
    given = {**options, **point.options}
    folder = job.out / entrant.name / (f"{point.slug}-drawn" if drawn else point.slug)
    samples = job.samples if drawn else 1
    sampling = SampleJob(
        model=model.name,
        task=job.task,
        data=job.data,
        limit=job.limit,
        samples=samples,
        seed=job.seed,
        batch=1,
        device=job.device,
        out=folder,
    )
    line = command("sample", sampling, given)
    planned = plan_run(sampling, given, model, subject, command=line)
    rows = planned.requests
    requests = tuple(tuple(rows[at : at + samples]) for at in range(0, len(rows), samples))
    return Lane(entrant, point, way, planned.options, planned.card, requests, folder)
