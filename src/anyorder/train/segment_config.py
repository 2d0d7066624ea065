"""The choices of the losses over segments. Torch-free, like config.py."""

from __future__ import annotations

from dataclasses import dataclass

from anyorder.train.insertion_config import InsertionConfig


@dataclass(frozen=True)
class SegmentLossConfig:
    """What latentmdm's loss has besides the masked segments."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition (the paper: 0). It
    teaches the decoder to read names out of one vector, which small models hardly learn from
    masked segments alone."""

    def __post_init__(self) -> None:
        check_reconstruct("segment_loss", self.reconstruct)


@dataclass(frozen=True)
class SegmentInsertionConfig(InsertionConfig):
    """How flexlatent's loss is weighted, normalised and targeted."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reconstruct("insertion", self.reconstruct)


def check_reconstruct(room: str, weight: float) -> None:
    if not 0 <= weight < float("inf"):
        raise ValueError(f"{room}.reconstruct={weight}: give 0 or a positive weight")
