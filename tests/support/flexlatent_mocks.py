"""A network over segments whose answers are set by hand, and canvases for it: for flexlatent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingSegments, Watcher
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.nets.denoiser import SegmentLook
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
EOS = VOCAB.eos_id
OPEN = -1.0
Script = Sequence[tuple[int, float]]
"""The likeliest token after each prefix of its own, and its probability; then it repeats."""


@dataclass(frozen=True)
class Prompts:
    ids: Tensor
    length: Tensor

    def keep(self, rows: Tensor) -> Prompts:
        return Prompts(self.ids[rows], self.length[rows])


@dataclass
class MockWriter:
    """States are (place, how many tokens were read)."""

    place: Tensor  # N
    length: Tensor  # N

    def first(self) -> Tensor:
        return torch.stack([self.place, torch.zeros_like(self.place)], dim=1)

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        depth = self.length[:, None] + 1 + torch.arange(ids.shape[1])
        self.length = self.length + real.sum(dim=1)
        return torch.stack([self.place[:, None].expand_as(depth), depth.float()], dim=2)

    def cut(self, lengths: Tensor) -> None:
        self.length = lengths

    def keep(self, rows: Tensor) -> MockWriter:
        return replace(self, place=self.place[rows], length=self.length[rows])


class Mock:
    """`missing(real, 1 - tau)` is B S+1; the segment at place i follows script i (modulo)."""

    coordinate, insertion_exponent, unmasking_exponent = "progress", 1.7, 2.89
    slots, segment_length = 8, 5
    mask_vector = torch.tensor([OPEN, 0.0])

    def __init__(
        self, missing: Callable[[Tensor, Tensor], Tensor], scripts: Sequence[Script] = ()
    ) -> None:
        self.missing = missing
        scripts = scripts or [[(0, 0.7), (EOS, 0.8)]]
        self.table = torch.stack([self._logits(script) for script in scripts])  # P T V
        self.seen: list[list[list[float]]] = []
        """For each call and row, the latents' codes."""
        self.times: list[list[float]] = []
        self.written: list[int] = []
        """For each call, segments begun."""
        self.headed: list[int] = []
        """For each call, tokens predicted."""

    def read(self, ids: Tensor, length: Tensor) -> Prompts:
        return Prompts(ids, length)

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        assert bool((length > 0).all())
        codes = [code(row[:n]) for row, n in zip(ids.tolist(), length.tolist(), strict=True)]
        return torch.tensor([[number, 0.0] for number in codes])

    def look(
        self, prompt: Prompts, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        assert real is not None and len(prompt.ids) == len(latents) == len(time)
        rows = zip(latents[:, :, 0].tolist(), real.tolist(), strict=True)
        self.seen.append([[c for c, is_real in zip(*row, strict=True) if is_real] for row in rows])
        self.times.append(time.tolist())
        self.written.append(0)
        self.headed.append(0)
        gaps = self.missing(real, (1 - time)[:, None]).log()
        place = torch.arange(real.shape[1]).expand(real.shape).float()
        states = torch.stack([place, latents[:, :, 0]], dim=2)
        return SegmentLook(states, gaps.expand(len(real), real.shape[1] + 1))

    def write(self, conditions: Tensor) -> MockWriter:
        assert bool((conditions[:, 1] == OPEN).all()), "a segment is written that is not open"
        self.written[-1] += len(conditions)
        return MockWriter(conditions[:, 0], torch.zeros(len(conditions), dtype=torch.int64))

    def head(self, states: Tensor) -> Tensor:
        self.headed[-1] += len(states)
        place, depth = states.long().unbind(dim=1)
        return self.table[place % len(self.table), depth.clamp(max=self.table.shape[1] - 1)]

    def _logits(self, script: Script) -> Tensor:
        """After each number of tokens.  # T V"""
        logits = torch.full((self.segment_length, VOCAB.size), -1.0)  # specials must be refused
        for depth in range(self.segment_length):
            token, p = script[min(depth, len(script) - 1)]
            # EOS cannot come first: it has a share of the rest only later.
            others = [v for v in (0, 1, 2, EOS)[: 4 if depth else 3] if v != token]
            logits[depth, EOS] = -torch.inf
            logits[depth, others] = torch.tensor((1 - p) / len(others)).log()
            logits[depth, token] = torch.tensor(p).log()
        return logits


def code(ids: Sequence[int]) -> float:
    """A number that tells segments apart."""
    return float(sum((token + 1) * 8**place for place, token in enumerate(ids)))


def about(count: float, scripts: Sequence[Script] = ()) -> Mock:
    """Every row expects `count` segments, spread evenly, each missing with chance 1 - tau."""
    return Mock(lambda real, left: count * left / (1 + real.sum(dim=1, keepdim=True)), scripts)


def at_once(count: int, scripts: Sequence[Script] = ()) -> Mock:
    """So many segments are missing after the anchor until some are there, then none."""

    def missing(real: Tensor, left: Tensor) -> Tensor:
        gaps = torch.full((len(real), real.shape[1] + 1), 1e-30)
        gaps[:, 0] = torch.where(real.any(dim=1), 1e-30, float(count))
        return gaps

    return Mock(missing, scripts)


EARLY = {"insertion_schedule": 300.0, "unmasking_schedule": 2.0}
"""On a grid of steps: all insertions in the first, reveals all along."""


def prompt(*ids: int, room: int = 8) -> GrowingSegments:
    return GrowingSegments((*ids, EOS), (), (True,), room)


INFILL = GrowingSegments(
    (0, EOS), ((2,), (1, 1), (2, 0), (0,)), (False, True, False, True, False), 4
)


def ragged() -> list[GrowingSegments]:
    return [prompt(0, 1, room=3), prompt(), INFILL, prompt(1, 1, 0, 2, 2, 0), prompt(2, room=1)]


def decode(
    net: object,
    canvases: list[GrowingSegments],
    seed: int = 0,
    watch: Watcher | None = None,
    **chosen: object,
) -> list[Decoded]:
    options = FlexLatentOptions(**chosen)  # type: ignore[arg-type]
    keys = [key_of(seed, i) for i in range(len(canvases))]
    return flexlatent.decode(net, VOCAB, canvases, keys, options, watch=watch)  # type: ignore[arg-type]


def segments_of(row: Decoded) -> dict[int, list[int]]:
    """Where each segment's tokens stand among the row's."""
    assert row.segment is not None and row.segment == sorted(row.segment)
    found: dict[int, list[int]] = {}
    for place, segment in enumerate(row.segment):
        found.setdefault(segment, []).append(place)
    return found
