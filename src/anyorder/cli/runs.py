"""The verbs that make or read runs, `sample` apart: their flags, and what they print.

These are grade, measure, report, reproduce, import, paper, race and demo. The work is in the file
or folder of the same name in apps/ (`import`: apps/imports.py).
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import (
    Changes,
    FolderFlag,
    GradeJob,
    ImportOptions,
    MeasureJob,
    ReportJob,
    share_here,
    workers_here,
)
from anyorder.cli.parsing import FlagGroup, command_line, found_device, job_flags, parse


@dataclass(frozen=True)
class GradeFlags:
    """The run to grade, and how."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, written by `anyorder sample` or `anyorder import`."""
    job: Annotated[GradeJob, tyro.conf.arg(name="")]
    shard: Annotated[str | None, tyro.conf.arg(metavar="i/n", help_behavior_hint="")] = None
    """Grade only every n-th problem, beginning with problem i. So n processes grade one run
    together, and the last one reports. Unset: as torchrun or a Slurm array says, else all."""
    json: bool = False
    """Print one JSON document."""


GRADE_GROUPS = (
    FlagGroup("what to grade", ("task", "data", "only", "limit", "again")),
    FlagGroup("what is reported", ("k", "estimator", "json")),
    FlagGroup("how programs run", ("workers", "timeout", "memory", "allow_weak_isolation")),
    FlagGroup("expert", ("extraction", "shard")),
)


def grade_verb(words: list[str]) -> None:
    """Run the programs of a run in a sandbox, and report how many are right.

    Verdicts go to verdicts.parquet in the run folder. If you repeat a command, it continues where
    it stopped: a sample that has a verdict is not run again.

      anyorder sample mdm --task stories --limit 20 --out runs/mdm
      anyorder grade runs/mdm
      anyorder grade runs/mdm --extraction sensitivity --json
      anyorder grade runs/mdm --again --workers 2
    """
    flags = parse(GradeFlags, "grade", words, about=grade_verb.__doc__, groups=GRADE_GROUPS)
    from anyorder.apps.grade import PartlyGraded, grade_run, grade_shard, print_graded

    share = share_here(flags.shard, os.environ)
    if share.origin and share.speaks:
        print(share.opening(), file=sys.stderr)
    job = flags.job
    if job.workers is None and not share.whole:
        job = replace(job, workers=workers_here(os.environ))
    found = (
        grade_run(flags.run, job)
        if share.whole
        else grade_shard(flags.run, job, share, progress=share.speaks)
    )
    if flags.json:
        print(json.dumps(found.to_record()))
    elif isinstance(found, PartlyGraded):
        print(found)
    else:
        print_graded(found)


MEASURE_GROUPS = (
    FlagGroup("what to measure", ("reference", "placement", "only", "language", "json")),
    FlagGroup("published protocol", ("mode", "seeds", "extraction")),
    FlagGroup("placement, in detail", ("stride", "region", "any_model")),
)


def measure_verb(words: list[str]) -> None:
    """Measure in which order runs were written, and how similar their programs are.

    Every score comes with its controls: the same programs written left to right and in random
    order. Results are stored in measures.json in each run folder.

      anyorder sample mdm --task stories --limit 20 --out runs/confidence
      anyorder measure runs/confidence
      anyorder measure runs/confidence --placement mdm --only placement
      anyorder sample ar --task stories --limit 20 --out runs/left_to_right
      anyorder measure runs/confidence --reference runs/left_to_right --json
    """
    owner = job_flags(MeasureJob, "Print one JSON document: every sample, every node.")
    flags = parse(owner, "measure", words, about=measure_verb.__doc__, groups=MEASURE_GROUPS)
    from anyorder.apps.measure import measure_runs, print_measured

    measured = measure_runs(flags.job)
    if flags.json:
        print(json.dumps(measured.to_record(), allow_nan=False))
    else:
        print_measured(measured)


REPORT_GROUPS = (
    FlagGroup("what to report", ("extraction", "language")),
    FlagGroup("what is written and printed", ("out", "title", "figures", "json")),
)


def report_verb(words: list[str]) -> None:
    """Write one HTML file about runs: findings in plain words, figures, tables, the trace player.

    You can read it offline. It shows the verdicts and measures that the runs have. If a run was not
    measured, its order, and its similarity to a left-to-right run among the others, are computed.

      anyorder sample mdm --task stories --limit 20 --out runs/confidence
      anyorder sample ar --task stories --limit 20 --out runs/left_to_right
      anyorder report runs/confidence runs/left_to_right
      anyorder report runs/* --out report.html --title "My checkpoint" --no-figures
    """
    json_help = "Print one JSON document: the files, the findings, what is absent."
    owner, about = job_flags(ReportJob, json_help), report_verb.__doc__
    flags = parse(owner, "report", words, about=about, groups=REPORT_GROUPS)
    from anyorder.apps.report import report

    reported = report(flags.job, progress=True)
    if flags.json:
        print(json.dumps(reported.to_record()))
        return
    gathered = reported.material.gathered
    print(f"{len(gathered.runs)} runs, {gathered.samples} samples: {reported.page}")
    if reported.figures:
        print(f"{len(reported.figures)} figure files: {reported.figures[0].parent}")
    for title, commands in reported.absent:
        print(f"not in it: {title}", *(f"  {command}" for command in commands), sep="\n")


@dataclass(frozen=True)
class ReproduceFlags:
    """The run to sample again, and what has changed."""

    card: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run.json, or the folder it is in."""
    changes: Annotated[Changes, tyro.conf.arg(name="")]
    out: FolderFlag = None
    """Keep the new run in this folder."""
    json: bool = False
    """Print one JSON document."""


REPRODUCE_GROUPS = (
    FlagGroup("what to sample again", ("model", "data")),
    FlagGroup("how and where to", ("device", "batch", "out", "json")),
)


def reproduce_verb(words: list[str]) -> None:
    """Sample a run again from its card, and compare trace by trace.

    If the run was graded by its own task, verdicts are compared too. The exit code is 1 if anything
    differs. The model and the data are found where the card says; name them if they have moved.

      anyorder sample mdm --task stories --limit 20 --out runs/stories
      anyorder reproduce runs/stories
      anyorder reproduce runs/stories/run.json --model mdm --out runs/again
    """
    about = reproduce_verb.__doc__
    flags = parse(ReproduceFlags, "reproduce", words, about=about, groups=REPRODUCE_GROUPS)
    from anyorder.apps.reproduce import reproduce

    line = command_line("reproduce", words)
    result = reproduce(flags.card, flags.changes, out=flags.out, command=line)
    if flags.json:
        print(json.dumps(asdict(result) | {"reproduced": result.reproduced}))
    else:
        for note in result.notes:
            print(f"different from the start: {note}")
        print(f"{result.identical} of {result.samples} samples are identical")
        if result.verdicts:
            print(f"{result.same_verdicts} of {result.verdicts} verdicts are the same")
    if not result.reproduced:
        shown = "\n".join(f"  {line}" for line in result.differences)
        other = result.verdicts - result.same_verdicts
        raise ValueError(
            f"{result.samples - result.identical} of {result.samples} samples and {other} of "
            f"{result.verdicts} verdicts differ\n{shown}"
        )


@dataclass(frozen=True)
class ImportFlags:
    """What to read, and the run to make of it."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """The file, or a folder of files of canvases."""
    out: Path
    """The run folder to make."""
    options: Annotated[ImportOptions, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


IMPORT_GROUPS = (
    FlagGroup("what and where to", ("out", "format", "json")),
    FlagGroup("canvases of ids", ("tokenizer", "mask_id", "eos_id", "prompt_length", "variant")),
)


def import_verb(words: list[str]) -> None:
    """Make a run folder of traces that another library wrote.

    JSON lines, one object per sample: task_id, sample, prompt, tokens (strings), insert_step and
    reveal_step (per token), and optionally log_prob, segment, score (per token), candidates, steps,
    entry_point, policy (docs/traces.md). Steps count from 1; 0 means given from the start. `text`
    alone, without tokens and steps, is accepted too.

    Canvases of ids, one per step (.pt with tensors only, .npy, .npz, .json): dllm's `histories` or
    a list that begins before step 1 (snapshots), Dream's `history` (dream), a trace of the FlexMDM
    release, or a folder of them with its tasks.json (flexmdm). They need --tokenizer.

    A step for each token id, one JSON object per sample: task_id, prompt, token_ids and step_map
    (step_map); the lists of dLLM-RL (dllm_rl); what each step of an editing sampler wrote, deleted
    and inserted (edits). All need --tokenizer (docs/recording.md).

    Records of the LatentMDM release, segment by segment: --format latentmdm, with --tokenizer.

      echo '{"task_id": "a", "sample": 0, "prompt": "", "text": "x = 1"}' > theirs.jsonl
      anyorder import theirs.jsonl --out runs/theirs
    """
    flags = parse(ImportFlags, "import", words, about=import_verb.__doc__, groups=IMPORT_GROUPS)
    from anyorder.apps.imports import import_traces

    line = command_line("import", words)
    run, count = import_traces(flags.path, flags.out, command=line, options=flags.options)
    if flags.json:
        print(json.dumps({"run": str(run.folder), "samples": count}))
    else:
        print(f"{count} {'sample' if count == 1 else 'samples'} in {run.folder}")


PAPER_GROUPS = (
    FlagGroup(
        "which protocol on which model", ("model", "preset", "task", "data", "limit", "sweep")
    ),
    FlagGroup("where, and what is printed", ("out", "device", "json")),
    FlagGroup("expert", ("placement", "batch", "workers", "allow_weak_isolation")),
)


def paper_verb(words: list[str]) -> None:
    """Run a published protocol on a checkpoint: sample, grade and measure, the paper's rows beside.

    Each setting that the source varied is a run: policies, and with --sweep insertion temperatures
    or k. If you repeat a command, it continues where it stopped. You need a published checkpoint,
    which is downloaded by its hub id or read from a folder (DIR in the examples), and the data of
    the benchmark; the models that come with the package do not fit these protocols.

      anyorder paper --model Dream-org/Dream-v0-Base-7B --preset similarity --device cuda
      anyorder paper --model DIR --preset flexmdm-passk --task mbpp:378 --sweep --device cuda
      anyorder paper --model DIR --preset similarity --limit 2 --data HumanEval.jsonl.gz
    """
    from anyorder.apps.jobs import PaperJob

    owner, about = job_flags(PaperJob), paper_verb.__doc__
    flags = parse(owner, "paper", words, about=about, groups=PAPER_GROUPS, auto_device=True)
    from anyorder.apps.grade import print_graded
    from anyorder.apps.measure import print_measured
    from anyorder.apps.paper import run_protocol

    job = replace(flags.job, device=found_device(flags.job.device))
    found = run_protocol(job, progress=True)
    if flags.json:
        print(json.dumps(found.to_record(), allow_nan=False))
        return
    for name, graded in found.graded.items():
        print(f"== {name}")
        print_graded(graded)
        print()
    print_measured(found.measured)
    print("by hand:", *found.commands, sep="\n  ")


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
    """Race models on one task: accuracy against time, at several settings.

    All models and settings run problem by problem in one process, in shuffled order, one sample at
    a time, so that noise on the machine hits all alike. Models of unequal size, data or training
    are refused. Also measured: the likelihood of held-out texts under each model, and how well it
    fills the middle of a program. If you repeat a command, it continues where it stopped.

      anyorder race
      anyorder race --task stories --out runs/race-stories
      anyorder race trails/ar trails/mdm trails/latentmdm --limit 10 --out runs/race-10
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
class DemoFlags:
    """How much to show, and where to."""

    problems: int = 60
    """Held-out problems for every model."""
    task: str = "trails"
    """The corpus of the models: trails, where the order of writing matters, or stories."""
    train: bool = False
    """First train tiny/mdm, and watch it write."""
    minutes: float = 2.0
    """The longest training time; the next demo --train continues it."""
    out: Path = Path("runs/demo")
    """The folder for samples, measures and the page."""
    json: bool = False
    """Print one JSON document."""

    def __post_init__(self) -> None:
        if self.problems < 2:
            raise ValueError(f"--problems {self.problems}: give at least 2, for the intervals")


DEMO_GROUPS = (
    FlagGroup("what, and how much", ("task", "problems", "train", "minutes")),
    FlagGroup("what is written and printed", ("out", "json")),
)


def demo_verb(words: list[str]) -> None:
    """The whole story on tiny models that come with the package: they write programs in several
    orders, the programs are executed, the orders are measured, and a page shows it all.

      anyorder demo
      anyorder demo --task stories --out runs/demo-stories
      anyorder demo --train
      anyorder demo --problems 20 --out runs/quick
    """
    flags = parse(DemoFlags, "demo", words, about=demo_verb.__doc__, groups=DEMO_GROUPS)
    from anyorder.apps.demo import demo, train_live

    found = {}
    if flags.train:
        found["trained"] = train_live(flags.out, minutes=flags.minutes, quiet=flags.json)
    found |= demo(flags.out, task=flags.task, problems=flags.problems, quiet=flags.json)
    if flags.json:
        print(json.dumps(found))
