"""Problems of the corpus `stories`: a word problem and the short Python function that solves it.

problem(config, index) = render(core(config, index), config)

The core (who, which structure, which names and values) is a function of (seed, split, index). The
layout and the words are functions of the same and of `draw`, from separate streams. So one problem
can be rendered many times, at any setting of the dials, and stays the same problem. The prompt
determines the structure and the names, and thereby, at layout 0 and wording 0, the program to the
last token.

Answers come from the rules of the operations, never from running a program, so that they can judge
programs. Values are drawn until the story is sensible: shares come out even, and nothing is taken
that is not there. Not here: tokens, batches, and how a layout is stated (dials.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import islice
from typing import Any

from anyorder.data.corpora.stories import dials
from anyorder.data.corpora.stories.program import (
    MEN,
    NOUNS,
    WOMEN,
    StoryLayout,
    Structure,
    Words,
    program,
    structures,
)
from anyorder.data.keyed import Draws

POOL = 12
"""Sensible sets of values among which `cases` looks for every path through the branches."""

PATIENCE = 10_000


@dataclass(frozen=True)
class Case:
    """Arguments in the order of the parameters, and what the function must return."""

    arguments: tuple[int, ...]
    expected: int
    path: tuple[bool, ...] = ()
    """For each operation that may leave the number as it was, whether it changed it."""


def _draw(structure: Structure, draws: Draws) -> Case | None:
    """One set of values and its answer; None if the values make no sensible story."""
    number = 0
    values: list[int] = []
    path = []
    for step in structure.steps:
        ranges = [bounds or (1 + number // 2, 1 + 3 * number // 2) for bounds in step.ranges]
        own = [draws.between(low, high) for low, high in ranges]
        after = step.rule(number, own)
        if after is None:
            return None
        if step.branches:
            path.append(after != number)
        number = after
        values += own
    return Case(tuple(values), number, tuple(path))


def _sensible(structure: Structure, draws: Draws) -> Iterator[Case]:
    for _ in range(PATIENCE):
        case = _draw(structure, draws)
        if case is not None:
            yield case
    raise AssertionError(f"no sensible values for {structure.name}: widen its ranges")


def cases(structure: Structure, draws: Draws, count: int) -> tuple[Case, ...]:
    """`count` cases; the first is the plain draw, the next ones take other branches if they can."""
    stream = _sensible(structure, draws)
    if count == 1 or not any(step.branches for step in structure.steps):
        return tuple(islice(stream, count))
    pool = list(islice(stream, max(POOL, count)))
    first_of_path = {case.path: case for case in reversed(pool)}
    pool.sort(key=lambda case: first_of_path[case.path] is not case)  # stable
    return tuple(pool[:count])


QUESTION = "How many does {she} have now?"


def tell(structure: Structure, names: Sequence[str], person: str, phrasing: Sequence[int]) -> str:
    """The story about `person`; `phrasing` says which sentence tells each step."""
    pronoun = "she" if person in WOMEN else "he"
    sentences = []
    used = 0
    for step, choice in zip(structure.steps, phrasing, strict=True):
        own = names[used : used + len(step.roles)]
        used += len(own)
        text = step.sentences[choice]
        sentences.append(text.format(*own, she=pronoun, She=pronoun.capitalize()))
    question = QUESTION.format(she=pronoun)
    return f"{person} {' '.join(sentences)} {question}\n"


ENTRY_POINT = "solve"
SPLITS = ("train", "heldout")

_BEGINNINGS = ("one",) * 4 + ("two",) * 6 + ("double_both", "halve_both")
"""How often each is drawn: programs with a helper are longer, and a sixth of the corpus."""


@dataclass(frozen=True)
class StoriesConfig:
    """Which corpus: the same fields give the same problems, always."""

    seed: int = 0
    """Another seed is another corpus of the same kind (for validation, say)."""
    split: str = "train"
    """"train", or "heldout": compositions of operations that "train" never has."""
    layout: float = 0.0
    """0 to 1: how much free length the programs have that the prompt does not determine."""
    wording: float = 0.0
    """0 to 1: how often a word is drawn from alternatives of the same length."""
    state_layout: bool = False
    """Whether the prompt ends with a line that states the layout, so that nothing moves freely."""

    def __post_init__(self) -> None:
        if type(self.seed) is not int:
            raise ValueError(f"stories: seed is {self.seed!r}: give an integer")
        if self.split not in SPLITS:
            raise ValueError(f"stories: split is {self.split!r}: give one of {', '.join(SPLITS)}")
        for name in ("layout", "wording"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= 1:
                raise ValueError(f"stories: {name} is {value!r}: give a number from 0 to 1")
        if type(self.state_layout) is not bool:
            raise ValueError(f"stories: state_layout is {self.state_layout!r}: give true or false")

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> StoriesConfig:
        """From a mapping such as a saved configuration; an unknown field is an error."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(
                f"stories: unknown field {', '.join(map(repr, unknown))}: it has {', '.join(known)}"
            )
        return cls(**values)


@dataclass(frozen=True)
class UnwrittenProblem:
    """A problem before it is written down."""

    seed: int
    split: str
    index: int
    structure: Structure
    names: tuple[str, ...]
    person: str
    phrasing: tuple[int, ...]

    def draws(self, stream: str, draw: int = 0) -> Draws:
        """The stream of draws for one use."""
        return Draws("stories", stream, self.seed, self.split, self.index, draw)


@dataclass(frozen=True)
class Story:
    """A problem written down."""

    prompt: str
    """The word problem, ending in a newline."""
    program: str
    """The function, and its helper if it has one; the last line has no newline."""
    core: UnwrittenProblem
    layout: StoryLayout
    words: Words
    entry_point: str = ENTRY_POINT

    @property
    def index(self) -> int:
        """Where in the corpus it is."""
        return self.core.index

    @property
    def structure(self) -> str:
        """The name of its structure, such as "two-lose-share"."""
        return self.core.structure.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the quantities, in the order of the parameters."""
        return self.core.names

    @property
    def arguments(self) -> tuple[int, ...]:
        """Values for the quantities."""
        return self._first.arguments

    @property
    def expected(self) -> int:
        """What the function must return for `arguments`."""
        return self._first.expected

    @cached_property
    def _first(self) -> Case:
        return self.cases(1)[0]

    def cases(self, count: int = 4) -> tuple[Case, ...]:
        """Arguments and answers to judge a program by, through different branches if it has any."""
        return cases(self.core.structure, self.core.draws("values"), count)


def core(config: StoriesConfig, index: int) -> UnwrittenProblem:
    """The problem at `index`, whatever the dials."""
    if type(index) is not int or index < 0:
        raise ValueError(f"stories: index is {index!r}: give an integer from 0 on")
    draws = Draws("stories", "core", config.seed, config.split, index)
    structure = draws.pick(structures(config.split)[draws.pick(_BEGINNINGS)])
    person = draws.pick((*WOMEN, *MEN))
    phrasing = tuple(draws.below(len(step.sentences)) for step in structure.steps)
    names: tuple[str, ...] = ()
    for step in structure.steps:
        for role in step.roles:
            names = (*names, draws.pick([noun for noun in NOUNS[role] if noun not in names]))
    return UnwrittenProblem(config.seed, config.split, index, structure, names, person, phrasing)


def render(core: UnwrittenProblem, config: StoriesConfig, draw: int = 0) -> Story:
    """Write `core` down with the dials of `config`; another `draw` is another rendering.

    Reads only the dials and `state_layout` of `config`.
    """
    statements = core.structure.statements
    layout = dials.choose_layout(statements, config.layout, core.draws("layout", draw))
    words = dials.choose_words(statements, config.wording, core.draws("wording", draw))
    lines = program(statements, core.names, layout, words)
    prompt = tell(core.structure, core.names, core.person, core.phrasing)
    if config.state_layout:
        prompt += dials.stated_layout(statements, layout)
    text = "".join(piece for line in lines for piece in line)
    return Story(prompt, text, core, layout, words)


def problem(config: StoriesConfig, index: int) -> Story:
    """The problem at `index` of the corpus that `config` describes."""
    return render(core(config, index), config)


def stories_digest(config: StoriesConfig, samples: int = 64) -> str:
    """A digest of the fields and of the first problems, so that a changed generator shows."""
    content: list[Any] = [asdict(config)]
    for index in range(samples):
        found = problem(config, index)
        content.append([found.prompt, found.program, found.arguments, found.expected])
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def freedom(core: UnwrittenProblem, config: StoriesConfig) -> tuple[float, float]:
    """The bits of layout and of wording that a rendering of `core` has beyond its prompt.

    For setting the control: a `wording` of as many bits as a `layout`. The bits of wording are
    those at layout 0; where the layout is stated it has no free bits left.
    """
    statements = core.structure.statements
    free = 0.0 if config.state_layout else dials.layout_bits(statements, config.layout)
    return free, dials.wording_bits(statements, config.wording)
