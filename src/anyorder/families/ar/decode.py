"""Autoregressive decoding: x_i ~ p(x_i | x_1 ... x_{i-1}), left to right, with a key-value cache.

Ragged prompts are prefilled in one call; afterwards each call feeds one token per row. Rows that
wrote EOS leave the batch. Letters: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded, Watcher, stack
from anyorder.decode.draw import Draw, Posterior, pick
from anyorder.decode.loop import seen
from anyorder.families.ar.config import ArOptions
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import Stream, uniform
from anyorder.vocab import Vocab


def resolve(options: ArOptions) -> ArOptions:
    """The same options, checked."""
    Draw.of(options).refuse_idle_filters()
    return options


def check(canvases: Sequence[Canvas], options: ArOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        _prompt_of(canvas)


@torch.inference_mode()
def decode(
    net: Transformer,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: ArOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Continue every prompt until EOS or until its free slots are used up."""
    device = torch.device(device)
    prompts = [_prompt_of(canvas) for canvas in canvases]
    writer = _Writer(vocab, Draw.of(options), canvases, keys, device)
    ids, _, real = stack(prompts, vocab, device)
    longest = max(len(canvas.ids) for canvas in canvases)
    cache = net.new_cache(len(prompts), longest)
    hidden = net.hidden(ids, mask=real, cache=cache)
    last = real.sum(dim=1) - 1
    state = hidden[torch.arange(len(prompts), device=device), last]
    while True:
        token = writer.write(net.head(state).float())
        if watch is not None:
            watch([seen(row, writer.collect(row)) for row in writer.row.tolist()])
        going = writer.going()
        if not bool(going.any()):
            return [writer.collect(row) for row in range(len(canvases))]
        if not bool(going.all()):
            rows = going.nonzero()[:, 0]
            cache, token = cache.select(rows), token[rows]
            writer.keep(rows)
        state = net.hidden(token[:, None], cache=cache)[:, 0]


def _prompt_of(canvas: Canvas) -> Canvas:
    """The frozen prefix; anything frozen after it cannot be read by a left-to-right model."""
    length = canvas.prompt_length
    if not all(canvas.free[length:]):
        raise ValueError("ar writes left to right and cannot fill gaps: use an any-order family")
    if length == 0:
        raise ValueError(
            "ar needs a prompt of at least one token: use a vocabulary with a BOS token"
        )
    return Canvas(canvas.ids[:length], canvas.free[:length])


class _Writer:
    """Draws each row's next token and keeps what was written."""

    def __init__(
        self,
        vocab: Vocab,
        draw: Draw,
        canvases: Sequence[Canvas],
        keys: Sequence[int],
        device: torch.device,
    ) -> None:
        self.vocab, self.draw = vocab, draw
        self.row = torch.arange(len(canvases), device=device)
        self.key = torch.tensor(keys, dtype=torch.int64, device=device)
        self.start = torch.tensor([canvas.prompt_length for canvas in canvases], device=device)
        self.slots = torch.tensor([sum(canvas.free) for canvas in canvases], device=device)
        most = int(self.slots.max())
        self.tokens = torch.full((len(canvases), most), vocab.pad_id, device=device)
        self.log_prob = torch.zeros(len(canvases), most, dtype=torch.float64, device=device)
        self.length = torch.zeros(len(canvases), dtype=torch.int64, device=device)
        self.written = 0

    def write(self, logits: Tensor) -> Tensor:
        """Draw one token for each remaining row from its logits (B V).  # B"""
        logits[:, self.vocab.mask_id] = -torch.inf
        logits[:, self.vocab.size :] = -torch.inf
        noise = uniform(0, int(Stream.TOKEN), self.key, self.start + self.written)
        token = pick(logits, self.draw, noise)
        self.tokens[self.row, self.written] = token
        log_prob = Posterior(logits).log_prob(token)
        if bool(log_prob.isnan().any()):
            raise ValueError(f"logits of token {self.written} are not finite: check the weights")
        self.log_prob[self.row, self.written] = log_prob
        self.written += 1
        self.length[self.row] = self.written
        return token

    def going(self) -> Tensor:
        """Rows that have neither ended nor run out of slots.  # B"""
        token = self.tokens[self.row, self.written - 1]
        return (token != self.vocab.eos_id) & (self.written < self.slots)

    def keep(self, rows: Tensor) -> None:
        self.row, self.key, self.start = self.row[rows], self.key[rows], self.start[rows]
        self.slots = self.slots[rows]

    def collect(self, row: int) -> Decoded:
        """What was written in the row of this number, so far or for good."""
        length = int(self.length[row])
        order = list(range(1, length + 1))
        return Decoded(
            token_ids=self.tokens[row, :length].tolist(),
            insert_step=order,
            reveal_step=order,
            log_prob=self.log_prob[row, :length].tolist(),
            steps=length,
            forwards=length,
            ties=0,
        )
