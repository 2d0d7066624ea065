"""flexmdm's loss on one batch: corrupt, call the network, compare (process/insertion.py, net.py).

The vocabulary head runs on masked slots only. Not here: the training loop.
Letters: B rows, N clean tokens, S visible slots, M masked slots, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Objective
from anyorder.families.flexmdm.config import InsertionConfig
from anyorder.families.flexmdm.net import FlexNet
from anyorder.nets.denoiser import TrainedSchedules
from anyorder.process import insertion
from anyorder.process.insertion import (
    Clocks,
    InsertionItems,
    InsertionWeights,
    Interpolant,
    align,
    could_be,
)
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.process.schedule import Power
from anyorder.vocab import Vocab


def insertion_bound(vocab: Vocab, config: InsertionConfig, max_length: int) -> Objective:
    """Cross-entropy on masked slots and the Poisson loss on gaps, weighted and normalised."""

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        assert isinstance(net, FlexNet)
        clocks = clocks_of(net)
        items = _items(batch, noise, config.infill)
        seen = insertion.corrupt(items, batch.index, noise, clocks)
        shown = batch.ids.gather(1, seen.origin).masked_fill(~seen.real, vocab.pad_id)
        canvas = shown.masked_fill(seen.masked, vocab.mask_id)
        look = net.look(canvas, mask=seen.real, time=seen.time.float())
        log_prob = functional.log_softmax(net.head(look.states[seen.masked]).float(), dim=-1)
        if config.targets == "sampled":
            nats = functional.nll_loss(log_prob, shown[seen.masked], reduction="none")
            missing = seen.missing
        else:
            nats, missing = _integrated(batch.ids, shown, log_prob, seen, items)
        divisor = insertion.divisor(config.normalise, items, max_length)
        scale = row_weights(config, clocks, seen, divisor)
        return insertion.weighted(nats, look.gaps, missing.to(look.gaps.dtype), seen, scale)

    return objective


def clocks_of(net: TrainedSchedules) -> Clocks:
    """The training clocks in the network's own coordinate."""
    raw = Clocks(Power(net.insertion_exponent), Power(net.unmasking_exponent))
    return raw if net.coordinate == "raw" else raw.in_progress()


def row_weights(
    config: InsertionConfig, clocks: Clocks, seen: Interpolant, divisor: Tensor
) -> InsertionWeights:
    """The factors of each row's two sums: weights at its time, over the normalisation."""
    per_row = divisor * len(divisor)
    unmask = insertion.weights(config.weighting, clocks.unmasking, seen.time, config.cap)
    insert = insertion.weights(config.weighting, clocks.insertion, seen.time, config.cap)
    return InsertionWeights(unmask / per_row, insert / per_row)


def _items(batch: Batch, noise: Noise, infill: float) -> InsertionItems:
    """The answers' tokens are free; the prompt, which ends with the anchor, is not."""
    first, last, longest = batch.prompt_length, batch.length, batch.ids.shape[1]
    return insertion.answer_items(first, last, longest, batch.index, noise, infill)


def _integrated(
    ids: Tensor, shown: Tensor, log_prob: Tensor, seen: Interpolant, items: InsertionItems
) -> tuple[Tensor, Tensor]:
    """Nats (M) and expected missing counts (B S) under the posterior of the alignment."""
    possible = could_be(seen, items, shown[:, :, None] == ids[:, None, :])
    posterior = align(possible, seen, items)
    row = seen.masked.nonzero()[:, 0]
    each = log_prob.gather(1, ids[row])  # M N, log f of every item's token
    probability = posterior.origin[seen.masked].to(each.dtype)
    # An impossible token of a pad column must not make NaN from 0 * inf.
    nats = -(probability * each.masked_fill(probability == 0, 0.0)).sum(dim=1)
    return nats, posterior.missing
