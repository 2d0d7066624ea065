"""The jobs of the verbs (sample, grade, measure, report, paper, race), quick to import.

A job is a frozen dataclass. Its fields are the flags of its verb, and the docstrings below them are
the help texts, which `attribute_docs` reads. A job that makes no sense is refused on construction.

Several processes can share one job (`Share`). Share i of n is given by `--shard i/n`, or else by
the rank under torchrun (RANK of WORLD_SIZE), the index in a Slurm array (SLURM_ARRAY_TASK_ID of
SLURM_ARRAY_TASK_COUNT), or both, with ranks inside array tasks. A job is cut into numbered pieces
that do not depend on n, and share i takes the pieces i, i + n, ... So any set of shares gives the
same result, and a later command with another n does what is left. A piece is a batch in sample.py
and a problem in grade.py.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anyorder.checks import at_least, check_seed, positive
from anyorder.measure.trees import TREE_MEASURES, TreeOptions

Piece = TypeVar("Piece")

RANKS = ("RANK", "WORLD_SIZE")
ARRAY = "SLURM_ARRAY_TASK_"


@dataclass(frozen=True)
class Share:
    """Share number `index`, from 0, of `of`."""

    index: int = 0
    of: int = 1
    origin: str = ""
    """The variables that say so; empty: the command does."""

    @classmethod
    def parse(cls, text: str) -> Share:
        first, _, of = text.partition("/")
        if not (first.isdecimal() and of.isdecimal() and int(first) < int(of)):
            raise ValueError(f"--shard {text!r}: write i/n with 0 <= i < n, such as 0/4")
        return cls(int(first), int(of))

    @property
    def whole(self) -> bool:
        return self.of == 1

    @property
    def speaks(self) -> bool:
        """Whether this process prints progress: of the ranks in one terminal, the first does."""
        return self.index == 0 or "RANK" not in self.origin

    def pick(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces of this share."""
        return list(pieces[self.index :: self.of])

    def opening(self) -> str:
        """The line to print if the environment chose the share, and not the command."""
        return f"shard {self} of the run, by {self.origin}; use --shard 0/1 to do all of it"

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


def share_here(given: str | None, environment: Mapping[str, str]) -> Share:
    """The share that a command names, or else that of this process by its environment."""
    if given is not None:
        return Share.parse(given)
    ranks, array = _ranks(environment), _array(environment)
    of = ranks.of * array.of
    if of == 1:
        return Share()
    origin = " and ".join(each.origin for each in (array, ranks) if each.of > 1)
    return Share(array.index * ranks.of + ranks.index, of, origin)


def _ranks(environment: Mapping[str, str]) -> Share:
    found = [environment.get(name, "") for name in RANKS]
    if not all(value.isdecimal() for value in found):
        return Share()
    return Share(int(found[0]), int(found[1]), "RANK/WORLD_SIZE")


def _array(environment: Mapping[str, str]) -> Share:
    """Ids may begin anywhere and have gaps of one size, as in --array=1-15:2."""
    found = [environment.get(ARRAY + name, "") for name in ("ID", "COUNT")]
    if not all(value.isdecimal() for value in found):
        return Share()
    number, count = map(int, found)
    first = int(environment.get(f"{ARRAY}MIN", 0))
    place, rest = divmod(number - first, int(environment.get(f"{ARRAY}STEP", 1)))
    if rest or not 0 <= place < count:
        raise ValueError(
            f"{ARRAY}ID={number} is not among {count} evenly spaced ids from {first} on: name the "
            f"share of this process, such as --shard 0/{count}"
        )
    return Share(place, count, f"{ARRAY}ID/COUNT")


def device_here(device: str, environment: Mapping[str, str]) -> str:
    """The device of this process: a rank under torchrun has the GPU of its own number."""
    local = environment.get("LOCAL_RANK", "")
    return f"cuda:{local}" if device == "cuda" and local.isdecimal() else device


def workers_here(environment: Mapping[str, str]) -> int | None:
    """Grading processes of one rank if several share a machine; None: it has the machine alone."""
    local = environment.get("LOCAL_WORLD_SIZE", "")
    if not local.isdecimal() or int(local) < 2:
        return None
    return max(1, len(os.sched_getaffinity(0)) // int(local))


@cache
def attribute_docs(owner: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass, by field; those of its base included."""
    found: dict[str, str] = {}
    for each in reversed(owner.__mro__[:-1]):
        try:
            source = inspect.getsource(each)
        except OSError:  # a class without a source file
            continue
        tree = ast.parse(textwrap.dedent(source)).body[0]
        assert isinstance(tree, ast.ClassDef)
        for before, after in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[before.target.id] = " ".join(after.value.value.split())
    return found


def flags_of(settings: Mapping[str, Any]) -> Iterator[str]:
    """The words of a command for settings by their Python names."""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield from (f"--{flag}", str(value))


# Optional flags: help shows what to give, and no "None".
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
NumberFlag = Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")]
FolderFlag = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


def _check_counts(job: object, *names: str, least: int = 1) -> None:
    for name in names:
        at_least(f"--{name.replace('_', '-')}", getattr(job, name), least)


@dataclass(frozen=True)
class SampleJob:
    """What to sample, from what, how often and where to."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A shipped model (ar, mdm, planner, flexmdm, latentmdm, flexlatent, duo or sflm), one of the
    corpus trails (trails/ar, trails/mdm, ...), a folder written by `anyorder train`, or a published
    checkpoint: its folder or hub id (docs/checkpoints.md)."""
    task: Name = None
    """A task to take prompts from: stories, trails, humaneval, humaneval+, humaneval-infilling,
    mbpp, mbpp+, livecodebench or gsm8k (docs/tasks.md)."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the published dataset."""
    template: Name = None
    """How prompts are worded: a published template of the task, or a file with {prompt}."""
    preset: Name = None
    """A published protocol (docs/presets.md); every flag beside it overrides it."""
    prompt: Text = None
    """A prompt, or a text with <fill> or <fill:12> marks; <answer> marks where the answer begins,
    if that is before the first gap."""
    fill: FolderFlag = None
    """A file with such marks. A plain <fill> gets as many slots as a prompt does. On a canvas that
    grows (flexmdm, flexlatent) it opens as many as it needs; in latentmdm it holds whole lines."""
    chat: Annotated[
        str | None, tyro.conf.arg(metavar="auto|on|off|FILE", help_behavior_hint="")
    ] = None
    """Whether prompts are turns of a chat (docs/chat.md); unset: as preset or checkpoint say."""
    system: Text = None
    """The system message of a chat; unset: the task's or the template's own."""
    prefill: Text = None
    """How the answer in a chat begins: part of the prompt, which the model goes on with."""
    limit: Count = None
    """Only the first problems of the task."""
    samples: Count = None
    """Samples for each prompt; unset: 1, or the preset's number."""
    seed: int = 0
    """Chooses the noise: a sample depends on (seed, task, sample number) only. (flexmdm in mode
    compat: on its batch too, as published.)"""
    batch: Count = None
    """Samples decoded together; unset: 32, or the preset's number."""
    cache_check: Count = None
    """With --cache: how many samples to decode a second time, without the cache. The agreement is
    printed and stored (docs/fast_decoding.md). 0: none; unset: 4."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    dtype: Name = None
    """float32, bfloat16, float16 or float64; unset: float32 on a CPU, elsewhere as stored."""
    shard: Annotated[str | None, tyro.conf.arg(metavar="i/n", help_behavior_hint="")] = None
    """Decode only every n-th batch, beginning with batch i. So n processes fill one folder
    together, and the last one finishes it. Unset: as torchrun or a Slurm array says, else all."""
    max_new_tokens: Count = None
    """The number of free slots after a prompt. On a canvas that grows (flexmdm, flexlatent): the
    most slots in all, within --max-length. Unset: as in training."""
    max_length: Count = None
    """The largest canvas; unset: as in training."""
    out: FolderFlag = None
    """The run folder; unset: runs/<model>-<task>-<policy>-<digest of the settings>."""

    def __post_init__(self) -> None:
        given = [name for name in ("task", "prompt", "fill") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of --task, --prompt and --fill")
        _check_counts(self, "samples", "batch", "limit", "max_new_tokens", "max_length")
        _check_counts(self, "cache_check", least=0)
        check_seed("--seed", self.seed)
        for name in ("limit", "data", "template"):
            if getattr(self, name) is not None and self.task is None:
                raise ValueError(f"--{name} belongs to a task: use it with --task")
        self.share()

    def share(self) -> Share:
        """The share of this job; all of it if no shard is named."""
        return Share() if self.shard is None else Share.parse(self.shard)


IdsFlag = Annotated[str | None, tyro.conf.arg(metavar="ID,ID", help_behavior_hint="")]
Ks = Annotated[str | None, tyro.conf.arg(metavar="K,K", help_behavior_hint="")]
ModeFlag = Annotated[
    str | None, tyro.conf.arg(metavar="MODE|any_of_4|sensitivity", help_behavior_hint="")
]

SMALLEST_MEMORY = 64


@dataclass(frozen=True)
class GradeJob:
    """What to grade with, how, and what to report."""

    task: Name = None
    """The task whose checks decide; unset: the one that was sampled."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the one that was sampled, if
    the task is the same."""
    extraction: ModeFlag = None
    """How the program is found in a text (docs/tasks.md); unset: the task's mode. any_of_4: passed
    if any of the release's four modes passes; sensitivity: all of these, side by side."""
    only: IdsFlag = None
    """Only these problems."""
    limit: Count = None
    """Only the first problems of the task."""
    workers: Count = None
    """Grading processes; unset: one for each processor."""
    timeout: NumberFlag = None
    """Processor seconds of one check; unset: the task's published limit."""
    memory: Count = None
    """Memory of a program in MiB; unset: 1024, or what the task needs."""
    k: Ks = None
    """The ks of pass@k; unset: 1, 2, 4, ... up to the number of samples."""
    estimator: str = "unbiased"
    """unbiased, any_of_k (the first k samples) or fixed_n (missing samples are wrong)."""
    allow_weak_isolation: bool = False
    """Grade even where programs cannot be confined, with limits on time and memory alone."""
    again: bool = False
    """Also grade samples that have a verdict already."""

    def __post_init__(self) -> None:
        _check_counts(self, "limit", "workers")
        if self.timeout is not None:
            positive("--timeout", self.timeout)
        if self.memory is not None and self.memory < SMALLEST_MEMORY:
            raise ValueError(
                f"--memory must be at least {SMALLEST_MEMORY} (MiB), or Python itself does not fit"
            )
        if self.only is not None and self.limit is not None:
            raise ValueError("give --only or --limit, not both")
        self.ks()

    def ks(self) -> list[int] | None:
        """The ks to report; None: those that the samples allow."""
        if self.k is None:
            return None
        words = [word.strip() for word in self.k.split(",")]
        if not all(word.isdecimal() and int(word) for word in words):
            raise ValueError(f"--k {self.k!r}: write whole numbers from 1 on, such as 1,2,4")
        return sorted({int(word) for word in words})

    def ids(self) -> list[str] | None:
        """The problems to grade; None: all."""
        return None if self.only is None else [word.strip() for word in self.only.split(",")]


MEASURES = ("order", "arness", "diversity", "similarity", "placement")
MODES = ("exact", "compat")

_ONLY_FOR = {
    "language": TREE_MEASURES,
    "mode": ("order",),
    "seeds": ("order",),
    "extraction": ("diversity", "similarity"),
    "tree": ("diversity", "similarity"),
    "stride": ("placement",),
    "region": ("placement",),
    "any_model": ("placement",),
}
"""Settings that other measures would ignore."""

LANGUAGES = ("python",)


def _check_language(language: str | None) -> None:
    if language not in (None, *LANGUAGES):
        raise ValueError(
            f"--language {language!r}: only python has statement trees here; leave it out for "
            "other texts"
        )


NamesFlag = Annotated[str | None, tyro.conf.arg(metavar="NAME,NAME", help_behavior_hint="")]


@dataclass(frozen=True)
class MeasureJob:
    """What to measure."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Run folders; several are compared with one another."""
    reference: FolderFlag = None
    """A run that was decoded from left to right: the others' programs are compared with its own."""
    placement: Name = None
    """The model that made the runs. Measures where it would have placed its tokens
    (docs/placement.md)."""
    only: NamesFlag = None
    """Only these measures: order, arness, diversity, similarity, placement. Unset: all that the
    runs and the two flags above allow."""
    language: Name = None
    """The texts are programs in this language: python. Unset: as the runs say, by their task. For
    other texts order, diversity and similarity are left out."""
    mode: str = "exact"
    """exact: the paper's definitions of order; compat: the choices of its published code."""
    seeds: int = 8
    """Random orders for the controls."""
    extraction: Name = None
    """If a run was graded in several ways: the grading that says which programs are correct, by its
    extraction, task or name."""
    tree: TreeOptions = field(default_factory=TreeOptions)
    """How programs become trees."""
    stride: Count = None
    """placement: look at every N-th step; unset: 16, or 1 for models that write segments."""
    region: str = "code"
    """placement: code, or all positions of the canvas."""
    any_model: bool = False
    """placement: accept a model that is not known to have made the runs."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("name at least one run folder")
        if self.mode not in MODES:
            raise ValueError(f"--mode {self.mode!r}: choose exact or compat")
        _check_language(self.language)
        _check_counts(self, "seeds", "stride")
        for name, needs in (("similarity", "reference"), ("placement", "placement")):
            if name in (self.chosen() if self.only else ()) and getattr(self, needs) is None:
                raise ValueError(f"--only {name} needs --{needs}")
            if getattr(self, needs) is not None and name not in self.chosen():
                raise ValueError(f"--{needs} has no effect without {name}: add it to --only")
        defaults = {each.name: each.default for each in fields(self)} | {"tree": TreeOptions()}
        for name, measures in _ONLY_FOR.items():
            if getattr(self, name) == defaults[name] or {*measures} & {*self.chosen()}:
                continue
            raise ValueError(
                f"--{name.replace('_', '-')} has no effect here: it is for "
                f"{' and '.join(measures)}; leave it out, or measure that too"
            )

    def chosen(self) -> tuple[str, ...]:
        """The measures to take."""
        if self.only is None:
            given = {"similarity": self.reference, "placement": self.placement}
            return tuple(name for name in MEASURES if given.get(name, True) is not None)
        names = [name.strip() for name in self.only.split(",")]
        for name in (each for each in names if each not in MEASURES):
            raise ValueError(f"--only {name!r}: choose from {', '.join(MEASURES)}")
        return tuple(name for name in MEASURES if name in names)


TITLE = "In which order do these models write?"


@dataclass(frozen=True)
class ReportJob:
    """What to report, and where to."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Run folders. The report names the commands for what they do not have yet."""
    out: Path = Path("report.html")
    """The file; its figures go beside it, to <name>_figures."""
    title: str = TITLE
    """The heading of the page."""
    extraction: Name = None
    """If a run was graded in several ways: the grading to report, by its extraction, task or
    name."""
    language: Name = None
    """The texts are programs in this language: python. Unset: as the runs say, by their task. For
    other texts what is about programs is left out."""
    figures: bool = True
    """Also write the figures as PNG and PDF files."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("name at least one run folder")
        _check_language(self.language)
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out {self.out}: name a file that ends in .html")
        if self.out.is_dir():
            raise ValueError(f"--out {self.out} is a folder: name a file")


@contextmanager
def progress_bar(doing: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Yield the function that advances the bar. It is drawn only in a terminal."""
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not shown or not console.is_terminal) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda count: bar.advance(task, count)


@dataclass(frozen=True)
class PaperJob:
    """A model, a task and a preset."""

    model: str
    """A hub id, a folder with a published checkpoint, or any other model."""
    preset: str
    """The protocol (docs/presets.md): similarity, dream-coder-order, flexmdm-passk, ..."""
    task: str = "humaneval"
    """A task that it was published for (docs/tasks.md)."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the published dataset."""
    limit: Count = None
    """Only the first problems: a trial, whose numbers are not the benchmark's."""
    sweep: bool = False
    """Also the other settings that the source tried, such as every insertion temperature."""
    placement: bool = False
    """Also measure where the model would have placed its tokens; this runs the model again."""
    batch: Count = None
    """Samples decoded together; unset: 32, or the preset's number."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    workers: Count = None
    """Grading processes; unset: one for each processor."""
    allow_weak_isolation: bool = False
    """Grade even where programs cannot be confined."""
    out: Path = Path("runs/study-published")
    """The folder for the runs, with a run folder for each setting."""

    def __post_init__(self) -> None:
        _check_counts(self, "limit", "batch", "workers")


Models = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="MODEL [MODEL ...]", help_behavior_hint=""),
]
Grids = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME:OPTION=V,V", help_behavior_hint="")]


@dataclass(frozen=True)
class RaceJob:
    """Who races, on what, at which settings."""

    models: Models = ()
    """Shipped models or folders written by `anyorder train`; unset: the shipped ones of a task."""
    task: Name = None
    """The task to solve (docs/tasks.md); unset: the corpus of the models, or trails."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the published dataset."""
    limit: int = 30
    """Only the first problems of the task."""
    samples: int = 4
    """Attempts for pass@k, beside the one at temperature 0; 1: that one alone."""
    temperature: float = 1.0
    """The temperature of the attempts for pass@k, the same for all models; 1 changes nothing."""
    grid: Grids = ()
    """Other settings than the default ones: mdm:steps=8,16 or latentmdm:k=1;policy=average,random.
    Semicolons combine options; a second grid for the same model or family adds settings."""
    unequal: bool = False
    """Race although sizes, data or texts differ by over 2 %; each table and figure then says so."""
    texts: int = 50
    """Held-out texts for the likelihood; 0: no likelihood."""
    infill: int = 30
    """Held-out programs whose middle is blanked and filled; 0: none."""
    seed: int = 0
    """Chooses the noise of the samples and the order of each round."""
    threads: int = 1
    """Threads of the network; tiny ones gain nothing from more."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    workers: Count = None
    """Grading processes, which start after the timing; unset: one for each processor."""
    allow_weak_isolation: bool = False
    """Grade even where programs cannot be confined."""
    out: Path = Path("runs/race")
    """Where runs, race.json, race.md and the figure go."""

    def __post_init__(self) -> None:
        _check_counts(self, "samples", "threads")
        _check_counts(self, "texts", "infill", least=0)
        if self.limit < 2:
            raise ValueError(f"--limit {self.limit}: give at least 2, for the intervals")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"--temperature {self.temperature}: attempts that differ need one above 0"
            )
        check_seed("--seed", self.seed)


@dataclass(frozen=True)
class ExportOptions:
    """How a model is written."""

    layout: Name = None
    """qwen2, qwen3, llama, llada, sdar, fast_dllm, flexmdm, dultra or anyorder; unset: the first
    that fits."""
    dtype: Name = None
    """float32, bfloat16 or float16; unset: as stored."""
    shard_gb: float = 5.0
    """The size limit of a file of weights, in GB."""


FORMATS = "jsonl, snapshots, dream, flexmdm, latentmdm, step_map, dllm_rl, edits"


@dataclass(frozen=True)
class ImportOptions:
    """How to read the files of another library; our JSON lines need only `format`, if any."""

    format: Name = None
    """jsonl, snapshots, dream, flexmdm, latentmdm, step_map, dllm_rl or edits; unset: recognised
    from the content."""
    tokenizer: FolderFlag = None
    """The model's tokenizer.json, its folder, or one with vocab.json and merges.txt."""
    mask_id: Count = None
    """The id of the mask; unset: as the file or the vocabulary says."""
    eos_id: Count = None
    """The id that ends and pads a sequence; known for Dream, LLaDA and Qwen2 masks."""
    prompt_length: Count = None
    """Ids in front of the answer; unset: as the file says, else up to the first mask."""
    variant: Name = None
    """Which model and policy of a release folder, such as flexmdm__top_k."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS.split(", "):
            raise ValueError(f"no format {self.format!r}: choose from {FORMATS}")


@dataclass(frozen=True)
class Changes:
    """Settings of `reproduce` that replace those of the card."""

    model: Name = None
    """The model, if it is elsewhere now."""
    data: Name = None
    """The task's data file, if it is elsewhere now."""
    device: Name = None
    """Where to decode; unset: as recorded."""
    batch: Count = None
    """Samples decoded together; unset: as recorded."""
