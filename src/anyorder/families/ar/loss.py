"""ar's loss on one batch: the mean of -log p(x_i | x_<i) over the answers (process/masking.py)."""

from __future__ import annotations

from torch import nn

from anyorder.data.batches import Batch
from anyorder.families.backbone import Objective, token_nats
from anyorder.nets.transformer import Transformer
from anyorder.process import masking as causal
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab


def causal_mean(vocab: Vocab) -> Objective:
    """The loss 'mean' of ar."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        assert isinstance(net, Transformer)
        # No padding mask: pads are on the right, where a causal network does not look.
        states = net.hidden(batch.ids)[causal.predictors(batch.answer)]
        return causal.mean_over_tokens(token_nats(net, states, batch.ids[batch.answer]))

    return objective
