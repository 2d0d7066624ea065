"""Traces to replay, and what replaying them gives: shared by the tests of the replayer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyorder.decode.canvas import Canvas, Decoded, GrowingCanvas
from anyorder.decode.replay import Moment, Replay
from anyorder.families.replay import FamilyReader
from anyorder.measure.placement_scores import CanvasPlacement, Commit, place
from anyorder.trace import Trace
from anyorder.vocab import Vocab

STRINGS = Trace(
    task_id="s",
    sample=1,
    prompt="",
    text="ab",
    char_end=[1, 2],  # type: ignore[arg-type]
    insert_step=[0, 0],  # type: ignore[arg-type]
    reveal_step=[1, 2],  # type: ignore[arg-type]
    steps=2,
)
"""What an import of token strings gives."""


def traced(vocab: Vocab, canvas: Canvas | GrowingCanvas, row: Decoded, **more: Any) -> Trace:
    return Trace.from_tokens(
        vocab,
        row.token_ids,
        prompt_ids=canvas.ids[: canvas.prompt_length],
        insert_step=row.insert_step,
        reveal_step=row.reveal_step,
        steps=row.steps,
        log_prob=row.log_prob,  # type: ignore[arg-type]
        **more,
    )


def whole(trace: Trace, stride: int = 1, **more: Any) -> Replay:
    assert trace.steps is not None and trace.token_ids is not None
    inside = np.ones(len(trace.token_ids), dtype=bool)
    return Replay(trace, range(0, trace.steps, stride), inside, **more)


def placed_by(
    reader: FamilyReader, replays: Sequence[Replay], batch: int = 32
) -> list[tuple[Moment, CanvasPlacement]]:
    """The moments that have something to read, in their order, and their numbers."""
    moments = [moment for each in reader.moments(replays) for moment in each]
    found = {}
    for number, posterior in reader.posteriors(moments, batch):
        moment = moments[number]
        commits = [Commit(*pair) for pair in zip(moment.committed, moment.tokens, strict=True)]
        found[number] = place(posterior, commits)
    return [(moments[number], found[number]) for number in sorted(found)]
