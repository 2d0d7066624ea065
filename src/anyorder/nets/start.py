"""How weights begin: as a function of the seed with a first loss of ln V, or from a trained net.

Every linear map starts at N(0, 1 / fan_in), biases at 0, norm weights at 1, modulations at 0. The
two maps of a layer that write into the residual stream are scaled by s / sqrt(2 layers), where s
is the scale of the embedding table, so that at first the stream still says which token it is.

An untied head starts near zero under a unit table. A tied table is also the head: with p the
product of its scale and of the final norm's gain, the logits have variance p^2 D, which costs
p^2 D / 2 nats, and the very token that stands at a position gets a logit of up to p D, which
costs ln(1 + e^(p D) / V). `start_scales` allows each of them 0.3 % of ln V.

Not here: training, and how weights are read from files.
Letters: D width, V vocabulary.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import TYPE_CHECKING

import torch
from torch import nn

from anyorder.nets.modulation import Modulation

if TYPE_CHECKING:
    from anyorder.nets.transformer import Transformer, TransformerConfig

HEAD_SCALE = 0.02
"""Standard deviation of an untied head's first logits."""

SMALL_VOCABULARY = 512
"""Up to here (bytes, the words of a toy language) the gain carries p, beyond it the table.

Measured on small tied models: with 24 symbols a unit table learns to copy and to add much sooner,
with thousands of tokens a small table under a unit gain learns which token follows which sooner.
"""


def start_scales(config: TransformerConfig) -> tuple[float, float]:
    """Standard deviation of the embedding table, and gain of the final norm."""
    if not config.tied:
        return 1.0, 1.0
    budget = 0.003 * math.log(config.vocab_size)
    product = min(
        math.sqrt(2 * budget / config.width),
        math.log1p(budget * config.vocab_size) / config.width,
    )
    return (1.0, product) if config.vocab_size <= SMALL_VOCABULARY else (product, 1.0)


@torch.no_grad()
def draw_weights(net: Transformer, seed: int) -> None:
    """Set all weights of a net, in place, from a generator of their own."""
    config = net.config
    table, gain = start_scales(config)
    writing = table / math.sqrt(2 * config.layers)
    generator = torch.Generator(net.embed.weight.device).manual_seed(seed)
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear):
            std = module.in_features**-0.5
            if name.endswith((".attention.out", ".mlp.down")):
                std *= writing
            nn.init.normal_(module.weight, std=std, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)
    for module in net.modules():
        if isinstance(module, Modulation):
            nn.init.zeros_(module.project.weight)
    nn.init.normal_(net.embed.weight, std=table, generator=generator)
    nn.init.constant_(net.norm.weight, gain)
    if net.unembed is not None:
        head_std = HEAD_SCALE / math.sqrt(config.width)
        nn.init.normal_(net.unembed.weight, std=head_std, generator=generator)


@torch.no_grad()
def take_weights(net: nn.Module, base: nn.Module, without: re.Pattern[str] | None = None) -> None:
    """Copy the weights of `base` into `net`, whose own names that match `without` keep theirs.

    Besides the shapes, all that decides what the weights compute must agree. A causal base is
    welcome: its weights are a known start for a bidirectional network.
    """
    _check_settings(net, base)
    ours = {
        name: value
        for name, value in net.named_parameters()
        if without is None or not without.match(name)
    }
    theirs = dict(base.named_parameters())
    wrong = sorted(
        name
        for name in ours.keys() | theirs.keys()
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape
    )
    if wrong:
        more = " and more" if len(wrong) > 5 else ""
        raise ValueError(
            f"the model to begin with has another shape than this network ({', '.join(wrong[:5])}"
            f"{more}): give the recipe that model's net settings"
        )
    for name, value in ours.items():
        value.copy_(theirs[name])


def _check_settings(net: nn.Module, base: nn.Module) -> None:
    """Refuse a base whose configuration gives the same weights another meaning."""
    mine, theirs = vars(net)["config"], vars(base)["config"]
    if type(mine) is not type(theirs):
        raise ValueError(
            f"a {type(base).__name__} cannot be the start of a {type(net).__name__}: "
            "give a model of the same family, or a plain one"
        )
    free = {"causal", "time_modulated", "vocab_size", "backbone"}
    for field in fields(mine):
        here, there = getattr(mine, field.name), getattr(theirs, field.name)
        if field.name not in free and here != there:
            raise ValueError(
                f"the model to begin with has another shape than this network ({field.name} "
                f"{there}, here {here}): give the recipe that model's net settings"
            )
    if "backbone" in dict(net.named_children()):
        _check_settings(net.get_submodule("backbone"), base.get_submodule("backbone"))
