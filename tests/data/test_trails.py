"""The corpus `trails`: renderings are right, no wrong program passes, dials move what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.data.batches import BatchConfig, Example, collate
from anyorder.data.corpora.trails import (
    ANCHORS,
    Trail,
    TrailsConfig,
    TrailsDials,
    core,
    problem,
    render,
    sizes,
    trails_digest,
    trails_vocab,
)
from anyorder.data.corpora.trails.grammar import (
    OPERATIONS,
    SHAPES,
    STATEMENTS,
    TrailLayout,
    TrailWords,
    write,
)
from anyorder.data.corpora.trails.problems import STARTS, held_out, result

VOCAB = trails_vocab()
CONFIGS = {
    "strict": TrailsConfig(hops=(3, 5)),
    "free": TrailsConfig(hops=(3, 5), layout=1.0),
    "stated": TrailsConfig(layout=1.0, state_layout=True, told=True),
    "all dials": TrailsConfig(hops=(3, 6), arms=3, layout=1.0, lines=0.4, shape=1.0, wording=1.0),
    "stated shapes": TrailsConfig(hops=(3, 6), layout=0.5, lines=0.4, shape=1.0, state_layout=True),
    "mixture": TrailsConfig(hops=(4, 5), layout=1.0, mixture=True),
    "one chain": TrailsConfig(arms=1),
    "held out": TrailsConfig(hops=(3, 6), split="heldout", layout=1.0, shape=1.0, lines=0.5),
}


def passes(trail: Trail, program: str) -> bool:
    """Whether a program gives every answer; ours are plain arithmetic and run here."""
    code = compile(program, "program", "exec")
    for case in trail.cases():
        names: dict[str, Any] = dict(zip(trail.core.starts, case.starts, strict=True))
        exec(code, names)
        try:
            if names["solve"]() != case.expected:
                return False
        except NameError:
            return False
    return True


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_rendering_gives_the_answers(config: TrailsConfig) -> None:
    for index in range(120):
        found = core(config, index)
        for draw in range(3):
            trail = render(found, config, draw)
            assert passes(trail, trail.program), trail.program


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_texts_are_cut_into_the_pieces_that_they_were_made_of(config: TrailsConfig) -> None:
    largest = sizes(config)
    for index in range(80):
        trail = problem(config, index)
        for text in (trail.prompt, trail.program):
            assert VOCAB.decode(VOCAB.encode(text)) == text
        lines = write(trail.core.steps, trail.layout, trail.words)
        assert VOCAB.encode(trail.program) == [
            id for line in lines for piece in line for id in VOCAB.encode(piece)
        ]
        assert all(len(VOCAB.encode(piece)) == 1 for line in lines for piece in line)
        assert len(VOCAB.encode(trail.prompt)) <= largest.prompt
        assert len(VOCAB.encode(trail.program)) <= largest.program
        assert len(lines) <= largest.lines
        assert max(map(len, lines)) <= largest.line


def test_sizes_are_reached() -> None:
    """Bounds that no problem reaches would only waste canvas."""
    config = TrailsConfig()
    trails = [problem(config, index) for index in range(20)]
    assert max(len(VOCAB.encode(trail.prompt)) for trail in trails) == sizes(config).prompt == 29
    assert max(len(VOCAB.encode(trail.program)) for trail in trails) == sizes(config).program == 33


def test_forms_of_an_operation_compute_the_same() -> None:
    steps = [("figs", "plums", operation) for operation in OPERATIONS.values()]
    for step, number in product(steps, range(60)):
        for form in range(4):
            layout = TrailLayout("steps", (form,), (False,))
            text = "".join(p for line in write([step], layout, TrailWords()) for p in line)
            names: dict[str, Any] = {"figs": number}
            exec(text, names)
            assert names["solve"]() == step[2].rule(number), text


def test_no_wrong_chain_and_no_program_with_one_wrong_step_passes() -> None:
    config = TrailsConfig(hops=(3, 5), arms=3)
    plain = TrailWords()
    for index in range(60):
        trail = problem(config, index)
        steps, hops = list(trail.core.steps), trail.core.hops
        wrong = []
        for chain in range(1, trail.core.arms):
            names, operations = trail.core.chains[chain], trail.core.operations[chain]
            pairs = zip(names, names[1:], operations, strict=False)
            wrong.append([(read, made, OPERATIONS[name]) for read, made, name in pairs])
        for place, operation in product(range(hops), OPERATIONS.values()):
            if operation is not steps[place][2]:
                changed = (*steps[place][:2], operation)
                wrong.append([*steps[:place], changed, *steps[place + 1 :]])
        for chain in wrong:
            layout = TrailLayout("steps", (0,) * len(chain), (False,) * len(chain))
            text = "".join(piece for line in write(chain, layout, plain) for piece in line)
            assert not passes(trail, text), text


def test_at_layout_0_every_place_follows_from_the_prompt() -> None:
    """Prompts of one length have programs whose lines begin at the same places."""
    config = TrailsConfig(hops=(3, 6))
    places: dict[int, set[tuple[int, ...]]] = {}
    for index in range(300):
        trail = problem(config, index)
        ids = VOCAB.encode(trail.program)
        newline = VOCAB.encode("\n")[0]
        ends = tuple(place for place, id in enumerate(ids) if id == newline)
        places.setdefault(len(VOCAB.encode(trail.prompt)), set()).add((*ends, len(ids)))
    assert len(places) == 4  # one for each number of hops
    assert all(len(each) == 1 for each in places.values())


def on_canvas(trail: Trail, align: Literal["left", "right"]) -> list[int]:
    """The row of a fixed canvas, as a batch has it."""
    example = Example(VOCAB.encode(trail.prompt), VOCAB.encode(trail.program), trail.index)
    batch = collate([example], VOCAB, BatchConfig(canvas=120, align=align))
    return batch.ids[0, len(example.prompt) :].tolist()


@pytest.mark.parametrize("align", ["left", "right"])
def test_at_layout_0_a_prompt_has_one_canvas_whatever_its_side(
    align: Literal["left", "right"],
) -> None:
    """The place of every token follows from the prompt; with any other layout it does not."""

    def canvases(config: TrailsConfig) -> list[set[tuple[int, ...]]]:
        found = []
        for index in range(25):
            trails = [render(core(config, index), config, draw) for draw in range(6)]
            assert len({trail.prompt for trail in trails}) == 1
            found.append({tuple(on_canvas(trail, align)) for trail in trails})
        return found

    strict = TrailsConfig(hops=(3, 6), wording=1.0)
    assert all(len(each) == 1 for each in canvases(strict))
    for free in ({"layout": 1.0}, {"lines": 0.5}, {"shape": 1.0}):
        assert sum(len(each) > 1 for each in canvases(replace(strict, **free))) > 20


def test_on_the_right_every_place_follows_from_the_end() -> None:
    """Whatever the number of hops, a line counted from the end of the canvas has its place there;
    on the left this holds from the beginning."""
    newline = VOCAB.encode("\n")[0]
    ends: dict[str, list[list[int]]] = {"left": [], "right": []}
    for index in range(60):
        trail = problem(TrailsConfig(hops=(3, 6)), index)
        for align, found in ends.items():
            row = on_canvas(trail, align)  # type: ignore[arg-type]
            found.append([place for place, id in enumerate(row) if id == newline])
    assert {len(places) for places in ends["left"]} == {4, 5, 6, 7}
    assert len({tuple(places[-4:]) for places in ends["right"]}) == 1
    assert len({tuple(places[:4]) for places in ends["left"]}) == 1
    assert len({places[-1] for places in ends["left"]}) == 4


def test_a_stated_layout_leaves_no_freedom() -> None:
    config = TrailsConfig(layout=1.0, lines=0.4, shape=1.0, state_layout=True)
    seen: dict[str, set[str]] = {}
    for index, draw in product(range(20), range(30)):
        trail = render(core(config, index), config, draw)
        seen.setdefault(trail.prompt, set()).add(trail.program)
    assert all(len(programs) == 1 for programs in seen.values())
    assert len(seen) > 300  # and layouts do differ


DIALS: dict[str, Callable[[Trail], object]] = {
    "layout": lambda trail: trail.layout.forms,
    "lines": lambda trail: trail.program.count("\n"),
    "shape": lambda trail: trail.layout.shape,
    "wording": lambda trail: trail.words,
}


@pytest.mark.parametrize("dial", DIALS)
def test_a_dial_moves_what_it_says_and_nothing_else(dial: str) -> None:
    base = TrailsConfig(hops=(4, 5), layout=0.5, lines=0.2, shape=0.5, wording=0.5)
    moved = 0
    for index in range(150):
        low = render(core(base, index), base)
        high = render(core(base, index), replace(base, **{dial: 1.0}))
        assert low.prompt == high.prompt
        moved += DIALS[dial](low) != DIALS[dial](high)
        before, after = low.layout, high.layout
        several = [[form == STATEMENTS for form in each.forms] for each in (before, after)]
        assert dial == "wording" or low.words == high.words
        assert dial == "layout" or before.comments == after.comments
        assert dial == "shape" or (before.shape, before.at) == (after.shape, after.at)
        assert dial in ("lines", "shape") or several[0] == several[1]
        if dial == "lines":  # the other steps keep their forms
            forms = zip(before.forms, after.forms, strict=True)
            assert all(new in (old, STATEMENTS) for old, new in forms)
        if dial == "wording":
            assert before == after
            count = [len(VOCAB.encode(trail.program)) for trail in (low, high)]
            assert count[0] == count[1]
    assert moved > 20


def test_the_other_dials_move_the_prompt_alone() -> None:
    """`anchor` moves the question, `state_layout` adds what the layout is."""
    free = TrailsConfig(layout=1.0, lines=0.3, shape=0.5)
    for index in range(40):
        trail, stated = (
            problem(config, index) for config in (free, replace(free, state_layout=True))
        )
        assert (stated.program, stated.layout) == (trail.program, trail.layout)
        opening, question = "Free. ", trail.prompt.rpartition(". ")[2]
        facts = trail.prompt.removeprefix(opening).removesuffix(question)
        assert stated.prompt.startswith(f"Stated. {facts}") and stated.prompt.endswith(question)
        others = [
            problem(replace(free, anchor=weights), index)
            for weights in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        ]
        assert tuple(other.core.anchor for other in others) == ANCHORS
        assert {other.program for other in others} == {trail.program}
        assert all(other.prompt.startswith(opening + facts) for other in others)
    for arms, hops in product((1, 2, 3), (3, 6)):
        found = core(TrailsConfig(arms=arms, hops=(hops, hops)), 0)
        assert (found.arms, found.hops, len(found.facts)) == (arms, hops, arms * hops)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_a_step_that_is_free_stays_free_at_higher_settings(
    index: int, first: float, second: float
) -> None:
    low, high = sorted((first, second))
    config = TrailsConfig(layout=high)
    below = render(core(config, index), replace(config, layout=max(low, 1e-9)))
    above = render(core(config, index), config)
    for before, after in zip(below.layout.forms, above.layout.forms, strict=True):
        assert before in (0, after)
    for before, after in zip(below.layout.comments, above.layout.comments, strict=True):
        assert before <= after


def test_anchors_conditions_and_shapes_come_in_their_shares() -> None:
    count = 3000
    config = TrailsConfig(layout=1.0, shape=1.0, mixture=True)
    trails = [problem(config, index) for index in range(count)]
    anchors = Counter(trail.core.anchor for trail in trails)
    conditions = Counter(trail.core.condition for trail in trails)
    shapes = Counter(trail.layout.shape for trail in trails if trail.core.condition == "free")
    assert all(abs(anchors[name] / count - 1 / 3) < 0.03 for name in ANCHORS)
    for name, share in (("strict", 0.4), ("free", 0.4), ("stated", 0.2)):
        assert abs(conditions[name] / count - share) < 0.03
    assert abs(sum(trail.core.told for trail in trails) / count - 0.25) < 0.03
    for name, share in zip(SHAPES, (0.40, 0.25, 0.20, 0.15), strict=True):
        assert abs(shapes[name] / conditions["free"] - share) < 0.05
    goals = TrailsConfig(anchor=(0.0, 0.0, 1.0))
    assert {problem(goals, index).core.anchor for index in range(50)} == {"goal"}


def test_the_prompt_names_the_anchor_and_tells_the_chain_only_if_asked() -> None:
    for index in range(60):
        plain, told = (problem(TrailsConfig(told=told), index) for told in (False, True))
        assert plain.program == told.program
        names = plain.core.chains[0]
        assert f" {names[plain.core.place]}" in plain.prompt.rpartition(". ")[2]
        listed = "".join(f"Then {name}. " for name in names)
        assert listed in told.prompt
        assert told.prompt.replace(listed, "") == plain.prompt


def test_held_out_chains_have_a_triple_that_training_never_has() -> None:
    for index in range(150):
        train = core(TrailsConfig(hops=(3, 6), arms=2), index)
        assert not any(map(held_out, train.operations))
        assert held_out(core(TrailsConfig(hops=(3, 6), split="heldout"), index).operations[0])
    triples = [triple for triple in product(OPERATIONS, repeat=3) if held_out(triple)]
    assert 0.15 < len(triples) / len(OPERATIONS) ** 3 < 0.25


def test_numbers_on_the_way_are_not_negative_and_answers_differ() -> None:
    for index in range(200):
        found = core(TrailsConfig(hops=(3, 6)), index)
        for operations in found.operations:
            for count, start in product(range(1, len(operations) + 1), STARTS):
                assert result(operations[:count], start) >= 0
        assert len({case.expected for case in problem(TrailsConfig(), index).cases()}) >= 4


def test_the_same_fields_give_the_same_problems() -> None:
    """A changed generator is another corpus: models and studies name this digest."""
    assert problem(TrailsConfig(), 7) == problem(TrailsConfig(), 7)
    assert problem(TrailsConfig(), 7).prompt != problem(TrailsConfig(seed=1), 7).prompt
    assert trails_digest(TrailsConfig()) != trails_digest(TrailsConfig(seed=1))


def test_the_page_shows_the_first_problem() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trails.md").read_text(encoding="utf-8")
    shown = page.partition("```example\n")[2].partition("```")[0]
    first = problem(TrailsConfig(), 0)
    assert shown == f"{first.prompt}{first.program}\n"
    for dial in fields(TrailsDials):
        assert f"| `{dial.name}` |" in page


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hops": (2, 4)}, "hops"),
    ({"hops": (5, 4)}, "hops"),
    ({"hops": (4, 7)}, "hops"),
    ({"arms": 4}, "arms"),
    ({"anchor": (0.0, 0.0, 0.0)}, "anchor"),
    ({"anchor": (1.0, 1.0)}, "anchor"),
    ({"layout": 1.5}, "layout"),
    ({"shape": -0.1}, "shape"),
    ({"told": 1}, "told"),
    ({"split": "test"}, "split"),
    ({"seed": 1.0}, "seed"),
    ({"mixture": True}, "layout"),
    ({"state_layout": True}, "layout"),
    ({"layout": 1.0, "mixture": True, "told": True}, "told"),
]


@pytest.mark.parametrize(("fields", "named"), WRONG)
def test_settings_without_sense_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TrailsConfig(**fields)
    with pytest.raises(ValueError, match="unknown field 'hop'"):
        TrailsConfig.from_fields({"hop": 3})
    with pytest.raises(ValueError, match="from 0 on"):
        problem(TrailsConfig(), -1)
