"""TrainConfig: everything that decides how a run is trained, as one frozen dataclass.

Fields that change the numbers are fixed for the life of a run: a checkpoint stores them, and a
resumed run with other values is refused. Fields that only decide where, how long and how often to
log (`MAY_CHANGE`) are free. A field of `LATER` or `BEFORE` is fixed only if it is used, so that
runs from before it existed can resume. This file does not import torch, so that a command line
reads it fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, Self

import tyro

from anyorder.checks import one_of, positive, whole

MAY_CHANGE = frozenset(
    {"minutes", "threads", "device", "save_every", "validate_every", "log_every", "keep"}
    | {"shard", "reduce", "recompute", "compile"}
)
"""Fields that may differ in a resumed run."""
LATER = frozenset({"dtype", "lora", "lora_scale", "lora_targets", "optimiser", "muon_lr"})
"""Fixed fields that a checkpoint omits at their defaults."""
BEFORE: Mapping[str, Any] = {"first_weights": "in_order"}
"""What runs from before a field existed did, where that is not the default. It is what a saved
configuration without the field means, and a checkpoint omits this value."""


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
    optimiser: Literal["adamw", "muon"] = "adamw"
    """AdamW for all parameters, or Muon for the matrices of the layers and AdamW for the others."""
    muon_lr: float = 0.02
    """Largest learning rate of Muon's matrices; `lr` is that of the other parameters."""
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
    """Seed of the first weights and of all noise; the order of the data has another seed."""
    first_weights: Literal["by_name", "in_order"] = "by_name"
    """How the seed decides the first weights: each by its name, whatever others there are; or one
    after another in a fixed order, as in models from before this setting."""
    log_every: int = 10
    """Steps between two training rows in metrics.jsonl."""
    validate_every: int = 200
    """Steps between two validations (and one at the end); 0 = never."""
    validate_batches: int = 4
    """Number of held-out batches in one validation."""
    save_every: int = 200
    """Steps between two checkpoints (and one at every end)."""
    keep: int = 2
    """Number of newest checkpoints that stay on disk."""
    threads: int = 0
    """Threads of torch on CPU; 0: torch chooses."""
    device: str = "cpu"
    """Where to train: cpu, cuda or cuda:1."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Precision of the computations. With bfloat16 the weights themselves, their moments, their
    average and the sums of gradients over processes stay in float32."""
    shard: Literal["full", "hybrid", "none"] = "full"
    """Several processes (torchrun): divide weights, gradients and moments among all of them, among
    those of one machine, or keep them whole in each. One process ignores it."""
    reduce: Literal["step", "micro"] = "step"
    """Several processes: add up gradients once a step, or after each micro batch, which needs no
    memory for whole gradients. One process ignores it."""
    recompute: bool = False
    """Compute each layer a second time in the backward pass instead of keeping its activations."""
    compile: bool = False
    """Compile each layer with torch.compile."""
    lora: int = 0
    """Rank of the low-rank adapters (LoRA) that are trained instead of the layers' weights;
    0 = none."""
    lora_scale: float = 2.0
    """Factor on what adapters add (alpha / rank)."""
    lora_targets: tuple[str, ...] = ()
    """Names of the linear maps that get adapters; unset: all maps of every layer."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Save and stop after this many minutes; unset: never. The same command again continues for as
    long again."""

    def __post_init__(self) -> None:
        self._check_whole_numbers()
        self._check_optimiser()
        self._check_machine()
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes={self.minutes}: give a positive time, or none for no limit")
        if self.batch % self.accumulate:
            raise ValueError(
                f"batch={self.batch} does not divide into accumulate={self.accumulate} micro "
                "batches: make batch a multiple of accumulate"
            )
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup={self.warmup} is not below steps={self.steps}: lower warmup or raise steps"
            )

    def _check_whole_numbers(self) -> None:
        least = {"steps": 1, "batch": 1, "accumulate": 1, "log_every": 1, "save_every": 1}
        least |= {"keep": 1, "validate_batches": 1, "validate_every": 0, "warmup": 0, "threads": 0}
        least |= {"lora": 0}
        for name, bound in least.items():
            whole(name, getattr(self, name), bound)

    def _check_optimiser(self) -> None:
        rates = {"lr": self.lr, "eps": self.eps, "muon_lr": self.muon_lr}
        rates |= {f"multipliers[{name!r}]": value for name, value in self.multipliers.items()}
        for name, value in rates.items():
            positive(name, value)
        if self.optimiser != "muon" and self.muon_lr != TrainConfig.muon_lr:
            raise ValueError("muon_lr has no effect with optimiser=adamw: give optimiser=muon")
        if self.optimiser == "muon" and self.lora:
            raise ValueError("optimiser=muon trains whole matrices: leave lora out")
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

    def _check_machine(self) -> None:
        one_of("dtype", self.dtype, ("float32", "float64", "bfloat16"))
        one_of("shard", self.shard, ("full", "hybrid", "none"))
        one_of("reduce", self.reduce, ("step", "micro"))
        one_of("optimiser", self.optimiser, ("adamw", "muon"))
        one_of("first_weights", self.first_weights, ("by_name", "in_order"))
        positive("lora_scale", self.lora_scale)
        object.__setattr__(self, "lora_targets", tuple(self.lora_targets))  # JSON has lists only
        for name in ("lora_scale", "lora_targets"):
            if not self.lora and getattr(self, name) != getattr(TrainConfig, name):
                raise ValueError(f"{name} has no effect without lora: give a rank, such as lora=8")

    @property
    def micro_batch(self) -> int:
        """Examples in one call of the batch function."""
        return self.batch // self.accumulate

    def as_json(self) -> dict[str, Any]:
        """All fields, as JSON gives them back."""
        fields: dict[str, Any] = asdict(self) | {"multipliers": dict(self.multipliers)}
        restored: dict[str, Any] = json.loads(json.dumps(fields))
        return restored

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """From what `as_json` wrote, in this version or before (`BEFORE`)."""
        betas = {"betas": tuple(record["betas"])} if "betas" in record else {}
        return cls(**{**BEFORE, **record, **betas})


def digest(about: Mapping[str, Any]) -> str:
    """sha256 of a JSON document that does not depend on the order of its keys."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def fixed_fields(config: TrainConfig) -> dict[str, Any]:
    """The fields that a resumed run must share with its checkpoint."""
    omitted = {name: getattr(TrainConfig, name) for name in LATER} | dict(BEFORE)
    unused = {name for name, value in omitted.items() if getattr(config, name) == value}
    left_out = MAY_CHANGE | unused
    return {name: value for name, value in config.as_json().items() if name not in left_out}
