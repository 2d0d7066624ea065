"""Infilling with the perfect network: the output law is the data's, given the frozen text.

The texts are  w,  w d,  c w  and  e w f,  w over {a, b}: c and e can only be first, d and f only
last, each at most once, so that nothing can be missing before or after these, and such gaps may be
closed. The perfect network counts the ways to embed a canvas into a text, so what comes out of a
canvas that shows y has the law

    p(x | y)  proportional to  p(x) * (number of ways in which y stands in x),

where a text with the frozen token twice counts twice: either may be the one that was given. What
the network says of closed gaps must not matter, and here it says nonsense.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.nets.denoiser import Look
from anyorder.nets.oracles import InsertionOracle
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcdef"))
A, B, C, D, E, F = range(6)
BOS = VOCAB.bos_id or 0
MIDDLE = 3
"""The longest w."""
Text = tuple[int, ...]


def language() -> dict[Text, float]:
    middles = [w for n in range(MIDDLE + 1) for w in itertools.product((A, B), repeat=n)]
    frames = [((), ()), ((), (D,)), ((C,), ()), ((E,), (F,))]
    texts = [(*before, *w, *after) for before, after in frames for w in middles]
    weights = np.random.default_rng(4).exponential(size=len(texts))
    return dict(zip(texts, (weights / weights.sum()).tolist(), strict=True))


DATA = language()


class Case(NamedTuple):
    """Frozen tokens after BOS, and whether each gap grows: BOS's own, then theirs."""

    frozen: Text
    grows: tuple[bool, ...]

    def canvas(self) -> GrowingCanvas:
        room = MIDDLE - sum(token in (A, B) for token in self.frozen)
        return GrowingCanvas((BOS, *self.frozen), self.grows, room)

    def law(self) -> dict[Text, float]:
        """By enumeration of the places at which the frozen tokens may stand."""
        found = {}
        for text, p in DATA.items():
            places = itertools.combinations(text, len(self.frozen))
            ways = sum(chosen == self.frozen for chosen in places)
            if ways:
                found[text] = p * ways
        total = sum(found.values())
        return {text: p / total for text, p in found.items()}


CASES = {
    "suffix": Case((D,), (True, False)),
    "prefix": Case((C,), (False, True)),
    "prefix and suffix": Case((E, F), (False, True, False)),
    "two gaps before a suffix": Case((B, D), (True, True, False)),
    "two gaps after a prefix": Case((C, A), (False, True, True)),
}


class Careless(InsertionOracle):
    """The perfect network, but for the closed gaps of a case: there it asks for many tokens."""

    def __init__(self, case: Case) -> None:
        super().__init__(DATA, VOCAB.mask_id, VOCAB.size)
        tokens = (BOS, *case.frozen)
        self.closed = [t for t, grows in zip(tokens, case.grows, strict=True) if not grows]

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        look = super().look(ids, mask=mask, time=time)
        # Nothing else on the canvas is one of these tokens.
        closed = torch.isin(ids, torch.tensor(self.closed, dtype=torch.int64))
        return look._replace(gaps=look.gaps.masked_fill(closed, 3.0))


def p_value(rows: Sequence[Decoded], case: Case) -> float:
    """Chi-square of the texts against the law; the rarest count as one."""
    law = case.law()
    first = case.canvas().ids[1 : case.canvas().prompt_length]  # not among the decoded tokens
    seen = Counter((*first, *row.token_ids) for row in rows)
    assert set(seen) <= set(law)
    texts = sorted(law, key=lambda text: law[text])
    expected = np.array([law[text] * len(rows) for text in texts])
    observed = np.array([float(seen[text]) for text in texts])
    rare = int(np.searchsorted(expected.cumsum(), 5.0)) + 1
    pooled = [np.append(each[rare:], each[:rare].sum()) for each in (observed, expected)]
    assert len(pooled[0]) > 6
    return float(stats.chisquare(*pooled).pvalue)


def decoded(case: Case, samples: int, options: FlexOptions) -> list[Decoded]:
    keys = [key_of(6, i) for i in range(samples)]
    return flexmdm.decode(Careless(case), VOCAB, [case.canvas()] * samples, keys, options)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("policy", ["confidence", "random"])
def test_events_have_the_law_of_the_data_given_the_frozen_text(case: Case, policy: str) -> None:
    options = FlexOptions(clock="events", policy=policy, temperature=1.0)
    assert p_value(decoded(case, 4000, options), case) > 1e-3


OFTEN = ("prefix and suffix", "two gaps after a prefix")
"""Cases of the quick suite, between them all that others have."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name in OFTEN else pytest.mark.long)
        for name, case in CASES.items()
    ],
)
def test_many_steps_have_the_law_of_the_data_given_the_frozen_text(case: Case) -> None:
    fine, coarse = (
        p_value(decoded(case, 2000, FlexOptions(steps=steps, temperature=1.0)), case)
        for steps in (128, 4)
    )
    assert fine > 1e-3
    assert coarse < 1e-6  # four steps are not enough, and it shows
