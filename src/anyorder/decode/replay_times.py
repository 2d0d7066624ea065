"""At which time the sampler asked the network about each canvas of a flexmdm trace.

A trace counts steps; the network wants its own time. After s steps,

    clock "steps"    1 - t = (N - s) / N, and nothing after the last (clocks.py)
    mode "compat"    t is s times 1 / N, added up in float32, and stops short of 1
    clock "events"   the waiting time after call n is drawn from noise that the sample's key names,
                     at a rate that call n itself gave. So all calls up to the last canvas are made
                     again, without the vocabulary head; what each of them would have done
                     (one reveal, one insertion, nothing) must be what the trace says happened.

Not here: posteriors. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.canvas import GrowingCanvas
from anyorder.decode.clocks import END, Clock, build_clock, network_time, schedules
from anyorder.decode.flexmdm_compat import LATEST
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.gaps import Demand, expected_missing
from anyorder.decode.growing import Rows
from anyorder.decode.moments import BoolArray, FloatArray, Replay
from anyorder.nets.flex import Inserter
from anyorder.process.schedule import Power
from anyorder.trace import Trace
from anyorder.vocab import Vocab

Times = Callable[[Sequence[Replay]], list[FloatArray]]


@dataclass(frozen=True)
class StepTimes:
    """A uniform grid of time."""

    net: Inserter
    options: FlexOptions

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


@dataclass(frozen=True)
class EventTimes:
    """Times that only the calls themselves can tell."""

    net: Inserter
    options: FlexOptions
    vocab: Vocab
    device: torch.device | str

    def __call__(self, replays: Sequence[Replay]) -> list[FloatArray]:
        walks = [_Walk.of(each) for each in replays]
        clock = build_clock(self.options, self.net)
        step = 0
        while True:
            current = [walk for walk in walks if walk.last >= step]
            if not current:
                break
            step += 1
            self._call(current, clock, step)
        return [
            np.asarray([walk.times[step] for step in each.steps])
            for walk, each in zip(walks, replays, strict=True)
        ]

    @torch.inference_mode()
    def _call(self, walks: Sequence[_Walk], clock: Clock, step: int) -> None:
        """Call number `step` of every walk, on its canvas after step - 1."""
        rows = self._rows(walks, step - 1)
        gamma, _ = schedules(self.options, self.net)
        time = network_time(clock.asked(rows.left), gamma, self.net)
        look = self.net.look(rows.ids, mask=rows.real, time=time)
        over = rows.left <= END
        grows = rows.grows & ((rows.room > 0) & ~over)[:, None]
        expected = expected_missing(look.gaps, grows, self.options.insertion_temperature)
        plan = clock.plan(rows, Demand(expected, rows.room, rows.key, rows.slot, step))
        reveals = torch.where(over, rows.open.sum(dim=1), plan.reveals)
        inserts = plan.inserts.sum(dim=1).masked_fill(over, 0)
        for row, walk in enumerate(walks):
            walk.times.append(float(time[row]))
            walk.check(step, int(reveals[row]), int(inserts[row]))
            walk.left, walk.bound = float(plan.left[row]), float(plan.bound[row])

    def _rows(self, walks: Sequence[_Walk], step: int) -> Rows:
        canvases = [walk.canvas(step, self.vocab.mask_id) for walk in walks]
        keys = [walk.key for walk in walks]
        rows = Rows.start(canvases, keys, self.vocab, torch.device(self.device))
        rows.open = (rows.ids == self.vocab.mask_id) & rows.real
        rows.left = self._column([walk.left for walk in walks])
        rows.bound = self._column([walk.bound for walk in walks])
        return rows

    def _column(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)


@dataclass
class _Walk:
    """One trace on the way through its calls."""

    trace: Trace
    key: int
    last: int
    """The last canvas whose time is wanted; -1: none."""
    room: int
    frozen: BoolArray
    """Whether slots may open after each prompt token, then after each frozen one."""
    times: list[float]
    left: float = 1.0
    bound: float = 0.0

    @classmethod
    def of(cls, replay: Replay) -> _Walk:
        trace, canvas = replay.trace, replay.canvas
        if canvas is None or replay.key is None:
            raise ValueError(
                "the times of the event clock follow from its noise: give the canvas that the "
                "sample began with, and its noise key"
            )
        assert trace.prompt_ids is not None and trace.token_ids is not None
        given = trace.timing()[0] == 0
        began = [*trace.prompt_ids.tolist(), *trace.token_ids[given].tolist()]
        if began != list(canvas.ids):
            raise ValueError(
                f"{_name(trace)} did not begin with the canvas that its run describes: the run "
                "card and the traces do not belong together"
            )
        return cls(
            trace=trace,
            key=replay.key,
            last=max(replay.steps, default=-1),
            room=canvas.room,
            frozen=np.asarray(canvas.grows),
            times=[],
        )

    def canvas(self, step: int, mask_id: int) -> GrowingCanvas:
        """The canvas after `step` steps, and where it may grow."""
        now, insert = self.trace.replay(step), self.trace.timing()[0]
        assert now.prompt_ids is not None
        grows = np.ones(len(insert), dtype=bool)
        grows[insert == 0] = self.frozen[len(now.prompt_ids) :]
        there = np.concatenate([self.frozen[: len(now.prompt_ids)], grows[now.slots]])
        ids = now.ids(mask_id, prompt=True)
        inserted = int(((insert > 0) & (insert <= step)).sum())
        return GrowingCanvas(tuple(ids.tolist()), tuple(there.tolist()), self.room - inserted)

    def check(self, step: int, reveals: int, inserts: int) -> None:
        """What the call would have done must be what was done."""
        insert, reveal = self.trace.timing()
        done = (int((reveal == step).sum()), int((insert == step).sum()))
        if done != (reveals, inserts):
            raise ValueError(
                f"{_name(self.trace)} reveals {done[0]} and inserts {done[1]} in step {step}; "
                f"this model reveals {reveals} and inserts {inserts}: give the model, and the "
                "options, that made it"
            )


def _check_steps(trace: Trace, most: int) -> None:
    if (trace.steps or 0) > most:
        raise ValueError(
            f"{_name(trace)} has {trace.steps} steps, but its options make {most} at the most: "
            "give the options that it was sampled with"
        )


def _name(trace: Trace) -> str:
    return f"trace {trace.task_id!r} sample {trace.sample}"
