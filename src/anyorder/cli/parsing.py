"""How a verb reads its words: tyro parses them, and a mistake is told in one plain line.

`parse` returns the verb's dataclass. Where tyro refuses, the words are looked at again, flag by
flag, to say what is wrong in words of our own: a misspelt flag with the nearest ones, a value of
the wrong kind, a missing value. tyro's own sentence is the last resort. How a help text looks is
flags.py's business.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, make_dataclass, replace
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tyro

from anyorder.cli import PROGRAM, UsageError
from anyorder.cli.flags import MAPPINGS, Flag, Group, help_text, read_flags

Flags = TypeVar("Flags")

ASKS_FOR_HELP = ("-h", "--help")
MOST_SUGGESTED = 3
DEVICE, AUTO = "--device", "auto"
AUTO_TOLD = "auto, which is cuda where there is one, else cpu"


def parse(
    owner: type[Flags],
    verb: str,
    words: list[str],
    *,
    default: Flags | None = None,
    about: str | None = None,
    groups: Sequence[Group] = (),
    auto_device: bool = False,
) -> Flags:
    """The flags of a verb; `--help` prints and ends the program, bad usage is a `UsageError`.

    So is a value that a job refuses when it is made, before any file is looked at. `about` takes
    the place of the docstring, and `groups` orders the help text. With `auto_device`, --device is
    auto where it is not given, whatever the default of its field is: see `found_device`.
    """
    program = f"{PROGRAM} {verb}"
    flags = list(read_flags(owner, default))
    if any(word in ASKS_FOR_HELP for word in words):
        if auto_device:
            flags = [
                replace(flag, default=AUTO_TOLD) if flag.name == DEVICE else flag for flag in flags
            ]
        print(help_text(program, about or owner.__doc__ or "", flags, groups))
        raise SystemExit(0)
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


def job_flags(job: type, told: str = "Print one JSON document.") -> type[Any]:
    """The flags of a verb that takes a job and --json, and nothing else."""
    inside = Annotated[job, tyro.conf.arg(name="")]  # type: ignore[valid-type]
    as_json = Annotated[bool, tyro.conf.arg(help=told)]
    return make_dataclass("Flags", [("job", inside), ("json", as_json, False)], frozen=True)


def found_device(device: str, *, speaks: bool = True) -> str:
    """The device that auto stands for here; CUDA is told in one line on standard error."""
    if device != AUTO:
        return device
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    if speaks:
        name = torch.cuda.get_device_name()
        print(f"on cuda ({name}); --device cpu would use the processor", file=sys.stderr)
    return "cuda"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """ "; did you mean ...?" with the names most like a word; nothing where none is like it."""
    close = nearest(word, names)
    return f"; did you mean {either(close)}?" if close else ""


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """The names most like a word, best first; the parts of tiny/mdm count as names too."""
    wanted = word.lower().strip("-")
    scores = {}
    for name in names:
        whole = name.lower().strip("-")
        parts = {whole, *whole.replace(".", "/").split("/")}
        ratios = [difflib.SequenceMatcher(None, wanted, part).ratio() for part in parts]
        # What begins alike is meant more often than what shares some letters.
        begins = 0.8 if len(wanted) > 2 and any(part.startswith(wanted) for part in parts) else 0.0
        scores[name] = max(*ratios, begins)
    best = max(scores.values(), default=0.0)
    close = [name for name, score in scores.items() if score >= max(0.7, best - 0.1)]
    return sorted(close, key=lambda name: -scores[name])[:MOST_SUGGESTED]


def either(names: Sequence[str]) -> str:
    """a, b or c."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def mistakes(words: Sequence[str], flags: Sequence[Flag]) -> Iterator[str]:
    """What is wrong with the words of a command, each in a sentence; the first is to be told."""
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
    """Negative numbers are values."""
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
                f"{flag.name} takes {_told_kind(flag)}: none is given"
                if not values
                else (f"{flag.name} takes {flag.values} values, not {len(values)}")
            )
        return
    for value, kind in zip(values, _kinds(flag, len(values)), strict=False):
        if not _fits(value, kind):
            choices = [str(each) for each in get_args(kind)]
            yield f"{flag.name} takes {_told(kind)}, not {value!r}{did_you_mean(value, choices)}"


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
    """The type of each of the words that a flag takes."""
    if get_origin(flag.kind) not in (tuple, *MAPPINGS):
        return [flag.kind] * count
    parts = [each for each in get_args(flag.kind) if each is not Ellipsis]
    return [parts[index % len(parts)] for index in range(count)]


def _fits(value: str, kind: Any) -> bool:
    if value == "None":  # what tyro takes where a flag may be unset
        return True
    if get_origin(kind) is Literal:
        return value in map(str, get_args(kind))
    if kind in (int, float):
        try:
            kind(value)
        except ValueError:
            return False
    return kind is not bool or value in ("True", "False")


def _told_kind(flag: Flag) -> str:
    return f"{_told(flag.kind)} ({flag.metavar})" if flag.kind in (str, int, float) else "a value"


def _told(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return either([str(each) for each in get_args(kind)])
    return {int: "a whole number", float: "a number", bool: "True or False"}.get(kind, "a value")


def _one_line(box: str) -> str:
    """The sentence inside the parser's framed message: no frame, no title, no pointer to help."""
    told = []
    for line in (line.strip(" |─│╭╮╰╯├┤") for line in box.splitlines()):
        if line.startswith(("Argument helptext", "For full helptext", f"{PROGRAM} ")):
            break
        told += [line] if line.strip("-") else []
    return " ".join(told[1:] or told)


def command_line(verb: str, words: list[str]) -> str:
    """The command as it was typed, for the run card."""
    return shlex.join([PROGRAM, verb, *words])


def without(flag: str, words: list[str]) -> list[str]:
    """The words of a command but for one flag and its value: what a run card need not say."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == flag:
            skip = True
        elif not word.startswith(f"{flag}="):
            kept.append(word)
    return kept
