"""Every piece of text that a story can be made of, and the vocabulary of these pieces.

Names of quantities are bare words and the pieces around them carry the spaces, so that a name is
one and the same token in the prompt, in the parameter list and in an expression. "\\n" is a piece
of its own and part of no other, so that lines are runs of whole tokens.

What this file does not do: put pieces together. That the longest match cuts a rendered story into
the very pieces it was rendered from is a property of the lists below, and tested.
"""

from __future__ import annotations

from functools import cache

from anyorder.vocab import Vocab

NOUNS: dict[str, tuple[str, ...]] = {
    "things": (
        "apples", "pears", "plums", "figs", "limes",
        "lemons", "peaches", "cherries", "melons", "oranges",
    ),
    "people": ("guests", "friends", "children", "cousins", "neighbours", "players"),
    "containers": ("boxes", "bags", "jars", "baskets", "bowls", "trays"),
    "occasions": ("days", "trips", "walks", "visits"),
}  # fmt: skip
"""The names of quantities, by the sort of noun."""

WOMEN = ("Mia", "Ana", "Eva")
MEN = ("Tom", "Ben", "Leo")

PROSE = (
    " has", " picks", " buys", " finds", " sells", " gives", " doubles", " halves", " fills",
    " gets", " keeps", " makes", " adds", " take", " eat", " share", " outnumber", " does", " have",
    " She", " He", " she", " he", ", she", ", he", " they", " them", " both", " that", " many",
    " The ", " the ", ", the ", " some ", " each of the ", " each", " one", " half", " of",
    " away", "rest", " evenly", " sure", " at", " most", " least", " for", " with", " on", " and",
    " Then", " If", " While", " How many", " now?", ".",
)  # fmt: skip

LOCALS = ("total", "count", "amount", "tally", "stock", "pile", "heap", "store")
"""Names for the running number; the first is the plain one. So in the lists below."""

PARAMETERS = ("number", "value", "size", "given")
DOUBLING = ("twice(", "double(", "doubled(", "two_of(")
HALVING = ("half(", "halve(", "halved(", "half_of(")
LOOPS = tuple(f"    for {name} in range(" for name in ("_", "i", "k", "turn"))
EXTRA, ANSWER = "extra", "answer"

OPERATORS = (" + ", " - ", " * ", " // ", " % ")
AUGMENTED = {operator: f" {operator.strip()}= " for operator in OPERATORS}
COMPARISONS = (" > ", " < ", " >= ", " <= ")

DEFINE, DEFINE_HELPER, CLOSE, CLOSE_BLOCK = "def solve(", "def ", ")", "):"
INDENT, NEWLINE = {1: "    ", 2: "        "}, "\n"
RETURN, IF, WHILE = "    return ", "    if ", "    while "
ASSIGN, COMMA, COLON, TWO = " = ", ", ", ":", "2"

PROGRAM = (
    DEFINE, DEFINE_HELPER, CLOSE, CLOSE_BLOCK, *INDENT.values(), NEWLINE, RETURN, IF, WHILE,
    ASSIGN, COMMA, COLON, TWO, *OPERATORS, *AUGMENTED.values(), *COMPARISONS,
    *LOCALS, *PARAMETERS, *DOUBLING, *HALVING, *LOOPS, EXTRA, ANSWER,
)  # fmt: skip

SUFFIXES = ((), ("_now",), ("_so", "_far"), ("_up", "_to", "_now"))
"""What may follow the name of the running number, which is then one to four tokens long."""

TAG, NOTE, REMARK = ("  # done",), ("  # as", " told"), ("# next", " step")
FREE = ("_now", "_so", "_far", "_up", "_to", *TAG, *NOTE, *REMARK)

STATED, NAME_LENGTHS = "Layout:", (" 1", " 2", " 3", " 4")

PIECES: tuple[str, ...] = (
    *(noun for nouns in NOUNS.values() for noun in nouns),
    *WOMEN, *MEN, *PROSE, *PROGRAM, *FREE, STATED, *NAME_LENGTHS,
    " plain", " tag", " note", " remark", " short", " spare",
)  # fmt: skip


@cache
def stories_vocab() -> Vocab:
    """The vocabulary of the corpus; the same whatever the dials say."""
    return Vocab.words(PIECES)
