"""The dials: `layout` makes uncertain where tokens go, `wording` what they are, and nothing else.

Entropies are those of many renderings of one problem, i.e. given its prompt.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable

import pytest

from anyorder.data.corpora.stories import StoriesConfig, core, freedom, render, stories_vocab
from anyorder.data.corpora.stories.problem import FREEDOM
from anyorder.data.corpora.stories.program import NOUNS, RETURN

VOCAB = stories_vocab()
CONTENT = {VOCAB.encode(word)[0] for nouns in NOUNS.values() for word in nouns}
RETURN_ID = VOCAB.encode(RETURN)[0]
PROBLEMS = (0, 1, 2, 3, 4, 5, 9, 11)
DRAWS = 400


def entropy(values: Iterable[Hashable]) -> float:
    counts = Counter(values)
    total = sum(counts.values())
    return sum(-n / total * math.log2(n / total) for n in counts.values())


def renderings(
    index: int, config: StoriesConfig, draws: int = DRAWS
) -> list[tuple[str, list[int]]]:
    base = core(config, index)
    found = [render(base, config, draw) for draw in range(draws)]
    return [(each.prompt, VOCAB.encode(each.program)) for each in found]


def places(program: list[int]) -> list[tuple[int, int]]:
    """Each occurrence of a quantity's name, and the last return, with its position."""
    uses = [(token, place) for place, token in enumerate(program) if token in CONTENT]
    last = max(place for place, token in enumerate(program) if token == RETURN_ID)
    return [*uses, (RETURN_ID, last)]


def position_entropies(programs: list[list[int]]) -> list[float]:
    """For each content token in turn, the entropy of its position."""
    found = [places(program) for program in programs]
    tokens = {tuple(token for token, _ in each) for each in found}
    assert len(tokens) == 1, "which content tokens there are, and in which order, never varies"
    return [entropy(column) for column in zip(*found, strict=True)]


def mean_position_entropy(index: int, **dials: float) -> float:
    values = position_entropies([p for _, p in renderings(index, StoriesConfig(**dials))])  # type: ignore[arg-type]
    return sum(values) / len(values)


def mean_identity_entropy(index: int, wording: float) -> float:
    """At layout 0 every program of a problem has the same length: the entropy at each position."""
    programs = [p for _, p in renderings(index, StoriesConfig(wording=wording))]
    columns = list(zip(*programs, strict=True))
    return sum(map(entropy, columns)) / len(columns)


@pytest.mark.parametrize("index", PROBLEMS)
def test_where_is_certain_at_layout_0_whatever_the_wording(index: int) -> None:
    for wording in (0.0, 0.5, 1.0):
        programs = [p for _, p in renderings(index, StoriesConfig(wording=wording), 200)]
        assert set(map(len, programs)) == {len(programs[0])}
        assert position_entropies(programs) == [0.0] * len(places(programs[0]))
    plain = {tuple(p) for _, p in renderings(index, StoriesConfig(), 200)}
    assert len(plain) == 1


@pytest.mark.parametrize("index", PROBLEMS)
def test_where_becomes_uncertain_with_layout(index: int) -> None:
    at_0, at_half, at_1 = (mean_position_entropy(index, layout=dial) for dial in (0.0, 0.5, 1.0))
    assert at_0 == 0.0
    assert at_half > at_0 + 0.2
    assert at_1 > at_half + 0.2


@pytest.mark.parametrize("index", PROBLEMS)
def test_uncertainty_adds_up_away_from_the_anchored_side(index: int) -> None:
    """What stands before all free lines never moves; the last return moves most."""
    programs = [p for _, p in renderings(index, StoriesConfig(layout=1.0))]
    values = position_entropies(programs)
    assert values[-1] > 1.5
    assert values[-1] >= max(values) - 0.1
    first_line = programs[0].index(VOCAB.encode("\n")[0]) + 1
    if core(StoriesConfig(), index).structure.begin.helper:
        return
    assert len({tuple(program[:first_line]) for program in programs}) == 1


@pytest.mark.parametrize("index", PROBLEMS)
@pytest.mark.parametrize("layout", [0.0, 0.5, 1.0])
def test_wording_moves_nothing(index: int, layout: float) -> None:
    """Stronger than equal entropies: each rendering has everything in the very same place."""
    plain = renderings(index, StoriesConfig(layout=layout), 100)
    for wording in (0.5, 1.0):
        other = renderings(index, StoriesConfig(layout=layout, wording=wording), 100)
        for (_, one), (_, two) in zip(plain, other, strict=True):
            assert len(one) == len(two)
            assert places(one) == places(two)


@pytest.mark.parametrize("index", PROBLEMS)
def test_what_becomes_uncertain_with_wording(index: int) -> None:
    at_0, at_half, at_1 = (mean_identity_entropy(index, wording) for wording in (0.0, 0.5, 1.0))
    assert at_0 == 0.0
    assert at_half > 0.05
    assert at_1 > at_half + 0.01


@pytest.mark.parametrize("index", PROBLEMS)
def test_a_stated_layout_leaves_nothing_uncertain(index: int) -> None:
    config = StoriesConfig(layout=1.0, wording=1.0, state_layout=True)
    by_prompt: dict[str, list[list[int]]] = {}
    for prompt, program in renderings(index, config, 1500):
        by_prompt.setdefault(prompt, []).append(program)
    assert len(by_prompt) > 50
    assert sum(len(group) > 1 for group in by_prompt.values()) > 20
    for group in by_prompt.values():
        assert set(position_entropies(group)) == {0.0}
        assert len(set(map(len, group))) == 1
    words_alone = StoriesConfig(layout=1.0, state_layout=True)
    told = {(prompt, tuple(program)) for prompt, program in renderings(index, words_alone, 500)}
    assert len(told) == len({prompt for prompt, _ in told}), "at wording 0 it tells all"


def test_stating_the_layout_changes_no_program() -> None:
    silent, stated = StoriesConfig(layout=1.0), StoriesConfig(layout=1.0, state_layout=True)
    for index, draw in itertools.product(range(30), range(10)):
        base = core(silent, index)
        one, two = render(base, silent, draw), render(base, stated, draw)
        assert one.program == two.program
        assert two.prompt.startswith(one.prompt)
        assert two.prompt != one.prompt


def test_a_quarter_of_the_lines_varies_at_layout_1() -> None:
    for dial in (0.5, 1.0):
        config = StoriesConfig(layout=dial)
        varied = lines = names = 0
        for index in range(3000):
            layout = render(core(config, index), config).layout
            varied += sum(form != "plain" for form in layout.forms)
            lines += len(layout.forms) - 1  # the parameter list never varies
            names += layout.suffix > 0
        assert abs(varied / lines - FREEDOM * dial) < 0.012
        assert abs(names / 3000 - FREEDOM * dial) < 0.03


def test_what_varies_at_one_setting_varies_at_every_higher_one() -> None:
    low, high = StoriesConfig(layout=0.4), StoriesConfig(layout=0.9)
    fewer = lines = 0
    for index in range(1000):
        base = core(low, index)
        one, two = render(base, low).layout, render(base, high).layout
        assert one.suffix in (0, two.suffix)
        pairs = list(zip(one.forms, two.forms, strict=True))
        fewer += sum(a != "plain" and b == "plain" for a, b in pairs)
        lines += sum(a != "plain" for a, _ in pairs)
    assert fewer < 0.01 * lines, "only where there is no room left"


@pytest.mark.parametrize("index", [0, pytest.param(2, marks=pytest.mark.long)])
def test_freedom_counts_the_bits(index: int) -> None:
    """The stated bits are the entropy of what was chosen."""
    config = StoriesConfig(wording=0.6)
    base = core(config, index)
    chosen = [render(base, config, draw).words for draw in range(4000)]
    slots = [entropy(column) for column in zip(*(words.own for words in chosen), strict=True)]
    slots.append(entropy(words.helper for words in chosen))
    layout_bits, wording_bits = freedom(base, config)
    assert layout_bits == 0
    assert wording_bits == pytest.approx(sum(slots), abs=0.1)

    config = StoriesConfig(layout=1.0)
    layouts = [render(base, config, draw).layout for draw in range(6000)]
    by_suffix = [[each.forms for each in layouts if each.suffix == n] for n in range(4)]
    total = entropy(each.suffix for each in layouts)
    for forms in by_suffix:
        share = len(forms) / len(layouts)
        total += share * sum(entropy(column) for column in zip(*forms, strict=True))
    layout_bits, wording_bits = freedom(base, config)
    assert layout_bits == pytest.approx(total, abs=0.15)
    assert wording_bits == 0
    stated = StoriesConfig(layout=1.0, state_layout=True)
    assert freedom(base, stated) == (0.0, 0.0)


def test_equal_dials_free_about_as_many_bits() -> None:
    """So that `wording` is a fair control for `layout`."""
    config = StoriesConfig(layout=1.0, wording=1.0)
    found = [freedom(core(config, index), config) for index in range(500)]
    layout, wording = (sum(column) / len(found) for column in zip(*found, strict=True))
    assert 0.7 < layout / wording < 1.3
