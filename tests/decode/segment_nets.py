"""Small networks over segments with weights of their own."""

from __future__ import annotations

from typing import Literal

import torch
from segment_mocks import VOCAB

from anyorder.nets.latent import LatentConfig, LatentNet
from anyorder.nets.transformer import TransformerConfig

SLOTS, ROOM = 6, 7


def small_net(
    attention: Literal["bidirectional", "prefix_lm"] = "bidirectional", seed: int = 0
) -> LatentNet:
    """Untrained, with weights large enough for every slot to want something else."""
    backbone = TransformerConfig(VOCAB.size, 32, 2, 4, 4, 8, 64)
    config = LatentConfig(backbone, slots=SLOTS, segment_length=ROOM, attention=attention)
    net = LatentNet(config, seed=seed).eval()
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() > 1:
                weight.mul_(3.0)
    return net
