"""The network, the loss and the decoder of `ar`, with answers turned round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from anyorder.data.batches import Batch
from anyorder.decode.canvas import Canvas, Decoded, Watcher
from anyorder.families import find_family
from anyorder.families.ar import decode as ar
from anyorder.families.ar.loss import causal_mean
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab
from anyorder_backward.config import DESCRIPTION, BackwardOptions

LISTS = ("token_ids", "insert_step", "reveal_step", "log_prob")


def backward_answers(batch: Batch) -> Batch:
    """The same rows with their answers written backwards; EOS stays at the end."""
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)  # L
    first, last = batch.prompt_length[:, None], batch.length[:, None] - 2  # B 1
    inside = (first <= place) & (place <= last)
    source = torch.where(inside, first + last - place, place)
    return replace(batch, ids=batch.ids.gather(1, source))


def backward_mean(vocab: Vocab, settings: Any, max_length: int) -> Any:
    """The mean of -log p(x_i | x_>i, prompt) over the answers' tokens."""
    forward = causal_mean(vocab)

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> Any:
        return forward(net, backward_answers(batch), noise)

    return objective


def turned(row: Decoded, eos: int) -> Decoded:
    """What was written first becomes the end; an EOS stays behind the text."""
    length = len(row.token_ids) - (row.token_ids[-1:] == [eos])
    order = [*reversed(range(length)), *range(length, len(row.token_ids))]
    return replace(row, **{name: [getattr(row, name)[at] for at in order] for name in LISTS})


def decode(
    net: Any,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: BackwardOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Decode as ar does, and turn every row round, also for a watcher."""

    def show(rows: Sequence[Decoded]) -> None:
        assert watch is not None
        watch([turned(row, vocab.eos_id) for row in rows])

    rows = ar.decode(net, vocab, canvases, keys, options, device, show if watch else None)
    return [turned(row, vocab.eos_id) for row in rows]


FAMILY = replace(
    find_family("ar"),
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    options=BackwardOptions,
    decode=decode,
    losses={"mean": backward_mean},
)
