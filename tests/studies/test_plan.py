"""The plan: every question's runs are in it, models are named as they are trained."""

from __future__ import annotations

import shlex

import pytest

from anyorder.families.family import find_family
from anyorder.recipes import find_recipe, override
from studies.model_plan import DIALLED, DIALS
from studies.plan import Plan, Sizes
from studies.questions.all import QUESTIONS
from studies.study_job import NAMES, StudyJob
from studies.studying import runs_needed

PLAN = Plan()


def test_questions_have_their_names_and_read_runs_of_the_plan() -> None:
    assert tuple(QUESTIONS) == NAMES
    read = {name for each in QUESTIONS.values() for name in each.runs(PLAN)}
    assert read == set(PLAN.runs), "every run is read by some question, and every read run is there"


def test_references_and_models_are_there() -> None:
    for run in PLAN.runs.values():
        assert run.free is not None or run.model in PLAN.models
        assert run.reference is None or run.reference in PLAN.runs


def test_options_are_those_of_the_family() -> None:
    for run in PLAN.runs.values():
        if run.free is None:
            find_family(PLAN.models[run.model].family).choose(run.options)


def test_three_seeds_of_the_main_families_and_every_dial() -> None:
    for family in ("mdm", "flexmdm", "latentmdm"):
        assert [model.seed for model in PLAN.seeds_of(family)] == [0, 1, 2]
    assert [model.seed for model in PLAN.seeds_of("flexlatent")] == [0]
    for family in DIALLED:
        for dial in ("layout0", "layout05", "layout1", "wording1"):
            model = PLAN.dialled(family, dial)
            assert (model.family, model.dial, model.align) == (family, dial, "left")


def test_trainings_are_recipes_and_commands() -> None:
    trained = {each.name: each for model in PLAN.models.values() for each in model.trainings}
    assert len(trained) == 8 + 17
    for model in PLAN.models.values():
        assert all(each == trained[each.name] for each in model.trainings), "one name, one training"
    for each in trained.values():
        recipe = override(find_recipe(each.recipe), each.changes)
        assert recipe.data.layout == each.changes["data.layout"]
        words = each.words("models")
        assert words[-1] == f"models/{each.name}" and "--threads" in words
    right = PLAN.models["mdm-dial-right"].trainings[0]
    assert shlex.join(right.words("m")) == (
        "anyorder train tiny/mdm --steps 4000 --data.layout 1 --data.align right "
        "--first-weights in_order --threads 1 --out m/mdm-dial-right"
    )


def test_the_dial_trains_alike_at_every_setting() -> None:
    """Within a family nothing but the corpus differs."""
    for family in DIALLED:
        alike = {
            tuple((name, value) for name, value in each.changes.items() if "data." not in name)
            for dial in DIALS
            for each in PLAN.dialled(family, dial).trainings
        }
        assert len(alike) == 1


def test_sizes_do_not_change_names() -> None:
    assert set(Plan(Sizes(problems=2, draws=1, attempts=1)).runs) == set(PLAN.runs)


def test_a_question_needs_its_own_runs_only() -> None:
    assert all("segments-" in name for name in runs_needed(PLAN, ["s4"]))
    assert runs_needed(PLAN, ["s6"]) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"questions": ("s9",)}, "no question 's9'"),
        ({"only": "figures"}, "choose from models, runs, page"),
        ({"processes": 0}, "--processes"),
        ({"sizes": Sizes(problems=1)}, "--problems must be at least 14"),
        ({"sizes": Sizes(draws=0)}, "--draws must be at least 1"),
    ],
)
def test_what_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        StudyJob(**changes)  # type: ignore[arg-type]
