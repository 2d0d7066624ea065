"""`anyorder demo`, `play`, `race` and `doctor`: their flags, and what they print.

The work is apps/demo.py, apps/play/, apps/race/ and apps/doctor.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from anyorder.cli.parsing import FlagGroup, found_device, job_flags, parse


@dataclass(frozen=True)
class DemoFlags:
    """How much to show, and where to."""

    problems: int = 60
    """Held-out problems that every model is asked."""
    train: bool = False
    """First train tiny/mdm, live, and watch it write."""
    minutes: float = 2.0
    """How long to train at most; running it again goes on."""
    out: Path = Path("runs/demo")
    """Where samples, measures and the page go."""
    json: bool = False
    """Print one JSON document."""

    def __post_init__(self) -> None:
        if self.problems < 2:
            raise ValueError(f"--problems {self.problems}: give at least 2, for the intervals")


DEMO_GROUPS = (
    FlagGroup("how much", ("problems", "train", "minutes")),
    FlagGroup("what is written and printed", ("out", "json")),
)


def demo_verb(words: list[str]) -> None:
    """The whole story on eight tiny models that come with the package: they write programs in
    several orders, the programs are executed, the orders are measured, and a page shows it all.

      anyorder demo
      anyorder demo --train
      anyorder demo --problems 20 --out runs/quick
    """
    flags = parse(DemoFlags, "demo", words, about=demo_verb.__doc__, groups=DEMO_GROUPS)
    from anyorder.apps.demo import demo, train_live

    found = {}
    if flags.train:
        found["trained"] = train_live(flags.out, minutes=flags.minutes, quiet=flags.json)
    found |= demo(flags.out, problems=flags.problems, quiet=flags.json)
    if flags.json:
        print(json.dumps(found))


PLAY_GROUPS = (
    FlagGroup("what to open", ("device",)),
    FlagGroup("where", ("port", "no_browser", "json")),
)


def play_verb(words: list[str]) -> None:
    """Open a local page: type a prompt, watch it being written in any order, compare policies.

    Only this machine can reach it, and only with the address that is printed. Ctrl-C ends it.

      anyorder play
      anyorder play mdm --port 8000 --no-browser
    """
    from anyorder.apps.play import PlayJob, play

    owner = job_flags(PlayJob, "Print one JSON document: the address.")
    about = play_verb.__doc__
    flags = parse(owner, "play", words, about=about, groups=PLAY_GROUPS, auto_device=True)
    play(replace(flags.job, device=found_device(flags.job.device)), as_json=flags.json)


RACE_GROUPS = (
    FlagGroup("who races on what", ("task", "limit", "samples", "temperature", "grid")),
    FlagGroup("beside the race", ("texts", "infill")),
    FlagGroup("where, and what is printed", ("out", "device", "json")),
    FlagGroup(
        "expert",
        ("data", "unequal", "seed", "threads", "workers", "allow_weak_isolation"),
    ),
)


def race_verb(words: list[str]) -> None:
    """Race models on one task: how often right, against how long it takes, at several settings.

    All lanes run problem by problem in one process, in shuffled order, one sample at a time, so
    that noise hits all alike. Models of unequal size, data or training are refused. Beside it: how
    likely held-out texts are to each model, and how well it fills the middle of a program.
    Repeating a command goes on where it stopped.

      anyorder race ar mdm flexmdm latentmdm flexlatent duo sflm
      anyorder race ar mdm latentmdm --limit 10 --out runs/race-10
      anyorder race mdm latentmdm --limit 10 --out runs/race-two \\
        --grid "mdm:steps=4,8;policy=confidence,random" latentmdm:k=1,3
    """
    from anyorder.apps.jobs import RaceJob
    from anyorder.apps.race import race
    from anyorder.report.tables import print_tables

    owner, about = job_flags(RaceJob), race_verb.__doc__
    flags = parse(owner, "race", words, about=about, groups=RACE_GROUPS, auto_device=True)
    raced = race(replace(flags.job, device=found_device(flags.job.device)), progress=True)
    if flags.json:
        print(json.dumps(raced.to_record(), allow_nan=False))
        return
    print_tables(raced.tables)
    print(f"written to {', '.join(str(path) for path in raced.files)}")


@dataclass(frozen=True)
class DoctorFlags:
    """How the findings are told."""

    json: bool = False
    """Print one JSON document."""


def doctor_verb(words: list[str]) -> None:
    """Tell what this machine offers: devices, threads, memory, how well programs can be confined,
    installed extras.

      anyorder doctor
      anyorder doctor --json
    """
    flags = parse(DoctorFlags, "doctor", words, about=doctor_verb.__doc__)
    from anyorder.apps.doctor import examine, print_findings

    findings = examine()
    if flags.json:
        print(json.dumps(findings))
    else:
        print_findings(findings)
