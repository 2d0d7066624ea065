"""The child process that renders chat templates, with hard bounds. Started by chat.py as a script.

A template is code by the author of a checkpoint. jinja2's immutable sandbox keeps it from objects
and files, but not from loops and large strings. So it runs here, in a process whose processor time,
memory and output the system bounds. Each line of standard input is a request, each line of standard
output its answer; the process ends with its input:

    {"template", "tokens", "date", "seconds", "memory", "longest", "jobs": [{messages, ...}, ...]}
    {"texts": [...]}  or  {"error": "..."}

Each job is the keyword arguments of one rendering; the processor time is for one job. Nothing of
anyorder is imported.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

UNWANTED = ("lipsum", "cycler", "joiner")
"""Globals of jinja2 that no chat needs; lipsum draws at random."""
LONGEST_REASON = 1000
"""Characters of an error's text, which a template may have written; chat.py shows fewer."""


class GenerationTag(Extension):
    """`{% generation %}`, which marks what the model wrote: the text inside, unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TooLong(Exception):
    """The rendered text is longer than allowed."""


def environment(date: str) -> ImmutableSandboxedEnvironment:
    """The names and settings that published templates expect; the date is fixed."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag]
    )
    for name in UNWANTED:
        del made.globals[name]
    del made.filters["random"]
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = datetime.fromisoformat(date).strftime
    return made


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def bound(seconds: float, memory: int) -> None:
    """Limit this process, its processor time from now on; it may write what it may hold."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(used.ru_utime + used.ru_stime + seconds)
    for kind, most in (
        (resource.RLIMIT_CPU, end),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, memory),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, hard if kind == resource.RLIMIT_CPU else most))


def joined(pieces: Iterable[str], longest: int) -> str:
    """The pieces as one text; stops early if they become too long."""
    found, length = [], 0
    for piece in pieces:
        length += len(piece)
        if length > longest:
            raise TooLong(f"its text is longer than {longest:,} characters")
        found.append(piece)
    return "".join(found)


def render(request: dict[str, Any]) -> list[str]:
    """The text of each job."""
    bound(request["seconds"], request["memory"])
    template = environment(request["date"]).from_string(request["template"])
    texts = []
    for job in request["jobs"]:
        bound(request["seconds"], request["memory"])
        texts.append(joined(template.generate(**request["tokens"], **job), request["longest"]))
    return texts


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The texts of a request, or why there are none."""
    try:
        return {"texts": render(request)}
    except MemoryError:
        reason = "it needs too much memory"
    except SecurityError as error:
        reason = f"it does what no chat template may do: {error}"
    except Exception as error:  # noqa: BLE001  (a template may raise anything)
        reason = str(error) or type(error).__name__
    return {"error": reason[:LONGEST_REASON]}


def main() -> None:
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
