"""The dial `wording`: how uncertain it is *what* the tokens of a program are.

The control for `layout`: with probability `wording` each free word is drawn evenly from a list of
alternatives with as many tokens, else it is the plain one. Free are the name that an assignment
gives to the running number, the helper's name and its parameter, the loop variable, and comparisons
where the equal case makes no difference. Each replaces one token in place, so the number of tokens
stays and no other token moves. (Swapped operands would keep the length too, but move two names.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from anyorder.data.corpora.stories.program import (
    DOUBLING,
    HALVING,
    LOCALS,
    LOOPS,
    PARAMETERS,
    StoryStatement,
    Words,
)
from anyorder.data.keyed import Draws


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


def choose(statements: Sequence[StoryStatement], dial: float, draws: Draws) -> Words:
    """The words of one rendering."""
    helper = _word(helper_names(statements), dial, draws)
    own = tuple(_word(alternatives(statement), dial, draws) for statement in statements)
    return Words(own, helper)


def bits(statements: Sequence[StoryStatement], dial: float) -> float:
    """The entropy of the words given the prompt, at layout 0."""
    total = 0.0
    for options in (helper_names(statements), *map(alternatives, statements)):
        if len(options) < 2 or dial == 0:
            continue
        other = dial / len(options)
        plain = 1 - dial + other
        total -= plain * log2(plain) + (len(options) - 1) * other * log2(other)
    return total
