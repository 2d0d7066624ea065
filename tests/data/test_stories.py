"""The corpus: what each problem promises, over thousands of renderings of every kind."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path

import pytest

from anyorder.data.corpora.stories import (
    BEGINNINGS,
    HELD_OUT,
    OPERATIONS,
    PIECES,
    StoriesConfig,
    Story,
    core,
    freedom,
    problem,
    render,
    stories_vocab,
    structures,
)
from anyorder.data.corpora.stories.problem import FREEDOM, MAX_LINES, MAX_PROGRAM_TOKENS
from anyorder.data.corpora.stories.program import MAX_LINE_TOKENS, NOUNS, RETURN, program

NAMES = {noun for nouns in NOUNS.values() for noun in nouns}
DIALS = list(itertools.product((0.0, 0.5, 1.0), (0.0, 0.5, 1.0), (False, True)))
SPLITS = ("train", "heldout")


def many(per_setting: int) -> list[Story]:
    """Problems at every setting of the dials, from both splits."""
    return [
        problem(StoriesConfig(3, split, layout, wording, stated), index)
        for split in SPLITS
        for layout, wording, stated in DIALS
        for index in range(per_setting)
    ]


def call(text: str, arguments: tuple[int, ...]) -> object:
    """What our own generator's text computes."""
    scope: dict[str, object] = {}
    exec(text, scope)
    solve = scope["solve"]
    assert callable(solve)
    return solve(*arguments)


def test_every_rendering_computes_the_answer() -> None:
    for found in many(60):
        cases = found.cases()
        for case in cases:
            assert call(found.program, case.arguments) == case.expected, found.program
        assert (found.arguments, found.expected) == (cases[0].arguments, cases[0].expected)


def test_every_structure_computes_the_answer_in_every_form() -> None:
    """Rare forms too: each structure, drawn until layout and wording have had their say."""
    config = StoriesConfig(layout=1.0, wording=1.0)
    for split in SPLITS:
        seen = set()
        for index in range(4000):
            base = core(StoriesConfig(split=split), index)
            if base.structure.name in seen:
                continue
            seen.add(base.structure.name)
            for draw in range(10):
                found = render(base, config, draw)
                assert call(found.program, found.arguments) == found.expected, found.program
        assert len(seen) > 0.9 * sum(map(len, structures(split).values()))


def test_the_cases_tell_wrong_programs_from_right_ones() -> None:
    """A program of another structure with the same parameters passes all cases only by chance."""
    config, fooled, compared = StoriesConfig(), 0, 0
    found = [problem(config, index) for index in range(400)]
    for right, wrong in itertools.combinations(found, 2):
        same_shape = right.core.structure.begin is wrong.core.structure.begin
        if right.structure == wrong.structure or len(right.names) != len(wrong.names):
            continue
        if not same_shape or compared >= 1500:
            continue
        compared += 1
        try:
            results = [call(wrong.program, case.arguments) for case in right.cases()]
        except ZeroDivisionError:
            continue
        fooled += results == [case.expected for case in right.cases()]
    assert compared == 1500
    assert fooled / compared < 0.02


def test_cases_take_both_branches_where_there_are_two() -> None:
    for index in range(300):
        found = problem(StoriesConfig(), index)
        branching = [step for step in found.core.structure.steps if step.branches]
        if branching and found.core.structure.operations[0] is branching[0]:
            assert len({case.path for case in found.cases()}) > 1, found.prompt


def test_limits_of_length() -> None:
    vocab = stories_vocab()
    assert vocab.size <= 256
    for found in many(50):
        prompt, answer = vocab.encode(found.prompt), vocab.encode(found.program)
        assert len(prompt) <= 48
        assert len(answer) <= MAX_PROGRAM_TOKENS <= 64
        assert len(prompt) + len(answer) + 1 <= 112
        lines = found.program.split("\n")
        assert len(lines) <= MAX_LINES == 12
        for line in lines[:-1]:
            assert len(vocab.encode(line + "\n")) <= MAX_LINE_TOKENS == 10
        assert len(vocab.encode(lines[-1])) < MAX_LINE_TOKENS


def test_programs_are_short_on_average() -> None:
    vocab = stories_vocab()
    found = [problem(StoriesConfig(), index) for index in range(2000)]
    mean = sum(len(vocab.encode(each.program)) for each in found) / len(found)
    assert 30 <= mean <= 36.5


def test_tokens_are_the_pieces_that_were_rendered() -> None:
    """Lossless, and the longest match never cuts a story otherwise than it was put together."""
    vocab = stories_vocab()
    for found in many(60):
        assert vocab.decode(vocab.encode(found.prompt)) == found.prompt
        answer = vocab.encode(found.program)
        assert vocab.decode(answer) == found.program
        statements = found.core.structure.statements
        lines = program(statements, found.names, found.layout, found.words)
        pieces = [piece for line in lines for piece in line]
        assert [vocab.token(token) for token in answer] == [
            vocab.token(vocab.encode(piece)[0]) for piece in pieces
        ]


def test_line_by_line_and_flat_tokenisation_coincide() -> None:
    assert [piece for piece in PIECES if "\n" in piece] == ["\n"]
    vocab = stories_vocab()
    for found in many(20):
        lines = found.program.splitlines(keepends=True)
        flat = [token for line in lines for token in vocab.encode(line)]
        assert flat == vocab.encode(found.program)


def test_a_quantity_is_one_token_and_the_same_in_prompt_and_program() -> None:
    vocab = stories_vocab()
    name_ids = {vocab.encode(name)[0]: name for name in NAMES}
    for found in many(40):
        told = [name_ids[id] for id in vocab.encode(found.prompt) if id in name_ids]
        used = [name_ids[id] for id in vocab.encode(found.program) if id in name_ids]
        assert tuple(told) == found.names, "each is named once, in the order of the parameters"
        assert tuple(used[: len(told)]) == found.names
        assert set(used[len(told) :]) == set(found.names), "each is used"
        assert not any(character.isdigit() for character in found.prompt.split("Layout:")[0])


def test_every_piece_is_used() -> None:
    vocab = stories_vocab()
    used: set[int] = set()
    config = StoriesConfig(layout=1.0, wording=1.0, state_layout=True)
    for found in (problem(config, index) for index in range(2500)):
        used.update(vocab.encode(found.prompt), vocab.encode(found.program))
    unused = {piece for piece in PIECES if vocab.encode(piece)[0] not in used}
    assert not unused


def test_the_prompt_determines_the_program_at_layout_0_and_wording_0() -> None:
    programs: dict[str, str] = {}
    for seed, index in itertools.product(range(2), range(2500)):
        found = problem(StoriesConfig(seed=seed), index)
        assert programs.setdefault(found.prompt, found.program) == found.program
    # Also up to the story's own names: what a structure is told with is told by no other.
    shapes: dict[str, str] = {}
    for found in many(60):
        told = found.prompt.split("Layout:")[0]
        for number, name in enumerate(found.names):
            told = told.replace(name, f"<{number}>")
        assert shapes.setdefault(told, found.structure) == found.structure


def test_structures_are_many_and_deep() -> None:
    everything = [each for split in SPLITS for each in itertools.chain(*structures(split).values())]
    assert len({each.name for each in everything}) == len(everything) >= 20
    kinds = [{line.kind for line in each.statements} for each in everything]
    for kind in ("if", "for", "while", "helper"):
        assert 0.03 < sum(kind in found for found in kinds) / len(kinds) < 0.6


def test_held_out_compositions_are_unseen_but_their_parts_are_not() -> None:
    train = {problem(StoriesConfig(seed=1), index).core.structure for index in range(3000)}
    heldout = {
        problem(StoriesConfig(seed=1, split="heldout"), index).core.structure
        for index in range(800)
    }
    assert {each.composition for each in heldout} == HELD_OUT
    assert not {each.composition for each in train} & HELD_OUT
    assert not {each.name for each in train} & {each.name for each in heldout}
    for place in (0, 1):
        assert {each.composition[place] for each in heldout} <= {
            each.composition[place] for each in train
        }
    assert {each.begin.name for each in train} == set(BEGINNINGS)
    assert {step.name for each in train for step in each.operations} == set(OPERATIONS)


def test_problems_depend_on_seed_split_and_index_alone() -> None:
    config = StoriesConfig(seed=5, layout=0.7, wording=0.3, state_layout=True)
    again = StoriesConfig(seed=5, layout=0.7, wording=0.3, state_layout=True)
    backwards = {index: problem(again, index) for index in reversed(range(50))}
    assert all(problem(config, index) == backwards[index] for index in range(50))
    for other in (StoriesConfig(seed=6), StoriesConfig(seed=5, split="heldout")):
        same = [
            problem(other, i).prompt == problem(StoriesConfig(seed=5), i).prompt for i in range(50)
        ]
        assert sum(same) <= 1
    for index in range(50):  # the dials change how a problem is written, not which it is
        assert core(config, index) == core(StoriesConfig(seed=5), index)


GOLDEN = {
    "vocabulary": "65b3e7ab81081354",
    "plain": "778d8c5d0bbc82b5",
    "free": "1ed5b61254a71b78",
}


def digest(config: StoriesConfig) -> str:
    found = [problem(config, index) for index in range(100)]
    text = "\0".join(f"{p.prompt}{p.program}{p.arguments}{p.expected}{p.structure}" for p in found)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_nothing_changed_by_accident() -> None:
    """Shipped checkpoints are trained on these very problems: change the corpus knowingly."""
    free = StoriesConfig(7, "heldout", 1.0, 0.5, True)
    assert {
        "vocabulary": hashlib.sha256("\0".join(PIECES).encode()).hexdigest()[:16],
        "plain": digest(StoriesConfig()),
        "free": digest(free),
    } == GOLDEN


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": "test"}, "train, heldout"),
        ({"layout": 1.5}, "layout is 1.5: give a number from 0 to 1"),
        ({"wording": -0.1}, "wording is -0.1"),
        ({"wording": float("nan")}, "wording is nan"),
        ({"layout": "much"}, "layout is 'much'"),
        ({"layout": True}, "layout is True"),
        ({"seed": 1.0}, "give an integer"),
        ({"state_layout": 1}, "true or false"),
        ({"lay_out": 1}, "unknown field 'lay_out': it has seed, split, layout"),
    ],
)
def test_bad_configurations_are_refused_with_a_remedy(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        StoriesConfig.from_fields(fields)


@pytest.mark.parametrize("index", [-1, 1.5, True])
def test_bad_indices_are_refused(index: int) -> None:
    with pytest.raises(ValueError, match="from 0 on"):
        problem(StoriesConfig(), index)


def test_the_corpus_needs_no_torch() -> None:
    script = "import sys, anyorder.data.corpora.stories; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# The dials: `layout` makes uncertain where tokens go, `wording` what they are, and nothing else.
#
# Entropies are those of many renderings of one problem, i.e. given its prompt.


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
    for prompt, written in renderings(index, config, 1500):
        by_prompt.setdefault(prompt, []).append(written)
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


# docs/stories.md says what the corpus does: its snippets are run and its examples looked up.


PAGE = (Path(__file__).parents[2] / "docs" / "stories.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_snippets_print_what_the_page_says() -> None:
    printed = []
    for snippet in blocks("python"):
        caught = io.StringIO()
        with contextlib.redirect_stdout(caught):
            exec(snippet, {})
        printed.append(caught.getvalue())
    assert [text for text in printed if text] == blocks("text")


def test_examples_are_renderings_of_one_problem() -> None:
    index = int(re.findall(r'problem\(StoriesConfig\(seed=0, split="train"\), (\d+)\)', PAGE)[0])
    settings = [(0.0, 0.0, False), (1.0, 0.0, False), (0.0, 1.0, False), (1.0, 0.0, True)]
    known = set()
    for dials in settings:
        config = StoriesConfig(0, "train", *dials)
        for draw in range(500):
            found = render(core(config, index), config, draw)
            known.add(f"{found.prompt}{found.program}\n")
    examples = blocks("example")
    assert len(examples) == 5
    assert set(examples) <= known


def test_structures_are_listed() -> None:
    for name in OPERATIONS:
        assert f"| `{name}` |" in PAGE
    for first, second in HELD_OUT:
        assert f"- `{first}` then `{second}`" in PAGE
    counts = [sum(map(len, structures(split).values())) for split in ("train", "heldout")]
    assert f"There are {sum(counts)} of\nthem" in PAGE
    assert f"({counts[1]} structures, {counts[0]} are left" in PAGE
