"""The event clock of flexlatent, seen again: what its calls read, and what they said was missing.

The walk itself is replay_times.py; here its canvases are those of segments, an anchor in front, and
what is inserted and revealed are whole segments. Letters: B rows, L items (anchor and segments).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.growing import Beginning, Growth
from anyorder.decode.moments import Replay
from anyorder.decode.replay_times import Walk, began
from anyorder.decode.segment_inputs import SegmentInputs
from anyorder.decode.segment_moments import SegmentTrace
from anyorder.nets.segment_net import SegmentInserter


@dataclass(frozen=True)
class SegmentView:
    """Canvases of flexlatent."""

    net: SegmentInserter
    inputs: SegmentInputs

    def walk(self, replay: Replay) -> Walk:
        canvas, key = began(replay)
        read = SegmentTrace.of(replay, self.inputs.vocab.eos_id)
        insert = np.asarray([each.insert for each in read.segments], dtype=np.int64)
        reveal = np.asarray([each.reveal for each in read.segments], dtype=np.int64)
        frozen = tuple(each.ids for each in read.segments if each.insert == 0)
        if frozen != canvas.segments:
            raise ValueError(
                f"trace {replay.trace.task_id!r} sample {replay.trace.sample} did not begin with "
                "the canvas that its run describes: the run card and the traces do not belong "
                "together"
            )
        last = max(replay.steps, default=-1)
        return Walk(replay.trace, key, last, insert, reveal, (read, canvas))

    def rows(self, walks: Sequence[Walk], step: int) -> Growth:
        beginnings, opens = [], []
        for walk in walks:
            _, canvas = walk.about
            after = np.ones(len(walk.insert), dtype=bool)
            after[walk.insert == 0] = canvas.grows[1:]
            there = walk.insert <= step
            grows = [canvas.grows[0], *after[there].tolist()]
            inserted = int((walk.insert[there] > 0).sum())
            beginnings.append(Beginning(grows, canvas.room - inserted, walk.key))
            opens.append(np.concatenate([[False], walk.reveal[there] > step]))
        rows = Growth.begin(beginnings, torch.device(self.inputs.device))
        for row, flags in enumerate(opens):
            rows.open[row, : len(flags)] = torch.from_numpy(flags).to(rows.open.device)
        return rows

    def gaps(self, walks: Sequence[Walk], step: int, rows: Growth, time: Tensor) -> Tensor:
        moments = [walk.about[0].moment(step, None, self.net.segment_length) for walk in walks]
        return self.net.look(*self.inputs.of(moments), time=time).gaps
