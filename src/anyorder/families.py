"""The one table where the columns meet: a family is a process, a network and a decoder.

Adding a family means adding a row here (CONTRIBUTING.md walks through it). Nothing else in the
library compares family names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from torch import nn

from anyorder.decode import ar, flexmdm, mdm
from anyorder.decode.canvas import Canvas, Decoded, GrowingCanvas
from anyorder.decode.fill import Frame, canvas_of, growing_canvas_of
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.mdm_options import MdmOptions
from anyorder.decode.replayer import Reader, flex_reader, masked_reader
from anyorder.nets.flex import FlexConfig, FlexNet
from anyorder.nets.start import take_weights
from anyorder.nets.transformer import Transformer, TransformerConfig
from anyorder.train import objectives
from anyorder.train.insertion_objective import insertion_bound
from anyorder.train.objectives import Objective
from anyorder.vocab import Vocab


class Options(Protocol):
    """A family's decoding options: a frozen dataclass that can fill in and check itself."""

    def resolved(self) -> Any: ...


@dataclass(frozen=True)
class Network:
    """The kind of network that a family has, between a recipe, config.json and a module."""

    complete: Callable[[TransformerConfig, Any], Any]
    """(backbone, a recipe's net fields) -> the network's configuration."""
    read: Callable[[dict[str, Any]], Any]
    """What config.json holds -> the network's configuration."""
    build: Callable[..., nn.Module]
    """(configuration, seed=) -> a network with fresh weights."""
    start: Callable[[Any, nn.Module], None]
    """(network, trained one): takes over the weights of one of its kind or of a plain backbone."""
    additions: Callable[[Any], set[str]] = lambda net: set()
    """network -> the names of the parameters that a plain backbone does not have."""


@dataclass(frozen=True)
class Sizes:
    """How large a canvas may be."""

    new_tokens: int
    """Free slots after a prompt; on a growing canvas, slots in all."""
    length: int | None
    """Tokens in all; None: not known."""
    only_length_told: bool = False
    """Only `length` was asked for: then a growing canvas may grow up to it."""


@dataclass(frozen=True)
class Family:
    """What makes one kind of model."""

    name: str
    summary: str
    causal: bool
    """Whether the network looks to the left only."""
    answers: Literal["eos", "canvas", "bare"]
    """What training answers end with: EOS, EOS up to a canvas of fixed length, or nothing."""
    network: Network
    frame: Callable[[Any, Vocab], Frame]
    """(network's configuration, vocabulary) -> the ids around every prompt."""
    canvas: Callable[[str, Sizes, Vocab, Frame], Any]
    """(text, largest sizes, vocabulary, frame) -> what `decode` fills."""
    options: type[Options]
    """The decoding options that this family understands."""
    check: Callable[[Sequence[Any], Any], None]
    """Refuses canvases that these options cannot decode, before anything is written."""
    decode: Callable[..., list[Decoded]]
    """(net, vocab, canvases, keys, options, device) -> what was decoded."""
    reader: Callable[..., Reader] | None
    """(net, vocab, options, device) -> what asks the network about the canvases of stored traces;
    None: the family has no masked positions."""
    losses: Mapping[str, Callable[[Vocab, Any, int], Objective]]
    """(vocabulary, the recipe's settings, longest sequence) -> objective, by name; the first is
    the default."""
    levels: tuple[float | None, ...]
    """Corruption levels of the validation grid."""

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
        return self.options(**plain).resolved()

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


def _plain_network() -> Network:
    """The backbone alone."""
    return Network(
        complete=lambda backbone, net: backbone,
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=take_weights,
    )


def _flex_config(backbone: TransformerConfig, net: Any) -> FlexConfig:
    own = {field.name for field in fields(FlexConfig)} - {"backbone"}
    return FlexConfig(
        replace(backbone, time_modulated=True), **{name: getattr(net, name) for name in own}
    )


def _no_frame(config: Any, vocab: Vocab) -> Frame:
    return (), ()


def _fixed_canvas(text: str, sizes: Sizes, vocab: Vocab, frame: Frame) -> Canvas:
    """A canvas whose every slot is there from the start."""
    canvas = canvas_of(text, sizes.new_tokens, vocab)
    if sizes.length is not None and len(canvas.ids) > sizes.length:
        free = sum(canvas.free)
        raise ValueError(
            f"the prompt's {len(canvas.ids) - free} tokens and {free} new ones do not fit on a "
            f"canvas of {sizes.length}: shorten the prompt, lower max_new_tokens or raise "
            "max_length"
        )
    return canvas


def _open_canvas(text: str, sizes: Sizes, vocab: Vocab, frame: Frame) -> GrowingCanvas:
    """A canvas that grows until a size is reached, whichever is first."""
    canvas = growing_canvas_of(text, 0, vocab, frame)
    frozen = len(canvas.ids)
    if sizes.length is None:
        return replace(canvas, room=sizes.new_tokens)
    room = sizes.length - frozen
    if room < 1:
        raise ValueError(
            f"the text's {frozen} tokens leave no room on a canvas of {sizes.length}: shorten it "
            "or raise max_length"
        )
    return replace(canvas, room=room if sizes.only_length_told else min(room, sizes.new_tokens))


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
            network=_plain_network(),
            frame=_no_frame,
            canvas=_fixed_canvas,
            options=ar.ArOptions,
            check=ar.check,
            decode=ar.decode,
            reader=None,
            losses={"mean": lambda vocab, *_: objectives.causal_mean(vocab)},
            levels=(None,),
        ),
        Family(
            name="mdm",
            summary="masked diffusion: any masked token of a fixed canvas",
            causal=False,
            answers="canvas",
            network=_plain_network(),
            frame=_no_frame,
            canvas=_fixed_canvas,
            options=MdmOptions,
            check=mdm.check,
            decode=mdm.decode,
            reader=masked_reader,
            losses={
                "mean": lambda vocab, *_: objectives.masked_mean(vocab),
                "bound": lambda vocab, *_: objectives.masked_bound(vocab),
            },
            levels=GRID,
        ),
        Family(
            name="flexmdm",
            summary="insertion-based masked diffusion: opens slots, then fills them",
            causal=False,
            answers="bare",
            network=Network(
                complete=_flex_config,
                read=FlexConfig.from_record,
                build=FlexNet,
                start=FlexNet.start_from,
                additions=FlexNet.additions,
            ),
            frame=FlexConfig.frame,
            canvas=_open_canvas,
            options=FlexOptions,
            check=flexmdm.check,
            decode=flexmdm.decode,
            reader=flex_reader,
            losses={"bound": insertion_bound},
            levels=GRID,
        ),
    )
}


def find_family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
