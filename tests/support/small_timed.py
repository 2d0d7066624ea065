"""A small configuration of a network that is told the time."""

from __future__ import annotations

from anyorder.nets.shapes import TransformerConfig

SMALL_TIMED = TransformerConfig(
    vocab_size=11,
    width=16,
    layers=2,
    heads=2,
    kv_heads=2,
    head_width=8,
    mlp_width=64,
    qkv_bias=False,
    tied=False,
    time_modulated=True,
)
