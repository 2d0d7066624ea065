"""The data of the schedule figure (paper, appendix D): how much is inserted, masked and clean.

Four panels, all as shares of the final length: the two schedules of training; the shares in
training; the shares that the sampler's own schedules promise; and those that stored traces show.
Numbers only: drawing is somebody else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from anyorder.decode.clocks import schedules
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.model import Model
from anyorder.process.insertion import Clocks
from anyorder.process.schedule import Power
from anyorder.trace import Trace


def schedule_figure(
    model: Model, traces: Sequence[Trace] = (), *, points: int = 101, **options: Any
) -> dict[str, dict[str, list[float]]]:
    """Curves by panel and name; `options` are flexmdm's decoding options, as for `sample`."""
    if model.family.options is not FlexOptions:
        raise ValueError(f"{model.family.name} inserts nothing: the figure needs a flexmdm model")
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


def _shares(clocks: Clocks, time: torch.Tensor) -> dict[str, list[float]]:
    deleted, masked, clean = clocks.shares(time)
    return {
        "time": time.tolist(),
        "inserted": (1 - deleted).tolist(),
        "masked": masked.tolist(),
        "clean": clean.tolist(),
    }


def shares_of(traces: Sequence[Trace]) -> dict[str, list[float]]:
    """The mean shares after each step; text that was given does not count, nor do empty answers.

    Steps of the event clock are network calls, which are no measure of time.
    """
    steps = max(trace.steps or 0 for trace in traces)
    step = np.arange(steps + 1)[:, None]  # S 1
    inserted, clean = [], []
    for trace in traces:
        insert, reveal = trace.timing()
        written = reveal > 0  # given text has step 0
        if written.any():
            inserted.append((insert[written] <= step).mean(axis=1))
            clean.append((reveal[written] <= step).mean(axis=1))
    if not inserted:
        raise ValueError("the traces hold no token that was written: sample some first")
    here, done = np.mean(inserted, axis=0), np.mean(clean, axis=0)
    return {
        "step": step[:, 0].tolist(),
        "inserted": here.tolist(),
        "masked": (here - done).tolist(),
        "clean": done.tolist(),
    }
