"""Examples -> padded batches, and the batch of any step as a pure function of (seed, step).

A row of a batch is its prompt, then its answer and what ends it, then pad up to the longest row:

    canvas None              prompt | answer eos            | pad ...
    ending none              prompt | answer                | pad ...
    canvas C, align left     prompt | answer eos eos ... (C) | pad ...
    canvas C, align right    prompt | pad ... answer eos (C) | pad ...
    segments                 prompt | segment segment ...   | pad ...

Segments follow one another without eos, which closes them inside the network only.
`Batch.segment_length` has the length of each, 0 for an empty slot (families/latentmdm/loss.py).

Length bucketing sorts `bucket` batches' worth of examples by length before it cuts them, then deals
these batches in a keyed order. Every example is still read exactly once an epoch.

Letters: B rows, L the longest row, S slots. Not here: noise, cutting text, reading files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from anyorder.data.keyed import Permutation, example_at
from anyorder.data.segments import CannotCut, DoesNotFit, SegmentConfig, cut, limit
from anyorder.data.sources import Source, TokenisedSource
from anyorder.vocab import Vocab

Align = Literal["left", "right"]
Ending = Literal["eos", "none"]


@dataclass(frozen=True)
class Example:
    """A tokenised prompt and its answer, without eos."""

    prompt: list[int]
    answer: list[int]
    index: int
    """Its place in the source; noise is keyed with it."""
    segments: tuple[int, ...] | None = None
    """Tokens in each segment of the answer; None: it was not cut."""
    truncated: bool = False
    """Whether the answer lost what did not fit into its segments."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of ids, padded on the right."""

    ids: Tensor  # B L
    prompt_length: Tensor  # B
    length: Tensor  # B
    """Tokens before the padding: prompt, answer, eos and the fill of the canvas."""
    index: Tensor  # B
    segment_length: Tensor | None = None  # B S
    """Tokens in each segment, from the end of the prompt on; 0: an empty slot. None: not cut."""
    segment_count: Tensor | None = None  # B
    """Segments that are not empty; they are in a row's first slots."""

    @property
    def answer(self) -> Tensor:
        """Where the answer is, with its eos and the fill of its canvas."""
        return self.real & (self._positions >= self.prompt_length[:, None])  # B L

    @property
    def real(self) -> Tensor:
        """Where there is no padding."""
        return self._positions < self.length[:, None]  # B L

    @property
    def _positions(self) -> Tensor:
        return torch.arange(self.ids.shape[1], device=self.ids.device)  # L

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {
            name: None if value is None else value.to(device) for name, value in vars(self).items()
        }
        return Batch(**moved)


def _check_canvas(canvas: int | None, align: str) -> None:
    if align not in ("left", "right"):
        raise ValueError(f"align is {align!r}: give left or right")
    if canvas is None and align == "right":
        raise ValueError("align right needs a canvas to align to: give canvas=, or align left")
    if canvas is not None and canvas < 1:
        raise ValueError(f"canvas is {canvas}: give the number of tokens an answer may take")


def _on_canvas(example: Example, vocab: Vocab, config: BatchConfig) -> list[int]:
    answer, eos = example.answer, vocab.eos_id
    canvas, align = config.canvas, config.align
    if canvas is None:
        return [*answer, eos] if config.ending == "eos" else answer
    needed = len(answer) + (align == "right")  # align left: the fill of eos ends the answer
    if needed > canvas:
        raise ValueError(
            f"example {example.index} needs {needed} tokens and the canvas has {canvas}: "
            "give a larger canvas or leave out long answers"
        )
    fill = canvas - needed
    return [*answer, *[eos] * fill] if align == "left" else [*[vocab.pad_id] * fill, *answer, eos]


def collate(examples: Sequence[Example], vocab: Vocab, config: BatchConfig) -> Batch:
    """One batch of examples, framed and ended as the configuration says."""
    if not examples:
        raise ValueError("a batch of no examples: give at least one")
    prompts = [[*config.before, *example.prompt, *config.after] for example in examples]
    rows = [
        [*prompt, *_on_canvas(example, vocab, config)]
        for prompt, example in zip(prompts, examples, strict=True)
    ]
    longest = max(map(len, rows))
    ids = [[*row, *[vocab.pad_id] * (longest - len(row))] for row in rows]
    return Batch(
        torch.tensor(ids, dtype=torch.int64),  # rows without tokens would become floats
        torch.tensor(list(map(len, prompts))),
        torch.tensor([len(row) for row in rows]),
        torch.tensor([example.index for example in examples]),
        *_segment_table(examples, config),
    )


def _segment_table(
    examples: Sequence[Example], config: BatchConfig
) -> tuple[Tensor | None, Tensor | None]:
    """The length of each row's segments (B S), and how many there are (B)."""
    if config.segments is None:
        return None, None
    found = [_checked_segments(example, config.segments) for example in examples]
    counts = list(map(len, found))
    slots = config.segments.slots if config.pad_slots else max(counts)
    table = [[*lengths, *[0] * (slots - len(lengths))] for lengths in found]
    shape = (len(examples), slots)  # without any slot, the list alone would give one dimension
    return torch.tensor(table, dtype=torch.int64).reshape(shape), torch.tensor(counts)


def _checked_segments(example: Example, config: SegmentConfig) -> tuple[int, ...]:
    lengths = example.segments
    if lengths is None:
        raise ValueError(f"example {example.index} is not cut: tokenise it with segments=")
    assert sum(lengths) == len(example.answer) and all(lengths), "segments are parts of the answer"
    if len(lengths) > config.slots or max(lengths, default=0) > config.segment_length:
        raise ValueError(
            f"example {example.index} has {len(lengths)} segments of up to {max(lengths)} tokens, "
            f"and the batch has {config.slots} slots of {config.segment_length}: tokenise it with "
            "the configuration of the batch"
        )
    return lengths


@dataclass(frozen=True)
class BatchConfig:
    """How a source is dealt out in batches."""

    size: int = 32
    """Examples in a batch."""
    seed: int = 0
    """Of the order; another seed is another order of the same examples."""
    bucket: int = 8
    """Batches that are sorted by length together: less padding; 1 is none of it."""
    canvas: int | None = None
    """Tokens for each answer with its eos; None gives each what it needs."""
    align: Align = "left"
    """The side of the canvas that answers touch."""
    ending: Ending = "eos"
    """What ends an answer without a canvas: one eos, or nothing."""
    before: tuple[int, ...] = ()
    """Ids that stand before every prompt."""
    after: tuple[int, ...] = ()
    """Ids after every prompt: a separator, which belongs to the prompt."""
    segments: SegmentConfig | None = None
    """How answers are cut; None: they are not."""
    pad_slots: bool = False
    """Whether rows have all slots, the last ones empty, or as many as a batch needs."""

    def __post_init__(self) -> None:
        for name in ("size", "bucket"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}: give a whole number from 1 on")
        if type(self.seed) is not int:
            raise ValueError(f"seed is {self.seed!r}: give an integer")
        _check_canvas(self.canvas, self.align)
        if self.ending not in ("eos", "none"):
            raise ValueError(f"ending is {self.ending!r}: give eos or none")
        if self.canvas is not None and self.ending == "none":
            raise ValueError("a canvas is filled with eos: leave ending out, or the canvas")
        if self.segments is None and self.pad_slots:
            raise ValueError("pad_slots has no effect without segments: leave it out")
        if self.segments is not None and (self.canvas is not None or self.ending == "eos"):
            raise ValueError(
                "segments have no canvas and are closed by the network: leave canvas out and "
                "give ending='none'"
            )


def tokenise(
    prompt: str,
    answer: str,
    index: int,
    vocab: Vocab,
    *,
    begun: bool = False,
    segments: SegmentConfig | None = None,
) -> Example:
    """Text -> ids, the answer cut into segments if `segments` is given.

    A prompt begins with the vocabulary's prefix, and an empty one with bos if there is one, unless
    rows begin with other ids (`begun`): the network needs a first token. On CannotCut and
    DoesNotFit leave the example out.
    """
    try:
        if segments is None:
            whole = [vocab.encode(answer, begun=True)]
        else:
            whole = cut(answer, vocab, segments.by, segments.segment_length)
        return example_of(vocab.encode(prompt), whole, index, vocab, begun=begun, segments=segments)
    except ValueError as error:
        kind = type(error) if isinstance(error, CannotCut | DoesNotFit) else ValueError
        raise kind(f"example {index} of the source: {error}") from error


def example_of(
    prompt: list[int],
    whole: list[list[int]],
    index: int,
    vocab: Vocab,
    *,
    begun: bool,
    segments: SegmentConfig | None,
) -> Example:
    """The example of an answer's segments, limited to `segments`; one piece if that is None."""
    kept = whole if segments is None else limit(whole, segments)
    if not begun:
        prompt = vocab.begin(prompt)
    answer = list(chain.from_iterable(kept))
    if segments is None:
        return Example(prompt, answer, index)
    return Example(prompt, answer, index, tuple(map(len, kept)), kept != whole)


def read_example(
    source: Source, index: int, vocab: Vocab, *, begun: bool, segments: SegmentConfig | None
) -> Example:
    """The example at `index`, tokenised now or kept as tokens."""
    if isinstance(source, TokenisedSource):
        return source.example(index, vocab, begun=begun, segments=segments)
    return tokenise(*source[index], index, vocab, begun=begun, segments=segments)


class Batches:
    """The batch of every step. Calling it twice, in any order, gives the same batches."""

    def __init__(self, source: Source, vocab: Vocab, config: BatchConfig) -> None:
        if source.size is not None and source.size < 1:
            raise ValueError("the source is empty: check its path, its fields and its filters")
        self.source, self.vocab, self.config = source, vocab, config
        # The last group read, as a cache: no batch depends on it, so resuming needs no state.
        self._group: tuple[int, list[list[Example]]] = (-1, [])

    def __call__(self, step: int) -> Batch:
        """The batch of `step`, counted from 0."""
        return collate(self.examples(step), self.vocab, self.config)

    def examples(self, step: int) -> list[Example]:
        """The examples of `step` before `collate`."""
        if step < 0:
            raise ValueError(f"step {step} is before the first: count from 0")
        group, place = divmod(step, self.config.bucket)
        if self._group[0] != group:
            self._group = (group, self._read(group))
        return self._group[1][place]

    def _read(self, group: int) -> list[list[Example]]:
        config = self.config
        count = config.size * config.bucket
        found = [
            self._example(example_at(position, self.source.size, config.seed))
            for position in range(group * count, (group + 1) * count)
        ]
        if config.bucket == 1:
            return [found]
        found.sort(key=lambda example: len(example.prompt) + len(example.answer))  # stable
        # Else every group would train from short to long.
        deal = Permutation(config.bucket, "bucket", config.seed, group)
        starts = [deal(place) * config.size for place in range(config.bucket)]
        return [found[start : start + config.size] for start in starts]

    def _example(self, index: int) -> Example:
        begun, segments = bool(self.config.before), self.config.segments
        return read_example(self.source, index, self.vocab, begun=begun, segments=segments)
