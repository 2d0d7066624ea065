"""Flex-latent decoding: insert slots for segments and reveal them, until none is missing.

flexmdm's process (paper, Section 4.1) over latentmdm's segments (Section 4.2); the paper leaves it
to future work. A row starts with no segments but what is frozen. Each step is one call of the
latent network at the time of the clock (clocks.py), and then

    reveal   the clock says how many open segments each row reveals, the policy which (contest.py);
             they are encoded and stand for good
    insert   open slots go into the gaps, by what the same call says is missing (gaps.py)

What is still open when time is over is revealed at once by one more call. Rows leave the batch when
their time is over, or when they are full and nothing is open.

Only insertions decide how many segments there are: none is padding, and EOS, which closes a
segment, is never its first token. The law is the data's, up to the error of a grid of steps, when
the policy does not look at drawn tokens (left_to_right, random) and temperature is 1; average,
minimum and first prefer likely segments. Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from anyorder.decode.canvas import Decoded, Watcher
from anyorder.decode.clocks import Pace, finished
from anyorder.decode.contest import Contest
from anyorder.decode.flexlatent_options import FlexLatentOptions
from anyorder.decode.growing_segments import GrowingSegments
from anyorder.decode.proposals import Sight
from anyorder.decode.segment_growth import SegmentGrowth
from anyorder.decode.watching import seen
from anyorder.nets.segment_net import SegmentInserter
from anyorder.vocab import Vocab


def check(canvases: Sequence[GrowingSegments], options: FlexLatentOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        if not any(canvas.grows):
            raise ValueError("nothing to fill: no gap of the canvas may grow")
        if canvas.room < 1:
            raise ValueError(f"room for {canvas.room} new segments: raise slots, or freeze fewer")
        most = len(canvas.segments) + canvas.room
        if options.slots is not None and most > options.slots:
            raise ValueError(
                f"the canvas may have {most} segments, and slots={options.slots} allows fewer: "
                "raise slots, or give less room"
            )


@torch.inference_mode()
def decode(
    net: SegmentInserter,
    vocab: Vocab,
    canvases: Sequence[GrowingSegments],
    keys: Sequence[int],
    options: FlexLatentOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = options.resolved()
    check(canvases, options)
    _check_fit(net, vocab, canvases)
    state = SegmentGrowth.start(net, vocab, canvases, keys, options.draw(), torch.device(device))
    stepper = _Stepper(state, options)
    results: dict[int, Decoded] = {}
    step = 0
    while len(state):
        done = finished(state.rows)
        if bool(done.any()):
            results |= state.collect(done.nonzero()[:, 0], canvases, step)
            state.keep((~done).nonzero()[:, 0])
        else:
            step += 1
            stepper.advance(step)
            if watch is not None:
                everybody = torch.arange(len(state), device=device)
                now = state.collect(everybody, canvases, step)
                watch([seen(row, so_far) for row, so_far in now.items()])
    return [results[row] for row in range(len(canvases))]


def _check_fit(net: SegmentInserter, vocab: Vocab, canvases: Sequence[GrowingSegments]) -> None:
    for canvas in canvases:
        assert canvas.prompt and all(canvas.segments), "an anchor, and no empty segment"
        longest = max(map(len, canvas.segments), default=0)
        if longest > net.segment_length:
            raise ValueError(
                f"a frozen segment has {longest} tokens, and the network's have at most "
                f"{net.segment_length}: break it up"
            )
        vocab.check_prompt(canvas.ids)


class _Stepper:
    """One decoding step: a look, a plan, reveals, insertions."""

    def __init__(self, state: SegmentGrowth, options: FlexLatentOptions) -> None:
        self.state = state
        self.pace = Pace(options, state.net)
        self.contest = Contest(
            state.segments,
            options.build_policy(),
            complete=options.candidates,
            reshuffles=True,
        )
        self.records = options.candidates
        if self.records:
            state.proposed = {row: [] for row in state.rows.row.tolist()}

    def advance(self, step: int) -> None:
        state, rows = self.state, self.state.rows
        look = state.look(self.pace.time(rows))
        plan = self.pace.plan(rows, look.gaps, step)
        states = F.pad(look.states, (0, 0, 1, 0))  # the anchor has no condition
        open = rows.open
        choice = self.contest.choose(Sight(states, rows.key, rows.slot, step), open, plan.reveals)
        if self.records:
            state.record(choice, open, step)
        taken = state.commit(choice, step)
        rows.open_slots(plan.inserts, step)
        rows.left, rows.bound = plan.left, plan.bound
        going = ~finished(rows)[taken[0]]  # nobody looks at the others any more
        state.encode(*(each[going] for each in taken))
