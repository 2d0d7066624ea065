"""Text -> segments: where an answer is cut, and what becomes of answers that do not fit.

A segment is a run of tokens that is revealed as a whole (paper, Section 4.2 and appendix E). The
segmenters, found in SEGMENTERS:

    line       cut behind every "\\n", as in the paper ("\\r\\n" ends a line, a lone "\\r" does not)
    statement  cut behind every logical line of a Python program: one simple statement, or the
               header of a compound one (`else:`, `except ...:`, `case ...:` are headers as well).
               Statements joined by semicolons, a bracket over many lines and a docstring are one
               segment each; decorators, comments and blank lines belong to the statement below
               them, and at the end of the text to the last one
    fixed      cut behind every L_seg - 1 tokens

No text is lost: joined segments decode to it, up to what the vocabulary's normaliser changes. But
each piece is tokenised alone, and the tokens are those of the whole text only if none crosses a
cut. That holds for `fixed`, for bytes, and for words that have a line end only at their own end
(stories). BPE that splits text as Qwen2 does crosses a cut before a blank line: it has tokens for
"\\n\\n" and for ":\\n\\n". BPE that splits as GPT-2 does also joins a line end and the indentation
behind it.

What does not fit, with L_s = `slots` and L_seg = `segment_length` (a segment of fewer than L_seg
tokens is closed by EOS inside the network, one of exactly L_seg has none):

    truncate   the first L_s segments; of a segment of more than L_seg tokens the first L_seg - 1
    drop       the whole example, if it has more than L_s segments or one of L_seg tokens or more

Not here: padding, batching, repairing programs. No torch.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from anyorder.vocab import Vocab

SegmentIds = list[list[int]]


class CannotCut(ValueError):
    """The segmenter finds no segments in this text."""


class DoesNotFit(ValueError):
    """More or longer segments than there is room for, where nothing may be cut away."""


@dataclass(frozen=True)
class SegmentConfig:
    """How an answer is cut into segments, and how many and how long they may be."""

    by: Literal["line", "statement", "fixed"] = "line"
    """Where to cut: behind every line, every Python statement, or a fixed number of tokens."""
    slots: int = 16
    """The most segments of an answer."""
    segment_length: int = 32
    """The most tokens of a segment, with the EOS that closes it."""
    overflow: Literal["truncate", "drop"] = "truncate"
    """What does not fit is truncated (paper), or the whole example left out (release)."""

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("segment_length", 2)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is {value!r}: give a whole number from {least} on")
        for name, choices in (("by", SEGMENTERS), ("overflow", LIMITS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: choose one of {', '.join(choices)}"
                )


def lines(text: str) -> list[str]:
    """The lines of a text, each with the "\\n" that ends it."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def statements(text: str) -> list[str]:
    """The logical lines of a Python program, each with the comments and decorators above it.

    The interpreter that runs this parses it: newer syntax needs a newer Python.
    """
    with _refusing("a Python program"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is no problem of ours
            ast.parse(text)
        return _logical_lines(text, [])


def statements_of_part(text: str) -> list[str]:
    """The same for whole statements out of a program, which alone need not parse."""
    with _refusing("a run of whole Python statements"):
        margins = set(re.findall(r"^[ \t]+(?=\S)", _with_newlines(text), re.MULTILINE))
        widest_last = sorted(margins, key=lambda margin: len(margin.expandtabs()))
        # A header for each margin, so that the tokenizer knows the blocks it may dedent to.
        return _logical_lines(text, [f"{margin}if x:\n" for margin in ("", *widest_last)])


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise CannotCut(
            f"not {what} ({why}): leave it out, or cut by line instead of by statement"
        ) from error


def _logical_lines(text: str, headers: list[str]) -> list[str]:
    """The logical lines of a text that follows these headers."""
    # The parser also ends lines at a lone "\r": count its lines, but cut the original text.
    whole = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    ends = _logical_ends("".join(headers) + _with_newlines(text))[len(headers) :]
    # The rest of the text belongs to the last logical line.
    bounds = [0, *(end - len(headers) for end in ends[:-1]), len(whole)]
    return ["".join(whole[start:end]) for start, end in pairwise(bounds) if start < end]


def _with_newlines(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text)


def _logical_ends(text: str) -> list[int]:
    """The number of the last line of each logical line, from 1 on; decorators do not count."""
    ends, begins, decorator = [], True, False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if not decorator:
                ends.append(token.start[0])
            begins = True
        elif begins and token.type not in _BETWEEN:
            begins, decorator = False, token.string == "@"
    return ends


_BETWEEN = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
"""Kinds of tokens that can precede the first one of a statement."""


def _by_text(
    cut_text: Callable[[str], list[str]], text: str, vocab: Vocab, segment_length: int
) -> SegmentIds:
    """The tokens of each piece of the text; pieces without tokens are left out."""
    return [ids for piece in cut_text(text) if (ids := vocab.encode(piece, begun=True))]


def _fixed(text: str, vocab: Vocab, segment_length: int) -> SegmentIds:
    ids, size = vocab.encode(text, begun=True), segment_length - 1
    return [ids[start : start + size] for start in range(0, len(ids), size)]


Segmenter = Callable[[str, Vocab, int], SegmentIds]

SEGMENTERS: dict[str, Segmenter] = {
    "line": partial(_by_text, lines),
    "statement": partial(_by_text, statements),
    "fixed": _fixed,
}
"""(text, vocabulary, L_seg) -> the tokens of each segment, none of them empty."""


PART_SEGMENTERS: dict[str, Segmenter] = {
    **SEGMENTERS,
    "statement": partial(_by_text, statements_of_part),
}
"""The same for a part of a text that begins and ends between two segments."""


def cut(text: str, vocab: Vocab, by: str, segment_length: int, *, part: bool = False) -> SegmentIds:
    """The segments of a text, of any number and length; an empty text has none.

    `part`: the text lies beside or between the gaps of a longer one.
    """
    if by not in SEGMENTERS:
        raise ValueError(f"by is {by!r}: choose one of {', '.join(SEGMENTERS)}")
    if segment_length < 2:
        raise ValueError(f"segment_length is {segment_length}: give a whole number from 2 on")
    segmenters = PART_SEGMENTERS if part else SEGMENTERS
    return segmenters[by](text, vocab, segment_length)


def _truncated(segments: SegmentIds, config: SegmentConfig) -> SegmentIds:
    room = config.segment_length
    return [
        segment if len(segment) <= room else segment[: room - 1]
        for segment in segments[: config.slots]
    ]


def _whole(segments: SegmentIds, config: SegmentConfig) -> SegmentIds:
    longest = max(map(len, segments), default=0)
    if len(segments) > config.slots or longest >= config.segment_length:
        raise DoesNotFit(
            f"{len(segments)} segments of up to {longest} tokens do not fit in {config.slots} of "
            f"{config.segment_length} with their EOS: raise slots or segment_length, leave the "
            "example out, or truncate it with overflow=truncate"
        )
    return segments


LIMITS: dict[str, Callable[[SegmentIds, SegmentConfig], SegmentIds]] = {
    "truncate": _truncated,
    "drop": _whole,
}


def limit(segments: SegmentIds, config: SegmentConfig) -> SegmentIds:
    """The segments to train on; DoesNotFit if the example must be left out."""
    return LIMITS[config.overflow](segments, config)
