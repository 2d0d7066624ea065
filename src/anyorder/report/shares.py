"""How much of its final text a run had inserted, masked and written after each step.

Not here: what the schedules promise, which needs the model (apps/schedule_figure.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anyorder.trace import Trace


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
