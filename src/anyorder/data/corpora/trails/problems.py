"""Problems of the corpus `trails`: shuffled facts of several chains, and a question about one.

    Strict. The figs are the plums doubled. The bags are the jars and three. ... How many figs are
    there?

A chain goes from its start over `hops` facts to its goal. The question names one place of one
chain: its start, a middle or its goal (the anchor). The program follows that chain, a statement a
fact. Beside a statement that is already there, the next one is a single look-up in the prompt;
without one it takes a look-up for each fact between it and the anchor. So the easy order is left to
right from the start, right to left from the goal, and outwards from the middle.

problem(config, index) = render(core(config, index), config)

The core (chains, operations, facts, anchor, condition) is a function of (seed, split, index), the
layout and the words are functions of the same and of `draw`, from separate streams.

The condition of a problem is the first word of its prompt: Strict (layout 0), Free (layout is not
in the prompt) or Stated (it is). With `told` the prompt lists the chain in its order, so that no
look-up takes more than one hop and the order of writing should stop to matter.

A program is run with each start bound to a value, for several values. The corpus leaves out
problems that can be solved by luck: no other chain, and no program with one step left out or one
operation replaced, gives all the answers.

Not here: how programs are written (grammar.py), and batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from itertools import product
from typing import Any

from anyorder.data.corpora.trails.grammar import (
    ARGUMENTS,
    COMMENTS,
    HELPERS,
    LOOPS,
    NAMES,
    OPERATIONS,
    SHAPES,
    STATEMENTS,
    Shape,
    Step,
    TrailLayout,
    TrailWords,
    program_pieces,
    write,
)
from anyorder.data.keyed import Draws, key
from anyorder.vocab import Vocab

SPLITS = ("train", "heldout")
ANCHORS = ("start", "middle", "goal")
ENTRY_POINT = "solve"

HELD_OUT_IN = 5
"""One ordered triple of operations in five is held out."""
STARTS = (2, 11, 12, 15, 21, 23, 39, 56)
"""The values of a start: some odd, some small and some large, so that every operation shows in the
answers of many chains (`_tells_apart`)."""
LEAST_ANSWERS = 4
"""A problem has at least this many different answers over the eight values."""
PATIENCE = 10_000

FORM_WEIGHTS = (0.40, 0.35, 0.25)
"""How often the forms 0 to 2 are drawn where the layout is free."""
COMMENT_SHARE = 0.25
"""The share of steps with a comment at layout 1."""
SHAPE_WEIGHTS = (0.40, 0.25, 0.20, 0.15)
"""How often each shape is drawn at shape 1."""

MIXTURE = (("strict", 0.4), ("free", 0.4), ("stated", 0.2))
MIXED_TOLD = 0.25
"""With `mixture`: the share of each condition, and of the problems that list their chain."""

WORDS = {"strict": "Strict. ", "free": "Free. ", "stated": "Stated. "}
QUESTIONS = {
    "start": ("What do the ", " become in the end?"),
    "middle": ("What comes of it all, through the ", "?"),
    "goal": ("How many ", " are there?"),
}
FORMS = ("First form. ", "Second form. ", "Third form. ", "Long form. ")
NOTED = ("First form, noted. ", "Second form, noted. ", "Third form, noted. ", "Long form, noted. ")
STATED_SHAPES: dict[Shape, str] = {
    "steps": "In steps. ",
    "folded": "Folded. ",
    "helper": "With a helper. ",
    "top_down": "From the top. ",
}
PLACES = tuple(f"At {number}. " for number in range(1, 7))


@dataclass(frozen=True)
class TrailsDials:
    """The corpus `trails`: how hard its problems are, and how free its programs."""

    hops: tuple[int, int] = (4, 4)
    """The fewest and the most facts in a chain, 3 to 6."""
    arms: int = 2
    """The number of chains, 1 to 3."""
    anchor: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """The weights of start, middle and goal as the place that the question names."""
    layout: float = 0.0
    """0 to 1: how often a step is written in another form of another length, or with a comment."""
    lines: float = 0.0
    """0 to 1: how often a step takes several lines, so that the number of lines is free."""
    shape: float = 0.0
    """0 to 1: how often the program is put together in another way than step by step."""
    wording: float = 0.0
    """0 to 1: how often a word that the prompt does not name is another one of the same length."""
    state_layout: bool = False
    """Whether the prompt states the layout, so that nothing moves freely."""
    told: bool = False
    """Whether the prompt lists the chain in its order."""
    mixture: bool = False
    """Whether each problem draws its condition: layout 0, free or stated, and told or not."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hops", tuple(self.hops))  # JSON has lists
        object.__setattr__(self, "anchor", tuple(self.anchor))
        whole = len(self.hops) == 2 and all(type(hop) is int for hop in self.hops)
        in_order = whole and 3 <= self.hops[0] <= self.hops[1] <= len(PLACES)
        _check(in_order, "hops", self.hops, "two integers from 3 to 6, the smaller one first")
        _check(type(self.arms) is int and 1 <= self.arms <= 3, "arms", self.arms, "1, 2 or 3")
        weights = len(self.anchor) == 3 and all(_is_share(each, None) for each in self.anchor)
        remedy = "three weights, not all of them 0"
        _check(weights and sum(self.anchor) > 0, "anchor", self.anchor, remedy)
        for name in ("layout", "lines", "shape", "wording"):
            value = getattr(self, name)
            _check(_is_share(value, 1), name, value, "a number from 0 to 1")
        for name in ("state_layout", "told", "mixture"):
            value = getattr(self, name)
            _check(type(value) is bool, name, value, "true or false")
        if self.mixture and (self.state_layout or self.told):
            raise ValueError("trails: a mixture draws state_layout and told: leave them out")
        if (self.mixture or self.state_layout) and not self.free:
            raise ValueError("trails: mixture and state_layout need a free layout: give layout 1")

    @property
    def free(self) -> bool:
        """Whether any dial moves tokens."""
        return self.layout > 0 or self.lines > 0 or self.shape > 0


@dataclass(frozen=True)
class TrailsConfig(TrailsDials):
    """Which corpus: the same fields give the same problems, always."""

    seed: int = 0
    """Another seed is another corpus of the same kind."""
    split: str = "train"
    """"train", or "heldout": chains with a triple of operations that "train" never has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(type(self.seed) is int, "seed", self.seed, "an integer")
        _check(self.split in SPLITS, "split", self.split, f"one of {', '.join(SPLITS)}")

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> TrailsConfig:
        """From a mapping such as a saved configuration; an unknown field is an error."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(
                f"trails: unknown field {', '.join(map(repr, unknown))}: it has {', '.join(known)}"
            )
        return cls(**values)


def _is_share(value: Any, most: float | None) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and value >= 0 and (most is None or value <= most)


def _check(right: bool, name: str, value: Any, remedy: str) -> None:
    if not right:
        raise ValueError(f"trails: {name} is {value!r}: give {remedy}")


@lru_cache(maxsize=1 << 16)
def held_out(operations: tuple[str, ...]) -> bool:
    """Whether one of the ordered triples in a chain of operations is held out."""
    triples = zip(operations, operations[1:], operations[2:], strict=False)
    return any(key("trails", "held out", *triple) % HELD_OUT_IN == 0 for triple in triples)


def result(operations: Sequence[str], start: int) -> int:
    """The goal of a chain with these operations."""
    for name in operations:
        start = OPERATIONS[name].rule(start)
    return start


@lru_cache(maxsize=1 << 16)
def _answers(operations: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(result(operations, start) for start in STARTS)


@lru_cache(maxsize=1 << 16)
def _tells_apart(operations: tuple[str, ...]) -> bool:
    """Whether the answers refuse every program with a step left out or another operation in it.

    No number on the way may be negative: not all forms of an operation round them alike.
    """
    answers = _answers(operations)
    parts = [operations[:count] for count in range(1, len(operations))]
    if len(set(answers)) < LEAST_ANSWERS or min(map(min, map(_answers, [*parts, operations]))) < 0:
        return False
    for place in range(len(operations)):
        before, after = operations[:place], operations[place + 1 :]
        others = [(name,) for name in OPERATIONS if name != operations[place]]
        if any(_answers(before + other + after) == answers for other in [(), *others]):
            return False
    return True


@dataclass(frozen=True)
class TrailsCase:
    """A value for each start, and what the program must return."""

    starts: tuple[int, ...]
    expected: int


@dataclass(frozen=True)
class UnwrittenTrail:
    """A problem before it is written down."""

    seed: int
    split: str
    index: int
    chains: tuple[tuple[str, ...], ...]
    """The names of each chain from its start on; the first chain is the one that is asked for."""
    operations: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[int, int], ...]
    """(chain, step) of each sentence, in the order of the prompt."""
    anchor: str
    condition: str
    """strict, free or stated."""
    told: bool

    @property
    def hops(self) -> int:
        return len(self.operations[0])

    @property
    def arms(self) -> int:
        return len(self.chains)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the chain that is asked for."""
        names = self.chains[0]
        found = (OPERATIONS[name] for name in self.operations[0])
        return tuple(zip(names, names[1:], found, strict=False))

    @property
    def place(self) -> int:
        """Where in the chain the anchor is: 0 is its start, `hops` its goal."""
        return {"start": 0, "middle": (self.hops + 1) // 2, "goal": self.hops}[self.anchor]

    @property
    def starts(self) -> tuple[str, ...]:
        """The name that each chain begins with."""
        return tuple(chain[0] for chain in self.chains)

    def draws(self, stream: str, draw: int = 0) -> Draws:
        """The stream of draws for one use."""
        return Draws("trails", stream, self.seed, self.split, self.index, draw)


@dataclass(frozen=True)
class Trail:
    """A problem written down."""

    prompt: str
    """Facts and question, ending in a newline."""
    program: str
    """The last line has no newline."""
    core: UnwrittenTrail
    layout: TrailLayout
    words: TrailWords
    entry_point: str = ENTRY_POINT

    @property
    def index(self) -> int:
        """Where in the corpus it is."""
        return self.core.index

    def cases(self) -> tuple[TrailsCase, ...]:
        """Values for the starts of all chains, and the answers."""
        return cases(self.core)


def cases(core: UnwrittenTrail) -> tuple[TrailsCase, ...]:
    """Each value once at every start; chains get them in different orders."""
    starts = zip(*(_shifted(STARTS, chain) for chain in range(len(core.chains))), strict=True)
    answers = _answers(core.operations[0])
    return tuple(TrailsCase(given, answer) for given, answer in zip(starts, answers, strict=True))


def _solved_by_luck(operations: Sequence[tuple[str, ...]]) -> bool:
    """Whether the program of another chain gives all the answers."""
    wanted = _answers(operations[0])
    return any(
        _shifted(_answers(other), chain) == wanted
        for chain, other in enumerate(operations)
        if chain
    )


def _shifted(values: tuple[int, ...], chain: int) -> tuple[int, ...]:
    """Values of one chain in the order of the cases."""
    turn = 3 * chain % len(values)
    return values[turn:] + values[:turn]


def _weighted(draws: Draws, weights: Sequence[float]) -> int:
    """A number below len(weights), by weight."""
    left = draws.uniform() * sum(weights)
    for number, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return number
    return max(number for number, weight in enumerate(weights) if weight)


def _condition(config: TrailsConfig, draws: Draws) -> tuple[str, bool]:
    drawn = MIXTURE[_weighted(draws, [share for _, share in MIXTURE])][0]
    told = draws.uniform() < MIXED_TOLD
    if config.mixture:
        return drawn, told
    if not config.free:
        return "strict", config.told
    return ("stated" if config.state_layout else "free"), config.told


def core(config: TrailsConfig, index: int) -> UnwrittenTrail:
    """The problem at `index`: layout, lines, shape and wording do not change it."""
    if type(index) is not int or index < 0:
        raise ValueError(f"trails: index is {index!r}: give an integer from 0 on")
    draws = Draws("trails", "core", config.seed, config.split, index)
    anchor = ANCHORS[_weighted(draws, config.anchor)]
    condition, told = _condition(config, draws)
    hops = draws.between(*config.hops)
    names = draws.sample(NAMES, config.arms * (hops + 1))
    chains = tuple(
        tuple(names[arm * (hops + 1) : (arm + 1) * (hops + 1)]) for arm in range(config.arms)
    )
    facts = tuple(
        draws.sample(
            [(arm, step) for arm in range(config.arms) for step in range(hops)], config.arms * hops
        )
    )
    for _ in range(PATIENCE):
        operations = tuple(_draw_operations(config, hops, arm, draws) for arm in range(config.arms))
        if not _solved_by_luck(operations):
            return UnwrittenTrail(
                config.seed, config.split, index, chains, operations, facts, anchor, condition, told
            )
    raise AssertionError("every draw can be solved by luck: the operations are too much alike")


@lru_cache(maxsize=1 << 16)
def _chain_of(number: int, hops: int) -> tuple[str, ...]:
    """The digits of a number as operations: a draw for the whole chain, since most are refused."""
    known = tuple(OPERATIONS)
    return tuple(known[number // len(known) ** place % len(known)] for place in range(hops))


def _draw_operations(config: TrailsConfig, hops: int, arm: int, draws: Draws) -> tuple[str, ...]:
    """Operations of one chain. No chain of `train` has a held-out triple; the one that a problem of
    `heldout` asks for does, the others may."""
    unseen = config.split == "heldout"
    for _ in range(PATIENCE):
        operations = _chain_of(draws.below(len(OPERATIONS) ** hops), hops)
        fits = held_out(operations) == unseen or (unseen and arm > 0)
        if fits and _tells_apart(operations):
            return operations
    raise AssertionError(f"no chain of {hops} operations fits")


def choose_layout(core: UnwrittenTrail, config: TrailsConfig, draws: Draws) -> TrailLayout:
    """Forms, comments and shape. A step that is free at one setting is free at every higher one."""
    dials = config if core.condition != "strict" else TrailsConfig()
    forms, comments, several = [], [], []
    for _ in range(core.hops):
        free, form = draws.uniform(), _weighted(draws, FORM_WEIGHTS)
        comment, long = draws.uniform(), draws.uniform()
        forms.append(form if free < dials.layout else 0)
        comments.append(comment < COMMENT_SHARE * dials.layout)
        several.append(long < dials.lines)
    other, drawn = draws.uniform(), _weighted(draws, SHAPE_WEIGHTS)
    shape = SHAPES[drawn if other < dials.shape else 0]
    at = draws.below(core.hops - (shape == "folded"))
    for step in range(core.hops):
        inside = shape == "top_down" or (shape in PLACED and step == at)
        if shape == "folded" and step == at + 1:
            forms[step] = 0  # the one form of every operation that reads its quantity only once
        elif several[step] and not inside:
            forms[step] = STATEMENTS
    return TrailLayout(shape, tuple(forms), tuple(comments), at if shape in PLACED else 0)


PLACED = ("folded", "helper")
"""The shapes that treat one step in a way of its own."""


def choose_words(config: TrailsConfig, draws: Draws) -> TrailWords:
    """The words that the prompt does not name."""
    chosen = []
    for words in (COMMENTS, LOOPS, HELPERS, ARGUMENTS):
        other, word = draws.uniform(), draws.pick(words)
        chosen.append(word if other < config.wording else words[0])
    return TrailWords(*chosen)


def _prompt(core: UnwrittenTrail, layout: TrailLayout) -> list[str]:
    """The pieces of the prompt."""
    pieces = [WORDS[core.condition]]
    for chain, step in core.facts:
        names, operation = core.chains[chain], OPERATIONS[core.operations[chain][step]]
        pieces += [f"The {names[step + 1]}", f" are the {names[step]}", operation.phrase]
    if core.condition == "stated":
        pieces += _stated(layout)
    if core.told:
        pieces += [f"Then {name}. " for name in core.chains[0]]
    before, after = QUESTIONS[core.anchor]
    return [*pieces, before, core.chains[0][core.place], after, "\n"]


def _stated(layout: TrailLayout) -> list[str]:
    pieces = []
    if layout.shape != SHAPES[0]:
        pieces.append(STATED_SHAPES[layout.shape])
        if layout.shape in PLACED:
            pieces.append(PLACES[layout.at])
    return pieces + [
        (NOTED if comment else FORMS)[form]
        for form, comment in zip(layout.forms, layout.comments, strict=True)
    ]


def render(core: UnwrittenTrail, config: TrailsConfig, draw: int = 0) -> Trail:
    """Write `core` down with the dials of `config`; another `draw` is another rendering."""
    layout = choose_layout(core, config, core.draws("layout", draw))
    words = choose_words(config, core.draws("wording", draw))
    program = "".join(piece for line in write(core.steps, layout, words) for piece in line)
    return Trail("".join(_prompt(core, layout)), program, core, layout, words)


def problem(config: TrailsConfig, index: int) -> Trail:
    """The problem at `index` of the corpus that `config` describes."""
    return render(core(config, index), config)


class TrailsSource:
    """The corpus as a source of examples; it has no end."""

    size = None

    def __init__(self, config: TrailsConfig) -> None:
        self.config = config

    def __getitem__(self, index: int) -> tuple[str, str]:
        found = problem(self.config, index)
        return found.prompt, found.program


def trails_digest(config: TrailsConfig, samples: int = 64) -> str:
    """A digest of the fields and of the first problems, so that a changed generator shows."""
    content: list[Any] = [asdict(config)]
    for index in range(samples):
        found = problem(config, index)
        answers = [(case.starts, case.expected) for case in found.cases()]
        content.append([found.prompt, found.program, answers])
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _prompt_pieces() -> list[str]:
    named = [form.format(name) for form in ("The {}", " are the {}", "Then {}. ") for name in NAMES]
    asked = [piece for question in QUESTIONS.values() for piece in question]
    stated = [*FORMS, *NOTED, *STATED_SHAPES.values(), *PLACES]
    phrases = [operation.phrase for operation in OPERATIONS.values()]
    return [*NAMES, *named, *phrases, *asked, *WORDS.values(), *stated]


@cache
def trails_vocab() -> Vocab:
    """The vocabulary of all pieces, cut by the longest match."""
    return Vocab.words(list(dict.fromkeys([*_prompt_pieces(), *program_pieces()])))


@dataclass(frozen=True)
class TrailsSizes:
    """The largest sizes of any problem of a corpus, in tokens and lines."""

    prompt: int
    program: int
    lines: int
    line: int
    """The tokens of a line, its newline included."""


@lru_cache(maxsize=64)
def sizes(config: TrailsConfig) -> TrailsSizes:
    """By writing every worst case: all steps alike but for one, at each of its places."""
    hops = config.hops[1]
    stated = hops + 2 * (config.shape > 0) if config.state_layout or config.mixture else 0
    told = hops + 1 if config.told or config.mixture else 0
    prompt = 1 + 3 * hops * config.arms + stated + told + 4
    forms = [0, *((1, 2) if config.layout else ()), *((STATEMENTS,) if config.lines else ())]
    shapes = SHAPES if config.shape else SHAPES[:1]
    comments = (config.layout > 0,) * hops
    programs = []
    for shape, (one, others) in product(shapes, product(OPERATIONS.values(), repeat=2)):
        for form, other in product(forms, repeat=2):
            if shape == "top_down" and STATEMENTS in (form, other):
                continue
            if shape in PLACED and form == STATEMENTS:
                continue
            chosen = [form, *[other] * (hops - 1)]
            if shape == "folded":
                chosen[1] = 0
            steps = [("U", "V", one), *[("U", "V", others)] * (hops - 1)]
            layout = TrailLayout(shape, tuple(chosen), comments, 0)
            programs.append([len(line) for line in write(steps, layout, TrailWords())])
    return TrailsSizes(
        prompt,
        max(map(sum, programs)),
        max(map(len, programs)),
        max(map(max, programs)),
    )
