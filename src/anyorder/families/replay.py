"""Reads stored traces of tokens again: the posteriors of the canvases that a trace went through.

The network is called once on each canvas (decode/replay.py), at the sampler's time (mdm has none).
This repeats the call that decided the next step; nothing is drawn. Only chosen slots are read, from
the untempered posterior over the ids that the sampler allowed: mdm forbids the mask (and EOS if the
options forbid it), flexmdm also BOS, EOS and PAD, its mode compat nothing.

Canvases of several traces and steps share a call, sorted by length. The vocabulary head runs on
HEAD_BUDGET logits at a time, canvas by canvas. A canvas with more than KEPT_BUDGET of them passes
through it twice, once for the masses of all tokens and once for the profiles of a few.

Times (flexmdm and flexlatent). A trace holds the network's time of each step (`times`). Traces made
before it was recorded do not; after s steps of one that grew,

    clock "steps"    1 - t = (N - s) / N, and 0 after the last step (decode/growing.py)
    mode "compat"    t is s times 1 / N, added up in float32, and stops short of 1
    clock "events"   the waiting time after call n is drawn from noise that the sample's key names,
                     at a rate that call n itself gave. So all calls up to the last canvas are made
                     again, without the vocabulary head. What each of them would do (one reveal,
                     one insertion, nothing) must be what the trace says happened.

Not here: traces of segments (replay_segments.py) and of blocks (block/replay.py), the choice of
slots, and measures of posteriors (measure/placement_scores.py).
Letters: B canvases (rows), L positions, N slots that are read, K tokens, V vocabulary, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.canvas import GrowingCanvas, padded
from anyorder.decode.draw import Draw, find_stopping, refuse_nan, role_ids, text_logits
from anyorder.decode.growing import (
    Clocked,
    GrowingRows,
    Growth,
    RunningClock,
    build_clock,
    network_time,
    schedules,
)
from anyorder.decode.loop import HEAD_BUDGET, Proposer
from anyorder.decode.replay import (
    BoolArray,
    FloatArray,
    IntArray,
    Moment,
    Replay,
    moment_of,
    name_of,
    other_canvas,
)
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.compat import LATEST
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.nets.denoiser import (
    Denoiser,
    Inserter,
    LogitsDenoiser,
    TrainedSchedules,
    inside,
)
from anyorder.process.schedule import Power
from anyorder.trace import Trace
from anyorder.vocab import Vocab

Times = Callable[[Sequence[Replay]], list[FloatArray]]


@dataclass(frozen=True)
class StepTimes:
    """A uniform grid of time."""

    net: TrainedSchedules
    options: Clocked

    def __call__(self, replays: Sequence[Replay]) -> list[FloatArray]:
        steps = self.options.steps
        assert steps is not None
        gamma, _ = schedules(self.options, self.net)
        clock = build_clock(self.options, self.net)
        result = []
        for each in replays:
            _check_steps(each.trace, steps + 1)  # one more call may fill what is left
            left = [max(0, steps - step) / steps for step in each.steps]
            rounded = clock.network_left(torch.tensor(left, dtype=torch.float64))
            result.append(network_time(rounded, gamma, self.net).numpy())
        return result


@dataclass(frozen=True)
class CompatTimes:
    """The clock of mode compat."""

    net: Inserter
    options: FlexOptions

    def __call__(self, replays: Sequence[Replay]) -> list[FloatArray]:
        steps = self.options.steps
        assert steps is not None
        gamma, _ = schedules(self.options, self.net)
        trained = {"raw": self.net.insertion_exponent, "progress": 1.0}[self.net.coordinate]
        network, t, times = Power(gamma.exponent / trained), torch.zeros(()), []
        for _ in range(steps):
            times.append(float(network.value(t)))
            # Added up in float32 like flexmdm/compat.py, so that times agree to the last bit.
            t = (t + 1 / steps).clamp(max=LATEST)
        for each in replays:
            _check_steps(each.trace, steps)
        return [np.asarray([times[step] for step in each.steps]) for each in replays]


@dataclass
class Walk:
    """The state of one trace while its calls are repeated."""

    trace: Trace
    key: int
    last: int
    """The last canvas whose time is needed; -1: none."""
    insert: IntArray
    reveal: IntArray
    """The steps of the clock's items: tokens, or segments."""
    about: Any
    """Data of the view."""
    times: list[float] = field(default_factory=list)
    left: float = 1.0
    bound: float = 0.0

    def check(self, step: int, reveals: int, inserts: int) -> None:
        """Refuse a call that differs from what the trace says of its step."""
        done = (int((self.reveal == step).sum()), int((self.insert == step).sum()))
        if done != (reveals, inserts):
            raise ValueError(
                f"{name_of(self.trace)} reveals {done[0]} and inserts {done[1]} in step {step}; "
                f"this model reveals {reveals} and inserts {inserts}: give the model, and the "
                "options, that made it, or sample it again"
            )


class View(Protocol):
    """Rebuilds canvases for a clock, and gives the network's gaps on them."""

    def walk(self, replay: Replay) -> Walk:
        """A trace before its first call."""
        ...

    def rows(self, walks: Sequence[Walk], step: int) -> Growth:
        """The canvases after `step` steps: open slots, gaps that grow, and room."""
        ...

    def gaps(self, walks: Sequence[Walk], step: int, rows: Growth, time: Tensor) -> Tensor:
        """The log of what is missing in each gap of these canvases, at times B.  # B L"""
        ...


@dataclass(frozen=True)
class EventTimes:
    """Times of the event clock, which follow from the calls themselves."""

    net: TrainedSchedules
    options: Clocked
    view: View
    device: torch.device | str

    def __call__(self, replays: Sequence[Replay]) -> list[FloatArray]:
        walks = [self.view.walk(each) for each in replays]
        clock, step = RunningClock(self.options, self.net), 0
        while current := [walk for walk in walks if walk.last >= step]:
            step += 1
            self._call(current, clock, step)
        return [
            np.asarray([walk.times[step] for step in each.steps])
            for walk, each in zip(walks, replays, strict=True)
        ]

    @torch.inference_mode()
    def _call(self, walks: Sequence[Walk], clock: RunningClock, step: int) -> None:
        """Repeat call number `step` of every walk, on its canvas after step - 1."""
        rows = self.view.rows(walks, step - 1)
        rows.left = self._column([walk.left for walk in walks])
        rows.bound = self._column([walk.bound for walk in walks])
        time = clock.time(rows)
        plan = clock.plan(rows, self.view.gaps(walks, step - 1, rows, time), step)
        inserts = plan.inserts.sum(dim=1)
        for row, walk in enumerate(walks):
            walk.times.append(float(time[row]))
            # Another model or other options would give plausible but wrong times.
            walk.check(step, int(plan.reveals[row]), int(inserts[row]))
            walk.left, walk.bound = float(plan.left[row]), float(plan.bound[row])

    def _column(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)


@dataclass(frozen=True)
class TokenView:
    """Canvases of flexmdm."""

    net: Inserter
    vocab: Vocab
    device: torch.device | str

    def walk(self, replay: Replay) -> Walk:
        trace, (canvas, key) = replay.trace, began(replay)
        assert trace.prompt_ids is not None and trace.token_ids is not None
        frozen = trace.timing()[0] == 0
        given = [*trace.prompt_ids.tolist(), *trace.token_ids[frozen].tolist()]
        if given != list(canvas.ids):
            raise other_canvas(trace)
        about = (np.asarray(canvas.grows), canvas.room)
        last, (insert, reveal) = max(replay.steps, default=-1), trace.timing()
        return Walk(trace, key, last, insert.astype(np.int64), reveal.astype(np.int64), about)

    def rows(self, walks: Sequence[Walk], step: int) -> GrowingRows:
        canvases = [self._canvas(walk, step) for walk in walks]
        keys = [walk.key for walk in walks]
        rows = GrowingRows.start(canvases, keys, self.vocab, torch.device(self.device))
        rows.open = (rows.ids == self.vocab.mask_id) & rows.real
        return rows

    def _canvas(self, walk: Walk, step: int) -> GrowingCanvas:
        frozen: BoolArray
        frozen, room = walk.about  # after each prompt token, then after each frozen one
        now = walk.trace.replay(step)
        assert now.prompt_ids is not None
        grows = np.ones(len(walk.insert), dtype=bool)
        grows[walk.insert == 0] = frozen[len(now.prompt_ids) :]
        there = np.concatenate([frozen[: len(now.prompt_ids)], grows[now.slots]])
        ids = now.ids(self.vocab.mask_id, prompt=True)
        inserted = int(((walk.insert > 0) & (walk.insert <= step)).sum())
        return GrowingCanvas(tuple(ids.tolist()), tuple(there.tolist()), room - inserted)

    def gaps(self, walks: Sequence[Walk], step: int, rows: Growth, time: Tensor) -> Tensor:
        assert isinstance(rows, GrowingRows)
        return self.net.look(rows.ids, mask=rows.real, time=time).gaps


def times_of(replays: Sequence[Replay], times: Times | None) -> list[list[Any]]:
    """The network's time at each step of each replay; None where it reads none.

    Recorded times are read; `times` computes those of traces that have none.
    """
    if times is None:
        return [[None] * len(each.steps) for each in replays]
    computed = iter(times([each for each in replays if each.trace.times is None]))
    return [
        next(computed).tolist() if each.trace.times is None else _recorded(each) for each in replays
    ]


def _recorded(replay: Replay) -> list[float]:
    times = replay.trace.times
    assert times is not None
    found = [float(times[step]) for step in replay.steps]
    if any(map(math.isnan, found)):
        step = replay.steps[[math.isnan(time) for time in found].index(True)]
        raise ValueError(
            f"{name_of(replay.trace)} has no time for step {step + 1}, so the network cannot be "
            "asked again on the canvas before it: sample it again, or leave this step out"
        )
    return found


def times_by_clock(
    net: TrainedSchedules, options: Clocked, view: View, device: torch.device | str
) -> Times:
    """The times of an exact sampler, by its clock."""
    if options.clock == "events":
        return EventTimes(net, options, view, device)
    return StepTimes(net, options)


def began(replay: Replay) -> tuple[Any, int]:
    """The canvas that a trace began with, and its noise key."""
    if replay.trace.ghosts or replay.trace.events:
        raise ValueError(
            f"{name_of(replay.trace)} has slots that changed or were deleted, and no times: they "
            "cannot be computed, sample it again"
        )
    if replay.canvas is None or replay.key is None:
        raise ValueError(
            f"{name_of(replay.trace)} has no times, and those of the event clock follow from its "
            "noise: sample it again, or give the canvas that it began with, and its noise key"
        )
    return replay.canvas, replay.key


def _check_steps(trace: Trace, most: int) -> None:
    if (trace.steps or 0) > most:
        raise ValueError(
            f"{name_of(trace)} has {trace.steps} steps, but its options make {most} at the most: "
            "give the options that it was sampled with"
        )


KEPT_BUDGET = 1 << 26
"""The most probabilities of one canvas that are kept between `mass` and `profile`."""
LOGITS_BUDGET = 1 << 26
"""The most logits in one call of a wrapped network, which computes all of them at once."""


class CanvasPosterior:
    """The posteriors of some slots of one canvas: a source for measure/placement_scores.py."""

    def __init__(self, states: Tensor, slots: IntArray, proposer: Proposer) -> None:
        self.positions = slots
        self._states = states  # N D
        self._proposer = proposer
        size = proposer.vocab.size
        slot = torch.arange(len(states), device=states.device)
        self._pieces = slot.split(max(1, HEAD_BUDGET // size))
        self._keeps = len(states) * size <= KEPT_BUDGET
        self._kept: list[Tensor] = []

    def mass(self) -> FloatArray:
        """The sum of each token's probabilities.  # V"""
        # Within a piece in float32, which is twenty times as fast: masses only choose tokens, and
        # the scores of the chosen ones come from their profiles.
        total = torch.zeros((), dtype=torch.float64, device=self._states.device)
        for probability in self._probabilities():
            total = total + probability.sum(dim=0).double()
        refuse_nan(total)
        return np.asarray(total.cpu().numpy())

    def profile(self, tokens: IntArray) -> FloatArray:
        """The probabilities of chosen tokens.  # N K"""
        chosen = torch.as_tensor(tokens, device=self._states.device)
        parts = [each[:, chosen].double() for each in self._probabilities()]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _probabilities(self) -> Iterator[Tensor]:
        """The probabilities of the slots, piece by piece.  # n V"""
        if len(self._kept) == len(self._pieces):
            yield from self._kept
            return
        self._kept.clear()  # an earlier pass may have been abandoned halfway
        for piece in self._pieces:
            probability = self._softmax(piece)
            if self._keeps:
                self._kept.append(probability)
            yield probability

    @torch.inference_mode()
    def _softmax(self, piece: Tensor) -> Tensor:
        return self._logits(piece).softmax(dim=-1)

    def _logits(self, piece: Tensor) -> Tensor:
        head, vocab = self._proposer.head, self._proposer.vocab
        return text_logits(head(self._states[piece]), vocab, self._proposer.forbidden)


@dataclass(frozen=True)
class FamilyReader:
    """A network over tokens, and how it is called on a canvas."""

    states: Callable[[Tensor, Tensor, Tensor | None, Sequence[Moment]], Tensor]
    """(ids B L, real B L, time B, their canvases) -> B L D."""
    proposer: Proposer
    times: Times | None = None
    """The network's time at each step of each replay; None: it reads none."""
    time_dtype: torch.dtype = torch.float64
    pads: bool = True
    """Whether the network can tell padding from text."""
    all_logits: bool = False
    """Whether `states` holds the logits of all positions."""
    device: torch.device | str = "cpu"
    moment: Callable[[Replay, int, float | None, int], Moment] = moment_of
    """(trace, step, time, mask id) -> the canvas after that step."""

    def moments(self, replays: Sequence[Replay]) -> list[list[Moment]]:
        """The canvases of each replay."""
        mask_id = self.proposer.vocab.mask_id
        return [
            [self.moment(each, *at, mask_id) for at in zip(each.steps, row, strict=True)]
            for each, row in zip(replays, times_of(replays, self.times), strict=True)
        ]

    def posteriors(
        self, moments: Sequence[Moment], batch: int = 32
    ) -> Iterator[tuple[int, CanvasPosterior]]:
        """(number of the moment, its posterior), by length, if it has slots to read.

        Use each before the next: memory is meant for the probabilities of one canvas.
        """
        numbers = [number for number, moment in enumerate(moments) if len(moment.places)]
        numbers.sort(key=lambda number: len(moments[number].ids))
        for group in self._groups(moments, numbers, batch):
            states = self._call([moments[number] for number in group])  # B L D
            for row, number in enumerate(group):
                places = torch.as_tensor(moments[number].places, device=states.device)
                slots = moments[number].slots
                yield number, CanvasPosterior(states[row, places], slots, self.proposer)

    def _groups(
        self, moments: Sequence[Moment], numbers: Sequence[int], batch: int
    ) -> Iterator[list[int]]:
        """The canvases of each call, by growing length."""
        group: list[int] = []
        for number in numbers:
            length = len(moments[number].ids)
            most = batch
            if self.all_logits:
                most = min(batch, LOGITS_BUDGET // (length * self.proposer.vocab.size))
            uneven = not self.pads and group and len(moments[group[0]].ids) != length
            if group and (uneven or len(group) >= most):
                yield group
                group = []
            group.append(number)
        if group:
            yield group

    @torch.inference_mode()
    def _call(self, moments: Sequence[Moment]) -> Tensor:
        pad_id = self.proposer.vocab.pad_id
        ids, length = padded([moment.ids.tolist() for moment in moments], pad_id)
        real = torch.arange(ids.shape[1]) < length[:, None]
        time = None
        if self.times is not None:
            times = [moment.time for moment in moments]
            time = torch.tensor(times, dtype=self.time_dtype, device=self.device)
        return self.states(ids.to(self.device), real.to(self.device), time, moments)


def masked_reader(
    net: Denoiser,
    vocab: Vocab,
    options: MdmOptions | None = None,
    device: torch.device | str = "cpu",
) -> FamilyReader:
    """The reader of mdm, for traces made with `options`; without them only MASK is forbidden."""
    options = mdm.resolve(options or MdmOptions())
    barred = (vocab.mask_id, *(vocab.end_ids if find_stopping(options.eos).forbids else ()))
    inner = inside(net)
    return FamilyReader(
        states=lambda ids, real, *_: net.hidden(ids, mask=real),
        proposer=Proposer(net.head, vocab, mdm.build_policy(options), Draw.of(options), barred),
        pads=inner.takes_mask if isinstance(inner, LogitsDenoiser) else True,
        all_logits=isinstance(inner, LogitsDenoiser),
        device=device,
    )


def flex_reader(
    net: Inserter,
    vocab: Vocab,
    options: FlexOptions | None = None,
    device: torch.device | str = "cpu",
) -> FamilyReader:
    """The reader of flexmdm, for traces made with `options`, which give its times."""
    if options is None:
        raise ValueError(
            "flexmdm reads the sampler's time, and nothing says how these traces were "
            "sampled: give their options, such as mode='compat' and steps=512"
        )
    full = flexmdm.resolve(options)
    compat = full.mode == "compat"
    barred = () if compat else role_ids(vocab)
    exact = times_by_clock(net, full, TokenView(net, vocab, device), device)

    def states(ids: Tensor, real: Tensor, time: Tensor | None, _: Sequence[Moment]) -> Tensor:
        assert time is not None
        return net.look(ids, mask=real, time=time).states

    return FamilyReader(
        states=states,
        proposer=Proposer(net.head, vocab, flexmdm.build_policy(full), Draw.of(full), barred),
        times=CompatTimes(net, full) if compat else exact,
        # The sampler's own precision: a different one would change the posteriors slightly.
        time_dtype=torch.float32 if compat else torch.float64,
        device=device,
    )
