"""TrainConfig: everything that decides how a run is trained, as one frozen dataclass.

Fields that change the numbers are fixed for the life of a run: a checkpoint remembers them and
resuming with others is refused. Fields that only say where, how long and how often to look
(`MAY_CHANGE`) are free. This file does not import torch, so that a command line can read it fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import tyro

MAY_CHANGE = frozenset(
    {"minutes", "threads", "device", "save_every", "validate_every", "log_every", "keep"}
)
"""Fields that a resumed run may give other values."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train: length, optimiser, averaging, and how often to log, validate and save."""

    steps: int = 2000
    """Optimiser steps of the whole run. Fixed: the cosine ends here."""
    batch: int = 32
    """Examples in one optimiser step, over all its micro batches."""
    accumulate: int = 1
    """Micro batches per step, of batch / accumulate examples each, for less memory. Each is
    normalised and stratified by itself, then their gradients are averaged."""
    lr: float = 3e-3
    """Largest learning rate, reached at the end of the warm-up."""
    multipliers: Mapping[str, float] = field(default_factory=dict)
    """Parameter-name prefix -> factor on `lr`; the longest matching prefix wins. A `*` between
    dots stands for any one name, as in `blocks.*.modulation`."""
    warmup: int = 100
    """Steps of linear warm-up."""
    final_lr_fraction: float = 0.0
    """The cosine falls from 1 to this fraction of `lr`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    eps: float = 1e-8
    """AdamW's epsilon."""
    weight_decay: float = 0.01
    """Decoupled decay of the weights that `decay` names."""
    decay: Literal["matrices", "everything"] = "matrices"
    """What decays: matrices (no norms, biases or embeddings), or every parameter."""
    clip: float = 1.0
    """Largest global gradient norm; 0 does not clip."""
    ema: float = 0.999
    """Decay of the averaged weights, at most (1 + n) / (10 + n) at update n; 0 = no averaging."""
    seed: int = 0
    """Names all the noise of the run; the order of the data is the batch function's."""
    log_every: int = 10
    """Steps between two training rows in metrics.jsonl."""
    validate_every: int = 200
    """Steps between two validations (and one at the end); 0 = never."""
    validate_batches: int = 4
    """How many of the given validation batches are used."""
    save_every: int = 200
    """Steps between two checkpoints (and one at every end)."""
    keep: int = 2
    """Newest checkpoints kept."""
    threads: int = 0
    """Threads of torch on CPU; 0 leaves torch's own choice."""
    device: str = "cpu"
    """Where to train: cpu, cuda or cuda:1."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Stop cleanly after this many minutes; unset: never. Running again goes on as long again."""

    def __post_init__(self) -> None:
        self._check_whole_numbers()
        self._check_optimiser()
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes={self.minutes}: give a positive time, or none for no limit")
        if self.batch % self.accumulate:
            raise ValueError(
                f"batch={self.batch} does not divide into accumulate={self.accumulate} micro "
                "batches: make batch a multiple of accumulate"
            )
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup={self.warmup} leaves nothing of steps={self.steps}: "
                "lower warmup or raise steps"
            )

    def _check_whole_numbers(self) -> None:
        least = {"steps": 1, "batch": 1, "accumulate": 1, "log_every": 1, "save_every": 1}
        least |= {"keep": 1, "validate_batches": 1, "validate_every": 0, "warmup": 0, "threads": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < bound:
                raise ValueError(f"{name}={value!r}: give a whole number of at least {bound}")

    def _check_optimiser(self) -> None:
        positive = {"lr": self.lr, "eps": self.eps}
        positive |= {f"multipliers[{name!r}]": value for name, value in self.multipliers.items()}
        for name, value in positive.items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name}={value}: give a positive number")
        for name in ("clip", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)}: give 0 (off) or a positive number")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: give two numbers in [0, 1), such as 0.9 0.999")
        if not 0 <= self.final_lr_fraction <= 1:
            raise ValueError(f"final_lr_fraction={self.final_lr_fraction}: give a number in [0, 1]")
        if not 0 <= self.ema < 1:
            raise ValueError(
                f"ema={self.ema}: give a decay in [0, 1), such as 0.999, or 0 for none"
            )

    @property
    def micro_batch(self) -> int:
        """Examples in one call of the batch function."""
        return self.batch // self.accumulate

    def as_json(self) -> dict[str, Any]:
        """All fields, as JSON gives them back."""
        fields: dict[str, Any] = asdict(self) | {"multipliers": dict(self.multipliers)}
        restored: dict[str, Any] = json.loads(json.dumps(fields))
        return restored


def digest(about: Mapping[str, Any]) -> str:
    """sha256 of a JSON document that does not depend on the order of its keys."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def fixed_fields(config: TrainConfig) -> dict[str, Any]:
    """The fields that a resumed run must share with its checkpoint."""
    return {name: value for name, value in config.as_json().items() if name not in MAY_CHANGE}
