"""`anyorder study`: its flags, and what it prints. The work is apps/study/.

With `--model` it is another job with flags of its own: a published protocol on a checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from anyorder.apps.study.plan import Sizes
from anyorder.apps.study.protocol_job import ProtocolJob
from anyorder.apps.study.study_job import StudyJob
from anyorder.cli import UsageError
from anyorder.cli.parsing import parse

MODEL = "--model"


def _flags_of(*jobs: Any) -> list[str]:
    return ["--" + each.name.replace("_", "-") for job in jobs for each in fields(job)]


PROTOCOL_ONLY = tuple(
    flag for flag in _flags_of(ProtocolJob) if flag not in (MODEL, *_flags_of(StudyJob, Sizes))
)
"""What makes sense with a checkpoint alone."""


@dataclass(frozen=True)
class Flags:
    """The paper's questions, asked of trained models: trains, samples, grades, measures, writes.

    Models and runs that are there are not made again (the repository holds many), and the
    page is made from the stored records alone. From nothing it takes hours; a command that was
    stopped goes on when it is repeated. With --model: a published protocol on a checkpoint, the
    paper's numbers beside the new ones (--model X --help).

      anyorder study                             what is missing, then docs/results.md
      anyorder study --only page                 the page again, from what is stored
      anyorder study s4 --problems 20 --folder studies/try --page try.md    one, on few problems
                                                 (first trains models that the new folder lacks)
      anyorder study --only models               train what is missing, for hours
      anyorder study --model Dream-org/Dream-v0-Base-7B --preset similarity --device cuda
    """

    job: Annotated[StudyJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


@dataclass(frozen=True)
class ProtocolFlags:
    """A published protocol on a checkpoint: samples, grades, measures; the paper's rows beside.

    What the source varied is one run each: policies, and with --sweep insertion temperatures or k.
    Repeating a command goes on where it stopped.

      anyorder study --model Dream-org/Dream-v0-Base-7B --preset similarity --device cuda
      anyorder study --model DIR --preset flexmdm-passk --task mbpp:378 --sweep --device cuda
      anyorder study --model DIR --preset similarity --limit 2 --data HumanEval.jsonl.gz
    """

    job: Annotated[ProtocolJob, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    # The parser takes --allow_weak_isolation as well.
    given = [word.partition("=")[0].replace("_", "-") for word in words]
    if MODEL in given:
        _protocol(words)
        return
    for flag in PROTOCOL_ONLY:
        if flag in given:
            raise UsageError(
                f"{flag} needs {MODEL}, a checkpoint (anyorder study {MODEL} X --help)"
            )
    _questions(words)


def _questions(words: list[str]) -> None:
    flags = parse(Flags, "study", words)
    from anyorder.apps.study.studying import study

    studied = study(flags.job, progress=True)
    if flags.json:
        print(json.dumps(studied.to_record(), allow_nan=False))
        return
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


def _protocol(words: list[str]) -> None:
    flags = parse(ProtocolFlags, f"study {MODEL} X", words)
    from anyorder.apps.grade import print_graded
    from anyorder.apps.measure import print_measured
    from anyorder.apps.study.protocol import run_protocol

    found = run_protocol(flags.job, progress=True)
    if flags.json:
        print(json.dumps(found.to_record(), allow_nan=False))
        return
    for name, graded in found.graded.items():
        print(f"== {name}")
        print_graded(graded)
        print()
    print_measured(found.measured)
    print("by hand:", *found.commands, sep="\n  ")
