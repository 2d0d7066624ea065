"""A job as the command that does it: parsing the command gives the job back."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from anyorder.apps.jobs import GradeJob, MeasureJob, ReportJob, SampleJob
from anyorder.apps.report import command, schedule_drawing, schedule_figure, shares_of
from anyorder.cli.parsing import job_flags, parse
from anyorder.cli.sample import sample_flags
from anyorder.families.flexmdm.config import FlexConfig
from anyorder.model import Card, Model, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.trace import Trace
from anyorder.vocab import Vocab


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


# The schedule figure's numbers: closed forms, and traces counted.


VOCAB = Vocab.words(list("abc"))


def model() -> Model:
    backbone = TransformerConfig(VOCAB.size, 16, 1, 2, 2, 8, 24, time_modulated=True)
    card = Card("flexmdm", asdict(FlexConfig(backbone)), 8, 16, {})
    return build(card, VOCAB, name="tiny")


def test_the_panels_of_the_published_schedules() -> None:
    figure = schedule_figure(model(), points=5, unmasking_schedule="kept")
    t = 0.5
    assert figure["schedules"]["insertion"][2] == pytest.approx(1 - t**1.7)
    assert figure["schedules"]["unmasking"][2] == pytest.approx(1 - t**2.89)
    assert figure["training"]["masked"][2] == pytest.approx((t**1.7 - t**2.89) / 0.7)
    # Kept against 2.9: hazards 2.9 and 2.89, so masks pile up early and are revealed late.
    masked = 2.9 / (2.89 - 2.9) * (t**2.9 - t**2.89)
    assert figure["inference"]["masked"][2] == pytest.approx(masked)
    for panel in ("training", "inference"):
        curves = figure[panel]
        for inserted, masks, clean in zip(
            curves["inserted"], curves["masked"], curves["clean"], strict=True
        ):
            assert inserted == pytest.approx(masks + clean, abs=1e-12)
        assert (curves["inserted"][0], curves["clean"][-1]) == (0, 1)


def test_equal_exponents_have_their_limit() -> None:
    equal = schedule_figure(model(), insertion_schedule=2.0, unmasking_schedule=2.0, points=11)
    near = schedule_figure(model(), insertion_schedule=2.0, unmasking_schedule=2.0001, points=11)
    assert equal["inference"]["masked"] == pytest.approx(near["inference"]["masked"], abs=1e-3)


def test_traces_are_counted_without_the_given_text() -> None:
    trace = Trace.from_tokens(
        VOCAB,
        [0, 1, 2, 0],
        prompt_ids=[1],
        insert_step=[1, 1, 0, 2],
        reveal_step=[2, 3, 0, 4],
        steps=4,
    )
    shares = shares_of([trace, trace])
    assert shares["inserted"] == pytest.approx([0, 2 / 3, 1, 1, 1])
    assert shares["clean"] == pytest.approx([0, 0, 1 / 3, 2 / 3, 1])
    assert shares["masked"] == pytest.approx([0, 2 / 3, 2 / 3, 1 / 3, 0])


def test_sampled_traces_join_the_figure_and_other_families_are_refused() -> None:
    flex = model()
    figure = schedule_figure(flex, flex.sample("ab", steps=4, seed=1, samples=3))
    assert figure["sampled"]["clean"][-1] == 1
    config = TransformerConfig(VOCAB.size, 16, 1, 2, 2, 8, 24)
    mdm = build(Card("mdm", asdict(config), 8, 16, {}), VOCAB, name="mdm")
    with pytest.raises(ValueError, match="inserts nothing"):
        schedule_figure(mdm)


def test_the_figure_is_drawn() -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install anyorder[report]")
    flex = model()
    source = schedule_drawing(flex, flex.sample("ab", steps=4, seed=1), points=11).svg()
    assert ">While sampling: planned<" in source
    assert ">While sampling: counted<" in source
