"""What a family is: a process, a network and a decoder. And which families there are.

A family is a folder of this package: config.py (its settings, torch-free), net.py, loss.py,
decode.py, and family.py, which binds these in one row, `FAMILY`. A row is imported when it is first
used, so that the names of families cost nothing (CONTRIBUTING.md walks through adding one).
Never torch here. Nothing else in the library compares family names.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin, get_type_hints

from anyorder.checks import is_whole
from anyorder.plugins import entries, family_part

if TYPE_CHECKING:
    from torch import nn

    from anyorder.data.batches import Batch
    from anyorder.decode.canvas import Decoded, Frame, Sizes
    from anyorder.decode.replay import TraceReader
    from anyorder.nets.shapes import TransformerConfig
    from anyorder.process.masking import LossParts
    from anyorder.process.noise import Noise
    from anyorder.vocab import Vocab
    from anyorder.vocab.chat import AnyPrompt

GRID = tuple((i + 0.5) / 8 for i in range(8))
"""Corruption levels of a validation grid."""


class Objective(Protocol):
    """One batch and its noise -> the parts of a loss."""

    def __call__(self, net: nn.Module, batch: Batch, noise: Noise, /) -> LossParts: ...


@dataclass(frozen=True)
class Network:
    """How a network is configured, read, built and begun."""

    complete: Callable[[TransformerConfig, Any, int], Any]
    """(backbone, the recipe, EOS) -> the network's configuration."""
    read: Callable[[dict[str, Any]], Any]
    """What config.json holds -> the network's configuration."""
    build: Callable[..., nn.Module]
    """(configuration, seed=) -> a network with fresh weights."""
    start: Callable[[Any, nn.Module], None]
    """(network, trained one): takes over the weights of one of its kind or of a plain backbone."""
    shifts: bool = False
    """Whether a recipe may ask for shifted states (net.shift)."""
    additions: Callable[[Any], set[str]] = lambda net: set()
    """network -> the names of the parameters that a plain backbone does not have."""
    follow: Callable[[Any, Any], Mapping[str, Any]] = lambda net, base: {}
    """(the recipe's net, configuration of a network to start from) -> settings of our own that this
    one decides."""


class UnusedOptions(ValueError):
    """Decoding options that a family does not use."""

    def __init__(self, family: str, unused: Sequence[str], known: Sequence[str]) -> None:
        self.family, self.unused, self.known = family, unused, known
        super().__init__(self.spelled(str))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message, with each option written by `spell`."""
        unused, known = (", ".join(map(spell, names)) for names in (self.unused, self.known))
        return f"{self.family} does not use {unused}: leave it out ({self.family} takes {known})"


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
    canvas: Callable[[AnyPrompt, Sizes, Vocab, Any], Any]
    """(text, largest sizes, vocabulary, network's configuration) -> what `decode` fills."""
    options: type
    """The decoding options that this family understands, as a frozen dataclass."""
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
    check: Callable[[Sequence[Any], Any], None] = lambda canvases, options: None
    """Refuses canvases that these options cannot decode, before anything is written."""
    resolve: Callable[[Any], Any] = lambda options: options
    """options -> the same, with every unset choice filled in that has an effect; checked."""
    suits: Callable[[Any, Any], None] = lambda net, options: None
    """(network, options): refuses options for which this network lacks a part."""
    usual: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = lambda net, given: {}
    """(network, given options) -> what else to choose for this network in particular."""

    def network_config(
        self, recipe: Any, vocab_size: int, eos: int, sentence_ends: tuple[int, ...] = ()
    ) -> Any:
        """The configuration of the network that a recipe asks for, complete."""
        if recipe.net.shift and not self.network.shifts:
            raise ValueError(f"{self.name} does not use net.shift: leave it out")
        backbone = recipe.net.backbone(vocab_size, causal=self.causal)
        backbone = replace(backbone, sentence_ends=sentence_ends)
        return self.network.complete(backbone, recipe, eos)

    @property
    def counts_segments(self) -> bool:
        """Whether a canvas is measured in segments, not in tokens."""
        return self.answers in ("slots", "segments")

    def choose(self, given: Mapping[str, Any]) -> Any:
        """The resolved decoding options; what this family does not use is refused, not ignored."""
        known = self.option_names()
        unused = sorted(set(given) - known)
        if unused:
            raise UnusedOptions(self.name, unused, sorted(known))
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
        return {field.name for field in fields(self.options)}

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


def _spell(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    parts = [each for each in get_args(kind) if each is not type(None)] or [kind]
    names = {int: "a whole number", float: "a number", str: "a name", bool: "True or False"}
    return " or ".join(
        _spell(each) if get_origin(each) is Literal else names[each] for each in parts
    )


def no_frame(config: Any, vocab: Vocab) -> Frame:
    """No ids around prompts."""
    return (), ()


BUILT_IN = ("ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm", "block")
"""Each is a folder of this package, and has its row in family.py."""


class Families(UserDict[str, Family]):
    """Rows by name. That a name is known does not mean that its row has been imported."""

    data: dict[str, Any]  # None before the import

    def __init__(self) -> None:
        super().__init__()
        self.data = dict.fromkeys((*BUILT_IN, *entries("families")))

    def __getitem__(self, name: str) -> Family:
        row: Family | None = self.data[name]
        if row is None:
            if name in BUILT_IN:
                row = import_module(f"anyorder.families.{name}.family").FAMILY
            else:
                row = family_part(name, "family").FAMILY
            self.data[name] = row
        return row

    def imported(self) -> dict[str, Family]:
        """The rows that are there without importing anything."""
        return {name: row for name, row in self.data.items() if row is not None}


FAMILIES = Families()


def family_names() -> list[str]:
    """Families that can be found by name: built-in, of installed packages, registered."""
    return list(FAMILIES)


def register_family(family: Family) -> None:
    """Add your own family; after this call its models can be loaded."""
    if family.name in FAMILIES:
        raise ValueError(f"there is a family {family.name!r} already: choose another name")
    FAMILIES[family.name] = family


def find_family(name: str) -> Family:
    """The row of that name."""
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}: choose one of {', '.join(family_names())}")
    return FAMILIES[name]
