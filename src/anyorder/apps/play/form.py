"""The playground's form for a family, and the check of a request against it.

The form is read from the family's options dataclass, so names, types, choices and help are the
library's, and so are all messages about bad input. To find the field that a message belongs to,
settings are tried alone and left out one by one (`_field_of`). No HTTP and no decoding here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from anyorder.apps.jobs import attribute_docs
from anyorder.decode.draw import STOPPING
from anyorder.decode.policy import SCORES, SEGMENT_SCORES
from anyorder.decode.quota import CLOCKED_QUOTAS, QUOTAS
from anyorder.families.sflm.config import NAMED as VELOCITIES
from anyorder.model import Model, Request, check_seed

PROMINENT = ("policy", "temperature", "insertion_temperature", "steps", "k", "slots")
"""Options to show first if the family has them; all others are behind a fold."""
NAMES: dict[str, tuple[Iterable[str], ...]] = {
    "policy": (SCORES, SEGMENT_SCORES),
    "quota": (QUOTAS, CLOCKED_QUOTAS),
    "eos": (STOPPING,),
    "velocity": (VELOCITIES,),
}
"""The registries of a text option's names; a family accepts some of them."""
OPEN_ENDED = {"quota", "velocity"}
"""Options whose names may carry a number, as in threshold:0.9 or top_k:4."""
FieldKind = Literal["choice", "text", "number", "whole", "switch"]
KINDS: dict[type, FieldKind] = {bool: "switch", int: "whole", float: "number"}
MOST_CHARACTERS = 20_000
MOST_TOKENS = 8192
SLOWEST = 2.0
"""The longest pause between two steps, in seconds."""


class BadInput(ValueError):
    """An error that the user can correct, with the name of its field."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Field:
    """One input of the form."""

    name: str
    kind: FieldKind
    help: str
    default: str
    """The value that applies if it is left alone, as text."""
    prominent: bool
    choices: list[str] = field(default_factory=list)
    """All choices; for text: suggestions."""


def form_of(model: Model) -> list[Field]:
    """The inputs of a model's family, then the sizes of its canvas."""
    return [*_option_fields(model), *_size_fields(model)]


def _option_fields(model: Model) -> list[Field]:
    family = model.family
    kinds, about = get_type_hints(family.options), attribute_docs(family.options)
    resolved = model.choose({}, [])
    found = []
    for option in fields(family.options):
        kind, choices = _kind(kinds[option.name])
        if kind == "text":
            choices = [*_accepted(model, option.name), *choices]
            kind = "text" if option.name in OPEN_ENDED or not choices else "choice"
        default = option.default if option.default is not MISSING else None
        shown = getattr(resolved, option.name) if default is None else default
        found.append(
            Field(
                name=option.name,
                kind=kind,
                help=about.get(option.name, ""),
                default="" if shown is None else str(shown),
                prominent=option.name in PROMINENT,
                choices=choices,
            )
        )
    ranks = {name: rank for rank, name in enumerate(PROMINENT)}
    return sorted(found, key=lambda each: ranks.get(each.name, len(ranks)))


def _kind(hint: Any) -> tuple[FieldKind, list[str]]:
    """The kind of input for a type, and the choices that the type lists."""
    if get_origin(hint) is not Literal:  # X | None is X
        parts = [each for each in get_args(hint) if each is not type(None)]
        hint = parts[0] if len(parts) == 1 else hint
    if get_origin(hint) is Literal:
        return "choice", [str(each) for each in get_args(hint)]
    return KINDS.get(hint, "text"), []


def _accepted(model: Model, option: str) -> list[str]:
    """The registered names that the model accepts for an option, found by trying each."""
    accepted = []
    registered = dict.fromkeys(name for registry in NAMES.get(option, ()) for name in registry)
    for name in registered:
        try:
            model.choose({option: name}, [])
        except ValueError:
            continue
        accepted.append(name)
    return accepted


def _size_fields(model: Model) -> list[Field]:
    if model.family.counts_segments:
        return []
    about = {
        "max_new_tokens": "Free slots after a prompt or in a plain <fill>; on a canvas that "
        "grows, the most slots in all.",
        "max_length": "The largest canvas, the prompt included.",
    }
    defaults = {name: getattr(model.card, name) for name in about}
    return [
        Field(name, "whole", about[name], "" if value is None else str(value), prominent=False)
        for name, value in defaults.items()
    ]


@dataclass(frozen=True)
class GenerationRequest:
    """One generation that the page requests."""

    tab: str
    model: str
    prompt: str
    task: str
    """The task id for the trace."""
    seed: int
    pause: float
    """Seconds between two steps, so that an eye can follow."""
    settings: dict[str, Any]
    """The family's options and canvas sizes that the user set."""

    @classmethod
    def read(cls, record: Any) -> GenerationRequest:
        """Check and read a request; the page may be older than this server, or not ours."""
        if not isinstance(record, dict):
            raise BadInput("a request is a JSON object")
        names = {each.name for each in fields(cls)}
        if set(record) != names:
            wrong = ", ".join(sorted(set(record) ^ names))
            raise BadInput(f"the request lacks or does not know {wrong}: reload the page")
        kinds = {"tab": str, "model": str, "prompt": str, "task": str, "settings": dict}
        for name, kind in kinds.items():
            if not isinstance(record[name], kind):
                raise BadInput(f"{name} is no {kind.__name__}: reload the page")
        for name, least in {"tab": 8, "task": 1}.items():
            if not least <= len(record[name]) <= 64:
                raise BadInput(f"{name} must have {least} to 64 characters: reload the page")
        if not record["model"].strip():
            raise BadInput("choose a model, or name a folder with one", "model")
        seed = record["seed"]
        if isinstance(seed, str) and re.fullmatch("[0-9]{1,19}", seed):
            seed = int(seed)  # JavaScript numbers are exact up to 2^53 only
        wanted = cls(**{**record, "seed": seed, "settings": _plain(record["settings"])})
        wanted._check()
        return wanted

    @property
    def title(self) -> str:
        """Distinguishes generations of one prompt. Without the policy: the trace shows that."""
        others = {"seed": self.seed, **self.settings}
        others.pop("policy", None)
        words = (f"{name.replace('_', ' ')} {value}" for name, value in others.items())
        return ", ".join([self.model, *words])

    def _check(self) -> None:
        if len(self.prompt) > MOST_CHARACTERS:
            raise BadInput(
                f"{len(self.prompt)} characters are too many for this page: give at most "
                f"{MOST_CHARACTERS}, or use `anyorder sample --fill FILE`",
                "prompt",
            )
        try:
            check_seed(self.seed)
        except ValueError as error:
            raise BadInput(str(error), "seed") from None
        number = isinstance(self.pause, int | float) and not isinstance(self.pause, bool)
        if not number or not 0 <= self.pause <= SLOWEST:
            raise BadInput(f"pause must be from 0 to {SLOWEST:g} seconds", "pause")
        for name in ("max_new_tokens", "max_length"):
            value = self.settings.get(name, 0)
            if isinstance(value, int) and value > MOST_TOKENS:
                raise BadInput(f"{name}: this page decodes at most {MOST_TOKENS} tokens", name)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse values that are not a text, a number or a switch."""
    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool):
            raise BadInput(f"{name} must be a text, a number or true", name)
        if isinstance(value, str) and len(value) > 100:
            raise BadInput(f"{name}: 100 characters at the most", name)
    return dict(settings)


def prepared(model: Model, wanted: GenerationRequest) -> tuple[list[Request], Any]:
    """The requests and resolved options; `BadInput` carries the library's message and a field."""
    try:
        return model.prepare(wanted.prompt, **wanted.settings)
    except ValueError as error:
        raise BadInput(str(error), _field_of(str(error), model, wanted)) from None


def _field_of(message: str, model: Model, wanted: GenerationRequest) -> str | None:
    """The field to correct: it fails alone, or the message disappears without it."""

    def fails(settings: Mapping[str, Any]) -> bool:
        try:
            model.prepare(wanted.prompt, **settings)
        except ValueError as error:
            return str(error) == message
        return False

    if fails({}):
        return "prompt"
    # If several fit, prefer the one that the message names first.
    places = {name: message.find(name) for name in wanted.settings}
    names = sorted(places, key=lambda name: (places[name] < 0, places[name]))
    for name in names:
        if fails({name: wanted.settings[name]}):
            return name
    for name in names:
        if not fails({key: value for key, value in wanted.settings.items() if key != name}):
            return name
    return None
