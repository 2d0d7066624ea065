"""ar's loss on one batch: the mean of -log p(x_i | x_<i) over the answers (process/masking.py)."""

from __future__ import annotations

from torch import nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.nets.transformer import Transformer
from anyorder.process.masking import LossParts, mean_over_tokens, predictors
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab


def causal_mean(vocab: Vocab) -> Objective:
    """The loss 'mean' of ar."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        assert isinstance(net, Transformer)
        # No padding mask: pads are on the right, where a causal network does not look.
        logits = net.head(net.hidden(batch.ids)[predictors(batch.answer)])
        targets = batch.ids[batch.answer]
        return mean_over_tokens(functional.cross_entropy(logits, targets, reduction="none"))

    return objective
