"""Networks: ids (and time) -> hidden states -> logits. No losses, no sampling."""

from __future__ import annotations

from anyorder.nets.cache import Cache
from anyorder.nets.denoiser import Denoiser, LogitsDenoiser, Shifted, as_denoiser
from anyorder.nets.hub import load_weights, save_weights
from anyorder.nets.transformer import Transformer, TransformerConfig

__all__ = [
    "Cache",
    "Denoiser",
    "LogitsDenoiser",
    "Shifted",
    "Transformer",
    "TransformerConfig",
    "as_denoiser",
    "load_weights",
    "save_weights",
]
