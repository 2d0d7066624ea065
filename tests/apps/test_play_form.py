"""The playground's form is the family's own options; its messages find their field."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from play_support import STORY, asked

from anyorder.apps.play.form import (
    BadInput,
    Field,
    GenerationRequest,
    attribute_docs,
    form_of,
    prepared,
)
from anyorder.apps.play.work import prompts_for
from anyorder.families.family import FAMILIES
from anyorder.model import Model, load


@pytest.fixture(scope="module", params=list(FAMILIES))
def model(request: pytest.FixtureRequest, small_models: Path) -> Model:
    return load(small_models / request.param)


@pytest.fixture(scope="module")
def mdm(small_models: Path) -> Model:
    return load(small_models / "mdm")


def by_name(model: Model) -> dict[str, Field]:
    return {field.name: field for field in form_of(model)}


def test_the_form_has_every_option_of_the_family_and_no_other(model: Model) -> None:
    form = by_name(model)
    own = {field.name for field in fields(model.family.options)}  # type: ignore[arg-type]
    sizes = set() if model.family.counts_segments else {"max_new_tokens", "max_length"}
    assert set(form) == own | sizes
    documented = attribute_docs(model.family.options)
    assert {name: form[name].help for name in documented} == documented


def test_every_choice_that_is_offered_is_taken_in_some_way(model: Model) -> None:
    """A name in the list is one that the library knows: its message never says it does not fit."""
    for field in form_of(model):
        for choice in field.choices:
            message = ""
            try:
                model.prepare(STORY, **{field.name: choice})
            except ValueError as error:
                message = str(error)
            assert "does not fit" not in message and "unknown" not in message
    if "policy" in by_name(model):
        for policy in by_name(model)["policy"].choices:
            assert model.prepare(STORY, policy=policy)[1].policy == policy


def test_defaults_are_what_happens_when_nothing_is_set(model: Model) -> None:
    chosen = model.choose({}, [])
    for name, field in by_name(model).items():
        if hasattr(chosen, name) and field.default:
            assert field.default == str(getattr(chosen, name))


def test_prominent_options_come_first(model: Model) -> None:
    prominent = [field.prominent for field in form_of(model)]
    assert prominent == sorted(prominent, reverse=True) and any(prominent)


def test_kinds_follow_the_types(small_models: Path) -> None:
    form = by_name(load(small_models / "flexmdm"))
    assert form["policy"].kind == form["clock"].kind == "choice"
    assert form["steps"].kind == "whole" and form["steps"].default == ""  # as many as events
    assert form["temperature"].kind == "number" and form["force_unmask"].kind == "switch"
    assert form["unmasking_schedule"].kind == "text"
    assert form["quota"].choices == ["thinned", "poisson"]
    quota = by_name(load(small_models / "mdm"))["quota"]
    assert quota.kind == "text" and quota.choices == ["even", "dream", "threshold", "factor"]
    velocity = by_name(load(small_models / "sflm"))["velocity"]
    assert (velocity.kind, velocity.choices) == ("text", ["exact", "top1", "sampled"])
    segments = by_name(load(small_models / "latentmdm"))["policy"].choices
    assert "average" in segments and "confidence" not in segments


def test_attribute_docs_are_read_off_the_source() -> None:
    @dataclass
    class Base:
        one: int = 1
        """The first,
        on two lines."""
        two: int = 2

    @dataclass
    class Child(Base):
        three: int = 3
        """The third."""

    assert attribute_docs(Child) == {"one": "The first, on two lines.", "three": "The third."}


def refusal(model: Model, prompt: str = STORY, **settings: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        prepared(model, GenerationRequest.read(asked("m", prompt=prompt, settings=settings)))
    return caught.value


def test_messages_are_the_library_s_own(mdm: Model) -> None:
    for settings in ({"top_p": 7}, {"steps": 0}, {"policy": "none"}, {"block": 5, "steps": 3}):
        with pytest.raises(ValueError, match=r"\w+") as expected:
            mdm.prepare(STORY, **settings)
        assert str(refusal(mdm, **settings)) == str(expected.value)


def test_a_message_that_two_settings_cause_is_told_at_one_of_them(mdm: Model) -> None:
    caused = refusal(mdm, policy="margin", quota="threshold:0.9", temperature=0.5)
    assert caused.field in ("policy", "quota")
    caused = refusal(mdm, mode="compat", policy="random", ties="leftmost", temperature=0.5)
    assert caused.field in ("policy", "ties")


def test_what_the_prompt_causes_is_told_at_the_prompt(mdm: Model, small_models: Path) -> None:
    assert refusal(mdm, "a < fill > b", temperature=0.5).field == "prompt"
    ar = load(small_models / "ar")
    assert refusal(ar, f"{STORY}<fill:3>\n", temperature=0.5).field == "prompt"


def test_the_rest_of_a_request_is_checked_before_any_model_is_opened() -> None:
    read = GenerationRequest.read(asked("m", seed="9223372036854775807", pause=1))
    assert read.seed == 2**63 - 1
    for changes in ({"seed": 1.5}, {"seed": True}, {"seed": None}):
        with pytest.raises(BadInput, match="seed must be"):
            GenerationRequest.read(asked("m", **changes))
    for pause in (-1, True, "fast", float("nan")):
        with pytest.raises(BadInput, match="pause"):
            GenerationRequest.read(asked("m", pause=pause))
    with pytest.raises(BadInput, match="100 characters"):
        GenerationRequest.read(asked("m", settings={"policy": "x" * 101}))
    for record in (None, [], "text", {}, {"tab": 1}):
        with pytest.raises(BadInput):
            GenerationRequest.read(record)


def test_the_title_tells_what_was_set() -> None:
    read = GenerationRequest.read(asked("runs/m", settings={"policy": "random", "top_p": 0.5}))
    assert read.title == "runs/m, seed 0, top p 0.5"


def test_prompts_are_held_out_stories_and_gaps_can_be_filled(model: Model) -> None:
    prompts = prompts_for(model, 4)
    assert [prompt["name"] for prompt in prompts] == [f"stories/{i}" for i in range(4)]
    for prompt in prompts:
        assert model.prepare(prompt["text"])
        assert (prompt["gap"] is None) == model.family.causal
        if prompt["gap"] is not None:
            assert prompt["gap"].startswith(prompt["text"]) and model.prepare(prompt["gap"])
