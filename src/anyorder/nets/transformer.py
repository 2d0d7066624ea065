"""The one backbone over tokens: a table, the layers of `stack.py`, and a vocabulary head.

    x = E[ids],    hidden = stack(x),    logits = E hidden      (or a head of its own)

`hidden` and `head` are apart so that callers pay for the vocabulary only where they need it.

Not here: the layers, losses, sampling, and other heads than the vocabulary's.
Letters: B rows, L positions of this call, D width, V vocabulary.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.cache import Cache
from anyorder.nets.kept import KeptColumns
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Stack
from anyorder.nets.start import draw_weights


class Transformer(Stack):
    """Token ids (or vectors) -> hidden states -> logits over the vocabulary.

    The weights are a function of (config, seed). On the meta device nothing is initialised: after
    `to_empty`, load weights or call `reset_parameters`.
    """

    norm: nn.RMSNorm

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        nn.Module.__init__(self)  # see Stack: the table comes first
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.add_layers(config, final_norm=True)
        self.unembed = (
            None if config.tied else nn.Linear(config.width, config.vocab_size, bias=False)
        )
        self.reset_parameters(seed)

    def hidden(
        self,
        ids: Tensor | None = None,
        *,
        vectors: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        time: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The states after the final norm: B L -> B L D. States at padding mean nothing.

        ids B L, or vectors B L D in their place; mask B L bool, True = a real key (None: all are);
        positions B L, by default 0 .. L - 1 (the causal rule follows the columns, not these);
        time B, needed exactly by time-modulated nets; cache: these are the next tokens of its rows.
        A causal net with padding on the right gives the same real states with or without a mask.
        """
        x = self._stream(ids, vectors)  # B L D
        if cache is None:
            return self.run(x, self.plain_reach(x, mask, positions), time=time)
        if positions is not None:
            raise ValueError("a cache counts positions by itself: give no positions with it")
        return self.advance(x, cache, mask, time=time)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states at any chosen places: (..., D) -> (..., V)."""
        table = self.embed.weight if self.unembed is None else self.unembed.weight
        return F.linear(hidden, table)

    def forward(
        self,
        ids: Tensor | None = None,
        *,
        vectors: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        time: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Logits everywhere: B L -> B L V. The arguments are those of `hidden`."""
        return self.head(
            self.hidden(
                ids, vectors=vectors, mask=mask, positions=positions, time=time, cache=cache
            )
        )

    def rereader(self, rows: int, columns: int) -> KeptColumns:
        """This net, with keys and values kept between calls on some columns (`kept.py`)."""
        return KeptColumns(self, self.embed, rows, columns)

    def reset_parameters(self, seed: int = 0) -> None:
        """Draw all weights afresh (`start.py`); on the meta device there are none to draw."""
        if not self.embed.weight.is_meta:
            draw_weights(self, seed)

    def _stream(self, ids: Tensor | None, vectors: Tensor | None) -> Tensor:
        if ids is not None and vectors is None:
            return self.embed(ids)
        if vectors is not None and ids is None:
            return vectors
        raise ValueError("give either ids or vectors")
