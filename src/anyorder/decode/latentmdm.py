"""LatentMDM decoding: reveal whole segments in the order a policy chooses.

Paper, Section 4.2 and appendix E. A row has a fixed number of slots, each of them open (the mask
vector), revealed (its segment's latent) or empty. Each step: one call of the latent network gives
every open slot a condition; a contest among their candidates (contest.py) takes k; these are
encoded and stand for good. What an empty segment says about the slots after it is the tail rule
(latentmdm_options.py). Rows that are complete leave the batch, and their last segments are never
encoded.

mode="compat" writes all candidates anew with fresh noise in every step, and its tail rule erases.
Letters: B rows, S slots, N segments, T positions of a segment, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyorder.decode.candidates import Candidates
from anyorder.decode.canvas import Candidate, Decoded, Watcher
from anyorder.decode.contest import Choice, Contest
from anyorder.decode.latentmdm_options import LatentOptions
from anyorder.decode.proposals import Sight
from anyorder.decode.segment_canvas import SegmentCanvas
from anyorder.decode.segment_rows import SegmentRows
from anyorder.decode.watching import seen
from anyorder.nets.segment_net import SegmentNet
from anyorder.vocab import Vocab


def check(canvases: Sequence[SegmentCanvas], options: LatentOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        if None not in canvas.segments:
            raise ValueError("nothing to fill: the canvas has no free slot")
        if options.slots is not None and len(canvas.segments) > options.slots:
            raise ValueError(
                f"the canvas has {len(canvas.segments)} segments, and slots={options.slots} allows "
                "fewer: raise slots, or fill and freeze fewer"
            )


def _check_fit(net: SegmentNet, vocab: Vocab, canvases: Sequence[SegmentCanvas]) -> None:
    for canvas in canvases:
        if len(canvas.segments) > net.slots:
            raise ValueError(
                f"the canvas has {len(canvas.segments)} segments, and the network was trained with "
                f"{net.slots} slots: use no more"
            )
        longest = max(len(segment or ()) for segment in canvas.segments)
        if longest > net.segment_length:
            raise ValueError(
                f"a frozen segment has {longest} tokens, and the network's have at most "
                f"{net.segment_length}: break it up"
            )
        for ids in (canvas.prompt, *canvas.segments):
            vocab.check_prompt(ids or ())


@torch.inference_mode()
def decode(
    net: SegmentNet,
    vocab: Vocab,
    canvases: Sequence[SegmentCanvas],
    keys: Sequence[int],
    options: LatentOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = options.resolved()
    check(canvases, options)
    _check_fit(net, vocab, canvases)
    key = torch.tensor(keys, dtype=torch.int64, device=device)
    reuse = options.mode == "exact"
    segments = Candidates(net, vocab, options.draw(), key, net.slots, reuse=reuse)
    rows = SegmentRows.start(net, canvases, segments)
    stepper = _Stepper(net, rows, options)
    results: dict[int, Decoded] = {}
    step = 0
    while len(rows.row):
        step += 1
        stepper.advance(step)
        if watch is not None:
            numbers = enumerate(rows.row.tolist())
            watch([seen(row, stepper.collect(at, canvases[row], step)) for at, row in numbers])
        finished = ~rows.open.any(dim=1)
        if bool(finished.any()):
            for index in finished.nonzero()[:, 0].tolist():
                number = int(rows.row[index])
                results[number] = stepper.collect(index, canvases[number], step)
            rows.keep((~finished).nonzero()[:, 0])
    return [results[number] for number in range(len(canvases))]


class _Stepper:
    """One decoding step: conditions, the choice, the tail rule, latents."""

    def __init__(self, net: SegmentNet, rows: SegmentRows, options: LatentOptions) -> None:
        self.net, self.rows = net, rows
        self.k, self.tail = options.k, options.build_tail()
        self.contest = Contest(
            candidates=rows.segments,
            policy=options.build_policy(),
            slot_temperature=options.slot_temperature,
            complete=options.candidates,
            anew=options.mode == "compat",
        )
        self.proposed: dict[int, list[Candidate]] = {row: [] for row in rows.row.tolist()}
        self.records = options.candidates

    def advance(self, step: int) -> None:
        rows = self.rows
        conditions = self.net.conditions(rows.prompt, rows.latents)  # B S D
        rows.forwards += 1
        slot = torch.arange(rows.open.shape[1], device=rows.open.device).expand_as(rows.open)
        sight = Sight(conditions, rows.segments.key, slot, step)
        choice = self.contest.choose(sight, rows.open, torch.full_like(rows.row, self.k))
        if self.records:
            self._record(choice, step)
        rows.ties += choice.ties
        emptied = self._emptied(choice.taken)
        rows.commit(choice, emptied, step)
        unfinished = rows.open.any(dim=1, keepdim=True)
        rows.encode(self.net, (choice.taken | emptied) & unfinished)

    def _emptied(self, taken: Tensor) -> Tensor:
        """The slots that become empty because an empty segment before them is taken.  # B S

        Up to the next frozen segment: what stands there shows that the text goes on behind it.
        """
        rows, tail = self.rows, self.tail
        if not tail.closes:
            return torch.zeros_like(taken)
        count = (taken & rows.segments.empty).long().cumsum(dim=1)
        goes_on = ~rows.free & ~rows.segments.empty
        after = count > count.masked_fill(~goes_on, 0).cummax(dim=1).values
        waiting = rows.open & ~taken
        if not tail.erases:
            return after & waiting
        return after & (waiting | ~rows.segments.empty)

    def _record(self, choice: Choice, step: int) -> None:
        """Keep all candidates of this step."""
        rows = self.rows
        at = rows.open.nonzero(as_tuple=True)
        ids, length = rows.segments.content(*at)
        columns = (rows.row[at[0]], at[1], ids, length, choice.scores[at], choice.taken[at])
        for row, slot, tokens, size, score, taken in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            self.proposed[row].append(Candidate(step, slot, tokens[:size], score, taken))

    def collect(self, index: int, canvas: SegmentCanvas, step: int) -> Decoded:
        """What was done with one row up to this step."""
        proposed = self.proposed[int(self.rows.row[index])] if self.records else None
        return self.rows.collect(index, canvas, step, proposed)
