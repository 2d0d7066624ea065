"""The schedule figure (paper, appendix D): how much is inserted, masked and clean.

Four panels, all as shares of the final length: the two schedules of training; the shares in
training; the shares that the sampler's own schedules promise; and those that stored traces show.
For every family with a clock: flexmdm's tokens, flexlatent's segments. `schedule_figure` gives the
numbers, `schedule_drawing` the picture (report/charts/schedule.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anyorder.decode.clock_options import ClockOptions
from anyorder.decode.clocks import schedules
from anyorder.model import Model
from anyorder.process.insertion import Clocks
from anyorder.process.schedule import Power
from anyorder.report.charts import Drawing, schedule, schedule_chart
from anyorder.report.shares import shares_of
from anyorder.trace import Trace


def schedule_figure(
    model: Model, traces: Sequence[Trace] = (), *, points: int = 101, **options: Any
) -> dict[str, dict[str, list[float]]]:
    """Curves by panel and name; `options` are the family's decoding options, as for `sample`."""
    if not issubclass(model.family.options, ClockOptions):
        raise ValueError(
            f"{model.family.name} inserts nothing: the figure needs a flexmdm or flexlatent model"
        )
    if points < 2:
        raise ValueError(f"{points} points make no curve: give at least 2")
    if any(trace.family != model.family.name for trace in traces):
        raise ValueError("traces of another family insert nothing: give traces of this model")
    time = torch.linspace(0, 1, points, dtype=torch.float64)
    trained = Clocks(Power(model.net.insertion_exponent), Power(model.net.unmasking_exponent))
    gamma, delta = schedules(model.family.choose(options), model.net)
    figure = {
        "schedules": {
            "time": time.tolist(),
            "insertion": trained.insertion.value(time).tolist(),
            "unmasking": trained.unmasking.value(time).tolist(),
        },
        "training": _shares(trained, time),
        "inference": _shares(Clocks(gamma, delta), time),
    }
    if traces:
        figure["sampled"] = shares_of(traces)
    return figure


def schedule_drawing(
    model: Model,
    traces: Sequence[Trace] = (),
    *,
    points: int = 101,
    name: str = "schedule",
    **options: Any,
) -> Drawing:
    """The figure, ready for a page (`inline`) or for files (`save`)."""
    figure = schedule_figure(model, traces, points=points, **options)
    return schedule(schedule_chart(figure, name))


def _shares(clocks: Clocks, time: torch.Tensor) -> dict[str, list[float]]:
    deleted, masked, clean = clocks.shares(time)
    return {
        "time": time.tolist(),
        "inserted": (1 - deleted).tolist(),
        "masked": masked.tolist(),
        "clean": clean.tolist(),
    }
