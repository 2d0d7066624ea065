"""The command line: the verbs, their files, exit codes and error messages.

A verb parses its words, calls one function of apps and prints the result. The verbs are in
models.py, sample.py and runs.py; parsing.py parses words and makes help texts. Nothing
heavy is imported before a verb needs it. Exit codes: 0 done, 1 failed, 2 bad usage, 130
interrupted. With `--json` standard output holds one JSON document and nothing else; progress and
messages go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

PROGRAM = "anyorder"

VERBS = {
    "demo": "the whole story on shipped tiny models; ends with a page to open",
    "train": "train a model by recipe; resumes by itself",
    "data": "make shards to train on: filter, decontaminate, remove duplicates",
    "sample": "decode with a model; writes a run folder of traces",
    "grade": "run the programs of a run in a sandbox; pass@k with intervals",
    "measure": "order, AR-ness, similarity and placement of runs, with controls",
    "report": "one offline HTML file with figures, tables and the trace player",
    "race": "compare models under equal conditions: accuracy against time",
    "paper": "a protocol of the paper on a checkpoint, beside the published numbers",
    "play": "a local page: type a prompt, watch it being written in any order",
    "reproduce": "sample a run again from its card, and compare",
    "import": "make a run folder from another library's traces",
    "export": "write a model as a folder that other libraries can read",
    "push": "upload a model to the hub, with a model card",
    "doctor": "show what this machine offers",
}

MOVED = {
    "study": (
        "the study of tiny models left the package: run `make study` in the repository "
        "(docs/study.md); for a protocol of the paper on a checkpoint: "
        "anyorder paper --model X --preset NAME"
    ),
}
"""Words that were verbs once, and where to go instead."""

FILES = {
    "sample": ("sample",),
    "runs": ("grade", "measure", "report", "reproduce", "import", "paper", "race", "demo"),
    "models": ("train", "data", "export", "push", "play", "doctor"),
}
"""File -> the verbs in it, each a function such as `grade_verb`."""

HELP = """\
usage: anyorder VERB ...

Train, sample, trace and diagnose any-order language models.

{verbs}

Each verb explains itself:  anyorder VERB --help

examples:
  anyorder demo
  anyorder sample mdm --task stories --limit 20 --out runs/mdm
  anyorder measure runs/mdm
"""


class UsageError(Exception):
    """The command line itself is wrong: exit code 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except UsageError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stdout = None
        return 1
    except (ValueError, OSError) as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted; repeat the command to go on", 130)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP.format(verbs="\n".join(f"  {name:11}{says}" for name, says in VERBS.items())))
        return 0 if words else 2
    if words[0] == "--version":
        from anyorder import __version__

        print(f"{PROGRAM} {__version__}")
        return 0
    verb, *rest = words
    if verb in MOVED:
        raise UsageError(MOVED[verb])
    if verb not in VERBS:
        from anyorder.checks import did_you_mean

        raise UsageError(f"no verb {verb!r}{did_you_mean(verb, VERBS)} (see {PROGRAM} --help)")
    file = next(file for file, verbs in FILES.items() if verb in verbs)
    getattr(import_module(f"anyorder.cli.{file}"), f"{verb}_verb")(rest)
    return 0


def _fail(message: str, code: int) -> int:
    first, *more = message.strip().splitlines() or ["failed"]
    print(f"{PROGRAM}: error: {first}", *more, sep="\n", file=sys.stderr)
    return code
