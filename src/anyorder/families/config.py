"""Settings that several families share: a network's shape, how tokens are drawn, insertion's clock.

Each setting is defined once, here or in a family's own config.py, with its help text below it: the
command line, the playground and the run card read it there. Never torch. What fills in and checks
options by the tables of policies and quotas is `resolve` in a family's decode.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Protocol, Self

import tyro

from anyorder.checks import one_of
from anyorder.nets.shapes import TransformerConfig


class Specials(Protocol):
    """What a shape asks of a vocabulary: the ids that may stand around a prompt."""

    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int: ...
    @property
    def pad_id(self) -> int: ...


@dataclass(frozen=True)
class NetConfig:
    """The shape of the network; vocabulary and direction follow from data and family."""

    width: int = 64
    """Size of a hidden state."""
    layers: int = 6
    """Transformer layers."""
    heads: int = 4
    """Attention heads."""
    kv_heads: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Key/value heads; unset: as many as heads."""
    mlp_width: int = 192
    """Inner width of the feed-forward map."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    qkv_bias: bool = True
    """Biases on queries, keys and values."""
    o_bias: bool = False
    """Bias on the attention's output."""
    tied: bool = True
    """Whether the head shares the embedding's weights."""
    vocab_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Rows of the embedding table; unset: the vocabulary's size."""
    norm_eps: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Added to the norms' mean square; unset: 1e-6 (Llama and LLaDA have 1e-5)."""
    shift: Annotated[bool | None, tyro.conf.arg(metavar="True", help_behavior_hint="")] = None
    """mdm: the state at i - 1 predicts token i, as in Dream and in what begins left to right."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"net.width={self.width} must be a multiple of net.heads={self.heads}")

    def backbone(self, vocab_size: int, *, causal: bool) -> TransformerConfig:
        """The whole shape: what the recipe leaves open follows from vocabulary and family."""
        return TransformerConfig(
            vocab_size=vocab_size if self.vocab_size is None else self.vocab_size,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            head_width=self.width // self.heads,
            mlp_width=self.mlp_width,
            causal=causal,
            rope_theta=self.rope_theta,
            norm_eps=TransformerConfig.norm_eps if self.norm_eps is None else self.norm_eps,
            qkv_bias=self.qkv_bias,
            o_bias=self.o_bias,
            tied=self.tied,
        )


def settings_of(net: NetConfig, kind: type) -> dict[str, Any]:
    """The fields of `kind`, which a recipe's network and the network's own shape have in common."""
    return {each.name: getattr(net, each.name) for each in fields(kind)}


def check_choices(owner: Any, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a field that is none of its choices."""
    for name, known in choices.items():
        one_of(name, getattr(owner, name), known)


def check_exponents(owner: Any) -> None:
    """Refuse schedules that are none."""
    for name in ("insertion_exponent", "unmasking_exponent"):
        _exponent(name, getattr(owner, name))


@dataclass(frozen=True)
class DrawOptions:
    """How a token is drawn from what the network predicts for its place."""

    temperature: float = 0.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Keep the smallest set of best tokens with more than this mass; 1 keeps all."""
    top_k: int = 0
    """Keep this many best tokens; 0 keeps all."""

    @property
    def filters(self) -> bool:
        """Whether top_p or top_k may remove tokens."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True)
class ClockOptions:
    """When slots are inserted and revealed, and how many."""

    clock: Literal["steps", "events"] = "steps"
    """steps: a grid of time, much in one call; events: at most one insertion or reveal a call."""
    steps: int | None = None
    """Steps of the grid. Exact: 128; compat: 512."""
    quota: Literal["thinned", "poisson"] | None = None
    """How many open slots a step reveals. Exact: thinned; compat: poisson."""
    counts: Literal["binomial", "poisson", "floor_bernoulli"] | None = None
    """How many slots a step inserts. Exact: binomial; compat: poisson."""
    hazard: Literal["exact", "left", "midpoint"] | None = None
    """What share of the waiting events a step holds. Exact: exact; compat: left."""
    insertion_schedule: float | None = None
    """Gamma(t) = 1 - (1 - t)^this is the share inserted by time t. Unset: 2.9, as published."""
    unmasking_schedule: str | float | None = None
    """carried: along with the insertions, B(Gamma(t)), so that the network meets open slots as in
    training; kept: the schedule of training in the sampler's time (published); or an exponent,
    where smaller means later. Exact: carried; compat: kept."""
    insertion_temperature: float = 1.0
    """Where slots are inserted, never how many: below 1 rather where most are missing."""

    def with_schedules(self, unmasking: str) -> Self:
        """With both schedules, `unmasking` unless another was chosen; clock and numbers checked."""
        one_of("clock", self.clock, ("steps", "events"))
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if not 0 < self.insertion_temperature < math.inf:
            raise ValueError(
                f"insertion_temperature={self.insertion_temperature}: give a positive number"
            )
        insertion = 2.9 if self.insertion_schedule is None else self.insertion_schedule
        return replace(
            self,
            insertion_schedule=_exponent("insertion_schedule", insertion),
            unmasking_schedule=_unmasking(self.unmasking_schedule) or unmasking,
        )

    def with_exact_clock(self) -> Self:
        """With all that the exact clock needs."""
        if self.clock == "events":
            self.refuse_set(
                "with clock='events', which does one thing at a time",
                "steps",
                "quota",
                "counts",
                "hazard",
            )
            return self
        full = replace(
            self,
            steps=128 if self.steps is None else self.steps,
            quota=self.quota or "thinned",
            counts=self.counts or "binomial",
            hazard=self.hazard or "exact",
        )
        one_of("counts", full.counts, ("binomial", "poisson", "floor_bernoulli"))
        one_of("hazard", full.hazard, ("exact", "left", "midpoint"))
        return full

    def refuse_set(self, why: str, *names: str) -> None:
        """What is set must have an effect."""
        for name in names:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ValueError(f"{name} has no effect {why}: leave it out")


def _exponent(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}: give a positive exponent")
    return float(value)


def _unmasking(value: str | float | None) -> str | float | None:
    """kept, carried or a number, which the command line may hand over as text; None stays."""
    if value is None or value in ("kept", "carried"):
        return value
    try:
        number = float(value)
    except ValueError:
        raise ValueError(
            f"unmasking_schedule={value!r}: choose 'kept', 'carried' or an exponent"
        ) from None
    return _exponent("unmasking_schedule", number)
