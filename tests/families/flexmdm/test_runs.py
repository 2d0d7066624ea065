"""The two rules for long runs: window borders by hand, and everything against brute force."""

from __future__ import annotations

import itertools

import pytest
import torch

from anyorder.families.flexmdm.compat import (
    RevealChoice,
    force_unmask,
    meaningful_ids,
    meaningful_replace,
    runs_of,
)
from anyorder.vocab import Vocab

IDS = 30


def choice_of(
    pattern: str,
    taken: dict[int, int] | None = None,
    likely: dict[tuple[int, int], float] | None = None,
) -> RevealChoice:
    """'_' is a mask; `taken` maps positions to tokens, `likely` (position, token) to probability.

    All that is not said has the small probability 0.001.
    """
    masked = torch.tensor([c == "_" for c in pattern])
    chosen = torch.zeros_like(masked)
    tokens = torch.zeros(len(pattern), dtype=torch.int64)
    for position, token in (taken or {}).items():
        chosen[position], tokens[position] = True, token
    probability = torch.full((len(pattern), IDS), 0.001)
    for (position, token), p in (likely or {}).items():
        probability[position, token] = p
    return RevealChoice(masked, chosen, tokens, probability[masked])


def shown(choice: RevealChoice) -> dict[int, int]:
    places = choice.taken.nonzero()[:, 0].tolist()
    return {place: int(choice.tokens[place]) for place in places}


def test_runs() -> None:
    masked = torch.tensor([c == "_" for c in "__a___b_"])
    assert runs_of(masked, 1) == [(0, 2), (3, 6), (7, 8)]
    assert runs_of(masked, 3) == [(3, 6)]
    assert runs_of(masked[2:3], 1) == []


@pytest.mark.parametrize("before", ["", "ab", "_a__b"])
def test_force_looks_at_the_inner_region_only(before: str) -> None:
    """A run of 9: offsets 2 to 6 count, in windows that begin at 2 and 3."""
    first = len(before)
    for offset in range(9):
        choice = choice_of(before + "_" * 9, likely={(first + offset, 7): 0.9})
        found = shown(force_unmask(choice))
        if 2 <= offset <= 6:
            assert found == {first + offset: 7}
        else:
            assert len(found) == 1
            assert found.keys() <= {first + i for i in range(2, 7)}


def test_force_needs_nine_masks_and_an_untouched_inside() -> None:
    sure = {(4, 7): 0.9}
    assert shown(force_unmask(choice_of("_" * 8, likely=sure))) == {}
    assert shown(force_unmask(choice_of("____a____", likely=sure))) == {}
    assert shown(force_unmask(choice_of("_" * 9, likely=sure))) == {4: 7}
    for place in (0, 8):  # the ends do not count as inside
        assert shown(force_unmask(choice_of("_" * 9, {place: 3}, sure))) == {place: 3, 4: 7}
    for place in range(1, 8):
        assert shown(force_unmask(choice_of("_" * 9, {place: 3}, sure))) == {place: 3}


def test_force_adds_up_the_mass_of_a_window() -> None:
    """Token 7 is nowhere the likeliest, but a window of four has most of it."""
    likely = {(i, 7): 0.3 for i in (4, 5, 6, 7)} | {(i, 10 + i): 0.5 for i in range(12)}
    likely[6, 7] = 0.31
    assert shown(force_unmask(choice_of("_" * 12, likely=likely))) == {6: 7}
    # Five apart do not meet in one window.
    apart = {(3, 7): 0.3, (8, 7): 0.3, (5, 15): 0.5}
    assert shown(force_unmask(choice_of("_" * 12, likely=apart))) == {5: 15}


def test_force_asks_each_run_for_itself() -> None:
    choice = choice_of(
        "_" * 10 + "a" + "_" * 5 + "b" + "_" * 9, {14: 2}, {(5, 7): 0.5, (21, 8): 0.5}
    )
    assert shown(force_unmask(choice)) == {14: 2, 5: 7, 21: 8}


def test_force_only_considers_tokens_that_are_likely_somewhere_in_the_window() -> None:
    """Eleventh everywhere, and most mass of all: not among the ten best of any mask."""
    likely = {}
    for place, rank in itertools.product(range(12), range(10)):
        likely[place, (10 * (place % 2)) + rank] = 0.085
    likely |= {(place, 25): 0.084 for place in range(12)}  # four of these are more than two
    (token,) = set(shown(force_unmask(choice_of("_" * 12, likely=likely))).values())
    assert token != 25
    likely |= {(5, 25): 0.086}
    (token,) = set(shown(force_unmask(choice_of("_" * 12, likely=likely))).values())
    assert token == 25


MEANING = torch.arange(5, IDS)


def replaced(choice: RevealChoice) -> dict[int, int]:
    return shown(meaningful_replace(choice, MEANING))


def test_replace_at_the_borders() -> None:
    """A run of 20: offsets 2 to 17 count; the weakest choice stands outside, at 21."""
    pattern = "_" * 20 + "a_b_"
    weak = {(21, 3): 0.2, (23, 4): 0.4}
    for offset in range(20):
        choice = choice_of(pattern, {21: 3, 23: 4}, weak | {(offset, 9): 0.5})
        inner = 2 <= offset <= 17
        assert replaced(choice) == ({offset: 9, 23: 4} if inner else {21: 3, 23: 4})


def test_replace_needs_twenty_masks_and_an_untouched_inner_region() -> None:
    likely = {(10, 9): 0.5, (21, 3): 0.2}
    assert replaced(choice_of("_" * 19 + "aa_", {21: 3}, likely)) == {21: 3}
    for place in range(20):
        choice = choice_of("_" * 20 + "a_", {21: 3, place: 8}, likely | {(place, 8): 0.9})
        if place in (0, 1, 18, 19):
            assert replaced(choice) == {place: 8, 10: 9}
        else:
            assert replaced(choice) == {place: 8, 21: 3}


def test_replace_compares_mass_with_the_least_likely_choice() -> None:
    pattern, taken = "_" * 20 + "a_b_", {21: 3, 23: 4}
    mass = {(place, 9): 0.1 for place in range(6, 11)}  # 0.5 in five masks side by side
    mass[8, 9] = 0.11
    weaker = choice_of(pattern, taken, mass | {(21, 3): 0.9, (23, 4): 0.505})
    assert replaced(weaker) == {21: 3, 8: 9}
    stronger = choice_of(pattern, taken, mass | {(21, 3): 0.9, (23, 4): 0.52})
    assert replaced(stronger) == taken
    assert replaced(choice_of(pattern, {}, mass)) == {}  # no choice that could make way


def test_replace_takes_the_best_of_all_runs_and_only_meaningful_tokens() -> None:
    pattern = "_" * 20 + "a" + "_" * 20 + "b_"
    weak = {(42, 3): 0.1}
    both = weak | {(5, 9): 0.5, (30, 11): 0.6, (12, 2): 0.9}  # 2 has no meaning
    assert replaced(choice_of(pattern, {42: 3}, both)) == {30: 11}
    equal = weak | {(5, 9): 0.5, (30, 11): 0.5}
    assert replaced(choice_of(pattern, {42: 3}, equal)) == {5: 9}


def brute_force(choice: RevealChoice) -> dict[int, int]:
    """force_unmask, from its description, one number at a time."""
    lines = dict(
        zip(choice.masked.nonzero()[:, 0].tolist(), choice.probability.tolist(), strict=True)
    )
    found = shown(choice)
    for start, stop in runs_of(choice.masked, 9):
        if any(bool(choice.taken[i]) for i in range(start + 1, stop - 1)):
            continue
        options = []
        for window in range(start + 2, stop - 6 + 1):
            places = range(window, window + 4)
            best_ten = [sorted(range(IDS), key=lambda v, i=i: -lines[i][v])[:10] for i in places]
            candidates = {v for ten in best_ten for v in ten}
            options += [(sum(lines[i][v] for i in places), window, v) for v in candidates]
        _, window, token = max(options, key=lambda option: option[0])
        found[max(range(window, window + 4), key=lambda i: lines[i][token])] = token
    return found


def brute_replace(choice: RevealChoice) -> dict[int, int]:
    """meaningful_replace, from its description, one number at a time."""
    lines = dict(
        zip(choice.masked.nonzero()[:, 0].tolist(), choice.probability.tolist(), strict=True)
    )
    found = shown(choice)
    options = []
    for start, stop in runs_of(choice.masked, 20):
        if any(bool(choice.taken[i]) for i in range(start + 2, stop - 2)):
            continue
        for window, token in itertools.product(range(start + 2, stop - 6), MEANING.tolist()):
            places = range(window, window + 5)
            options.append((sum(lines[i][token] for i in places), window, token))
    if not options or not found:
        return found
    mass, window, token = max(options, key=lambda option: option[0])
    weakest = min(found, key=lambda i: lines[i][found[i]])
    if mass > lines[weakest][found[weakest]]:
        del found[weakest]
        found[max(range(window, window + 5), key=lambda i: lines[i][token])] = token
    return found


def random_choice(seed: int) -> RevealChoice:
    g = torch.Generator().manual_seed(seed)
    length = 70
    masked = torch.rand(length, generator=g) < 0.97
    taken = masked & (torch.rand(length, generator=g) < 0.03)
    tokens = torch.randint(IDS, (length,), generator=g)
    logits = 3 * torch.randn(int(masked.sum()), IDS, generator=g, dtype=torch.float64)
    return RevealChoice(masked, taken, tokens, logits.softmax(dim=-1))


def test_both_equal_brute_force() -> None:
    forced = changed = 0
    for seed in range(60):
        choice = random_choice(seed)
        assert shown(force_unmask(choice)) == brute_force(choice)
        assert replaced(choice) == brute_replace(choice)
        forced += shown(force_unmask(choice)) != shown(choice)
        changed += replaced(choice) != shown(choice)
    assert forced > 20 and changed > 10


def test_what_is_given_stays_as_it_was() -> None:
    choice = random_choice(3)
    kept = [part.clone() for part in choice]
    force_unmask(choice)
    meaningful_replace(choice, MEANING)
    assert all(torch.equal(a, b) for a, b in zip(choice, kept, strict=True))


def test_meaningful_tokens() -> None:
    empty = [
        " ",
        "\n",
        "\u00a0",
        "\u2009",
        "\u200b",
        "()",
        "[",
        "]{",
        "}.",
        ",:",
        ";'",
        '"`',
        "@#",
        "$?\\",
    ]
    full = ["a", " def", "+", "=", "-", "_", "(x", "*", "\u00e9", "0"]
    vocab = Vocab.words([*empty, *full])
    assert meaningful_ids(vocab).tolist() == list(range(len(empty), len(empty) + len(full)))
