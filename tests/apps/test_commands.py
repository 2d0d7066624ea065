"""A job as the command that does it: parsing the command gives the job back."""

from __future__ import annotations

import shlex
from pathlib import Path

from anyorder.apps.jobs import GradeJob, MeasureJob, ReportJob, SampleJob
from anyorder.apps.report import command
from anyorder.cli.parsing import job_flags, parse
from anyorder.cli.sample import sample_flags


def test_sampling() -> None:
    job = SampleJob(model="mdm", task="stories", limit=3, samples=2, out=Path("runs/a b"))
    options = {"policy": "random", "temperature": 0.5, "candidates": True}
    line = command("sample", job, options)
    assert line == (
        "anyorder sample mdm --task stories --limit 3 --samples 2 --policy random "
        "--temperature 0.5 --candidates --out 'runs/a b'"
    )
    flags = parse(sample_flags(), "sample", shlex.split(line)[2:])
    assert flags.job == job
    assert (flags.decoding.policy, flags.decoding.candidates) == ("random", True)


def test_measuring() -> None:
    runs = (Path("runs/a"), Path("runs/b"))
    job = MeasureJob(runs=runs, reference=Path("runs/c"), placement="mdm", stride=8)
    line = command("measure", job)
    assert line.startswith("anyorder measure runs/a runs/b --reference")
    assert parse(job_flags(MeasureJob), "measure", shlex.split(line)[2:]).job == job


def test_grading_names_the_run_first() -> None:
    line = command("grade", GradeJob(workers=1), named=["runs/a"])
    assert line == "anyorder grade runs/a --workers 1"


def test_a_negative_flag_is_said() -> None:
    line = command("report", ReportJob(runs=(Path("a"),), figures=False))
    assert line == "anyorder report a --no-figures"
