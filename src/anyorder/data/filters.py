"""Filters of a corpus: programs in answers, n-grams of text, and contamination by benchmarks.

Programs are parsed by the interpreter that runs this, never run. Two ways to tell Python:

    compat   the published substring test: one of `def `, `class `, `import `, `from `, and none of
             eight marks of other languages. A docstring that says "using a stack" fails it
    exact    it parses, and defines or imports something

Text -> sets of n-grams, as 64-bit numbers, in two views:

    words   runs of letters and runs of digits, in lower case. Layout, punctuation, underscores and
            escaped line ends are gone: `max_value` and "Max value" are the same two words
    shape   tokens of Python without layout, comments and docstrings: keywords and builtins as they
            are, every other name `v`, every string `s`, numbers and operators as they are, without
            ( ) , : which formatters add and remove. Renaming a variable does not change it

A word's number is a mixed CRC-32; an n-gram's is a polynomial in them modulo 2^64. Both are the
same in every process. Two words share a number with probability 2^-32, and n-grams all of whose
words differ with 2^-64: too rarely to count where several must be shared.

Hash tables of bands (compiled with numba; near.py uses them) are (bands, slots) numbers of 64 bits
with linear probing. 0 is an empty slot; otherwise the upper half is the upper half of the key and
the lower half the row's number + 1. A key's first slot is its lower bits. Nothing is ever removed,
so a chain ends at the first empty slot.

`Contamination` finds rows that hold a benchmark's problems. Each part of an item is compared by

    overlap = n-grams of the part that the row has too / n-grams of the part

    part       view    n    a row holds the part if
    statement  words   8    overlap >= 0.3 and 8 n-grams or more are shared, or overlap = 1
    solution   shape  12    overlap >= 0.7 and 10 or more are shared
    tests      words   8    overlap >= 0.7 and 10 or more are shared

Words are compared with the row's prompt and answer, solutions with its answer. Of a part with fewer
tokens than n only a statement is compared: a row holds it if it is the row's whole prompt.
docs/data.md has the measurements behind n and the thresholds. No torch here.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from anyorder._kernel import kernel

FENCE = re.compile(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
PYTHON_FENCES = ("py", "python")

_ANY_OF = ("def ", "class ", "import ", "from ")
_NONE_OF = (
    "#include",
    "public class",
    "using ",
    "func ",
    "package ",
    "namespace ",
    "std::",
    "System.out",
)
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def parsed(code: str) -> ast.Module | None:
    """The program's tree; None if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is no problem of ours
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def has_marks_of_python(code: str) -> bool:
    """The published substring test."""
    return any(mark in code for mark in _ANY_OF) and not any(mark in code for mark in _NONE_OF)


def is_python(code: str) -> bool:
    """Whether it parses and holds a definition or an import, at any depth."""
    tree = parsed(code)
    return tree is not None and any(isinstance(node, _DEFINING) for node in ast.walk(tree))


LOOKS_LIKE_PYTHON: dict[str, Callable[[str], bool]] = {
    "compat": has_marks_of_python,
    "exact": is_python,
}


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """The language and the content of each block between fences."""
    return [(match[1].strip().lower(), match[2]) for match in FENCE.finditer(text)]


def extract_python(text: str, mode: str) -> str | None:
    """The program of an answer: the last Python block, else the last block, else the whole text.

    exact looks further if that is not a program: the last block that is one, Python blocks first,
    and then the whole text.
    """
    blocks = fenced_blocks(text)
    python = [block for language, block in blocks if language in PYTHON_FENCES]
    others = [block for language, block in blocks if language not in PYTHON_FENCES]
    if mode == "compat":
        candidates = [*python[-1:], *others[-1:], *([] if blocks else [text])][:1]
    else:
        candidates = [*reversed(python), *reversed(others), text]
    fits = LOOKS_LIKE_PYTHON[mode]
    return next((code.strip() for code in candidates if fits(code.strip())), None)


def whole_program(text: str) -> str | None:
    """The program of a text, without fences around all of it; None if it does not parse."""
    text = text.strip()
    match = FENCE.fullmatch(text)
    if match is not None and match[1].strip().lower() in ("", *PYTHON_FENCES):
        text = match[2].strip()
    return text if text and parsed(text) is not None else None


def without_docstring(code: str) -> str:
    """The program without the first function's docstring; unchanged if it does not parse."""
    tree = parsed(code)
    functions = [] if tree is None else [node for node in ast.walk(tree) if _is_function(node)]
    if not functions:
        return code
    first = functions[0].body[0]  # type: ignore[attr-defined]
    if not (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return code
    lines = code.split("\n")
    assert first.end_lineno is not None
    shorter = "\n".join([*lines[: first.lineno - 1], *lines[first.end_lineno :]])
    # A docstring that is the whole body, or shares its line with code, has to stay.
    return shorter if parsed(shorter) is not None else code


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def without_blank_lines(code: str) -> str:
    """The lines that are not only white space."""
    return "\n".join(line for line in code.split("\n") if line.strip())


Array = np.ndarray[Any, np.dtype[Any]]

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
ONE = np.uint64(1)
BASE, MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)


@kernel
def polynomials(tokens: Array, size: int) -> Array:
    """sum over j of base^(size - 1 - j) * tokens[i + j], mixed, for every run of `size` tokens."""
    found = np.empty(max(0, len(tokens) - size + 1), dtype=np.uint64)
    for i in range(len(found)):
        total = np.uint64(0)
        for j in range(size):
            total = total * BASE + tokens[i + j]
        found[i] = total ^ (total >> SHIFT)
    return found


@kernel
def band_keys(signature: Array, bands: int, exact: np.uint64) -> Array:
    """One number for each band of a signature, then the exact key."""
    keys = np.empty(bands + 1, dtype=np.uint64)
    rows = len(signature) // bands
    for band in range(bands):
        total = np.uint64(0)
        for at in range(band * rows, (band + 1) * rows):
            total = (total ^ np.uint64(signature[at])) * MIX
            total ^= total >> SHIFT
        keys[band] = total
    keys[bands] = exact
    return keys


@kernel
def minhash(numbers: Array, factors: Array, offsets: Array) -> Array:
    """min over the numbers of the upper 32 bits of factor * number + offset, for each function."""
    found = np.empty(len(factors), dtype=np.uint32)
    for k in range(len(factors)):
        least = LOW
        factor, offset = factors[k], offsets[k]
        for number in numbers:
            value = (factor * number + offset) >> HALF
            if value < least:
                least = value
        found[k] = least
    return found


@kernel
def probe(table: Array, keys: Array, first_band: int, found: Array) -> int:
    """Write the numbers of rows whose key agrees in a band to `found`; how many there are."""
    count = 0
    last = np.uint64(table.shape[1] - 1)
    for band in range(first_band, table.shape[0]):
        key = keys[band]
        slot = key & last
        while table[band, slot] != 0 and count < len(found):
            entry = table[band, slot]
            if entry >> HALF == key >> HALF:
                # Only half of the key is stored: the caller compares signatures to be sure.
                number = np.int64(entry & LOW) - 1
                known = False
                for at in range(count):
                    known = known or found[at] == number
                if not known:
                    found[count] = number
                    count += 1
            slot = (slot + ONE) & last
    return count


@kernel
def insert(table: Array, keys: Array, first_band: int, number: int, crowd: int) -> None:
    """Enter a row in every band, except where `crowd` rows have its key already."""
    last = np.uint64(table.shape[1] - 1)
    for band in range(first_band, table.shape[0]):
        key = keys[band]
        slot = key & last
        alike = 0
        while table[band, slot] != 0 and alike < crowd:
            if table[band, slot] >> HALF == key >> HALF:
                alike += 1
            slot = (slot + ONE) & last
        if alike < crowd:
            table[band, slot] = ((key >> HALF) << HALF) | np.uint64(number + 1)


_ESCAPE = re.compile(r"\\[nrt]")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_LEXEME = re.compile(
    r"""
    (?:[rbuf]{0,2})(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3})   # docstrings and the like
    | \#[^\n]*
    | (?P<string>[rbuf]{0,2}(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | (?P<name>[^\W\d]\w*)
    | (?P<other>\d[\w.]*|\*\*|//|[<>=!]=|->|[^\s\w(),:])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_KEPT_NAMES = frozenset((*keyword.kwlist, *dir(builtins)))


def words(text: str) -> list[str]:
    """The words and numbers of a text."""
    return _WORD.findall(_ESCAPE.sub(" ", text.lower()))


def shape(code: str) -> list[str]:
    """The tokens of a program without its names; the text need not parse."""
    found = []
    for match in _LEXEME.finditer(code):
        kind = match.lastgroup
        if kind == "name":
            name = match[0]
            found.append(name if name in _KEPT_NAMES else "v")
        elif kind is not None:
            found.append("s" if kind == "string" else match[0])
    return found


VIEWS: dict[str, Callable[[str], list[str]]] = {"words": words, "shape": shape}


def numbers(tokens: Sequence[str]) -> Array:
    """The number of each token."""
    codes = [zlib.crc32(token.encode("utf-8", "replace")) for token in tokens]
    found = (np.array(codes, dtype=np.uint64) + np.uint64(1)) * MIX
    return found ^ (found >> SHIFT)


def grams(tokens: Array, size: int) -> Array:
    """The numbers of all runs of `size` tokens, in order; none of fewer tokens."""
    found: Array = polynomials(tokens, size)
    return found


class RowViews:
    """The views of a row, each made once."""

    def __init__(self, prompt: str, answer: str) -> None:
        self.prompt, self.answer = prompt, answer

    @cached_property
    def prompt_words(self) -> Array:
        return numbers(words(self.prompt))

    @cached_property
    def words(self) -> Array:
        """Of prompt and answer."""
        return np.concatenate([self.prompt_words, numbers(words(self.answer))])

    @cached_property
    def shape(self) -> Array:
        """Of the answer."""
        return numbers(shape(self.answer))


@dataclass(frozen=True)
class Rule:
    """When a row holds a part."""

    view: str
    size: int
    overlap: float
    shared: int
    whole: bool = False
    """Whether a part that the row holds completely counts, however short it is."""

    def holds(self, shared: int, total: int) -> bool:
        return (shared >= self.shared and shared >= self.overlap * total) or (
            self.whole and shared == total
        )


RULES = {
    "statement": Rule("words", 8, 0.3, 8, whole=True),
    "solution": Rule("shape", 12, 0.7, 10),
    "tests": Rule("words", 8, 0.7, 10),
}


@dataclass(frozen=True)
class BenchmarkProblem:
    """One problem of a benchmark."""

    name: str
    """The benchmark's id, such as HumanEval/12."""
    parts: dict[str, str]
    """Kind of part -> its text; the kinds are those of RULES."""


@dataclass(frozen=True)
class Match:
    """A part of a benchmark item that a row holds."""

    item: str
    part: str
    overlap: float
    shared: int


class Contamination:
    """An index of benchmark items, to look rows up in."""

    def __init__(self, items: Iterable[BenchmarkProblem]) -> None:
        entries: list[tuple[str, str, int]] = []
        found: dict[tuple[str, int], list[tuple[Array, int]]] = {}
        self._short: dict[int, str] = {}
        for item in items:
            for part, text in item.parts.items():
                rule = RULES[part]
                tokens = numbers(VIEWS[rule.view](text))
                known = np.unique(grams(tokens, rule.size))
                if len(known):
                    found.setdefault((rule.view, rule.size), []).append((known, len(entries)))
                    entries.append((item.name, part, len(known)))
                elif rule.whole and len(tokens):
                    self._short.setdefault(_whole(tokens), item.name)
        self._entries = entries
        self._tables = {key: _sorted(parts) for key, parts in found.items()}

    def find(self, row: RowViews) -> Match | None:
        """The part of which the row holds the largest share, if it holds one."""
        best: Match | None = None
        if len(row.prompt_words) and (name := self._short.get(_whole(row.prompt_words))):
            best = Match(name, "statement", 1.0, 1)
        for (view, size), (known, owners) in self._tables.items():
            held = np.unique(grams(getattr(row, view), size))
            first = np.searchsorted(known, held, "left")
            last = np.searchsorted(known, held, "right")
            hit = np.flatnonzero(first < last)
            if not len(hit):
                continue
            shares = np.concatenate([owners[first[at] : last[at]] for at in hit])
            for owner, shared in zip(*np.unique(shares, return_counts=True), strict=True):
                name, part, total = self._entries[int(owner)]
                overlap = int(shared) / total
                if RULES[part].holds(int(shared), total) and (
                    best is None or overlap > best.overlap
                ):
                    best = Match(name, part, round(overlap, 4), int(shared))
        return best


def _whole(tokens: Array) -> int:
    """One number of a whole text."""
    return int(grams(tokens, len(tokens))[0])


def _sorted(parts: list[tuple[Array, int]]) -> tuple[Array, Array]:
    """All n-grams of a view in order, and the entry that each belongs to."""
    known = np.concatenate([own for own, _ in parts])
    owners = np.concatenate([np.full(len(own), entry, np.int64) for own, entry in parts])
    order = np.argsort(known, kind="stable")
    return known[order], owners[order]
