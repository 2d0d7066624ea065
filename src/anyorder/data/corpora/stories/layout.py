"""The dial `layout`: how uncertain it is *where* the tokens of a program go.

Each line but the parameter list varies with probability FREEDOM x layout, as does the name of the
running number: at layout 1 a quarter of the lines. What varies is length alone: a fixed comment of
one or two tokens, a fixed line of comment, an augmented assignment, an intermediate variable; a
name of one to four tokens. The prompt says nothing of it, unless the layout is stated there.

Draws are compared with the dial, so a line that varies at some setting varies at every higher one
(unless the program is full by then: one varying line in two hundred at layout 1). No draw is shared
with the choice of words (wording.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log2

from anyorder.data.corpora.stories.program import (
    MAX_LINE_TOKENS,
    MAX_QUANTITIES,
    NAME_LENGTHS,
    STATED,
    SUFFIXES,
    TWO,
    Form,
    Line,
    StoryLayout,
    StoryScope,
    StoryStatement,
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
def _lines(statement: StoryStatement, form: Form, suffix: int) -> tuple[int, ...]:
    """Tokens in each line of a statement; words do not matter, only their number."""
    scope = StoryScope(("",) * MAX_QUANTITIES, SUFFIXES[suffix], "", "", "")
    lines: list[Line] = write(statement, form, scope)[0]
    return tuple(map(len, lines))


def _possible(statement: StoryStatement, form: Form, suffix: int) -> bool:
    plain = _lines(statement, Form.PLAIN, suffix)
    if form is Form.SHORT and _lines(statement, Form.SHORT, suffix) == plain:
        return False
    if form is Form.SPARE and statement.operand == (TWO,):
        return False
    return max(_lines(statement, form, suffix)) <= MAX_LINE_TOKENS


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
    return tuple(form for form in forms if _possible(statement, form, suffix))


def choose(statements: Sequence[StoryStatement], dial: float, draws: Draws) -> StoryLayout:
    """The layout of one rendering."""
    # Both draws are always made, so that the dial changes no later draw.
    varies, which = draws.uniform(), draws.uniform()
    chance = FREEDOM * dial
    suffix = 1 + int(which * (len(SUFFIXES) - 1)) if varies < chance else 0
    plain = [_lines(statement, Form.PLAIN, suffix) for statement in statements]
    tokens, count = sum(map(sum, plain)) - 1, sum(map(len, plain))
    forms = []
    for statement, before in zip(statements, plain, strict=True):
        varies, which = draws.uniform(), draws.uniform()
        options = menu(statement, suffix)
        form = Form.PLAIN
        if options and varies < chance:
            wished = options[int(which * len(options))]
            after = _lines(statement, wished, suffix)
            more_tokens, more_lines = sum(after) - sum(before), len(after) - len(before)
            if tokens + more_tokens <= MAX_PROGRAM_TOKENS and count + more_lines <= MAX_LINES:
                form, tokens, count = wished, tokens + more_tokens, count + more_lines
        forms.append(form)
    return StoryLayout(suffix, tuple(forms))


def state(statements: Sequence[StoryStatement], layout: StoryLayout) -> str:
    """A line for the prompt that states the whole layout."""
    words = [
        f" {form.value}"
        for statement, form in zip(statements, layout.forms, strict=True)
        if statement.kind != "define"
    ]
    return f"{STATED}{NAME_LENGTHS[layout.suffix]}{''.join(words)}\n"


def bits(statements: Sequence[StoryStatement], dial: float) -> float:
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
