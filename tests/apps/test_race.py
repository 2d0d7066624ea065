"""A whole race on small models with random weights: its files, its words, and going on."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.apps import race as race_rounds
from anyorder.apps import race as racing
from anyorder.apps.infilling import GAP_HINTS, told_of_gaps
from anyorder.apps.jobs import RaceJob, SampleJob
from anyorder.apps.race import FinishedRace, race, round_order
from anyorder.apps.race.beside import gaps_of, nats_of, prompt_of, usable_texts
from anyorder.apps.race.plan import Lane, fillers, planned
from anyorder.apps.race.results import UNEQUAL
from anyorder.apps.sample import sample_to_run
from anyorder.apps.train import network_config
from anyorder.bench.tasks import find_task
from anyorder.data.corpora.stories import stories_vocab
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.families.family import FAMILIES
from anyorder.model import Card, build, load
from anyorder.recipes import find_recipe, override
from anyorder.trace import Run

ALL = [name for name in DESCRIPTIONS if name in FAMILIES]
NAMES = ["ar", "mdm", "flexmdm", "latentmdm"]
GRIDS = {"mdm": "steps=2,3", "latentmdm": "k=6", "ar": None, "block": "block=4"}
SMALL = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every family that can hold a whole story; nothing is trained."""
    folder, vocab = tmp_path_factory.mktemp("models"), stories_vocab()
    for family in ALL:
        recipe = override(find_recipe(f"tiny/{family}"), SMALL)
        net = asdict(network_config(recipe, vocab.size, vocab.eos_id))
        card = Card(family, net, max_new_tokens=64, max_length=112, recipe=recipe.as_json())
        build(card, vocab, name=family).save(folder / family)
    return folder


def job_of(folder: Path, out: Path, names: Sequence[str] = NAMES, **changes: Any) -> RaceJob:
    told = {name: GRIDS.get(name, "steps=2") for name in names}
    settings: dict[str, Any] = {
        "models": tuple(str(folder / name) for name in names),
        "limit": 2,
        "samples": 2,
        "texts": 2,
        "infill": 2,
        "workers": 1,
        "unequal": True,
        "grid": tuple(f"{name}:{grid}" for name, grid in told.items() if grid),
        "out": out,
    }
    return RaceJob(**settings | changes)


@pytest.fixture(scope="module")
def raced(models: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RaceJob, FinishedRace]:
    job = job_of(models, tmp_path_factory.mktemp("race") / "out")
    return job, race(job, progress=False)


def test_every_lane_is_timed_graded_and_compared(raced: tuple[RaceJob, FinishedRace]) -> None:
    results = raced[1].results
    assert len(results.lanes) == 2 * (len(NAMES) + 1)  # mdm has two points, each has two ways
    for lane in results.lanes:
        assert lane.rate.k == (1 if lane.way == "one" else 2)
        assert lane.rate.interval.n == 2
        assert lane.seconds.estimate > 0 and lane.cpu_seconds.estimate > 0
        assert lane.forwards.estimate >= 1
    first = [lane for lane in results.lanes if lane.entrant == NAMES[0]]
    assert [lane.against.estimate for lane in first] == pytest.approx([1.0, 1.0])
    for way in ("one", "several"):
        assert any(lane.front for lane in results.of_way(way))


def test_likelihood_and_infilling_are_asked_of_those_that_can(
    raced: tuple[RaceJob, FinishedRace],
) -> None:
    results = raced[1].results
    for name in NAMES:
        nats = results.nats[name]
        assert (nats.interval is not None) == (DESCRIPTIONS[name].likelihood is not None)
        assert nats.exact == (name == "ar")
        if nats.interval is not None:
            assert nats.interval.estimate > 10  # untrained: some nats a token
    assert set(results.infill) == {name for name in NAMES if FAMILIES[name].answers in GAP_HINTS}
    assert "ar" not in results.infill and results.infill["mdm"].told == "tokens"


def test_the_files_say_the_same(raced: tuple[RaceJob, FinishedRace]) -> None:
    job, found = raced
    record = json.loads((job.out / "race.json").read_text())
    assert record["status"] == "complete"
    assert [lane["lane"] for lane in record["lanes"]] == [x.lane for x in found.results.lanes]
    assert json.loads(json.dumps(found.to_record()))["front"] == record["front"]
    page = (job.out / "race.md").read_text()
    assert "| model | family |" in page and "pass@2, %" in page
    assert (job.out / "race.svg").read_text().startswith("<svg")
    assert (job.out / "race.png").read_bytes().startswith(b"\x89PNG")


def test_unequal_conditions_are_said_everywhere(raced: tuple[RaceJob, FinishedRace]) -> None:
    job, found = raced
    assert not found.results.fairness.equal
    assert all(UNEQUAL in table.title for table in found.tables)
    assert UNEQUAL in (job.out / "race.svg").read_text()
    record = json.loads((job.out / "race.json").read_text())
    assert record["fairness"]["equal"] is False and record["fairness"]["differences"]
    with pytest.raises(ValueError, match="not made under equal conditions"):
        race(replace(job, unequal=False, out=job.out / "other"), progress=False)
    assert not (job.out / "other").exists()


def test_a_lane_is_what_sample_would_have_made(raced: tuple[RaceJob, FinishedRace]) -> None:
    """The same card: `anyorder sample` finds its own finished run there, or makes the same."""
    job, _ = raced
    for name, options in {"mdm": {"steps": 3}, "flexmdm": {"steps": 2}, "ar": {}}.items():
        slug = "-".join(f"{key}-{value}" for key, value in options.items()) or "plain"
        folder = job.out / name / slug
        run = Run.open(folder)
        assert run.complete and run.card.command.startswith("anyorder sample ")
        sampling = SampleJob(
            model=str(Path(job.models[0]).parent / name), task="stories", limit=2, samples=1,
            batch=1, out=folder,
        )  # fmt: skip
        again = sample_to_run(sampling, options, command="", progress=False)
        assert again.card.files == run.card.files
        fresh = replace(sampling, out=job.out.parent / f"{name}-fresh")
        other = sample_to_run(fresh, options, command="", progress=False)
        texts = [trace.text for trace in other.traces()]
        assert texts == [trace.text for trace in run.traces()]


@pytest.mark.usefixtures("undrawn")
def test_repeating_computes_nothing_and_another_race_is_refused(
    raced: tuple[RaceJob, FinishedRace], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, found = raced

    def never(*anything: Any, **more: Any) -> Any:
        raise AssertionError("this was done already")

    monkeypatch.setattr(Lane, "decode", never)
    monkeypatch.setattr(racing, "nats_of", never)
    monkeypatch.setattr(racing, "infilled", never)
    again = race(job, progress=False)
    assert again.results.to_record() == found.results.to_record()
    with pytest.raises(ValueError, match="holds another race, which differs in limit"):
        race(replace(job, limit=3), progress=False)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the figure, which takes longer than a small race."""
    monkeypatch.setattr("anyorder.apps.race.results.save_figure", lambda results, folder: [])


@pytest.mark.usefixtures("undrawn")
def test_a_race_that_was_killed_goes_on(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(
        models, tmp_path / "out", ("ar", "latentmdm"), samples=1, texts=0, infill=0, limit=3
    )
    plain, rounds = race_rounds._round, []

    def dies(*arguments: Any) -> Any:
        rounds.append(arguments[1])
        if len(rounds) == 2:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(race_rounds, "_round", dies)
    with pytest.raises(KeyboardInterrupt):
        race(job, progress=False)
    assert json.loads((job.out / "race.json").read_text())["status"] == "running"
    found = race(job, progress=False)
    assert rounds == [0, 1, 1, 2]
    assert not found.results.nats and not found.results.infill
    for folder in (job.out / "ar" / "plain", job.out / "latentmdm" / "k-6"):
        assert len(list(Run.open(folder).traces())) == 3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"grid": ("mdm:quota=never",)}, "mdm at quota never: .*never"),
        ({"grid": ("mdm:k=1",)}, "mdm at k 1: mdm does not use k"),
        ({"task": "nothing"}, "no task 'nothing'"),
        ({"models": ("mdm", "mdm")}, "a model is named twice"),
        ({"models": ("nobody",)}, "no model 'nobody'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    models: Path, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    job = job_of(models, tmp_path / "out", ("mdm",), **{"grid": (), **changes})
    with pytest.raises(ValueError, match=complaint):
        race(job, progress=False)
    assert not job.out.exists()


def test_a_failed_start_leaves_the_folder_free_and_others_files_are_safe(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(models, tmp_path / "out", ("ar",), samples=1)

    def fails(*anything: Any) -> Any:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(Lane, "decode", fails)
        with pytest.raises(RuntimeError):
            race(job, progress=False)
    assert not job.out.exists() or not list(job.out.iterdir())
    job.out.mkdir(exist_ok=True)
    (job.out / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"not empty \(mine.txt\) and not a race"):
        race(job, progress=False)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"limit": 1}, "--limit 1: give at least 2"),
        ({"samples": 0}, "--samples must be at least 1"),
        ({"temperature": 0.0}, "one above 0"),
        ({"texts": -1}, "--texts must be at least 0"),
        ({"seed": -1}, "--seed must be"),
    ],
)
def test_bad_jobs_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RaceJob(**{"models": ("mdm",), **changes})


def test_a_gap_is_the_middle_and_is_marked_as_the_family_reads_it(models: Path) -> None:
    loaded = {name: load(models / name) for name in ALL if name != "ar"}
    problems = find_task("stories", loaded["mdm"].trained_on).problems(6)
    for gap in gaps_of(problems):
        assert gap.before + gap.hidden + gap.after == gap.problem.solution
        lines = gap.problem.solution.count("\n") + (not gap.problem.solution.endswith("\n"))
        assert gap.before.count("\n") == lines // 3 and gap.hidden
        assert len(gap.hidden.splitlines()) == lines - 2 * (lines // 3)
        for name, model in loaded.items():
            text = prompt_of(model, gap)
            length = {
                "tokens": f":{len(model.vocab.encode(gap.hidden))}",
                "lines": f":{len(gap.hidden.splitlines())}",
                "nothing": "",
            }[GAP_HINTS[model.family.answers]]
            assert text.startswith(f"{gap.problem.prompt}<answer>{gap.before}<fill{length}>"), name
            model.prepare([text])  # it fits


def changed(source: Path, folder: Path, **fields: Any) -> str:
    """A copy of a model with other fields in its config.json."""
    shutil.copytree(source, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return str(folder)


@pytest.mark.usefixtures("undrawn")
def test_a_gap_that_some_model_cannot_hold_is_left_out_for_all(
    models: Path, tmp_path: Path
) -> None:
    data = load(models / "mdm").card.recipe["data"]
    short = changed(models / "mdm", tmp_path / "mdm", max_new_tokens=34, max_length=70)
    every = gaps_of(find_task("stories", data).problems(6))
    whole = load(models / "mdm")
    texts = [prompt_of(whole, gap).replace("<answer>", "") for gap in every]  # no end behind them
    fits = [
        gap for gap, text in zip(every, texts, strict=True) if len(whole.canvas(text).ids) <= 70
    ]
    job = job_of(
        models, tmp_path / "out", ("mdm", "latentmdm"), models=(short, str(models / "latentmdm")),
        samples=1, infill=6, texts=0, grid=("mdm:steps=2", "latentmdm:k=6"),
    )  # fmt: skip
    found = race(job, progress=False)
    results = found.results
    for filled in results.infill.values():
        assert [row[0] for row in filled.programs] == [gap.problem.task_id for gap in fits]
    assert (results.gaps, results.gaps_left_out) == (len(fits), len(every) - len(fits))
    assert 0 < len(fits) < len(every)
    assert f"{results.gaps_left_out} more are left out" in " ".join(found.tables[0].notes)


def test_a_card_that_does_not_say_how_answers_are_cut_has_no_likelihood(
    models: Path, tmp_path: Path
) -> None:
    ar = load(models / "ar")
    silent = load(changed(models / "latentmdm", tmp_path / "silent", recipe={}))
    texts = usable_texts([ar, silent], find_task("stories", ar.trained_on).problems(2))
    assert len(texts) == 2
    found = nats_of(silent, texts)
    assert found.interval is None and "does not say how its answers were cut" in found.name


def test_a_likelihood_that_is_not_finite_is_said(models: Path) -> None:
    model = load(models / "ar")
    with torch.no_grad():
        next(model.net.parameters()).fill_(torch.nan)
    counted: list[int] = []
    problems = find_task("stories", model.trained_on).problems(3)
    found = nats_of(model, problems, counted.append)
    assert found.interval is None and found.name.startswith("none: ") and "nan" in found.name
    assert sum(counted) == 3


def test_the_planner_races_with_its_head_and_only_as_unequal(tmp_path: Path) -> None:
    job = RaceJob(("mdm", "planner"), limit=2, infill=2, unequal=True, out=tmp_path / "out")
    plan = planned(job)
    settings = {lane.point.label for lane in plan.lanes if lane.entrant.name == "planner"}
    assert settings == {"policy planner"}
    assert fillers(job, plan.entrants)[plan.entrants[1].model]["policy"] == "planner"
    with pytest.raises(ValueError, match=r"parameters differ.*training texts differ"):
        planned(replace(job, unequal=False))


def test_a_latentmdm_of_other_segments_is_told_nothing(models: Path, tmp_path: Path) -> None:
    card = json.loads((models / "latentmdm" / "config.json").read_text())
    net = card["net"] | {"segment_by": "fixed"}
    other = load(changed(models / "latentmdm", tmp_path / "fixed", net=net))
    [gap, *_] = gaps_of(find_task("stories", other.trained_on).problems(2))
    assert told_of_gaps(load(models / "latentmdm")) == "lines"
    assert told_of_gaps(other) == "nothing" and "<fill>" in prompt_of(other, gap)


def test_what_else_runs_is_told_apart_from_the_races_own_threads(
    raced: tuple[RaceJob, FinishedRace],
) -> None:
    about = raced[1].results.conditions
    assert replace(about, threads=1, load=1.6).busy
    assert not replace(about, threads=2, load=2.4).busy
    assert replace(about, threads=2, load=2.6).busy


@pytest.mark.usefixtures("undrawn")
def test_models_of_one_name_get_numbers(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "ar", tmp_path / "ar")
    both = (str(models / "ar"), str(tmp_path / "ar"))
    job = job_of(models, tmp_path / "out", ("ar",), models=both, samples=1, texts=0, infill=0)
    found = race(job, progress=False)
    assert [lane.entrant for lane in found.results.lanes] == ["ar", "ar-2"]
    assert found.results.fairness.equal


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_other_families_race_too(models: Path, tmp_path: Path) -> None:
    others = [name for name in ALL if name not in NAMES]
    found = race(job_of(models, tmp_path / "out", others), progress=False).results
    assert {lane.entrant for lane in found.lanes} == set(others) == set(found.infill)
    without = [name for name in others if found.nats[name].interval is None]
    assert without == (["sflm"] if "sflm" in others else [])


# Interleaving: every lane in every round, in an order that is even over rounds.


@given(st.integers(1, 40), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_a_round_has_every_lane_once(lanes: int, seed: int, number: int) -> None:
    order = round_order(lanes, seed, number)
    assert sorted(order) == list(range(lanes))
    assert order == round_order(lanes, seed, number)


def test_no_lane_has_a_place_of_its_own() -> None:
    """Over many rounds each lane is in each place about equally often, next to every other."""
    lanes, rounds = 6, 1200
    places, followed = Counter(), Counter()
    for number in range(rounds):
        order = round_order(lanes, 0, number)
        places.update(enumerate(order))
        followed.update(itertools.pairwise(order))
    expected = rounds / lanes
    assert all(abs(count - expected) < 0.3 * expected for count in places.values())
    assert len(places) == lanes * lanes and len(followed) == lanes * (lanes - 1)
    pairs = rounds * (lanes - 1) / (lanes * (lanes - 1))
    assert all(abs(count - pairs) < 0.35 * pairs for count in followed.values())
