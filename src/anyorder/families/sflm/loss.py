"""sflm's loss on one batch: noise the answer's vectors, look, compare (process/sphere.py).

    t ~ stratified over the batch,  a = a(t) for the whole row,  x_i = slerp(z_i, e(token i), a)
    loss = mean over the noised tokens of -log p(token i | x)

Plain cross-entropy, of the same weight at every time. It is no bound on the likelihood. Prompts
keep their clean vectors and are not predicted; the EOS that fill a canvas are. The gradient
reaches the table of token vectors through both.
Not here: the training loop. Letters: B rows, L positions, M noised tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.families.sflm.config import SphereLossConfig
from anyorder.families.sflm.net import SphereNet
from anyorder.process import sphere
from anyorder.process.insertion import answer_items
from anyorder.process.masking import LossParts, mean_over_tokens
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab


def sphere_mean(vocab: Vocab, config: SphereLossConfig, max_length: int) -> Objective:
    """The token mean of the cross-entropy at a random signal for each row."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        assert isinstance(net, SphereNet)
        noised = noised_positions(batch, noise, config)
        times = sphere.training_times(noise, len(batch.ids), batch.ids.device)
        signal = sphere.Truncated(net.most_signal, net.least_signal).value(times)
        vectors = noised_vectors(net.vectors(batch.ids), noised, signal, batch.index, noise)
        states = net.hidden(vectors, ids=batch.ids, mask=batch.real, signal=signal)[noised]
        targets = batch.ids[noised]
        return mean_over_tokens(
            functional.cross_entropy(net.head(states), targets, reduction="none")
        )

    return objective


def noised_positions(batch: Batch, noise: Noise, config: SphereLossConfig) -> Tensor:
    """Where a batch is noised: the answers, or for some examples a span of them.  # B L

    At a fixed level, i.e. in validation, the whole answers, so that runs with different `infill`
    compare.
    """
    if noise.level is not None:
        return batch.answer
    first, last, longest = batch.prompt_length, batch.length, batch.ids.shape[1]
    return answer_items(first, last, longest, batch.index, noise, config.infill).free


def noised_vectors(
    clean: Tensor, noised: Tensor, signal: Tensor, index: Tensor, noise: Noise
) -> Tensor:
    """The clean vectors with those of the noised positions moved towards noise.  # B L D"""
    row, position = noised.nonzero(as_tuple=True)  # M
    start = sphere.training_noise(noise, index[row], position, clean.shape[-1])
    moved = sphere.slerp(start, clean[row, position].double(), signal[row])
    return torch.index_put(clean, (row, position), moved.to(clean.dtype))
