"""Networks: ids (and time) -> hidden states -> logits. No losses, no sampling."""

from __future__ import annotations

from anyorder.nets.cache import Cache
from anyorder.nets.denoiser import Denoiser, LogitsDenoiser, Shifted, as_denoiser
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

__all__ = [
    "Cache",
    "Denoiser",
    "LogitsDenoiser",
    "Shifted",
    "Transformer",
    "TransformerConfig",
    "as_denoiser",
]
