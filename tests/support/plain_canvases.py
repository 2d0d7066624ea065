"""A canvas simulated by a plain list of slots: inserted, revealed, edited, masked, deleted."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st

MASK = 99
Canvas = list[tuple[int, int]]
"""(identity, id shown) from left to right."""


@dataclass
class PlainSlot:
    identity: int
    token: int = MASK


@st.composite
def canvases(draw: st.DrawFn) -> list[Canvas]:
    """A canvas before step 1 and after each step: a list of slots, changed at random places."""
    slots: list[PlainSlot] = []
    born = 0
    found: list[Canvas] = []
    for _ in range(draw(st.integers(1, 7))):
        for kind in draw(
            st.lists(st.sampled_from(["insert", "show", "mask", "delete"]), max_size=5)
        ):
            place = draw(st.integers(0, len(slots)))
            if kind == "insert":
                slots.insert(place, PlainSlot(born))
                born += 1
            elif place < len(slots):
                if kind == "delete":
                    del slots[place]
                else:
                    slots[place].token = MASK if kind == "mask" else draw(st.integers(0, 3))
        found.append([(slot.identity, slot.token) for slot in slots])
    # The last step reveals what is left, as a decoder does.
    found.append([(each, 5 if token == MASK else token) for each, token in found[-1]])
    return found
