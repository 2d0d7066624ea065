"""A stored study with made-up records, for tests of what reads it, and jobs for tests of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.measure.intervals import Interval
from anyorder.measure.order_nodes import METRICS
from anyorder.model import load
from anyorder.trace import RunCard
from anyorder.trace.run import CARD_FILE
from studies.plan import ARNESS, ORDER, PLACEMENT, SEEN, Plan, Sizes, StudyRun
from studies.questions.section import Section
from studies.records import (
    CANVASES_FILE,
    PAIRS_FILE,
    POINTS_FILE,
    RUNS,
    SAMPLES_FILE,
    write_table,
)
from studies.runs import QUANTITIES, WORDY, RunJob
from studies.view import MODELS, RACE_FILE, WEIGHTS_FILE

SIZES = Sizes(
    problems=SEEN + 6,
    compared=SEEN + 6,
    reference=2,
    attempted=SEEN + 6,
    attempts=2,
    drawn=2,
    counted=SEEN + 6,
    draws=8,
    race=10,
)
"""Of the study that is made up: six problems that count."""
SIZE_WORDS = [word for name, value in vars(SIZES).items() for word in (f"--{name}", str(value))]
TENTHS = 10
SCORES = ("global@1", "global@3", "local@1", "local@3", "adjacent", "tau")


CELL = re.compile(r"^-?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]$")


def bare_numbers(sections: dict[str, Section]) -> list[tuple[str, str, str]]:
    """Cells of our own that are a number without its bounds; bare numbers are the paper's."""
    return [
        (table.title, label, cell)
        for section in sections.values()
        for table in section.tables
        for label, *cells in table.rows
        for cell in cells
        if not label.startswith("paper") and re.match(r"^-?\d", cell) and not CELL.match(cell)
    ]


SETTING = re.compile(
    r"(?:at|to|within|above|below|layout|wording) -?0\.(?:02|05|1|15|25|5|6|75|9)(?!\d)"
)
"""A setting of the plan or a margin: chosen, not measured."""


def bare_decimals(text: str) -> list[str]:
    """Numbers of a text that have no bounds and are no settings."""
    told = re.sub(r"-?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]", "", text)
    return re.findall(r"\d+\.\d+", SETTING.sub("", told))


def make_study(folder: Path, plan: Plan, *, without: Collection[str] = ()) -> None:
    """Records of every run, but for those of models whose names are in `without`."""
    for number, run in enumerate(plan.runs.values()):
        if run.model not in without:
            make_run(folder / RUNS / run.name, run, number)
    for model in plan.models.values():
        if model.shipped is None and model.name not in without:
            path = folder / MODELS / model.name
            path.mkdir(parents=True)
            (path / WEIGHTS_FILE).write_bytes(b"")
    (folder / RACE_FILE).write_text(json.dumps(race()))


def make_run(folder: Path, run: StudyRun, number: int = 0) -> None:
    """Records of one run, by chance of its number."""
    chance = np.random.default_rng(number)
    folder.mkdir(parents=True)
    config = {} if run.free is None else {"setting": asdict(run.free)}
    card = RunCard(command=f"anyorder sample {run.model} --out x", config=config)
    card.write(folder / CARD_FILE)
    tasks = [f"stories/{number}" for number in range(run.problems)]
    keys = [(task, sample) for task in tasks for sample in range(run.samples)]
    names = ["forwards", "seconds", "ties"]
    if ARNESS in run.measures:
        endings = ("", ".chance", ".left_to_right", ".mirrored")
        names += [f"arness.{score}{ending}" for score in SCORES for ending in endings]
    if ORDER in run.measures:
        names += [
            f"order.{part}.{metric}{ending}"
            for part in ("overall", "split_only")
            for metric in METRICS
            for ending in ("", ".left_to_right", ".random", ".segments")
        ]
        names += ["segments.tau", "segments.tau.chance", "segments.count"]
    rows = [
        {
            "task_id": task,
            "sample": sample,
            "verdict": "passed",
            "passed": bool(chance.random() < 0.7),
            "valid": True,
            "tokens": int(chance.integers(20, 40)),
            **{name: float(chance.random()) for name in names},
        }
        for task, sample in keys
    ]
    about = {"run": run.name}
    if PLACEMENT in run.measures:
        canvases = [
            {
                "task_id": task,
                "sample": sample,
                "tenth": tenth,
                **{name: float(chance.random()) for name in QUANTITIES + WORDY},
            }
            for task, sample in keys
            for tenth in range(TENTHS)
        ]
        write_table(folder / CANVASES_FILE, canvases, about)
        points = [
            {"kind": kind, "mass": float(chance.random()), "loc": float(chance.random())}
            for kind in ("top", "committed")
            for _ in range(5)
        ]
        write_table(folder / POINTS_FILE, points, about)
    if run.reference is not None:
        pairs = [
            {
                "task_id": task,
                "filter": kind,
                "ceiling": run.reference == run.name,
                **{metric: float(chance.random()) for metric in ("TSED", "ASTD", "Coarse")},
            }
            for kind in ("valid", "correct")
            for task in tasks
        ]
        write_table(folder / PAIRS_FILE, pairs, about)
    write_table(folder / SAMPLES_FILE, rows, about)


def job_of(run: StudyRun, folder: Path, family: str) -> RunJob:
    """A run to be done with the model of a family that ships, or by counting."""
    digest = "" if run.free else load(family).digest
    model = "" if run.free else family
    return RunJob(run, model, digest, family, folder / "study", folder / "traces")


def race() -> dict[str, Any]:
    """The record of a race in which latentmdm is twice as fast as ar and as good."""

    def told(value: float, width: float = 0.05) -> dict[str, Any]:
        return Interval(value, value - width, value + width, 10, 0.95).to_record()

    lanes = []
    for family, seconds in {"ar": 1.0, "mdm": 2.0, "latentmdm": 0.5}.items():
        for way, k in (("one", 1), ("several", 4)):
            rate = {"k": k, "estimator": "unbiased", **told(0.9)}
            rate["tasks"] = rate.pop("n")
            lanes.append(
                {
                    "lane": f"{family}/plain-{way}",
                    "entrant": family,
                    "family": family,
                    "setting": "k 1" if family == "latentmdm" else "",
                    "way": way,
                    "rates": [rate],
                    "seconds": told(seconds),
                    "forwards": told(20 * seconds),
                    "against": told(seconds),
                    "front": family == "latentmdm",
                }
            )
    return {
        "conditions": {
            "problems": SIZES.race,
            "samples": 4,
            "temperature": 1.0,
            "threads": 1,
            "busy": False,
            "reference": "ar",
        },
        "lanes": lanes,
        "likelihood": {"mdm": {"nats_per_answer": told(3.0)}, "flexmdm": {"nats_per_answer": None}},
        "infill": {"mdm": {"rate": told(0.8)}},
    }
