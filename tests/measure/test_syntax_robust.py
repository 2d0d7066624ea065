"""Broken and hostile programs through syntax and similarity: a status each, in bounded time."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutator import program, programs, sources

from anyorder.measure.order_program import assign_tokens
from anyorder.measure.programs import METRICS, Preparation, ProgramOptions, TextTrees
from anyorder.measure.syntax import Status, parse_program, statement_tree
from anyorder.measure.tree_edit import EditJob, best_matches

SECONDS = 10.0
"""Of processor time per program; most take milliseconds."""


def pass_through(text: str, prepare: Preparation, references: list[TextTrees]) -> TextTrees:
    """All of syntax and, where there is a program, its best matches among some references."""
    parsed = parse_program(text)
    if parsed.tree is not None:
        assert text[parsed.offset :].startswith(parsed.source)
        tree = statement_tree(parsed.tree)
        assert all(isinstance(item.label, str) for item in tree)
        tokens = assign_tokens(parsed.source, tree)
        assert all(-1 <= token.node < len(tree) for token in tokens)
    item = prepare.trees(parsed)
    for metric, tree_of in item.trees.items():
        others = [other.trees[metric] for other in references]
        found = best_matches([EditJob([tree_of], others)], METRICS[metric], threads=1)[0]
        assert not others or 0 <= found.similarity[0] <= 1
    return item


def run_all(seed: int, count: int) -> tuple[Counter[Status], float]:
    prepare = Preparation(ProgramOptions())
    references = [prepare.trees(parse_program(text)) for text in sources()[:3]]
    assert all(item.trees for item in references)
    pass_through(sources()[5], prepare, references)  # compiles what is not yet compiled
    statuses: Counter[Status] = Counter()
    slowest = 0.0
    for text in programs(seed, count):
        started = time.process_time()
        statuses[pass_through(text, prepare, references).status] += 1
        slowest = max(slowest, time.process_time() - started)
    return statuses, slowest


def test_500_programs() -> None:
    statuses, slowest = run_all(seed=11, count=500)
    assert sum(statuses.values()) == 500
    assert statuses[Status.PARSED] > 50 and statuses[Status.FALLBACK] > 50
    assert statuses[Status.UNPARSABLE] > 20
    assert slowest < SECONDS


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_5000_programs_four_times(seed: int) -> None:
    statuses, slowest = run_all(seed=seed, count=5_000)
    assert sum(statuses.values()) == 5_000
    assert len(statuses) >= len(Status) - 1, "almost everything that can happen did"
    assert slowest < SECONDS


@given(st.randoms(use_true_random=False), st.text(max_size=20), st.integers(0, 10_000))
def test_text_of_any_kind_inside_a_program(chance: object, noise: str, place: int) -> None:
    text = program(chance)  # type: ignore[arg-type]
    place = place % (len(text) + 1)
    prepare = Preparation(ProgramOptions())
    assert pass_through(text[:place] + noise + text[place:], prepare, []).status in Status
