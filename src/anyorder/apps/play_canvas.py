"""What a decoder shows, with every segment in its place: the player's live mode moves nothing.

A trace lists the empty segments of a fixed canvas behind all others, because the text ends at the
first; and a decoder that erases (latentmdm, mode compat) empties segments that had tokens. While a
canvas is watched, an emptied segment stays where it was, as wide as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anyorder.decode.canvas import Seen

Item = tuple[int, int, int, float, int]
"""Token, insert step, reveal step, log-probability and segment of one item."""


@dataclass
class InPlace:
    """Asked once per step, in order."""

    eos_id: int
    _width: dict[int, int] = field(default_factory=dict)
    """How many items each segment has had."""

    def __call__(self, seen: Seen) -> Seen:
        """The same canvas; nothing changes where there are no segments."""
        if not seen.segment:
            return seen
        columns = (seen.token_ids, seen.insert_step, seen.reveal_step, seen.log_prob, seen.segment)
        blocks: dict[int, list[Item]] = {}
        for item in zip(*columns, strict=True):
            blocks.setdefault(item[-1], []).append(item)
        numbers = list(blocks)
        if not any(seen.insert_step):  # then segments are numbered as they stand
            numbers.sort()
        items = [item for number in numbers for item in self._as_wide(number, blocks[number])]
        token_ids, insert, reveal, log_prob, segment = map(list, zip(*items, strict=True))
        return replace(
            seen,
            token_ids=token_ids,
            insert_step=insert,
            reveal_step=reveal,
            log_prob=log_prob,
            segment=segment,
        )

    def _as_wide(self, number: int, block: list[Item]) -> list[Item]:
        before = self._width.get(number, 1)
        if len(block) == 1 and block[0][0] == self.eos_id:
            block = block * before
        self._width[number] = len(block)
        return block
