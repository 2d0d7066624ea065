"""The one table where the columns meet: a family is a process, a network and a decoder.

Adding a family means adding a row here (CONTRIBUTING.md walks through it). Nothing else in the
library compares family names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from anyorder.canvases import Sizes, fixed_canvas, open_canvas, open_segments, slot_canvas
from anyorder.decode import ar, duo, flexlatent, flexmdm, latentmdm, mdm, sflm
from anyorder.decode.canvas import Decoded
from anyorder.decode.duo_options import DuoOptions
from anyorder.decode.fill import Frame
from anyorder.decode.flexlatent_options import FlexLatentOptions
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.latentmdm_options import LatentOptions
from anyorder.decode.mdm_options import MdmOptions
from anyorder.decode.moments import TraceReader
from anyorder.decode.replayer import flex_reader, masked_reader
from anyorder.decode.segment_replayer import flex_latent_reader, latent_reader
from anyorder.decode.sflm_options import SflmOptions
from anyorder.nets.shapes import FlexConfig, FlexLatentConfig
from anyorder.networks import (
    Network,
    flex_latent_network,
    flex_network,
    latent_network,
    masked_network,
    plain_network,
    sphere_network,
    timed_network,
)
from anyorder.train import objectives
from anyorder.train.causal_objective import causal_mean
from anyorder.train.insertion_objective import insertion_bound
from anyorder.train.objective import Objective
from anyorder.train.planner_objective import imitation
from anyorder.train.segment_insertion_objective import segment_insertion_bound
from anyorder.train.segment_objective import segment_mean, segment_tokens
from anyorder.train.sphere_objective import sphere_mean
from anyorder.train.uniform_objective import uniform_bound
from anyorder.vocab import Vocab


class Options(Protocol):
    """A family's decoding options: a frozen dataclass that can fill in and check itself."""

    def resolved(self) -> Any: ...


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
    options: type[Options]
    """The decoding options that this family understands."""
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
