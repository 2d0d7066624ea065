"""duo's nats per answer where tokens depend on each other: the truth, by enumeration."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import Tensor

from anyorder.data.batches import BatchConfig, Example, collate
from anyorder.families.likelihood import likelihood_of, nats_per_answer
from anyorder.nets.denoiser import States
from anyorder.nets.oracles import UniformOracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abc"))
A, B, C = range(3)
END = VOCAB.eos_id
LAW = {(A, B, END): 0.4, (B, A, A): 0.3, (C, END, END): 0.2, (A, A, END): 0.1}
"""Of the canvas behind the prompt, every token of which says something of the others."""
COPIES = 20_000


class Asked(Transformer):
    """An oracle in the place of a network; it knows tokens by their vectors."""

    oracle: UniformOracle

    def hidden(self, *, vectors: Tensor, **inputs: Any) -> Tensor:  # type: ignore[override]
        ids = (vectors[:, :, None] == self.embed.weight).all(dim=-1).long().argmax(dim=-1)
        return self.oracle.hidden(ids, time=inputs["time"])

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def bound(answer: list[int], *, joint: bool) -> float:
    """What a race reports, by many draws."""
    net = Asked(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8, time_modulated=True))
    rows = {(C, *canvas): p for canvas, p in LAW.items()}
    net.oracle = UniformOracle(rows, States.of(VOCAB).count, VOCAB.size, frozen=[0], joint=joint)
    examples = [Example([C], answer, number) for number in range(COPIES)]
    batch = collate(examples, VOCAB, BatchConfig(canvas=3))
    return nats_per_answer(likelihood_of("duo"), net, VOCAB, batch, Noise(4, 0))


@pytest.mark.parametrize("canvas", LAW)
def test_the_bound_meets_the_truth_with_leave_one_out_posteriors(canvas: tuple[int, ...]) -> None:
    answer = [token for token in canvas if token != END]
    assert bound(answer, joint=False) == pytest.approx(-math.log(LAW[canvas]), abs=0.1)


def test_it_is_above_the_truth_with_plain_ones() -> None:
    found = {canvas: bound([t for t in canvas if t != END], joint=True) for canvas in LAW}
    entropy = -sum(p * math.log(p) for p in LAW.values())
    assert sum(LAW[canvas] * nats for canvas, nats in found.items()) > entropy + 0.3
