"""Settings that several families share: a network's shape, how tokens are drawn, insertion's clock.

Each setting is defined once, here or in a family's own config.py, with its help text below it: the
command line, the playground and the run card read it there. Never torch. `resolve` in a family's
decode.py fills in and checks the options. An option that the chosen path would not use is an error,
never ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Protocol, Self

import tyro

from anyorder.checks import at_least, one_of, positive
from anyorder.nets.shapes import TransformerConfig

Order = Literal["left_to_right", "chosen", "at_once"]
"""Left to right by construction; chosen by a policy; or all places of the canvas together."""

Predicted = Literal["all", "half", "blocks", "between_clocks"]
"""All of the answer; half of it on average; the half of each block, one token at least; or what is
inserted and not yet revealed."""

LOGIT_BYTES = 12.0
"""At the peak of a training step, for one float32 logit: log-probabilities, their gradient, and
the gradient of the logits. As much for imitation: the logits and their float64 copy."""

NEVER = 1_000
"""A `spare_color` behind all others."""


@dataclass(frozen=True)
class Description:
    """A family in plain facts. The defaults are what we assume of a family that we do not know."""

    name: str
    """As model folders, run cards and recipes spell it."""
    title: str
    """As people write it."""
    summary: str = ""
    """What it does, in one line."""

    # How it decodes.
    order: Order = "chosen"
    """Who decides what comes next."""
    items: Literal["tokens", "segments"] = "tokens"
    """What is written at a time, and what an order is an order of."""
    masks: bool = True
    """Whether a canvas has masked positions, whose posteriors the network gives."""
    inserts: bool = False
    """Whether the canvas grows: slots are opened while decoding. Else their number is fixed."""

    # How reports draw it.
    color: tuple[str, str] | None = None
    """On light and on dark paper, as `#rrggbb`; None: the colour of a baseline."""
    spare_color: int = NEVER
    """When the colour serves something that has none of its own: the lowest number first."""

    # How it races (apps/race/plan.py).
    race_points: tuple[Mapping[str, Any], ...] = ({},)
    """Decoding options, one set for each point: settings that differ in cost."""
    race_several: Mapping[str, Any] = field(default_factory=dict)
    """What several attempts need besides the race's temperature, so that it has an effect."""

    # What it costs and what its numbers mean.
    predicted: Predicted = "all"
    """Which share of an answer a training step predicts (apps/costs.py)."""
    logit_bytes: float = LOGIT_BYTES
    """What a training step needs at its peak for one logit."""
    likelihood: str | None = None
    """The name of its likelihood in families/likelihood.py; None: it has none."""
    options: type | None = None
    """Its decoding options, a dataclass: each field is an option of `anyorder sample`."""
    import_hint: str = ""
    """What to check where traces of its published code (a format of the same name) do not fit."""

    def __post_init__(self) -> None:
        wrong = [each for each in self.color or () if not re.fullmatch(r"#[0-9a-f]{6}", each)]
        if wrong:
            raise ValueError(f"colour {wrong[0]!r} of {self.name}: give #rrggbb, in small letters")

    @property
    def left_to_right(self) -> bool:
        """Whether there is one order only, so that no policy needs to be named."""
        return self.order == "left_to_right"

    @property
    def has_choice(self) -> bool:
        """Whether a policy decides what comes next."""
        return self.order == "chosen"

    @property
    def has_segments(self) -> bool:
        """Whether whole segments are written."""
        return self.items == "segments"


class Specials(Protocol):
    """The ids of a vocabulary that may stand around a prompt."""

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
    """mdm, block: the state at i - 1 predicts token i, as in Dream and in what began as ar."""
    head_width: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Width of one head; unset: width / heads."""
    qk_norm: bool = False
    """Norms on the heads of queries and keys, as in Qwen3."""
    prompt: Literal["tokens", "sentences"] = "tokens"
    """How prompts are read: token by token, or each sentence as the sum of its tokens
    (nets/prompts.py); such prompts end with a newline."""

    def __post_init__(self) -> None:
        if self.heads < 1 or (self.head_width is None and self.width % self.heads):
            raise ValueError(f"net.width={self.width} must be a multiple of net.heads={self.heads}")

    def backbone(self, vocab_size: int, *, causal: bool) -> TransformerConfig:
        """The whole shape: what the recipe leaves open follows from vocabulary and family."""
        return TransformerConfig(
            vocab_size=vocab_size if self.vocab_size is None else self.vocab_size,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            head_width=self.width // self.heads if self.head_width is None else self.head_width,
            mlp_width=self.mlp_width,
            causal=causal,
            rope_theta=self.rope_theta,
            norm_eps=TransformerConfig.norm_eps if self.norm_eps is None else self.norm_eps,
            qkv_bias=self.qkv_bias,
            o_bias=self.o_bias,
            qk_norm=self.qk_norm,
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

    clock: Literal["steps", "events"] | None = None
    """steps: a grid of time, many events in one call; events: at most one event in each call.
    Unset: steps; flexmdm: events, but steps with an option that needs them."""
    steps: int | None = None
    """Steps of the grid. Exact: 128; compat: 512."""
    quota: Literal["thinned", "poisson"] | None = None
    """How many open slots a step reveals. Exact: thinned; compat: poisson."""
    counts: Literal["binomial", "poisson", "floor_bernoulli"] | None = None
    """How many slots a step inserts. Exact: binomial; compat: poisson."""
    hazard: Literal["exact", "left", "midpoint"] | None = None
    """How a step's share of the waiting events is computed. Exact: exact; compat: left."""
    insertion_schedule: float | None = None
    """Gamma(t) = 1 - (1 - t)^this is the share inserted by time t. Unset: 2.9, as published."""
    unmasking_schedule: str | float | None = None
    """carried: along with the insertions, B(Gamma(t)), so that the network meets open slots as in
    training; kept: the schedule of training in the sampler's time (published); or an exponent,
    where smaller means later. Exact: carried; compat: kept."""
    insertion_temperature: float = 1.0
    """Where slots are inserted, not how many: below 1, more of them where most are missing."""

    def with_schedules(self, unmasking: str) -> Self:
        """With both schedules, `unmasking` unless another was chosen; clock and numbers checked."""
        clock = self.clock or "steps"
        one_of("clock", clock, ("steps", "events"))
        at_least("steps", self.steps)
        positive("insertion_temperature", self.insertion_temperature)
        insertion = 2.9 if self.insertion_schedule is None else self.insertion_schedule
        return replace(
            self,
            clock=clock,
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
