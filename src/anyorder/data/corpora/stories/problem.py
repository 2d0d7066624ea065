"""Problems of the corpus `stories`: a word problem and the short Python function that solves it.

problem(config, index) = render(core(config, index), config)

The core (who, which structure, which names and values) is a function of (seed, split, index). The
layout and the words are functions of the same and of `draw`, from separate streams. So one problem
can be rendered many times, at any setting of the dials, and stays the same problem. The prompt
determines the structure and the names, and thereby, at layout 0 and wording 0, the program to the
last token.

Answers come from the rules of the operations, never from running a program, so that they can judge
programs. Values are drawn until the story is sensible: shares come out even, and nothing is taken
that is not there.

`layout`: how uncertain it is *where* the tokens of a program go. Each line but the parameter list
varies with probability FREEDOM x layout, as does the name of the running number: at layout 1 a
quarter of the lines. What varies is length alone: a fixed comment of one or two tokens, a fixed
line of comment, an augmented assignment, an intermediate variable; a name of one to four tokens.
The prompt says nothing of it, unless the layout is stated there. Draws are compared with the dial,
so a line that varies at some setting varies at every higher one (unless the program is full by
then: one varying line in two hundred at layout 1).

`wording`: how uncertain it is *what* the tokens are; the control for `layout`. With probability
`wording` each free word is drawn evenly from a list of alternatives with as many tokens, else it is
the plain one. Free are the name that an assignment gives to the running number, the helper's name
and its parameter, the loop variable, and comparisons where the equal case makes no difference. Each
replaces one token in place, so no other token moves. (Swapped operands would move two names.)

The two dials share no draw.

Not here: tokens and batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from itertools import islice
from math import log2
from typing import Any

from anyorder.data.corpora.stories.program import (
    DOUBLING,
    HALVING,
    LOCALS,
    LOOPS,
    MAX_LINE_TOKENS,
    MAX_QUANTITIES,
    MEN,
    NAME_LENGTHS,
    NOUNS,
    PARAMETERS,
    STATED,
    SUFFIXES,
    TWO,
    WOMEN,
    Form,
    ProgramLine,
    StoryLayout,
    StoryScope,
    StoryStatement,
    Structure,
    Words,
    program,
    structures,
    write,
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


FREEDOM = 0.25
"""The share of lines that vary at layout 1. Small freedoms suffice: uncertainty adds up along the
program, and models stay accurate."""

MAX_PROGRAM_TOKENS = 63
"""So that the program and one eos fill a canvas of 64."""
MAX_PROMPT_TOKENS = 48
"""With the layout stated; the tests hold the corpus to it."""
MAX_LINES = 12


@cache
def _line_lengths(statement: StoryStatement, form: Form, suffix: int) -> tuple[int, ...]:
    """Tokens in each line of a statement; words do not matter, only their number."""
    scope = StoryScope(("",) * MAX_QUANTITIES, SUFFIXES[suffix], "", "", "")
    lines: list[ProgramLine] = write(statement, form, scope)[0]
    return tuple(map(len, lines))


def _fits(statement: StoryStatement, form: Form, suffix: int) -> bool:
    plain = _line_lengths(statement, Form.PLAIN, suffix)
    if form is Form.SHORT and _line_lengths(statement, Form.SHORT, suffix) == plain:
        return False
    if form is Form.SPARE and statement.operand == (TWO,):
        return False
    return max(_line_lengths(statement, form, suffix)) <= MAX_LINE_TOKENS


@cache
def menu(statement: StoryStatement, suffix: int) -> tuple[Form, ...]:
    """The forms other than plain that a statement can take without a line growing too long."""
    if statement.kind == "define":
        return ()
    forms = [Form.TAG, Form.NOTE, Form.REMARK]
    if statement.kind == "update":
        forms += [Form.SHORT, Form.SPARE]
    if statement.kind == "return":
        forms += [Form.SPARE]
    return tuple(form for form in forms if _fits(statement, form, suffix))


def choose_layout(statements: Sequence[StoryStatement], dial: float, draws: Draws) -> StoryLayout:
    """The layout of one rendering."""
    # Both draws are always made, so that the dial changes no later draw.
    varies, which = draws.uniform(), draws.uniform()
    chance = FREEDOM * dial
    suffix = 1 + int(which * (len(SUFFIXES) - 1)) if varies < chance else 0
    plain = [_line_lengths(statement, Form.PLAIN, suffix) for statement in statements]
    tokens, count = sum(map(sum, plain)) - 1, sum(map(len, plain))
    forms = []
    for statement, before in zip(statements, plain, strict=True):
        varies, which = draws.uniform(), draws.uniform()
        options = menu(statement, suffix)
        form = Form.PLAIN
        if options and varies < chance:
            wished = options[int(which * len(options))]
            after = _line_lengths(statement, wished, suffix)
            more_tokens, more_lines = sum(after) - sum(before), len(after) - len(before)
            if tokens + more_tokens <= MAX_PROGRAM_TOKENS and count + more_lines <= MAX_LINES:
                form, tokens, count = wished, tokens + more_tokens, count + more_lines
        forms.append(form)
    return StoryLayout(suffix, tuple(forms))


def stated_layout(statements: Sequence[StoryStatement], layout: StoryLayout) -> str:
    """A line for the prompt that states the whole layout."""
    words = [
        f" {form.value}"
        for statement, form in zip(statements, layout.forms, strict=True)
        if statement.kind != "define"
    ]
    return f"{STATED}{NAME_LENGTHS[layout.suffix]}{''.join(words)}\n"


def layout_bits(statements: Sequence[StoryStatement], dial: float) -> float:
    """The entropy of the layout given the prompt, ignoring the rare programs that are full."""
    chance = FREEDOM * dial
    if chance == 0:
        return 0.0
    whether = -chance * log2(chance) - (1 - chance) * log2(1 - chance)
    others = len(SUFFIXES) - 1
    total = whether + chance * log2(others)
    for suffix in range(len(SUFFIXES)):
        weight = chance / others if suffix else 1 - chance
        for statement in statements:
            if options := menu(statement, suffix):
                total += weight * (whether + chance * log2(len(options)))
    return total


def alternatives(statement: StoryStatement) -> tuple[str, ...]:
    """The words that a statement may use, the plain one first; none where it has no word."""
    match statement.kind:
        case "set" | "update":
            return LOCALS if statement.depth == 1 else ()
        case "if" | "while":
            return statement.alike or (statement.operator,)
        case "for":
            return LOOPS
        case "helper":
            return PARAMETERS
    return ()


def helper_names(statements: Sequence[StoryStatement]) -> tuple[str, ...]:
    """The names that the helper may have; none where there is no helper."""
    first = statements[0]
    if first.kind != "helper":
        return ()
    return DOUBLING if first.operator == " * " else HALVING


def _word(options: tuple[str, ...], dial: float, draws: Draws) -> str:
    free, which = draws.uniform(), draws.uniform()  # always both: the dial shifts no later draw
    if not options:
        return ""
    return options[int(which * len(options))] if free < dial else options[0]


def choose_words(statements: Sequence[StoryStatement], dial: float, draws: Draws) -> Words:
    """The words of one rendering."""
    helper = _word(helper_names(statements), dial, draws)
    own = tuple(_word(alternatives(statement), dial, draws) for statement in statements)
    return Words(own, helper)


def wording_bits(statements: Sequence[StoryStatement], dial: float) -> float:
    """The entropy of the words given the prompt, at layout 0."""
    total = 0.0
    for options in (helper_names(statements), *map(alternatives, statements)):
        if len(options) < 2 or dial == 0:
            continue
        other = dial / len(options)
        plain = 1 - dial + other
        total -= plain * log2(plain) + (len(options) - 1) * other * log2(other)
    return total


def render(core: UnwrittenProblem, config: StoriesConfig, draw: int = 0) -> Story:
    """Write `core` down with the dials of `config`; another `draw` is another rendering.

    Reads only the dials and `state_layout` of `config`.
    """
    statements = core.structure.statements
    layout = choose_layout(statements, config.layout, core.draws("layout", draw))
    words = choose_words(statements, config.wording, core.draws("wording", draw))
    lines = program(statements, core.names, layout, words)
    prompt = tell(core.structure, core.names, core.person, core.phrasing)
    if config.state_layout:
        prompt += stated_layout(statements, layout)
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
    free = 0.0 if config.state_layout else layout_bits(statements, config.layout)
    return free, wording_bits(statements, config.wording)
