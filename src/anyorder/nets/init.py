"""How weights begin: as a function of the seed with a first loss of ln V, or from a trained net.

Every linear map starts at N(0, 1 / fan_in), biases at 0, norm weights at 1, modulations at 0. The
two maps of a layer that write into the residual stream are scaled by s / sqrt(2 layers), where s
is the scale of the embedding table, so that at first the stream still shows which token it is.

An untied head starts near zero under a unit table. A tied table is also the head: with p the
product of its scale and of the final norm's gain, the logits have variance p^2 D, which costs
p^2 D / 2 nats, and the logit of the position's own input token is up to p D, which costs
ln(1 + e^(p D) / V). `start_scales` allows each of them 0.3 % of ln V.

Each weight draws by itself, from a generator whose seed is a hash of (seed, name) (`NamedSeed`). So
its first value depends neither on which other weights exist nor on their order. Names are those in
the backbone or in the network over segments: `backbone.` before them does not count, and a wrapped
backbone begins like a plain one. With a plain int all weights draw from one stream, in a fixed
order: so began all networks before there were named seeds.

A network over segments (families/latentmdm/net.py) has three streams and one table, which is its
head as well. A name has to pass three stacks and one vector there. Under random maps alone it
arrives as noise, and small networks stayed for thousands of steps where they knew every word but
the names (docs/latentmdm.md). So attention begins near copying what it attends to: the identity is
added to its value map and, times the scale of the table, to its output map. If the decoder ends in
a norm, the scales are those of a tied table. Without a norm the size of the states counts. Where
all attended columns are alike (the first column of the decoder sees only itself), each of the L
layers of latent network and decoder adds about the input once more: the states have (1 + L) times
the scale of the table, measured at the shapes of the paper, and p = (1 + L) s^2.

Not here: training, and how weights are read from files.
Letters: D width, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from anyorder.nets.stack import Modulation

if TYPE_CHECKING:
    from anyorder.nets.shapes import TransformerConfig
    from anyorder.nets.transformer import Transformer

HEAD_SCALE = 0.02
"""Standard deviation of an untied head's first logits."""

SMALL_VOCABULARY = 512
"""Up to here (bytes, the words of a toy language) the gain carries p, beyond it the table.

Measured on small tied models: with 24 symbols a unit table learns to copy and to add much sooner,
with thousands of tokens a small table under a unit gain learns which token follows which sooner.
"""


class NamedSeed(int):
    """A seed with which every weight draws by itself; a plain int is the seed of one stream.

    It is an int, so that networks which draw in their own way take it, too.
    """


class WeightDraws:
    """The generators of the first weights of a network, or of a part of it."""

    def __init__(self, seed: int, device: torch.device | str = "cpu", *, part: int = 0) -> None:
        """`part` separates the stream of a part from that of the rest; names need no such thing."""
        self.seed, self.device = seed, device
        self.stream = torch.Generator(device).manual_seed(seed ^ part)

    def of(self, name: str) -> torch.Generator:
        """The generator that the weight of this name draws from, once."""
        if isinstance(self.seed, NamedSeed):
            # torch keeps 32 bits of the hash on a CPU: equal ones are too rare to matter.
            key = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
            return torch.Generator(self.device).manual_seed(int.from_bytes(key, "big"))
        return self.stream


def start_scales(config: TransformerConfig) -> tuple[float, float]:
    """Standard deviation of the embedding table, and gain of the final norm."""
    if not config.tied:
        return 1.0, 1.0
    product = scale_product(config)
    return (1.0, product) if config.vocab_size <= SMALL_VOCABULARY else (product, 1.0)


def scale_product(config: TransformerConfig) -> float:
    """p: the largest product of the scales of a tied table and of the states under it."""
    budget = 0.003 * math.log(config.vocab_size)
    return min(
        math.sqrt(2 * budget / config.width),
        math.log1p(budget * config.vocab_size) / config.width,
    )


@torch.no_grad()
def draw_weights(net: Transformer, seed: int) -> None:
    """Set all weights of a net, in place; the global generator is not used."""
    config = net.config
    table, gain = start_scales(config)
    # The order of draws is fixed: in another order a plain seed would give other weights.
    draws = WeightDraws(seed, net.embed.weight.device)
    draw_layers(net, config.layers, table, draws)
    nn.init.normal_(net.embed.weight, std=table, generator=draws.of(TABLE))
    nn.init.constant_(net.norm.weight, gain)
    if net.unembed is not None:
        head_std = HEAD_SCALE / math.sqrt(config.width)
        nn.init.normal_(net.unembed.weight, std=head_std, generator=draws.of(HEAD))


def draw_layers(
    net: nn.Module, layers: int, scale: float, draws: WeightDraws, prefix: str = ""
) -> None:
    """All linear maps and norms, for a residual stream of the given scale.

    prefix: what the network adds to the names of these layers.
    """
    writing = scale / math.sqrt(2 * layers)
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear):
            std = module.in_features**-0.5
            if name.endswith((".attention.out", ".mlp.down")):
                std *= writing
            generator = draws.of(f"{prefix}{name}.weight")
            nn.init.normal_(module.weight, std=std, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)
    for module in net.modules():  # afterwards, since the loop above draws all linear maps
        if isinstance(module, Modulation):
            nn.init.zeros_(module.project.weight)


FREE_SETTINGS = {
    "causal", "time_modulated", "vocab_size", "tied",
    "slots", "segment_length", "segment_by", "attention", "empty", "block_size", "origin",
}  # fmt: skip
"""Settings that may differ between a network and its base: the weights compute the same, or are a
known start (causal ones for a bidirectional net), or names and shapes show the difference."""
ROUND_OFF = 2.0**-23
"""The relative distance of two neighbouring float32 numbers, at most."""
TABLE, HEAD = "embed.weight", "unembed.weight"
ADDED_BY_TIME = re.compile(r"time\.|blocks\.\d+\.modulation\.")
"""The parameters that a backbone with time has more than one without."""


@torch.no_grad()
def take_weights(
    net: nn.Module,
    base: nn.Module,
    without: re.Pattern[str] | None = None,
    unused: re.Pattern[str] | None = None,
) -> None:
    """Copy the weights of `base` into `net`; its names that match `without` keep their own values.

    Besides the shapes, all settings that decide what the weights compute must agree. A causal base
    is accepted for a bidirectional net. An untied head begins as the table of a tied base.
    unused: names of the base that the net does not need.
    """
    mine, theirs = vars(net)["config"], vars(base)["config"]
    if type(mine) is not type(theirs):
        raise ValueError(
            f"a {type(base).__name__} cannot be the start of a {type(net).__name__}: "
            "give a model of the same family, or a plain one"
        )
    _check_settings(mine, theirs)
    ours = _named(net, without)
    given = _named(base, unused)
    if HEAD in ours and TABLE in given:
        given.setdefault(HEAD, given[TABLE])
    wrong = sorted(
        name
        for name in ours.keys() | given.keys()
        if name not in ours or name not in given or ours[name].shape != given[name].shape
    )
    if wrong:
        more = " and more" if len(wrong) > 5 else ""
        raise ValueError(
            f"the model to begin with has another shape than this network ({', '.join(wrong[:5])}"
            f"{more}): give the recipe that model's net settings"
        )
    for name, value in ours.items():
        value.copy_(given[name])


def matching_names(net: nn.Module, pattern: re.Pattern[str]) -> set[str]:
    """The names of the parameters that begin with the pattern."""
    return {name for name, _ in net.named_parameters() if pattern.match(name)}


def _named(net: nn.Module, without: re.Pattern[str] | None) -> dict[str, nn.Parameter]:
    return {
        name: value
        for name, value in net.named_parameters()
        if without is None or not without.match(name)
    }


def _check_settings(mine: Any, theirs: Any) -> None:
    """Refuse a base whose configuration gives the same weights another meaning."""
    if different := list(_differences(mine, theirs)):
        raise ValueError(
            "the model to begin with has another shape than this network "
            f"({'; '.join(different)}): give the recipe that model's net settings"
        )


def _differences(mine: Any, theirs: Any) -> Iterator[str]:
    for field in fields(mine):
        here, there = getattr(mine, field.name), getattr(theirs, field.name)
        if is_dataclass(here):
            yield from _differences(here, there)
        elif field.name not in FREE_SETTINGS and not same_setting(here, there):
            yield f"{field.name} {there}, here {here}"


def same_setting(one: Any, other: Any) -> bool:
    """Whether two settings are equal; floats up to the round-off of float32.

    Files written from float32 hold 9.99999997e-07 for an epsilon of 1e-6.
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUND_OFF)
    return bool(one == other)
