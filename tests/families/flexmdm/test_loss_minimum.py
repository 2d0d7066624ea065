"""Where flexmdm's loss has its minimum when the canvas leaves the length open.

Answers of 1 and of 4 tokens, half and half, stand behind one prompt. A network that sees only the
anchor cannot tell them apart, so the best g there is the log of the posterior mean of L,

    e^g = sum_L (1 - tau)^L L / sum_L (1 - tau)^L,    2.5 at tau = 0,

with every normalisation. To divide each row by its own length would give sum (1 - tau)^L over
sum (1 - tau)^L / L, 1.6 at tau = 0: answers would come out too short.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import optimize
from torch import Tensor

from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.families.flexmdm.config import FlexConfig, InsertionConfig
from anyorder.families.flexmdm.loss import insertion_bound
from anyorder.families.flexmdm.net import FlexNet
from anyorder.nets.denoiser import Look
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abc"))
LENGTHS = (1, 4)
ROWS = 2000
WIDTH = 8


class OneNumber(FlexNet):
    """Says g of the gap after a bare anchor, 0 of all other gaps, and of tokens nothing."""

    def __init__(self, coordinate: str) -> None:
        backbone = TransformerConfig(VOCAB.size, WIDTH, 1, 1, 1, 8, 8, time_modulated=True)
        super().__init__(FlexConfig(backbone, coordinate=coordinate))  # type: ignore[arg-type]
        self.g = 0.0

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        assert mask is not None
        bare = mask.sum(dim=1, keepdim=True) == 2  # prompt and anchor
        gaps = torch.where(bare & (ids == VOCAB.eos_id), self.g, 0.0).double()
        return Look(torch.zeros(*ids.shape, WIDTH), gaps)


def batch() -> Batch:
    rows = [Example([0], [i % 3 for i in range(LENGTHS[n % 2])], n) for n in range(ROWS)]
    return collate(rows, VOCAB, BatchConfig(ending="none", after=(VOCAB.eos_id,)))


def best(config: InsertionConfig, coordinate: str, progress: float) -> float:
    """The expected number e^g with the least loss, over one large batch at one progress."""
    net, rows = OneNumber(coordinate), batch()
    time = progress if coordinate == "progress" else 1 - (1 - progress) ** (1 / 1.7)
    objective = insertion_bound(VOCAB, config, 11)

    def loss(g: float) -> float:
        net.g = g
        with torch.no_grad():
            return float(objective(net, rows, Noise(3, 1, level=1 - time)).loss)

    found = optimize.minimize_scalar(loss, bounds=(-2.0, 3.0), method="bounded")
    return math.exp(found.x)


@pytest.mark.parametrize("progress", [1e-6, 0.3])
@pytest.mark.parametrize("normalise", ["items", "rows", "max_length"])
@pytest.mark.parametrize("coordinate", ["progress", "raw"])
def test_the_best_gap_is_the_mean_length(coordinate: str, normalise: str, progress: float) -> None:
    config = InsertionConfig(normalise=normalise)  # type: ignore[arg-type]
    left = [(1 - progress) ** length for length in LENGTHS]
    mean = sum(p * length for p, length in zip(left, LENGTHS, strict=True)) / sum(left)
    tilted = sum(left) / sum(p / length for p, length in zip(left, LENGTHS, strict=True))
    found = best(config, coordinate, progress)
    assert found == pytest.approx(mean, rel=0.001 if progress < 0.1 else 0.05)
    assert tilted < 0.75 * mean


@pytest.mark.parametrize("weighting", ["hazard", "compat"])
def test_weights_and_targets_do_not_move_it(weighting: str) -> None:
    for targets in ("sampled", "integrated"):
        config = InsertionConfig(weighting=weighting, targets=targets)  # type: ignore[arg-type]
        assert best(config, "progress", 1e-6) == pytest.approx(2.5, rel=0.001)
