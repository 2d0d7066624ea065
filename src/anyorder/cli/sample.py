"""`anyorder sample`: its flags, and what it prints. The work is apps/sample.py.

The decoding flags are the union of all families' decoding options; names, types, defaults and help
come from their dataclasses. A flag that is not given is not passed on, because a family refuses an
option that it does not use. The help text shows first what most families accept, then the rest by
family, then flags for published protocols and experts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, make_dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro

from anyorder.apps.jobs import SampleJob, device_here, share_here
from anyorder.cli.parsing import (
    Flag,
    FlagGroup,
    command_line,
    found_device,
    parse,
    read_flags,
    without,
)
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.plugins import entries

JOB = FlagGroup(
    "what to decode",
    ("task", "limit", "prompt", "fill", "samples", "seed", "max_new_tokens"),
)
CHAT = FlagGroup("chats", ("chat", "system", "prefill"), "Prompts for instruct models.")
PLACE = FlagGroup("where, and what is printed", ("out", "device", "batch", "watch", "json"))
PROTOCOL = FlagGroup(
    "published protocols",
    ("preset", "template", "data", "mode"),
    "What a paper or its released code did.",
)
EXPERT = FlagGroup(
    "expert",
    (
        *("posterior", "ties", "counts", "hazard", "cache_refresh", "cache_check"),
        *("max_length", "dtype", "shard"),
    ),
)


@dataclass(frozen=True)
class Option:
    """One decoding option, in all the families that have it."""

    name: str
    flags: Mapping[str, Flag]
    """Family -> its option as a flag."""

    @property
    def kinds(self) -> set[Any]:
        return {flag.kind for flag in self.flags.values()}

    @property
    def annotation(self) -> Any:
        """The type of the flag. The family checks names; that a number is one is checked here."""
        kinds = self.kinds
        if kinds == {bool}:
            return Annotated[bool, tyro.conf.arg(help=self.help())]
        kind: Any = int if kinds == {int} else float if kinds <= {int, float} else str
        metavar = {int: "N", float: "X", str: self._names() or "NAME"}[kind]
        return Annotated[
            kind | None, tyro.conf.arg(metavar=metavar, help=self.help(), help_behavior_hint="")
        ]

    def _names(self) -> str:
        """The choices, if all families' types list them."""
        names = [str(name) for flag in self.flags.values() for name in get_args(flag.kind)]
        literal = all(get_origin(kind) is Literal for kind in self.kinds)
        return "|".join(dict.fromkeys(names)) if literal else ""

    def help(self) -> str:
        """The help: the texts of the families, each with the families that share it."""
        texts_by: dict[str, list[str]] = {}
        for family, flag in self.flags.items():
            texts_by.setdefault(flag.help, []).append(family)
        silent = texts_by.pop("", [])
        if len(texts_by) == 1 and not silent:
            [(text, families)] = texts_by.items()
            texts = [text if len(families) == 1 else f"{text} ({', '.join(families)})"]
        else:
            texts = [f"{', '.join(families)}: {text}" for text, families in texts_by.items()]
        *first, last = texts or [""]
        return "\n".join([*first, f"{last} {self._default_note()}".strip()])

    def _default_note(self) -> str:
        """Defaults that are numbers or names; an unset option depends on others (see the docs)."""
        found: dict[Any, list[str]] = {}
        for family, flag in self.flags.items():
            if flag.default is not None and flag.default is not False:
                found.setdefault(flag.default, []).append(family)
        if len(found) == 1 and len(next(iter(found.values()))) == len(self.flags):
            return f"(default: {next(iter(found))})"
        notes = [f"{value} ({', '.join(families)})" for value, families in found.items()]
        return f"(default: {', '.join(notes)})" if notes else ""


def decoding_options() -> dict[str, Option]:
    """The options of all families, by name, in the order in which families name them."""
    found: dict[str, dict[str, Flag]] = {}
    for family, owner in option_classes().items():
        for flag in read_flags(owner):
            found.setdefault(flag.field, {})[family] = flag
    return {name: Option(name, flags) for name, flags in found.items()}


def option_classes() -> dict[str, type]:
    """Family -> the dataclass of its decoding options; also of those that a program registered."""
    # Where a program registered a family, the table with torch is loaded; else it is not needed.
    loaded = sys.modules.get("anyorder.families.family")
    described = {name: each.options for name, each in DESCRIPTIONS.items() if each.options}
    if loaded is None:
        return described
    return described | {name: row.options for name, row in loaded.FAMILIES.imported().items()}


def sample_flags() -> type[Any]:
    """The flags of `sample`; a field of its own, `decoding`, holds the families' options."""
    options = [
        (name, option.annotation, False if option.kinds == {bool} else None)
        for name, option in decoding_options().items()
    ]
    decoding = make_dataclass("Decoding", options, frozen=True)
    inside = tyro.conf.arg(name="")
    return make_dataclass(
        "Flags",
        [
            ("job", Annotated[SampleJob, inside]),
            ("decoding", Annotated[decoding, inside]),
            ("watch", _switch("Show the canvases while they fill."), False),
            ("json", _switch("Print one JSON document."), False),
        ],
        frozen=True,
    )


def _switch(about: str) -> Any:
    return Annotated[bool, tyro.conf.arg(help=about)]


def sample_groups() -> list[FlagGroup]:
    """The job, what most families take, a group for each family, protocols and expert flags."""
    options, families = decoding_options(), list(option_classes())
    elsewhere = {*PROTOCOL.fields, *EXPERT.fields}
    shared = [
        name
        for name, option in options.items()
        if len(option.flags) * 2 > len(families) and name not in elsewhere
    ]
    tasks = ", ".join(entries("tasks"))
    job = replace(JOB, note=f"Tasks of installed packages: {tasks}.") if tasks else JOB
    groups = [job, CHAT, PLACE, FlagGroup("decoding, most families", shared)]
    elsewhere |= set(shared)
    for family in families:
        taken = [name for name, option in options.items() if family in option.flags]
        own = [name for name in taken if name not in elsewhere]
        others = [f"--{name.replace('_', '-')}" for name in taken if name not in own]
        elsewhere |= set(own)
        note = f"{'Also takes' if own else 'Takes'} {', '.join(others)}." if others else ""
        groups.append(FlagGroup(f"decoding, {family}", own, note))
    return [*groups, PROTOCOL, EXPERT]


def sample_verb(words: list[str]) -> None:
    """Decode with a model and write a run folder: the traces as a table, and a run card.

    A family refuses decoding flags that it does not use. With --candidates, the proposals of the
    first sample are shown. If you repeat a command, it continues where it stopped.

      anyorder sample mdm --task stories --limit 20 --policy confidence
      anyorder sample mdm --task stories --limit 5 --temperature 0.7 --samples 4
      anyorder sample mdm --task stories --limit 20 --steps 64 --remask cap:0.05
      anyorder sample mdm --task stories --limit 3 --batch 1 --watch
      anyorder sample flexmdm --task stories --limit 20 --insertion-temperature 0.6
      anyorder sample latentmdm --task stories --limit 20 --policy average --k 2
      anyorder sample duo --task stories --limit 20 --steps 32 --tail greedy
      anyorder sample sflm --task stories --limit 20 --velocity exact
      anyorder sample mdm --task stories --limit 20 --batch 8 --shard 0/4
    """
    flags = parse(
        sample_flags(),
        "sample",
        words,
        about=sample_verb.__doc__,
        groups=sample_groups(),
        auto_device=True,
    )
    from anyorder.apps.sample import print_run, sample_to_run, summary
    from anyorder.apps.show import print_segments
    from anyorder.families.family import UnusedOptions

    # A flag that was not given is no option: families refuse what they do not use.
    given = asdict(flags.decoding).items()
    options = {name: value for name, value in given if value is not None and value is not False}
    share = share_here(flags.job.shard, os.environ)
    if share.origin and share.speaks:
        print(share.opening(), file=sys.stderr)
    device = found_device(flags.job.device, speaks=share.speaks)
    try:
        run = sample_to_run(
            replace(flags.job, shard=str(share), device=device),
            options,
            command=command_line("sample", without("--shard", words)),
            progress=share.speaks,
            watch=flags.watch,
            place=device_here(device, os.environ),
        )
    except UnusedOptions as error:
        raise ValueError(error.spelled(lambda name: f"--{name}".replace("_", "-"))) from None
    if not run.complete:
        state = {"run": str(run.folder), "complete": False, "shard": str(share)}
        state |= {"parts": len(run.done_parts())}
        print(json.dumps(state) if flags.json else _unfinished(state))
        return
    if flags.json:
        print(json.dumps(summary(run)))
        return
    if flags.decoding.candidates:
        first = next(run.traces(), None)
        if first is not None and first.candidates:  # a text of no segments had no proposals
            print_segments(first)
    print_run(run)


def _unfinished(state: dict[str, object]) -> str:
    return (
        f"{state['run']}: shard {state['shard']} is done; the run has {state['parts']} batches. "
        "The last shard finishes it (or this command with --shard 0/1)"
    )
