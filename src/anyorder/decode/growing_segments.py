"""The canvas on which segments are inserted: a prompt, frozen segments, gaps; and texts to it.

A text without marks is a prompt, and the gap behind it grows. In a text to be filled, `<fill>`
stands between whole segments (segment_canvas.py says where a mark may stand); a gap has no length,
it opens as needed. Every prompt ends with an anchor, which stands before the first gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyorder.decode.fill import Frame
from anyorder.decode.segment_canvas import Cutter, parts_of
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class GrowingSegments:
    """One row: frozen segments, and gaps where segments may be inserted."""

    prompt: tuple[int, ...]
    """The anchor is its last token."""
    segments: tuple[tuple[int, ...], ...]
    """The frozen ones, none of them empty."""
    grows: tuple[bool, ...]
    """Whether segments may be inserted after the anchor, then after each frozen segment."""
    room: int
    """At most so many segments are inserted."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The prompt and all that is frozen."""
        return self.prompt + tuple(token for segment in self.segments for token in segment)

    @property
    def prefix(self) -> int:
        """How many frozen segments stand before the first gap that grows."""
        return self.grows.index(True)

    @property
    def prompt_length(self) -> int:
        """The frozen prefix in tokens: everything up to the first gap that grows."""
        return len(self.prompt) + sum(map(len, self.segments[: self.prefix]))


def growing_segments_of(
    text: str, slots: int, vocab: Vocab, cutter: Cutter, frame: Frame
) -> GrowingSegments:
    """The canvas of a prompt or of a text with gaps, of at most `slots` segments in all."""
    prompt, parts = parts_of(text, vocab, cutter)
    segments: list[tuple[int, ...]] = []
    grows = [False]
    for part in parts:
        if isinstance(part, int):
            raise ValueError(
                "a gap of this family finds its own length: write <fill>, not <fill:12>"
            )
        if part is None:
            grows[-1] = True
        else:
            segments.append(part)
            grows.append(False)
    room = slots - len(segments)
    if room < 1:
        raise ValueError(
            f"the text's {len(segments)} segments leave no room among {slots} slots: freeze fewer, "
            "or raise slots"
        )
    before, anchor = frame
    return GrowingSegments((*before, *prompt, *anchor), tuple(segments), tuple(grows), room)
