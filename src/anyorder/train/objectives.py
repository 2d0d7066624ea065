"""Where a process meets a network: each family's loss on one batch.

An objective corrupts the batch with the process's mathematics, asks the network for the states of
the predicted tokens only, and hands their cross-entropies back to the process, which weighs them.
No loop, no optimiser. Letters: B rows, L positions, M predicted tokens.
"""

from __future__ import annotations

from torch import Tensor, nn

from anyorder.data.batches import Batch
from anyorder.nets.planner import PlannedNet
from anyorder.nets.shifted import ShiftedNet
from anyorder.nets.transformer import Transformer
from anyorder.process import masking
from anyorder.process.noise import Noise
from anyorder.process.parts import LossParts
from anyorder.process.schedule import LINEAR
from anyorder.train.objective import Objective, token_nats
from anyorder.vocab import Vocab


def masked_mean(vocab: Vocab) -> Objective:
    """mdm: n ~ Unif{1..L} masks, mean over them (process/masking.py, the paper's loss)."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        masked = masking.corrupt(batch.answer, batch.index, noise)
        return masking.mean_over_masked(_masked_nats(net, batch, masked, vocab), masked)

    return objective


def masked_bound(vocab: Vocab) -> Objective:
    """mdm: the hazard-weighted bound at a random time (process/masking.py, the weighted bound)."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        masked, times = masking.corrupt_in_time(batch.answer, batch.index, noise, LINEAR)
        nats = _masked_nats(net, batch, masked, vocab)
        return masking.hazard_bound(nats, masked, LINEAR.hazard(times), batch.answer.sum(dim=1))

    return objective


def _masked_nats(net: nn.Module, batch: Batch, masked: Tensor, vocab: Vocab) -> Tensor:
    assert isinstance(net, Transformer | ShiftedNet | PlannedNet)
    canvas = batch.ids.masked_fill(masked, vocab.mask_id)
    states = net.hidden(canvas, mask=batch.real)[masked]  # M D
    return token_nats(net, states, batch.ids[masked])
