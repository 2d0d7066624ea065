"""Broken, odd and hostile programs, made from the standard library's sources; the same per seed.

`programs(seed, count)` yields texts as a model may produce them and worse: cut anywhere, lines
lost, doubled or swapped, characters from all over Unicode, fences and prose around, deep nesting,
endless repetition. Many still parse; none may make a measure fail.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

CHARACTERS = (
    "()[]{}:;,.'\"\\\n\t\r\f\v #@=*%\0\ud800\udfff\u2028\u0085\ufeff\u200béλ中\U0001f600ﬁ0x_"
)
PROSE = (
    "Here is the function:\n",
    "Sure! ```python\n",
    "```\n",
    "<|mask|>",
    "This solves the problem in O(n).\n",
    "'''",
)
NESTS = ("(", "[", "{", "f(", "-", "not ", "lambda: ", "x if y else ", "a.b[", "f'{", "1+", "x=")
LONGEST = 4_000


@cache
def sources() -> tuple[str, ...]:
    """Functions and classes of the standard library, by file and place."""
    folder = Path(ast.__file__).parent
    found = []
    for path in sorted(folder.glob("*.py"))[::4]:
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                piece = "".join(lines[node.lineno - 1 : node.end_lineno])
                if 40 < len(piece) < LONGEST:
                    found.append(piece)
    return tuple(found)


def programs(seed: int, count: int) -> Iterator[str]:
    """`count` texts; text number i depends on the seed and i alone."""
    for number in range(count):
        yield program(random.Random(f"{seed}/{number}"))


def program(chance: random.Random) -> str:
    """One function of the library, changed none to four times."""
    text = chance.choice(sources())
    for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4))):
        text = chance.choice(CHANGES)(text, chance)
    return text[: 3 * LONGEST]


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randint(0, len(text))]


def _behead(text: str, chance: random.Random) -> str:
    return text[chance.randint(0, len(text)) :]


def _lose(text: str, chance: random.Random) -> str:
    start = chance.randint(0, len(text))
    return text[:start] + text[start + chance.randint(1, 60) :]


def _insert(text: str, chance: random.Random) -> str:
    place = chance.randint(0, len(text))
    noise = "".join(chance.choices(CHARACTERS, k=chance.choice((1, 1, 2, 8))))
    return text[:place] + noise + text[place:]


def _replace(text: str, chance: random.Random) -> str:
    letters = list(text)
    for _ in range(chance.randint(1, 6)):
        if letters:
            letters[chance.randrange(len(letters))] = chance.choice(CHARACTERS)
    return "".join(letters)


def _lines(text: str, chance: random.Random) -> str:
    """A line lost, doubled, moved or indented otherwise."""
    lines = text.splitlines(keepends=True) or [""]
    here, there = chance.randrange(len(lines)), chance.randrange(len(lines))
    what = chance.randrange(4)
    if what == 0:
        del lines[here]
    elif what == 1:
        lines.insert(there, lines[here])
    elif what == 2:
        lines[here], lines[there] = lines[there], lines[here]
    else:
        lines[here] = chance.choice((" ", "\t", "    ", "\f")) + lines[here].lstrip()
    return "".join(lines)


def _wrap(text: str, chance: random.Random) -> str:
    return (
        chance.choice(PROSE) + text + chance.choice(("\n```\n", "```", "\n")) + chance.choice(PROSE)
    )


def _nest(text: str, chance: random.Random) -> str:
    depth = chance.choice((3, 30, 99, 300, 1500))
    place = chance.randint(0, len(text))
    mark = chance.choice(NESTS)
    close = {"(": ")", "[": "]", "{": "}"}.get(mark[-1], "")
    return text[:place] + mark * depth + "x" + close * depth + text[place:]


def _repeat(text: str, chance: random.Random) -> str:
    start = chance.randint(0, len(text))
    piece = text[start : start + chance.randint(1, 40)]
    return text[:start] + piece * chance.choice((2, 20, 150)) + text[start:]


def _newlines(text: str, chance: random.Random) -> str:
    return text.replace("\n", chance.choice(("\r\n", "\r", "\n\n", "\u2028", ";")))


def _chain(text: str, chance: random.Random) -> str:
    """A long `elif`, or a function inside a function inside a function."""
    if chance.random() < 0.5:
        return text + "if x:\n    y\n" + "elif x:\n    y\n" * chance.choice((5, 100, 700))
    depth = chance.choice((5, 60, 120))
    return "".join(f"{' ' * i}def f{i}():\n" for i in range(depth)) + " " * depth + "pass\n" + text


def _join(text: str, chance: random.Random) -> str:
    return text + chance.choice(("\n", "", "\n\n# more\n")) + chance.choice(sources())


CHANGES: tuple[Callable[[str, random.Random], str], ...] = (
    *(_cut, _behead, _lose, _insert, _replace, _lines, _lines),
    *(_wrap, _nest, _repeat, _newlines, _chain, _join),
)
