"""What the rest of the library may know of a family: its name in print, and its properties.

Reports, races and cost estimates never compare family names. They ask a description: does the
family choose an order, does its canvas grow, does it write segments? A family from outside gives
its own description to `register_description`; every other name gets a neutral one.

This file imports neither torch nor anything of ours, so that reports stay light. The network, the
losses and the decoder of a family are in its folder (families/family.py binds them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Order = Literal["left_to_right", "chosen", "at_once"]
"""Left to right by construction; chosen by a policy; or all places of the canvas together."""

Predicted = Literal["all", "half", "between_clocks"]
"""All of the answer; half of it on average; or what is inserted and not yet revealed."""

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
    """Whether a canvas has masked positions, which the network can be asked about."""
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


def _over(option: str, *values: Any) -> tuple[dict[str, Any], ...]:
    return tuple({option: value} for value in values)


EVENTS: dict[str, Any] = {"clock": "events"}
"""One change at a time, a point that has no number of steps."""

_AR = Description(
    name="ar",
    title="AR",
    summary="autoregressive: the next token, left to right",
    order="left_to_right",
    masks=False,
    color=("#828a91", "#a9b3bb"),
    spare_color=4,
    likelihood="exact",
)
_MDM = Description(
    name="mdm",
    title="MDM",
    summary="masked diffusion: any masked token of a fixed canvas",
    color=("#2f66d6", "#6a93f0"),
    spare_color=3,
    race_points=_over("steps", 8, 16, 32, 64),
    predicted="half",
    likelihood="any-order bound over tokens",
)
_FLEXMDM = Description(
    name="flexmdm",
    title="FlexMDM",
    summary="insertion-based masked diffusion: opens slots, then fills them",
    inserts=True,
    color=("#cc7a14", "#eba02c"),
    spare_color=1,
    race_points=(*_over("steps", 16, 32, 64), EVENTS),
    predicted="between_clocks",
    likelihood="insertion bound over tokens",
    import_hint="check prompt_len in the files",
)
_LATENTMDM = Description(
    name="latentmdm",
    title="LatentMDM",
    summary="masked diffusion over segments: any line of a fixed number of them",
    items="segments",
    color=("#005c3c", "#7af0c4"),
    spare_color=0,
    race_points=_over("k", 1, 2, 4),
    predicted="half",
    likelihood="any-order bound over lines",
    import_hint="check the records' steps",
)
_FLEXLATENT = Description(
    name="flexlatent",
    title="FlexLatent",
    summary="insertion over segments: opens lines where they are missing, then fills them",
    items="segments",
    inserts=True,
    color=("#8a1a86", "#d63f9a"),
    spare_color=2,
    race_points=(*_over("steps", 8, 16, 32), EVENTS),
    predicted="between_clocks",
    likelihood="insertion bound over lines",
)
_DUO = Description(
    name="duo",
    title="DUO",
    summary="uniform-state diffusion: any token of a fixed canvas may change at every step",
    order="at_once",
    masks=False,
    color=("#4f1503", "#a05a2c"),
    spare_color=5,
    race_points=_over("steps", 8, 16, 32),
    logit_bytes=28.0,  # measured: tests/apps/test_dry_run.py
    likelihood="uniform-state bound",
)
# Without a likelihood: its cross-entropy is that of a denoiser at noised vectors, no bound.
_SFLM = Description(
    name="sflm",
    title="S-FLM",
    summary="hyperspherical flow: noise moves towards token vectors, all slots at once",
    order="at_once",
    masks=False,
    color=("#3e96ef", "#5050f1"),
    spare_color=6,
    race_points=_over("steps", 8, 16, 32),
    race_several={"velocity": "exact"},
)

DESCRIPTIONS: dict[str, Description] = {
    each.name: each for each in (_AR, _MDM, _FLEXMDM, _LATENTMDM, _FLEXLATENT, _DUO, _SFLM)
}
"""By name, in the order of reports. Few race points each: all shipped models race in minutes."""

BASELINE = _AR.name
"""The family whose colour stands for every family without one."""
WRAPPED = _MDM.name
"""The family that a foreign network is taken for, unless its owner says otherwise."""


def describe(name: str) -> Description:
    """The description of a family; a neutral one where nobody registered the name."""
    return DESCRIPTIONS.get(name) or Description(name, title=name or "unknown model")


def register_description(description: Description) -> None:
    """Add the description of a family of one's own."""
    if description.name in DESCRIPTIONS:
        raise ValueError(f"{description.name!r} is described already: choose another name")
    DESCRIPTIONS[description.name] = description
