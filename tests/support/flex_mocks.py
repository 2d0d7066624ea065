"""A network whose answers are set by hand, and canvases for it: shared by the flexmdm tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.nets.denoiser import Look
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
ANCHOR = VOCAB.eos_id


class Mock:
    """Expected gaps and logits by hand: `missing(ids, mask, 1 - tau)` and `logits(place)`."""

    insertion_exponent, unmasking_exponent = 1.7, 2.89

    def __init__(
        self,
        missing: Callable[[Tensor, Tensor, Tensor], Tensor],
        logits: Callable[[Tensor], Tensor] | None = None,
        coordinate: str = "progress",
    ) -> None:
        self.missing, self.logits, self.coordinate = missing, logits, coordinate
        self.times: list[list[float]] = []
        self.masks: list[int] = []
        self.headed: list[int] = []

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        assert mask is not None
        self.times.append(time.tolist())
        self.masks.append(int((ids == VOCAB.mask_id).sum()))
        self.headed.append(0)
        exponent = 1.0 if self.coordinate == "progress" else self.insertion_exponent
        missing = self.missing(ids, mask, (1 - time)[:, None] ** exponent)
        gaps = missing.expand(ids.shape).log()
        # A state is (its place, whether it is masked).
        place = torch.arange(ids.shape[1]).expand(ids.shape)
        return Look(torch.stack([place, ids == VOCAB.mask_id], dim=-1).float(), gaps)

    def head(self, states: Tensor) -> Tensor:
        assert bool((states[:, 1] == 1).all()), "the head ran on a slot that is not open"
        self.headed[-1] += len(states)
        if self.logits is None:
            return torch.zeros(len(states), VOCAB.size)
        return self.logits(states[:, 0])


def about(count: float) -> Mock:
    """Every row expects `count` tokens in all, spread evenly, each missing with chance 1 - tau."""
    return Mock(lambda ids, mask, left: count * left / mask.sum(dim=1, keepdim=True))


def by_place(place: Tensor) -> Tensor:
    """Surer to the right; the token alternates."""
    logits = torch.zeros(len(place), VOCAB.size)
    logits[torch.arange(len(place)), place.long() % 3] = 1 + place / 8
    return logits


def prompt(*ids: int, room: int = 60) -> GrowingCanvas:
    return GrowingCanvas((*ids, ANCHOR), (*[False] * len(ids), True), room)


INFILL = GrowingCanvas((0, 1, 2, 1, ANCHOR), (False, True, False, True, False), 12)


def decode(
    net: object, canvases: list[GrowingCanvas], seed: int = 0, **chosen: object
) -> list[Decoded]:
    options = FlexOptions(**chosen)  # type: ignore[arg-type]
    flexmdm.check(canvases, options)
    keys = [key_of(seed, i) for i in range(len(canvases))]
    return flexmdm.decode(net, VOCAB, canvases, keys, options)  # type: ignore[arg-type]


def ragged() -> list[GrowingCanvas]:
    return [prompt(0, 1, room=9), prompt(2), INFILL, prompt(1, 1, 0, 2, 2, 0, room=30), prompt()]
