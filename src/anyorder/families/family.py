"""The one table where the columns meet: a family is a process, a network and a decoder.

Adding a family means adding a row here (CONTRIBUTING.md walks through it). Nothing else in the
library compares family names.

The kinds of network that families have, between a recipe, config.json and a module.

One function for each kind. What they compute is nets/; which family has which is families.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import nn

from anyorder.decode.canvas import (
    Decoded,
    Frame,
    Sizes,
    fixed_canvas,
    open_canvas,
    open_segments,
    slot_canvas,
)
from anyorder.decode.replay import TraceReader
from anyorder.families.ar import decode as ar
from anyorder.families.ar.loss import causal_mean
from anyorder.families.duo import decode as duo
from anyorder.families.duo.config import DuoOptions
from anyorder.families.duo.loss import uniform_bound
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.families.flexlatent.loss import segment_insertion_bound
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.flexmdm.loss import insertion_bound
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.families.latentmdm.loss import segment_mean, segment_tokens
from anyorder.families.latentmdm.net import LatentNet
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm import loss as objectives
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.mdm.loss import imitation
from anyorder.families.mdm.planner import PlannedNet, planner_names
from anyorder.families.objective import Objective
from anyorder.families.replay import flex_reader, masked_reader
from anyorder.families.replay_segments import flex_latent_reader, latent_reader
from anyorder.families.sflm import decode as sflm
from anyorder.families.sflm.config import SflmOptions
from anyorder.families.sflm.loss import sphere_mean
from anyorder.families.sflm.net import SphereNet
from anyorder.nets.denoiser import ShiftedNet, unshifted
from anyorder.nets.init import take_weights
from anyorder.nets.shapes import (
    FlexConfig,
    FlexLatentConfig,
    LatentConfig,
    PlannedConfig,
    ShiftedConfig,
    SphereConfig,
    TransformerConfig,
)
from anyorder.nets.transformer import Transformer
from anyorder.process.sphere import LEAST_SIGNAL, enough_signal
from anyorder.vocab import Vocab

Completion = Callable[[TransformerConfig, Any, int], Any]


@dataclass(frozen=True)
class Network:
    """How a network is configured, read, built and begun."""

    complete: Completion
    """(backbone, the recipe, EOS) -> the network's configuration."""
    read: Callable[[dict[str, Any]], Any]
    """What config.json holds -> the network's configuration."""
    build: Callable[..., nn.Module]
    """(configuration, seed=) -> a network with fresh weights."""
    start: Callable[[Any, nn.Module], None]
    """(network, trained one): takes over the weights of one of its kind or of a plain backbone."""
    additions: Callable[[Any], set[str]] = lambda net: set()
    """network -> the names of the parameters that a plain backbone does not have."""


def plain_network() -> Network:
    """The backbone alone."""
    return Network(
        complete=_told(lambda backbone, recipe, eos: backbone),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start_plain,
    )


def masked_network() -> Network:
    """The backbone, alone, with shifted states, or with a planner head, as the recipe asks."""
    return Network(
        complete=_told(_masked_config, shifts=True),
        read=_read_masked,
        build=lambda config, *, seed=0: MASKED_NETS[type(config)](config, seed=seed),
        start=lambda net, base: MASKED_STARTS[type(net)](net, base),
        additions=planner_names,
    )


def timed_network() -> Network:
    """The backbone, told a time."""
    return Network(
        complete=_told(lambda backbone, recipe, eos: replace(backbone, time_modulated=True)),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start_timed,
        additions=lambda net: {name for name, _ in net.named_parameters() if TIME.match(name)},
    )


def flex_network() -> Network:
    """The backbone with time and a gap head."""
    return Network(
        complete=_told(_flex_config),
        read=FlexConfig.from_record,
        build=FlexNet,
        start=FlexNet.start_from,
        additions=FlexNet.additions,
    )


def sphere_network() -> Network:
    """The backbone, or the published DiT, over unit vectors."""
    return Network(
        complete=_told(_sphere_config),
        read=SphereConfig.from_record,
        build=SphereNet,
        start=take_weights,
    )


def latent_network() -> Network:
    """Encoder, latent transformer and decoder."""
    return Network(
        complete=_told(_latent_config),
        read=LatentConfig.from_record,
        build=LatentNet,
        start=LatentNet.start_from,
    )


def flex_latent_network() -> Network:
    """The same with time and a gap head."""
    return Network(
        complete=_told(_flex_latent_config),
        read=FlexLatentConfig.from_record,
        build=FlexLatentNet,
        start=FlexLatentNet.start_from,
        additions=FlexLatentNet.additions,
    )


TIME = re.compile(r"time\.|blocks\.\d+\.modulation\.")
"""The parameters of a backbone's time."""


def _start_timed(net: nn.Module, base: nn.Module) -> None:
    """A base without time predicts at first what it predicted before, at all times."""
    has_time = isinstance(base, Transformer) and base.config.time_modulated
    take_weights(net, base, without=None if has_time else TIME)


def _start_plain(net: nn.Module, base: nn.Module) -> None:
    """A causal net predicts the next token, as a shifted masked model does."""
    shifts = bool(vars(net)["config"].causal)
    take_weights(net, unshifted(base, wanted=shifts, remedy="give the recipe net.shift=True"))


def _told(complete: Completion, *, shifts: bool = False) -> Completion:
    """The same, with what a recipe may say of every backbone; `shifts`: net.shift is known."""

    def completed(backbone: TransformerConfig, recipe: Any, eos: int) -> Any:
        eps, shift = (getattr(recipe.net, name, None) for name in ("norm_eps", "shift"))
        if shift and not shifts:
            raise ValueError(f"{recipe.family} does not use net.shift: leave it out")
        return complete(backbone if eps is None else replace(backbone, norm_eps=eps), recipe, eos)

    return completed


MASKED_NETS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: Transformer,
    ShiftedConfig: ShiftedNet,
    PlannedConfig: PlannedNet,
}
MASKED_STARTS: dict[type, Callable[[Any, nn.Module], None]] = {
    Transformer: _start_plain,
    ShiftedNet: ShiftedNet.start_from,
    PlannedNet: PlannedNet.start_from,
}


def _masked_config(backbone: TransformerConfig, recipe: Any, eos: int) -> Any:
    own = {field.name for field in fields(PlannedConfig)} - {"backbone"}
    shift = getattr(recipe.net, "shift", None)
    if not all(hasattr(recipe.net, name) for name in own):
        return ShiftedConfig(backbone) if shift else backbone
    if shift:
        raise ValueError("a planner reads states that predict their own place: leave net.shift out")
    return PlannedConfig(backbone, **{name: getattr(recipe.net, name) for name in own})


def _read_masked(record: dict[str, Any]) -> TransformerConfig | ShiftedConfig | PlannedConfig:
    """Plain models hold the fields of the backbone alone."""
    if "shift" in record:
        return ShiftedConfig.from_record(record)
    if "backbone" in record:
        return PlannedConfig.from_record(record)
    return TransformerConfig(**record)


def _flex_config(backbone: TransformerConfig, recipe: Any, eos: int) -> FlexConfig:
    own = {field.name for field in fields(FlexConfig)} - {"backbone"}
    return FlexConfig(
        replace(backbone, time_modulated=True), **{name: getattr(recipe.net, name) for name in own}
    )


def _sphere_config(backbone: TransformerConfig, recipe: Any, eos: int) -> SphereConfig:
    net = recipe.net
    if recipe.data.align == "right":
        raise ValueError(
            "sflm never writes the PAD that stands before right-aligned answers: leave data.align "
            "out"
        )
    if net.architecture == "dit":
        backbone = replace(backbone, qkv_bias=False)  # as it has none, the recipe's is not read
    return SphereConfig(
        replace(backbone, time_modulated=True),
        most_signal=enough_signal(backbone.vocab_size, backbone.width, net.delta),
        least_signal=LEAST_SIGNAL,
        architecture=net.architecture,
    )


def _latent_config(backbone: TransformerConfig, recipe: Any, eos: int) -> LatentConfig:
    segments = recipe.segments
    given = {
        "backbone": backbone,
        "slots": segments.slots,
        "segment_length": segments.segment_length,
        "segment_by": segments.by,
        "eos_id": eos,
    }
    own = {field.name for field in fields(LatentConfig)} - set(given)
    return LatentConfig(**given, **{name: getattr(recipe.net, name) for name in own})


def _flex_latent_config(backbone: TransformerConfig, recipe: Any, eos: int) -> FlexLatentConfig:
    net = recipe.net
    return FlexLatentConfig(
        _latent_config(replace(backbone, time_modulated=True), recipe, eos),
        insertion_exponent=net.insertion_exponent,
        unmasking_exponent=net.unmasking_exponent,
        gap_offset=net.gap_offset,
    )


@dataclass(frozen=True)
class Family:
    """What makes one kind of model."""

    name: str
    summary: str
    causal: bool
    """Whether the network looks to the left only."""
    answers: Literal["eos", "canvas", "bare", "slots", "segments"]
    """What training answers are: ended by EOS, by EOS up to a fixed canvas, or by nothing;
    cut into a fixed number of slots, or into as many segments as they have."""
    network: Network
    frame: Callable[[Any, Vocab], Frame]
    """(network's configuration, vocabulary) -> the ids around every prompt."""
    canvas: Callable[[str, Sizes, Vocab, Any], Any]
    """(text, largest sizes, vocabulary, network's configuration) -> what `decode` fills."""
    options: type
    """The decoding options that this family understands, as a frozen dataclass."""
    check: Callable[[Sequence[Any], Any], None]
    """Refuses canvases that these options cannot decode, before anything is written."""
    decode: Callable[..., list[Decoded]]
    """(net, vocab, canvases, keys, options, device, watch) -> what was decoded."""
    reader: Callable[..., TraceReader] | None
    """(net, vocab, options, device) -> what asks the network about the canvases of stored traces;
    None: the family has no masked positions."""
    losses: Mapping[str, Callable[[Vocab, Any, int], Objective]]
    """(vocabulary, the recipe's settings, longest sequence) -> objective, by name; the first is
    the default."""
    levels: tuple[float | None, ...]
    """Corruption levels of the validation grid."""
    resolve: Callable[[Any], Any] = lambda options: options
    """options -> the same, with every unset choice filled in that has an effect; checked."""
    suits: Callable[[Any, Any], None] = lambda net, options: None
    """(network, options): refuses options for which this network lacks a part."""
    usual: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = lambda net, given: {}
    """(network, what was asked for) -> what else to choose for this network in particular."""

    @property
    def counts_segments(self) -> bool:
        """Whether a canvas is measured in segments, not in tokens."""
        return self.answers in ("slots", "segments")

    def choose(self, given: Mapping[str, Any]) -> Any:
        """The resolved decoding options; what this family does not use is refused, not ignored."""
        known = self.option_names()
        unused = sorted(set(given) - known)
        if unused:
            raise ValueError(
                f"{self.name} does not use {', '.join(unused)}: leave it out "
                f"({self.name} takes {', '.join(sorted(known))})"
            )
        for name, kind in get_type_hints(self.options).items():
            if name in given and not _fits(given[name], kind):
                raise ValueError(f"{name}={given[name]!r} does not fit: give {_spell(kind)}")
        # Plain numbers, so that the resolved options can be written as JSON.
        plain = {name: getattr(value, "item", lambda v=value: v)() for name, value in given.items()}
        return self.resolved(self.options(**plain))

    def resolved(self, options: Any) -> Any:
        """Options filled in and checked: by themselves, if they are of a kind that can, or here."""
        own = getattr(options, "resolved", None)
        return self.resolve(options) if own is None else own()

    def option_names(self) -> set[str]:
        return {field.name for field in fields(self.options)}  # type: ignore[arg-type]

    def objective(
        self, loss: str | None, vocab: Vocab, settings: Any = None, max_length: int = 0
    ) -> Objective:
        """The training objective by name; None takes the default."""
        name = loss or next(iter(self.losses))
        if name not in self.losses:
            raise ValueError(f"{self.name} has no loss {name!r}: choose {' or '.join(self.losses)}")
        return self.losses[name](vocab, settings, max_length)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an option's declared type; a whole number serves as a float."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_args(kind):  # a union
        return any(_fits(value, each) for each in get_args(kind))
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    return is_whole(value) if kind is int else isinstance(value, kind)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, numpy's included; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _spell(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    parts = [each for each in get_args(kind) if each is not type(None)] or [kind]
    names = {int: "a whole number", float: "a number", str: "a name", bool: "True or False"}
    return " or ".join(
        _spell(each) if get_origin(each) is Literal else names[each] for each in parts
    )


def _by_its_planner(net: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A planner head decides, unless somebody else was asked to choose the order."""
    asked = given.get("policy") or given.get("remask") or given.get("mode") == "compat"
    return {"policy": "planner"} if hasattr(net, "plan") and not asked else {}


def _no_frame(config: Any, vocab: Vocab) -> Frame:
    return (), ()


GRID = tuple((i + 0.5) / 8 for i in range(8))
"""Corruption levels of a validation grid."""

FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="ar",
            summary="autoregressive: the next token, left to right",
            causal=True,
            answers="eos",
            network=plain_network(),
            frame=_no_frame,
            canvas=fixed_canvas,
            options=ar.ArOptions,
            resolve=ar.resolve,
            check=ar.check,
            decode=ar.decode,
            reader=None,
            losses={"mean": lambda vocab, *_: causal_mean(vocab)},
            levels=(None,),
        ),
        Family(
            name="mdm",
            summary="masked diffusion: any masked token of a fixed canvas",
            causal=False,
            answers="canvas",
            network=masked_network(),
            frame=_no_frame,
            canvas=fixed_canvas,
            options=MdmOptions,
            resolve=mdm.resolve,
            check=mdm.check,
            decode=mdm.decode,
            reader=masked_reader,
            losses={
                "mean": lambda vocab, *_: objectives.masked_mean(vocab),
                "bound": lambda vocab, *_: objectives.masked_bound(vocab),
                "imitation": lambda vocab, settings, _: imitation(vocab, settings),
            },
            levels=GRID,
            suits=mdm.check_network,
            usual=_by_its_planner,
        ),
        Family(
            name="flexmdm",
            summary="insertion-based masked diffusion: opens slots, then fills them",
            causal=False,
            answers="bare",
            network=flex_network(),
            frame=FlexConfig.frame,
            canvas=open_canvas,
            options=FlexOptions,
            resolve=flexmdm.resolve,
            check=flexmdm.check,
            decode=flexmdm.decode,
            reader=flex_reader,
            losses={"bound": insertion_bound},
            levels=GRID,
        ),
        Family(
            name="latentmdm",
            summary="masked diffusion over segments: any line of a fixed number of them",
            causal=False,
            answers="slots",
            network=latent_network(),
            frame=_no_frame,
            canvas=slot_canvas,
            options=LatentOptions,
            resolve=latentmdm.resolve,
            check=latentmdm.check,
            decode=latentmdm.decode,
            reader=latent_reader,
            losses={
                "mean": lambda vocab, settings, _: segment_mean(vocab, settings),
                "tokens": lambda vocab, settings, _: segment_tokens(vocab, settings),
            },
            levels=GRID,
        ),
        Family(
            name="flexlatent",
            summary="insertion over segments: opens lines where they are missing, then fills them",
            causal=False,
            answers="segments",
            network=flex_latent_network(),
            frame=FlexLatentConfig.frame,
            canvas=open_segments,
            options=FlexLatentOptions,
            resolve=flexlatent.resolve,
            check=flexlatent.check,
            decode=flexlatent.decode,
            reader=flex_latent_reader,
            losses={"bound": segment_insertion_bound},
            levels=GRID,
        ),
        Family(
            name="duo",
            summary="uniform-state diffusion: any token of a fixed canvas may change at every step",
            causal=False,
            answers="canvas",
            network=timed_network(),
            frame=_no_frame,
            canvas=fixed_canvas,
            options=DuoOptions,
            resolve=duo.resolve,
            check=duo.check,
            decode=duo.decode,
            reader=None,
            losses={"bound": uniform_bound},
            levels=GRID,
            suits=duo.check_network,
        ),
        Family(
            name="sflm",
            summary="hyperspherical flow: noise moves towards token vectors, all slots at once",
            causal=False,
            answers="canvas",
            network=sphere_network(),
            frame=_no_frame,
            canvas=fixed_canvas,
            options=SflmOptions,
            resolve=sflm.resolve,
            check=sflm.check,
            decode=sflm.decode,
            reader=None,
            losses={"mean": sphere_mean},
            levels=GRID,
            suits=sflm.check_network,
        ),
    )
}


def register_family(family: Family) -> None:
    """Add a family of one's own; models of it load once this was called."""
    if family.name in FAMILIES:
        raise ValueError(f"there is a family {family.name!r} already: choose another name")
    FAMILIES[family.name] = family


def find_family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
