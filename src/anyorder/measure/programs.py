"""The programs of a run: their texts, which of them are correct, and their trees.

Where a run has extracted programs, a sample's text is its program, which must parse as it is; a
sample without one has an empty text. Otherwise it is the generated text, parsed after its prompt
and with the fallbacks of syntax.py. Verdicts come from the run's verdicts.parquet or as a mapping.
Every sample ends with a status; equal texts are parsed once.

Not here: comparing programs (similarity_scores.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anyorder.measure.placement_scores import programs_looked_for
from anyorder.measure.syntax import (
    FALLBACKS,
    Parsed,
    ParseLimits,
    Status,
    parse_answer,
    parse_program,
)
from anyorder.measure.tree_edit import decomposition_cells
from anyorder.measure.trees import Tree, TreeOptions, ast_and_coarse, grammar_tree
from anyorder.trace.run import VERDICTS_FILE, Run

METRICS = {"TSED": 0, "ASTD": 1, "Coarse": 1}
"""Metric -> the cost of a rename."""

PASSED = "passed"

LANGUAGE, PYTHON = "language", "python"
"""The fact of a problem that says what its answers are, and the language that is parsed here."""
CODE_TASKS = (
    *("stories", "trails", "humaneval", "humaneval+", "humaneval-infilling"),
    *("mbpp", "mbpp+", "livecodebench", "gsm8k"),
)
"""Tasks whose answers are Python: their runs need not say so."""

SampleKey = tuple[str, int]
SampleVerdicts = Mapping[SampleKey, bool]


def is_code(run: Run) -> bool:
    """Whether a run says that its texts are Python, so that statement trees mean something.

    The facts of its problems decide, then its task. A run of another task, or of none, says so if
    it was graded, which runs programs, or if a sample has an entry point or an extracted program.
    """
    # Parsing cannot decide: many texts, such as names of molecules, are Python expressions too.
    facts = (run.card.facts or {}).values()
    if languages := {own[LANGUAGE] for own in facts if LANGUAGE in own}:
        return languages == {PYTHON}
    if str(run.card.config.get("task") or "").partition(":")[0] in CODE_TASKS:
        return True
    if (run.folder / VERDICTS_FILE).is_file():
        return True
    columns = run.table(["entry_point", "program"]).columns
    return any(column.null_count < len(column) for column in columns)


class ProgramSample(NamedTuple):
    """One generated text."""

    task_id: str
    sample: int
    text: str
    extracted: bool = False
    """Whether the text is a program, and not an answer that holds one."""
    correct: bool | None = None
    """None: not graded."""
    prompt: str = ""
    """The text may continue it, where it is an answer."""


@dataclass(frozen=True)
class Programs:
    """The samples of one policy."""

    name: str
    samples: tuple[ProgramSample, ...]

    @classmethod
    def of_run(
        cls,
        run: Run,
        name: str | None = None,
        *,
        verdicts: SampleVerdicts | None = None,
        extraction: str | None = None,
        texts: Mapping[SampleKey, str] | None = None,
    ) -> Programs:
        """The samples of a run; its name is its policy, or else its folder's.

        `verdicts` default to those of the run, where it was graded; `extraction` chooses among
        several gradings. `texts` are programs that replace those of the run, such as completions
        with their prompts; a sample that is not among them has no program.
        """
        table = run.table(["task_id", "sample", "prompt", "text", "program", "policy"])
        looked_for = texts is not None or programs_looked_for(run)
        if verdicts is None and (run.folder / VERDICTS_FILE).is_file():
            stored = stored_verdicts(run, extraction)
            verdicts = {key: verdict == PASSED for key, verdict in stored.items()}
        samples = []
        policies = set()
        for row in table.to_pylist():
            key = row["task_id"], row["sample"]
            program = row["program"] if texts is None else texts.get(key)
            text = program or "" if looked_for else row["text"]
            correct = None if verdicts is None else verdicts.get(key)
            samples.append(ProgramSample(*key, text, looked_for, correct, row["prompt"]))
            policies.add(row["policy"])
        policy = policies.pop() if len(policies) == 1 else None
        return cls(name or policy or run.folder.name, tuple(samples))

    @classmethod
    def of_texts(
        cls,
        name: str,
        texts: Mapping[str, Sequence[str]],
        *,
        verdicts: SampleVerdicts | None = None,
    ) -> Programs:
        """Texts by task, without a run."""
        known = verdicts or {}
        return cls(
            name,
            tuple(
                ProgramSample(task, number, text, correct=known.get((task, number)))
                for task, rows in texts.items()
                for number, text in enumerate(rows)
            ),
        )

    @property
    def graded(self) -> bool:
        """Whether any sample has a verdict."""
        return any(sample.correct is not None for sample in self.samples)


def stored_verdicts(run: Run, extraction: str | None = None) -> dict[SampleKey, str]:
    """The verdicts of the run's only grading, or of the one of this extraction.

    Where several have the same extraction, give the task or the grading's name instead.
    """
    table = run.verdicts()
    columns = [name for name in ("grading", "task", "extraction") if name in table.schema.names]
    rows = table.select(["task_id", "sample", "verdict", *columns]).to_pylist()
    chosen = [
        row for row in rows if extraction is None or extraction in [row[name] for name in columns]
    ]
    if len(_gradings(chosen, columns)) != 1:
        which = "" if extraction is None else f" called {extraction!r}"
        raise ValueError(
            f"{run.folder} has {len(_gradings(chosen, columns))} gradings{which}, of "
            f"{'; '.join(_gradings(rows, columns)) or 'none'} ({', '.join(columns)}): choose one "
            "by a word of its own (extraction), or pass verdicts={(task_id, sample): True or False}"
        )
    return {(row["task_id"], row["sample"]): row["verdict"] for row in chosen}


def _gradings(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    return sorted({" ".join(str(row[name]) for name in columns) for row in rows})


@dataclass(frozen=True)
class TreeLimits:
    """A larger program is not compared: an exact distance would take seconds or more."""

    nodes: int = 4_000
    cells: int = 20_000
    """Along the better of its two decompositions (tree_edit.py); a pair costs the product."""
    cells_worse: int = 100_000
    """Along the worse one, which applies where the other tree needs it."""


@dataclass(frozen=True)
class ProgramOptions:
    """How texts become trees."""

    metrics: tuple[str, ...] = tuple(METRICS)
    trees: TreeOptions = field(default_factory=TreeOptions)
    fallbacks: tuple[str, ...] = tuple(FALLBACKS)
    """For generated texts; an extracted program must parse whole."""
    parse_limits: ParseLimits = field(default_factory=ParseLimits)
    tree_limits: TreeLimits = field(default_factory=TreeLimits)

    def __post_init__(self) -> None:
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown or not self.metrics:
            what = f"there is no metric {unknown[0]!r}" if unknown else "no metric was given"
            raise ValueError(f"{what}: choose some of {', '.join(METRICS)}")


@dataclass(frozen=True)
class Prepared:
    """A sample's trees, by metric; where there are none, the status says why."""

    sample: ProgramSample
    status: Status
    trees: Mapping[str, Tree] = field(default_factory=dict)
    anonymous: Tree | None = None
    """The tree of ASTD, whatever the metrics: programs that differ in names alone share it."""


class TextTrees(NamedTuple):
    """The trees of one text."""

    status: Status
    trees: dict[str, Tree]
    anonymous: Tree | None


class Preparation:
    """Texts to trees, each distinct text once."""

    def __init__(self, options: ProgramOptions) -> None:
        self.options = options
        self._known: dict[tuple[str, str | None], TextTrees] = {}

    def by_task(self, programs: Programs) -> dict[str, list[Prepared]]:
        """The samples of each task, prepared, in their order."""
        tasks = defaultdict(list)
        for sample in programs.samples:
            tasks[sample.task_id].append(self(sample))
        return dict(tasks)

    def __call__(self, sample: ProgramSample) -> Prepared:
        # An extracted program is parsed without its prompt, so equal ones of all tasks share a key.
        key = sample.text, None if sample.extracted else sample.prompt
        if key not in self._known:
            limits, fallbacks = self.options.parse_limits, self.options.fallbacks
            if sample.extracted:
                parsed = parse_program(sample.text, ("whole",), limits)
            else:
                parsed = parse_answer(sample.prompt, sample.text, fallbacks, limits)
            self._known[key] = self.trees(parsed)
        return Prepared(sample, *self._known[key])

    def trees(self, parsed: Parsed) -> TextTrees:
        """The trees of a parsed text, or the status that says why there are none."""
        if not parsed.valid or parsed.tree is None:
            return TextTrees(parsed.status, {}, None)
        options = self.options.trees
        full, coarse = ast_and_coarse(parsed.tree, options)
        made = {"ASTD": full, "Coarse": coarse}
        if "TSED" in self.options.metrics:
            made["TSED"] = grammar_tree(parsed.source, options)
        trees = {name: made[name] for name in self.options.metrics}
        if any(self._too_large(tree) for tree in trees.values()):
            return TextTrees(Status.TOO_LARGE, {}, None)
        return TextTrees(parsed.status, trees, full)

    def _too_large(self, tree: Tree) -> bool:
        limits = self.options.tree_limits
        if tree.size > limits.nodes:
            return True
        # An upper bound for every shape, which spares small programs the kernel.
        if tree.size * (tree.size + 1) // 2 <= limits.cells:
            return False
        better, worse = sorted(decomposition_cells(tree))
        return better > limits.cells or worse > limits.cells_worse


def count_statuses(prepared: Iterable[Prepared]) -> dict[str, int]:
    """How many samples of each status."""
    return dict(sorted(Counter(str(item.status) for item in prepared).items()))


def as_programs(value: Any) -> list[Programs]:
    """Runs or Programs: one, a sequence, or a mapping of names to them."""
    if isinstance(value, Run | Programs):
        value = [value]
    if isinstance(value, Mapping):
        found = [_named(name, item) for name, item in value.items()]
    else:
        found = [_named(None, item) for item in value]
    names = [programs.name for programs in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"two of the runs are called {repeated[0]!r}: name them, as in {{'first': run, ...}}"
        )
    return found


def _named(name: str | None, value: Any) -> Programs:
    if isinstance(value, Run):
        return Programs.of_run(value, name)
    if isinstance(value, Programs):
        return value if name is None else Programs(name, value.samples)
    raise ValueError(
        f"{type(value).__name__} is no run: give anyorder.Run.open(folder) or Programs"
    )
