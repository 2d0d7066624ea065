"""The two dials of the corpus `stories`: how lengths and words of a rendering are drawn.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log2

from anyorder.data.corpora.stories.program import (
    DOUBLING,
    HALVING,
    LOCALS,
    LOOPS,
    MAX_LINE_TOKENS,
    MAX_QUANTITIES,
    NAME_LENGTHS,
    PARAMETERS,
    STATED,
    SUFFIXES,
    TWO,
    Form,
    Line,
    StoryLayout,
    StoryScope,
    StoryStatement,
    Words,
    write,
)
from anyorder.data.keyed import Draws

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
    lines: list[Line] = write(statement, form, scope)[0]
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
