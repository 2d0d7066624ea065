"""Parsing of a verb's words, one-line complaints, and help texts, all from a dataclass.

A field is a flag: its type gives the value, its docstring the help, and its default is shown. A
field that is a dataclass adds its own fields, behind its name (`--net.width`) or, with
`arg(name="")`, beside the others. tyro parses by the same annotations. If tyro refuses, the words
are checked again here, flag by flag, to report one plain mistake: a misspelt flag with the nearest
ones, a wrong or missing value. tyro's own sentence is the last resort.

A help text is a description, examples and groups of flags. Paragraphs are wrapped to the width of
the terminal; examples stay as written, so that they can be copied.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
import shutil
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from anyorder.apps.jobs import attribute_docs
from anyorder.checks import did_you_mean, either
from anyorder.cli import PROGRAM, UsageError

COLUMN = 22
"""Where the help of a flag begins."""
NARROWEST, WIDEST = 60, 120
METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME", Path: "PATH", bool: "True|False"}
MAPPINGS = (dict, Mapping)
OTHERS = "other flags"
"""The group of flags that are in no other group."""


@dataclass(frozen=True)
class FlagGroup:
    """Flags that a help text shows together."""

    title: str
    fields: Sequence[str]
    """As Python spells them; a name that the verb does not have is left out."""
    note: str = ""
    """A line below the title."""


@dataclass(frozen=True)
class Flag:
    """One flag, or one argument without a name."""

    name: str
    """As it is typed: --net.width; for an argument without a name its placeholder: MODEL."""
    field: str
    """As Python spells it, with the dataclass it is in: net.width."""
    kind: Any
    """The type of its value, without None."""
    metavar: str
    help: str
    default: Any
    """MISSING: it must be given."""
    positional: bool = False
    fixed: bool = False
    """The recipe decides; it cannot be set."""
    about: str = ""
    """What the dataclass behind the name is: the line above its group."""

    @property
    def values(self) -> int | None:
        """How many words it takes; None: as many as there are."""
        if self.kind is bool and not self.metavar:
            return 0
        if get_origin(self.kind) in MAPPINGS:
            return None
        parts = get_args(self.kind) if get_origin(self.kind) is tuple else (self.kind,)
        return None if Ellipsis in parts else len(parts)

    @property
    def usage(self) -> str:
        return self.name if self.positional else f"{self.name} {self.metavar}".strip()


def read_flags(
    owner: type, default: Any = None, prefix: str = "", about: str = ""
) -> Iterator[Flag]:
    """The flags of a dataclass, in the order of its fields; `default` is an instance of it."""
    docs, hints = attribute_docs(owner), get_type_hints(owner, include_extras=True)
    for field in fields(owner):
        kind, optional, extras = _unwrapped(hints[field.name])
        value = field.default if field.default_factory is MISSING else field.default_factory()
        value = value if default is None else getattr(default, field.name)
        settings = next((each for each in reversed(extras) if hasattr(each, "metavar")), None)
        if is_dataclass(kind):
            inner = type(value) if is_dataclass(value) else kind
            beside = settings is not None and settings.name == ""
            yield from read_flags(
                inner,  # type: ignore[arg-type]
                None if value is MISSING else value,
                prefix if beside else f"{prefix}{field.name}.",
                about
                if beside
                else docs.get(field.name) or (inspect.getdoc(inner) or "").partition("\n")[0],
            )
            continue
        switch = kind is bool and not optional
        metavar = "" if switch else (settings and settings.metavar) or _metavar(kind)
        positional = tyro.conf.Positional in extras
        spelt = f"no_{field.name}" if switch and value is True else field.name
        yield Flag(
            name=metavar if positional else f"--{prefix}{spelt}".replace("_", "-"),
            field=f"{prefix}{field.name}",
            kind=kind,
            metavar=metavar,
            help=docs.get(field.name) or (settings and settings.help) or "",
            default=value,
            positional=positional,
            fixed=tyro.conf.Fixed in extras,
            about=about,
        )


def _unwrapped(hint: Any) -> tuple[Any, bool, list[Any]]:
    """The type without annotations and None, whether None is allowed, and the annotations."""
    extras, optional = [], False
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            extras += more
            continue
        parts = [each for each in get_args(hint) if each is not type(None)]
        if get_origin(hint) in (Union, types.UnionType) and len(parts) < len(get_args(hint)):
            optional, hint = True, parts[0] if len(parts) == 1 else Union[tuple(parts)]  # noqa: UP007
            continue
        return hint, optional, extras


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"{{{','.join(map(str, get_args(kind)))}}}"
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        named = [METAVARS.get(each, "NAME") for each in parts if each is not Ellipsis]
        return " ".join([*named, "..."] if Ellipsis in parts else named)
    if get_origin(kind) in MAPPINGS:
        return " ".join([*(METAVARS.get(each, "NAME") for each in get_args(kind)), "..."])
    return METAVARS.get(kind, "NAME")


def help_text(program: str, about: str, flags: Sequence[Flag], groups: Sequence[FlagGroup]) -> str:
    """What `--help` prints."""
    width = help_width()
    arguments = [_optional(flag) for flag in flags if flag.positional]
    lines = [" ".join(["usage:", program, *arguments, "[--flag value ...]"]), ""]
    lines += described(about, width)
    for group, members in _grouped(flags, groups):
        lines += [f"{group.title}:", *textwrap.wrap(group.note, width, **_indented(2, 4))]
        for flag in members:
            lines += _entry(flag.usage, f"{flag.help} {_default_note(flag)}".strip(), width)
        lines.append("")
    lines += _entry("-h, --help", "Show this and end.", width)
    return "\n".join(lines)


def _optional(argument: Flag) -> str:
    """A positional argument, in brackets if it is optional."""
    whole = argument.default is MISSING or "[" in argument.name
    return argument.name if whole else f"[{argument.name}]"


def help_width() -> int:
    """The terminal's, within reason."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def described(text: str, width: int) -> list[str]:
    """A docstring: its paragraphs wrapped, its examples as they are."""
    lines = []
    for block in inspect.cleandoc(text).split("\n\n"):
        if is_example(block):
            lines += ["examples:", *(f"  {line}" for line in textwrap.dedent(block).splitlines())]
        else:
            lines += textwrap.wrap(" ".join(block.split()), width, **_indented(0))
        lines.append("")
    return lines


def is_example(block: str) -> bool:
    """Whether a paragraph of a docstring holds commands: it is indented, or begins with one."""
    return block.startswith(("  ", "anyorder "))


def _grouped(
    flags: Sequence[Flag], groups: Sequence[FlagGroup]
) -> Iterator[tuple[FlagGroup, list[Flag]]]:
    """Positional arguments, the groups, flags in no group, and then flags such as --net.width."""
    named = {flag.field: flag for flag in flags}
    arguments = [flag for flag in flags if flag.positional]
    placed = {flag.field for flag in arguments}
    for number, group in enumerate(groups or [FlagGroup("flags", ())]):
        members = [named[name] for name in group.fields if name in named and name not in placed]
        placed |= {flag.field for flag in members}
        members = members if number else [*arguments, *members]
        if groups and (members or group.note):
            yield group, members
    rest = [flag for flag in flags if flag.field not in placed]
    plain = [flag for flag in rest if "." not in flag.field]
    if plain or not groups:
        found = plain if groups else [*arguments, *plain]
        yield FlagGroup(OTHERS if groups else "flags", ()), found
    for room in dict.fromkeys(flag.field.rpartition(".")[0] for flag in rest if "." in flag.field):
        members = [flag for flag in rest if flag.field.rpartition(".")[0] == room]
        yield FlagGroup(f"--{room}.*", (), members[0].about), members


def _default_note(flag: Flag) -> str:
    """The default in brackets; empty if the help text explains it."""
    value = flag.default
    if flag.fixed:
        return f"(always {value} in this recipe)"
    if value is MISSING:
        return "" if flag.positional else "(must be given)"
    if value is True:
        return "(on by default; this flag switches it off)"
    if value is None or value is False or value == () or value == {}:
        return ""
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"(default: {shown})" if shown else ""


def _entry(name: str, text: str, width: int) -> list[str]:
    """A name, and its text in the second column; a long name has a line of its own.

    Line breaks in the text are kept: they separate the sentences of several families.
    """
    parts = text.splitlines() or [""]
    wrapped = [line for part in parts for line in textwrap.wrap(part, width, **_indented(COLUMN))]
    wrapped = wrapped or [""]
    if len(name) > COLUMN - 4:
        return [f"  {name}", *wrapped] if text else [f"  {name}"]
    return [f"  {name}".ljust(COLUMN) + wrapped[0].lstrip(), *wrapped[1:]]


def _indented(by: int, then: int | None = None) -> dict[str, Any]:
    """Names such as left-to-right and --max-length stay whole."""
    return {
        "initial_indent": " " * by,
        "subsequent_indent": " " * (by if then is None else then),
        "break_on_hyphens": False,
        "break_long_words": False,
    }


Flags = TypeVar("Flags")

ASKS_FOR_HELP = ("-h", "--help")
LIST = re.compile(r"([A-Z]+),\1")
"""The metavar of a flag that takes several values with commas between."""
DEVICE, AUTO = "--device", "auto"
AUTO_NOTE = "auto, which is cuda if there is one, else cpu"


def parse(
    owner: type[Flags],
    verb: str,
    words: list[str],
    *,
    default: Flags | None = None,
    about: str | None = None,
    groups: Sequence[FlagGroup] = (),
    auto_device: bool = False,
) -> Flags:
    """The flags of a verb; `--help` prints and ends the program, bad usage is a `UsageError`.

    So is a value that a job refuses when it is made. `about` replaces the docstring, and `groups`
    orders the help text. With `auto_device`, --device is auto unless it is given, whatever the
    default of its field is: see `found_device`.
    """
    program = f"{PROGRAM} {verb}"
    flags = list(read_flags(owner, default))
    if any(word in ASKS_FOR_HELP for word in words):
        if auto_device:
            flags = [
                replace(flag, default=AUTO_NOTE) if flag.name == DEVICE else flag for flag in flags
            ]
        print(help_text(program, about or owner.__doc__ or "", flags, groups))
        raise SystemExit(0)
    words = _with_whole_lists(words, flags)
    given = {word.partition("=")[0] for word in words}
    filled = [DEVICE, AUTO] if auto_device and DEVICE not in given else []
    settings: dict[str, Any] = {} if default is None else {"default": default}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            # One spelling per switch: --json, without a --no-json beside it.
            config = (tyro.conf.FlagCreatePairsOff,)
            return tyro.cli(owner, args=[*words, *filled], prog=program, config=config, **settings)
    except SystemExit:
        wrong = next(mistakes(words, flags), None) or _one_line(complaint.getvalue())
        raise UsageError(f"{wrong} (see {program} --help)") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _with_whole_lists(words: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """The words, with each list of a flag such as --only NAME,NAME in one place.

    The library would take the last of several. Other flags are single values, where later words
    overrule earlier ones.
    """
    lists = {flag.name for flag in flags if LIST.fullmatch(flag.metavar)}
    found: dict[str, list[str]] = {}
    kept, queue = [], list(words)
    while queue:
        name, equals, value = queue.pop(0).partition("=")
        if name not in lists or not (equals or (queue and not _is_flag(queue[0]))):
            kept.append(f"{name}{equals}{value}")
        else:
            found.setdefault(name, []).append(value if equals else queue.pop(0))
    if all(len(values) == 1 for values in found.values()):
        return list(words)
    return [*kept, *(word for name, each in found.items() for word in (name, ",".join(each)))]


def job_flags(job: type | None, json_help: str = "Print one JSON document.") -> type[Any]:
    """The flags of a verb that takes --json, a job if it has one, and nothing else."""
    inside: list[Any] = [] if job is None else [("job", Annotated[job, tyro.conf.arg(name="")])]
    as_json = Annotated[bool, tyro.conf.arg(help=json_help)]
    return make_dataclass("Flags", [*inside, ("json", as_json, False)], frozen=True)


def found_device(device: str, *, speaks: bool = True) -> str:
    """The device that auto means here; CUDA is announced in one line on standard error."""
    if device != AUTO:
        return device
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    if speaks:
        name = torch.cuda.get_device_name()
        print(f"on cuda ({name}); use --device cpu for the processor", file=sys.stderr)
    return "cuda"


def mistakes(words: Sequence[str], flags: Sequence[Flag]) -> Iterator[str]:
    """What is wrong with the words of a command, one sentence each."""
    named = {flag.name: flag for flag in flags if not flag.positional}
    loose: list[str] = []
    given, queue = set(), list(words)
    while queue:
        word = queue.pop(0)
        if not _is_flag(word):
            loose.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = named.get(name.replace("_", "-"))
        if flag is None:
            yield f"no flag {name}{did_you_mean(name, named)}"
            continue
        given.add(flag.name)
        values = [value] if equals else []
        while (
            queue and not _is_flag(queue[0]) and (flag.values is None or len(values) < flag.values)
        ):
            values.append(queue.pop(0))
        yield from _about_values(flag, values)
    arguments = [flag for flag in flags if flag.positional]
    yield from _about_missing(flags, given, len(loose))
    if len(loose) > len(arguments) and all(flag.values is not None for flag in arguments):
        yield f"one word too many: {loose[len(arguments)]!r}"


def _is_flag(word: str) -> bool:
    """Whether a word is a flag; negative numbers are values."""
    return word.startswith("-") and not word[1:2].isdecimal() and word != "-"


def _about_values(flag: Flag, values: list[str]) -> Iterator[str]:
    if flag.fixed:
        yield f"{flag.name} is {flag.default!r} in this recipe and cannot be changed: leave it out"
        return
    if flag.values is not None and len(values) != flag.values:
        if flag.values == 0:
            yield f"{flag.name} takes no value"
        else:
            yield (
                f"{flag.name} takes {flag.values} values, not {len(values)}"
                if values
                else f"{flag.name} takes {_kind_name(flag.kind)} ({flag.metavar}): none is given"
            )
        return
    for value, kind in zip(values, _kinds(flag, len(values)), strict=False):
        if not _fits(value, kind):
            close = did_you_mean(value, map(str, get_args(kind)))
            yield f"{flag.name} takes {_kind_name(kind)}, not {value!r}{close}"


def _about_missing(flags: Sequence[Flag], given: set[str], loose: int) -> Iterator[str]:
    arguments = [flag for flag in flags if flag.positional]
    for flag in arguments[loose:]:
        if flag.default is MISSING and flag.values is not None:
            yield f"{flag.name} is missing: {_sentence(flag.help)}"
    for flag in flags:
        if not flag.positional and flag.default is MISSING and flag.name not in given:
            yield f"{flag.usage} must be given: {_sentence(flag.help)}"


def _sentence(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def _kinds(flag: Flag, count: int) -> list[Any]:
    """The type of each word of a flag."""
    if get_origin(flag.kind) not in (tuple, *MAPPINGS):
        return [flag.kind] * count
    parts = [each for each in get_args(flag.kind) if each is not Ellipsis]
    return [parts[index % len(parts)] for index in range(count)]


def _fits(value: str, kind: Any) -> bool:
    if value == "None":  # tyro accepts it for a flag that may be unset
        return True
    if get_origin(kind) is Literal:
        return value in map(str, get_args(kind))
    if kind in (int, float):
        try:
            kind(value)
        except ValueError:
            return False
    return kind is not bool or value in ("True", "False")


def _kind_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return either([str(each) for each in get_args(kind)])
    return {int: "a whole number", float: "a number", bool: "True or False"}.get(kind, "a value")


def _one_line(box: str) -> str:
    """The sentence inside tyro's framed message, without frame, title and pointer to help."""
    found = []
    for line in (line.strip(" |─│╭╮╰╯├┤") for line in box.splitlines()):
        if line.startswith(("Argument helptext", "For full helptext", f"{PROGRAM} ")):
            break
        found += [line] if line.strip("-") else []
    return " ".join(found[1:] or found)


def command_line(verb: str, words: list[str]) -> str:
    """The command as it was typed, for the run card."""
    return shlex.join([PROGRAM, verb, *words])


def without(flag: str, words: list[str]) -> list[str]:
    """The words of a command without one flag and its value."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == flag:
            skip = True
        elif not word.startswith(f"{flag}="):
            kept.append(word)
    return kept
