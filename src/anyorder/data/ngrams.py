"""Text -> sets of n-grams, as 64-bit numbers: what duplicates and contamination are found by.

Two views of a text:

    words   runs of letters and runs of digits, in lower case. Layout, punctuation, underscores and
            escaped line ends are gone: `max_value` and "Max value" are the same two words
    shape   tokens of Python without layout, comments and docstrings: keywords and builtins as they
            are, every other name `v`, every string `s`, numbers and operators as they are, without
            ( ) , : which formatters add and remove. Renaming a variable does not change it

A word's number is a mixed CRC-32; an n-gram's is a polynomial in them modulo 2^64. Both are the
same in every process and on every machine. Two words share a number with probability 2^-32, and
n-grams all of whose words differ with 2^-64: too rarely to matter where several must be shared.

What this file does not do: decide anything. It imports no torch.
"""

from __future__ import annotations

import builtins
import keyword
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from anyorder.data.gram_kernels import MIX, SHIFT, polynomials

Array = np.ndarray[Any, np.dtype[Any]]

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
    """The tokens of a program without its names; also of text that is not quite a program."""
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
    """The numbers of all runs of `size` tokens, in order; none where there are fewer tokens."""
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
