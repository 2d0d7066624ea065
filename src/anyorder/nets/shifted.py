"""A masked model whose state at i - 1 predicts token i, as in Dream, DiffuCoder and Dream-Coder.

    hidden_0 = states_0,    hidden_i = states_{i-1}        states = backbone(x)

Such models began as left-to-right ones, and kept the place of the prediction: position 0 has
nothing before it and keeps its own state. The weights are those of the backbone alone.

Not here: the same convention of flexmdm (`flex.py`) and of networks that are not ours
(`denoiser.py`).
Letters: B rows, L positions, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyorder.nets.kept import ShiftedColumns
from anyorder.nets.shapes import ShiftedConfig
from anyorder.nets.start import take_weights
from anyorder.nets.transformer import Transformer


class ShiftedNet(nn.Module):
    """A masked model with shifted states. The weights are a function of (config, seed)."""

    def __init__(self, config: ShiftedConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = Transformer(config.backbone, seed=seed)

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """States of which the one at i predicts token i: B L -> B L D."""
        states = self.backbone.hidden(ids, mask=mask, time=time)
        return torch.cat([states[:, :1], states[:, :-1]], dim=1)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        return self.backbone.head(hidden)

    def rereader(self, rows: int, columns: int) -> ShiftedColumns:
        """The backbone's, moved by the same place (`kept.py`)."""
        return ShiftedColumns(self.backbone.rereader(rows, columns))

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of another shifted model, or of a left-to-right one.

        An unshifted masked model predicts elsewhere, and is refused.
        """
        if isinstance(base, ShiftedNet):
            take_weights(self, base)
        elif isinstance(base, Transformer) and base.config.causal:
            take_weights(self.backbone, base)
        else:
            raise ValueError(
                f"a {type(base).__name__} that predicts token i at i cannot be the start of a "
                "network with net.shift: leave net.shift out, or give a left-to-right model"
            )


def unshifted(base: nn.Module, *, wanted: bool, remedy: str) -> nn.Module:
    """The backbone to take weights from, for a network that shifts (wanted) or does not.

    A left-to-right base serves both; a masked one must predict where the network does.
    """
    if isinstance(base, ShiftedNet):
        if not wanted:
            raise ValueError(f"the model to begin with predicts token i at i - 1: {remedy}")
        return base.backbone
    return base
