"""The one table where the columns meet: a family is a process, a network and a decoder.

Adding a family means adding a row here (CONTRIBUTING.md walks through it). Nothing else in the
library compares family names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from anyorder.decode import ar, mdm
from anyorder.decode.canvas import Canvas, Decoded
from anyorder.decode.mdm_options import MdmOptions
from anyorder.train import objectives
from anyorder.train.objectives import Objective
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
    fills_canvas: bool
    """Whether answers are padded with EOS to a canvas of fixed length."""
    options: type[Options]
    """The decoding options that this family understands."""
    check: Callable[[Sequence[Canvas], Any], None]
    """Refuses canvases that these options cannot decode, before anything is written."""
    decode: Callable[..., list[Decoded]]
    """(net, vocab, canvases, keys, options, device) -> what was decoded."""
    losses: Mapping[str, Callable[[Vocab], Objective]]
    """Objectives by name; the first is the default."""
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

    def objective(self, loss: str | None, vocab: Vocab) -> Objective:
        """The training objective by name; None takes the default."""
        name = loss or next(iter(self.losses))
        if name not in self.losses:
            raise ValueError(f"{self.name} has no loss {name!r}: choose {' or '.join(self.losses)}")
        return self.losses[name](vocab)


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
    names = {int: "a whole number", float: "a number", str: "a name"}
    return " or ".join(names.get(each) or _spell(each) for each in parts)


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="ar",
            summary="autoregressive: the next token, left to right",
            causal=True,
            fills_canvas=False,
            options=ar.ArOptions,
            check=ar.check,
            decode=ar.decode,
            losses={"mean": objectives.causal_mean},
            levels=(None,),
        ),
        Family(
            name="mdm",
            summary="masked diffusion: any masked token of a fixed canvas",
            causal=False,
            fills_canvas=True,
            options=MdmOptions,
            check=mdm.check,
            decode=mdm.decode,
            losses={"mean": objectives.masked_mean, "bound": objectives.masked_bound},
            levels=tuple((i + 0.5) / 8 for i in range(8)),
        ),
    )
}


def find_family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
