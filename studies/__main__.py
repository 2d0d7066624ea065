"""`make study`, or `python -m studies` in the repository: its flags, and what it prints.

The work is studying.py. Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from studies.study_job import StudyJob

if TYPE_CHECKING:
    from studies.studying import Studied

PROGRAM = "python -m studies"
PUBLISHED = ("--model", "--preset")
"""Flags of `anyorder paper`, which was once a part of this command."""


@dataclass(frozen=True)
class Flags:
    """Asks the paper's questions of trained models: trains, samples, grades, measures, writes.

    Models and runs that exist are not made again (the repository holds many), and the page is
    made from the stored records alone. A study from nothing takes hours; to continue a command
    that was stopped, repeat it.

      make study                                 what is missing, then docs/results.md
      make study ARGS="--only page"              the page again, from what is stored
      make study ARGS="s4 --problems 20 --folder studies/try --page try.md"    one, on few problems
                                                 (first trains models that the new folder lacks)
      make study ARGS="--only models"            train what is missing, for hours
    """

    job: Annotated[StudyJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; `--help` ends the program."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if any(word.partition("=")[0] in PUBLISHED for word in words):
        return _fail("for a checkpoint, use `anyorder paper --model X --preset NAME`", 2)
    try:
        flags = tyro.cli(Flags, args=words, prog=PROGRAM, config=(tyro.conf.FlagCreatePairsOff,))
    except ValueError as error:  # the job refuses a value before it reads any file
        return _fail(str(error), 2)
    try:
        _show(flags)
    except (ValueError, OSError) as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted; repeat the command to go on", 130)
    return 0


def _show(flags: Flags) -> None:
    from studies.studying import study

    studied = study(flags.job, progress=True)
    if flags.json:
        print(json.dumps(studied.to_record(), allow_nan=False))
    else:
        _print(studied)


def _print(studied: Studied) -> None:
    if studied.trained:
        print(f"trained: {', '.join(studied.trained)}")
    if studied.done:
        print(f"{len(studied.done)} runs done")
    if studied.untrained:
        print(f"not trained yet: {', '.join(studied.untrained)}")
    if studied.page is not None:
        for name, claims in studied.page.claims.items():
            for claim in claims:
                print(f"{name:11}{claim.holds:17}{claim.says}: {claim.here}")
        print(f"written to {studied.page.page}")


def _fail(message: str, code: int) -> int:
    print(f"study: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
