"""Autoregressive decoding: x_i ~ p(x_i | x_1 ... x_{i-1}), left to right, with a key-value cache.

One call reads all prompts, whatever their lengths; afterwards each call feeds one token per row.
Rows that wrote EOS leave the batch. Gaps with text to their right are refused: a left-to-right
model cannot read it.
Letters: B rows, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded, Watcher, stack
from anyorder.decode.draw import Draw, Posterior, ends_text, pick, text_logits
from anyorder.decode.loop import run
from anyorder.families.ar.config import ArOptions
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import Stream, uniform
from anyorder.vocab import Vocab


def resolve(options: ArOptions) -> ArOptions:
    """The same options, checked."""
    Draw.of(options).refuse_idle_filters()
    return options


def check(canvases: Sequence[Canvas], options: ArOptions) -> None:
    """Refuse canvases that cannot be decoded, before anything is written."""
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
    return run(_Stepper(net, vocab, Draw.of(options), canvases, keys, torch.device(device)), watch)


def _prompt_of(canvas: Canvas) -> Canvas:
    """The frozen prefix; refuses canvases with frozen tokens after it."""
    length = canvas.prompt_length
    if not all(canvas.free[length:]):
        raise ValueError("ar writes left to right and cannot fill gaps: use an any-order family")
    if length == 0:
        raise ValueError(
            "ar needs a prompt of at least one token: use a vocabulary with a BOS token"
        )
    return Canvas(canvas.ids[:length], canvas.free[:length])


class _Stepper:
    """One decoding step: each row's next token."""

    def __init__(
        self,
        net: Transformer,
        vocab: Vocab,
        draw: Draw,
        canvases: Sequence[Canvas],
        keys: Sequence[int],
        device: torch.device,
    ) -> None:
        self.net, self.vocab, self.draw = net, vocab, draw
        self.prompts = [_prompt_of(canvas) for canvas in canvases]
        longest = max(len(canvas.ids) for canvas in canvases)
        self.cache = net.new_cache(len(canvases), longest)
        self.row = torch.arange(len(canvases), device=device)
        self.key = torch.tensor(keys, dtype=torch.int64, device=device)
        self.start = torch.tensor([canvas.prompt_length for canvas in canvases], device=device)
        self.slots = torch.tensor([sum(canvas.free) for canvas in canvases], device=device)
        most = int(self.slots.max())
        self.tokens = torch.full((len(canvases), most), vocab.pad_id, device=device)
        self.log_prob = torch.zeros(len(canvases), most, dtype=torch.float64, device=device)

    def advance(self, step: int) -> None:
        every = self.net.head(self._state(step))  # B V
        logits = text_logits(every, self.vocab, [self.vocab.mask_id])
        # Keyed by the position, so that a row does not depend on the others in its batch.
        noise = uniform(0, int(Stream.TOKEN), self.key, self.start + step - 1)
        token = pick(logits, self.draw, noise)
        log_prob = Posterior(logits).log_prob(token)
        if bool(log_prob.isnan().any()):
            raise ValueError(f"logits of token {step - 1} are not finite: check the weights")
        self.tokens[:, step - 1] = token
        self.log_prob[:, step - 1] = log_prob

    def _state(self, step: int) -> Tensor:
        """The state that predicts each row's next token.  # B D"""
        if step > 1:
            # Read the last token only now: rows that ended with it have left the batch.
            return self.net.hidden(self.tokens[:, step - 2, None], cache=self.cache)[:, 0]
        ids, _, real = stack(self.prompts, self.vocab, self.row.device)
        hidden = self.net.hidden(ids, mask=real, cache=self.cache)
        # Prompts differ in length: the state is that of each row's own last token.
        return hidden[self.row, real.sum(dim=1) - 1]

    def done(self, step: int) -> Tensor:
        """Rows that have ended or have run out of slots.  # B"""
        if step == 0:
            return torch.zeros_like(self.row, dtype=torch.bool)
        return ends_text(self.tokens[:, step - 1], self.vocab) | (self.slots <= step)

    def keep(self, rows: Tensor) -> None:
        self.cache = self.cache.select(rows)
        for name in ("row", "key", "start", "slots", "tokens", "log_prob"):
            setattr(self, name, getattr(self, name)[rows])

    def collect(self, index: int, step: int) -> Decoded:
        order = list(range(1, step + 1))
        return Decoded(
            token_ids=self.tokens[index, :step].tolist(),
            insert_step=order,
            reveal_step=order,
            log_prob=self.log_prob[index, :step].tolist(),
            steps=step,
            forwards=step,
            ties=0,
        )
