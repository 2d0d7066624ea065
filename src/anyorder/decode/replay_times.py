"""At which time the sampler asked the network about each canvas of a trace that grew.

A trace counts steps; the network wants its own time. After s steps,

    clock "steps"    1 - t = (N - s) / N, and nothing after the last (clocks.py)
    mode "compat"    t is s times 1 / N, added up in float32, and stops short of 1
    clock "events"   the waiting time after call n is drawn from noise that the sample's key names,
                     at a rate that call n itself gave. So all calls up to the last canvas are made
                     again, without the vocabulary head; what each of them would have done
                     (one reveal, one insertion, nothing) must be what the trace says happened.

The clocks are those of flexmdm and flexlatent alike; what is inserted and revealed are tokens
(`TokenView`) or segments (segment_times.py).

Not here: posteriors. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.canvas import GrowingCanvas
from anyorder.decode.clock_options import ClockOptions
from anyorder.decode.clocks import Pace, Trained, build_clock, network_time, schedules
from anyorder.decode.flexmdm_compat import LATEST
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.growing import Growth, Rows
from anyorder.decode.moments import BoolArray, FloatArray, IntArray, Replay
from anyorder.nets.denoiser import Inserter
from anyorder.process.schedule import Power
from anyorder.trace import Trace
from anyorder.vocab import Vocab

Times = Callable[[Sequence[Replay]], list[FloatArray]]


@dataclass(frozen=True)
class StepTimes:
    """A uniform grid of time."""

    net: Trained
    options: ClockOptions

    def __call__(self, replays: Sequence[Replay]) -> list[FloatArray]:
        steps = self.options.steps
        assert steps is not None
        gamma, _ = schedules(self.options, self.net)
        clock = build_clock(self.options, self.net)
        result = []
        for each in replays:
            _check_steps(each.trace, steps + 1)  # one more call may fill what is left
            left = [max(0, steps - step) / steps for step in each.steps]
            asked = clock.asked(torch.tensor(left, dtype=torch.float64))
            result.append(network_time(asked, gamma, self.net).numpy())
        return result


@dataclass(frozen=True)
class CompatTimes:
    """The published clock."""

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
            t = (t + 1 / steps).clamp(max=LATEST)
        for each in replays:
            _check_steps(each.trace, steps)
        return [np.asarray([times[step] for step in each.steps]) for each in replays]


@dataclass
class Walk:
    """One trace on the way through its calls."""

    trace: Trace
    key: int
    last: int
    """The last canvas whose time is wanted; -1: none."""
    insert: IntArray
    reveal: IntArray
    """The steps of what the clock counts: tokens, or segments."""
    about: Any
    """What a view keeps of it."""
    times: list[float] = field(default_factory=list)
    left: float = 1.0
    bound: float = 0.0

    def check(self, step: int, reveals: int, inserts: int) -> None:
        """What the call would have done must be what was done."""
        done = (int((self.reveal == step).sum()), int((self.insert == step).sum()))
        if done != (reveals, inserts):
            raise ValueError(
                f"{_name(self.trace)} reveals {done[0]} and inserts {done[1]} in step {step}; "
                f"this model reveals {reveals} and inserts {inserts}: give the model, and the "
                "options, that made it"
            )


class View(Protocol):
    """How canvases are rebuilt for a clock, and what the network says is missing on them."""

    def walk(self, replay: Replay) -> Walk:
        """A trace before its first call."""
        ...

    def rows(self, walks: Sequence[Walk], step: int) -> Growth:
        """The canvases after `step` steps: what is open, where they grow, and their room."""
        ...

    def gaps(self, walks: Sequence[Walk], step: int, rows: Growth, time: Tensor) -> Tensor:
        """The log of what is missing in each gap of these canvases, at times B.  # B L"""
        ...


@dataclass(frozen=True)
class EventTimes:
    """Times that only the calls themselves can tell."""

    net: Trained
    options: ClockOptions
    view: View
    device: torch.device | str

    def __call__(self, replays: Sequence[Replay]) -> list[FloatArray]:
        walks = [self.view.walk(each) for each in replays]
        pace, step = Pace(self.options, self.net), 0
        while current := [walk for walk in walks if walk.last >= step]:
            step += 1
            self._call(current, pace, step)
        return [
            np.asarray([walk.times[step] for step in each.steps])
            for walk, each in zip(walks, replays, strict=True)
        ]

    @torch.inference_mode()
    def _call(self, walks: Sequence[Walk], pace: Pace, step: int) -> None:
        """Call number `step` of every walk, on its canvas after step - 1."""
        rows = self.view.rows(walks, step - 1)
        rows.left = self._column([walk.left for walk in walks])
        rows.bound = self._column([walk.bound for walk in walks])
        time = pace.time(rows)
        plan = pace.plan(rows, self.view.gaps(walks, step - 1, rows, time), step)
        inserts = plan.inserts.sum(dim=1)
        for row, walk in enumerate(walks):
            walk.times.append(float(time[row]))
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
            raise ValueError(
                f"{_name(trace)} did not begin with the canvas that its run describes: the run "
                "card and the traces do not belong together"
            )
        about = (np.asarray(canvas.grows), canvas.room)
        last, (insert, reveal) = max(replay.steps, default=-1), trace.timing()
        return Walk(trace, key, last, insert.astype(np.int64), reveal.astype(np.int64), about)

    def rows(self, walks: Sequence[Walk], step: int) -> Rows:
        canvases = [self._canvas(walk, step) for walk in walks]
        keys = [walk.key for walk in walks]
        rows = Rows.start(canvases, keys, self.vocab, torch.device(self.device))
        rows.open = (rows.ids == self.vocab.mask_id) & rows.real
        return rows

    def _canvas(self, walk: Walk, step: int) -> GrowingCanvas:
        """The canvas after `step` steps, and where it may grow."""
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
        assert isinstance(rows, Rows)
        return self.net.look(rows.ids, mask=rows.real, time=time).gaps


def began(replay: Replay) -> tuple[Any, int]:
    """The canvas that a trace began with, and its noise key."""
    if replay.canvas is None or replay.key is None:
        raise ValueError(
            "the times of the event clock follow from its noise: give the canvas that the sample "
            "began with, and its noise key"
        )
    return replay.canvas, replay.key


def _check_steps(trace: Trace, most: int) -> None:
    if (trace.steps or 0) > most:
        raise ValueError(
            f"{_name(trace)} has {trace.steps} steps, but its options make {most} at the most: "
            "give the options that it was sampled with"
        )


def _name(trace: Trace) -> str:
    return f"trace {trace.task_id!r} sample {trace.sample}"
