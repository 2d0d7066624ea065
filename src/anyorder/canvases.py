"""From a text to what a family's decoder fills, within the sizes that were asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from anyorder.data.segments import cut
from anyorder.decode.canvas import Canvas, GrowingCanvas
from anyorder.decode.fill import canvas_of, growing_canvas_of
from anyorder.decode.growing_segments import GrowingSegments, growing_segments_of
from anyorder.decode.segment_canvas import Cutter, SegmentCanvas, segment_canvas_of
from anyorder.nets.shapes import FlexConfig, FlexLatentConfig, LatentConfig
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class Sizes:
    """How large a canvas may be."""

    new_tokens: int | None
    """Free slots after a prompt; on a growing canvas, slots in all; None: segments are counted."""
    length: int | None
    """Tokens in all; None: not known."""
    only_length_told: bool = False
    """Only `length` was asked for: then a growing canvas may grow up to it."""
    slots: int | None = None
    """Segments; None: as in training."""
    trained: int | None = None
    """Tokens of every answer in training, EOS from its end on; None: not known, or otherwise."""
    prompt: int | None = None
    """Tokens of a prompt, where segments are counted; None: not known."""


def fixed_canvas(text: str, sizes: Sizes, vocab: Vocab, config: Any) -> Canvas:
    """A canvas whose every slot is there from the start."""
    assert sizes.new_tokens is not None
    canvas = canvas_of(text, sizes.new_tokens, vocab, sizes.trained, sizes.length)
    if sizes.length is not None and len(canvas.ids) > sizes.length:
        free = sum(canvas.free)
        raise ValueError(
            f"the prompt's {len(canvas.ids) - free} tokens and {free} new ones do not fit on a "
            f"canvas of {sizes.length}: shorten the prompt, lower max_new_tokens or raise "
            "max_length"
        )
    return canvas


def open_canvas(text: str, sizes: Sizes, vocab: Vocab, config: FlexConfig) -> GrowingCanvas:
    """A canvas that grows until a size is reached, whichever is first."""
    assert sizes.new_tokens is not None
    canvas = growing_canvas_of(text, 0, vocab, config.frame(vocab))
    frozen = len(canvas.ids)
    if sizes.length is None:
        return replace(canvas, room=sizes.new_tokens)
    room = sizes.length - frozen
    if room < 1:
        raise ValueError(
            f"the text's {frozen} tokens leave no room on a canvas of {sizes.length}: shorten it "
            "or raise max_length"
        )
    return replace(canvas, room=room if sizes.only_length_told else min(room, sizes.new_tokens))


def slot_canvas(text: str, sizes: Sizes, vocab: Vocab, config: LatentConfig) -> SegmentCanvas:
    """A fixed number of slots for segments: what the network was trained with, or fewer."""
    slots = config.slots if sizes.slots is None else sizes.slots
    if slots > config.slots:
        raise ValueError(
            f"slots={slots}: the model was trained with {config.slots}, give at most so many"
        )
    return _within(segment_canvas_of(text, slots, vocab, _cutter(vocab, config)), sizes)


def open_segments(
    text: str, sizes: Sizes, vocab: Vocab, config: FlexLatentConfig
) -> GrowingSegments:
    """No segments but frozen ones, and room for as many as the network was trained with."""
    slots = config.latent.slots if sizes.slots is None else sizes.slots
    frame = config.frame(vocab)
    return _within(
        growing_segments_of(text, slots, vocab, _cutter(vocab, config.latent), frame), sizes
    )


_Segmented = TypeVar("_Segmented", SegmentCanvas, GrowingSegments)


def _within(canvas: _Segmented, sizes: Sizes) -> _Segmented:
    """The canvas, unless its prompt alone is longer than anything the network was trained on."""
    if sizes.prompt is not None and len(canvas.prompt) > sizes.prompt:
        raise ValueError(
            f"the prompt has {len(canvas.prompt)} tokens, and the model was trained on sequences "
            f"of at most {sizes.prompt}: shorten it"
        )
    return canvas


def _cutter(vocab: Vocab, config: LatentConfig) -> Cutter:
    length = config.segment_length
    # What stands around a gap is a part of a program, and need not be one.
    pieces = partial(cut, vocab=vocab, by=config.segment_by, segment_length=length, part=True)
    return Cutter(pieces, config.segment_length, in_lines=config.segment_by != "fixed")
