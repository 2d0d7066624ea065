"""FlexMDM decoding: reveal masks and insert slots, until nothing is missing.

Paper, Section 4.1 and appendix D. Each step is one network call on canvases trimmed to the longest
row, asked at the progress of its time (clocks.py):

    unmask   the clock says how many masks each row reveals, the policy which; their tokens are
             drawn from the posterior, as in mdm
    insert   masked slots go into the gaps, by what the same call says is missing (clocks.py)

Later insertions move what stands right of them, so a reveal fixes a token and its order, not its
position. What is still masked when time is over is revealed at once by one more call. Rows leave
the batch when their time is over, or when they are full and have no masks.

In exact mode scores should not look at the drawn token: ranking by its probability (`sampled`, as
published) is biased however many steps are taken. EOS, BOS, PAD and the mask are never drawn: only
insertions decide the length.

Not here: mode="compat" (compat.py). Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas, Watcher
from anyorder.decode.clocks import Pace, finished
from anyorder.decode.growing import Rows
from anyorder.decode.loop import run
from anyorder.decode.policy import take
from anyorder.decode.proposals import Proposer, Sight
from anyorder.families.flexmdm.compat import Chosen, check_compat, decode_compat, extra_of
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.nets.denoiser import Inserter
from anyorder.vocab import Vocab


def check(canvases: Sequence[GrowingCanvas], options: FlexOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        if not any(canvas.grows):
            raise ValueError("nothing to fill: no gap of the canvas may grow")
        if canvas.room < 1:
            raise ValueError(f"room for {canvas.room} new slots: give max_new_tokens of at least 1")
    if options.mode == "compat":
        check_compat(canvases)


@torch.inference_mode()
def decode(
    net: Inserter,
    vocab: Vocab,
    canvases: Sequence[GrowingCanvas],
    keys: Sequence[int],
    options: FlexOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only.

    In mode compat all rows share the stream of the first key, as published.
    """
    options = options.resolved()
    if options.mode == "compat":
        generator = torch.Generator(device).manual_seed(keys[0])
        return decode_compat(net, vocab, canvases, options, generator, watch)
    rows = Rows.start(canvases, keys, vocab, torch.device(device))
    return run(_Stepper(net, vocab, options, canvases, rows), watch)


class _Stepper:
    """One decoding step: a look, a plan, reveals, insertions."""

    def __init__(
        self,
        net: Inserter,
        vocab: Vocab,
        options: FlexOptions,
        canvases: Sequence[GrowingCanvas],
        rows: Rows,
    ) -> None:
        self.net, self.vocab, self.canvases, self.rows = net, vocab, canvases, rows
        self.extra = extra_of(options, vocab)
        self.pace = Pace(options, net)
        specials = (vocab.mask_id, vocab.pad_id, vocab.eos_id, vocab.bos_id)
        self.proposer = Proposer(
            head=net.head,
            vocab=vocab,
            policy=options.build_policy(),
            draw=options.draw(),
            forbidden=tuple({token for token in specials if token is not None}),
            reshuffles=True,
            draws_first=self.extra is not None,
        )

    @property
    def row(self) -> Tensor:
        return self.rows.row

    def done(self, step: int) -> Tensor:
        return finished(self.rows)

    def collect(self, index: int, step: int) -> Decoded:
        return self.rows.collect(index, self.canvases[int(self.rows.row[index])], step)

    def keep(self, rows: Tensor) -> None:
        self.rows.keep(rows)

    def advance(self, step: int) -> None:
        rows = self.rows
        look = self.net.look(rows.ids, mask=rows.real, time=self.pace.time(rows))
        rows.forwards += 1
        plan = self.pace.plan(rows, look.gaps, step)
        # Reveal first: insertions move positions, and `look` speaks of the old ones.
        self._reveal(rows, Sight(look.states, rows.key, rows.slot, step), plan.reveals)
        rows.grow(plan.inserts, step, self.vocab)
        rows.left, rows.bound = plan.left, plan.bound

    def _reveal(self, rows: Rows, sight: Sight, counts: Tensor) -> None:
        if self.extra is None and not bool(counts.any()):
            return  # so it is in most steps of a short text: there is nothing to rank
        all_open = counts >= rows.open.sum(dim=1)  # B
        scored = rows.open
        if self.extra is None:
            # Where all slots are taken there is nothing to rank, unless their tokens are drawn so.
            some = counts > 0 if self.proposer.draws else (counts > 0) & ~all_open
            scored = rows.open & some[:, None]
        ranking, tokens = self.proposer.rank(sight, scored)
        taken, ties = take(ranking, counts)
        taken = taken | (rows.open & all_open[:, None])
        if self.proposer.policy.score.reads != "nothing":
            rows.ties += ties
        if self.extra is not None:
            assert tokens is not None
            look_up = partial(self.proposer.probabilities, sight, rows.open)
            chosen = self.extra(Chosen(sight.step, rows.open, taken, tokens, look_up))
            taken, tokens = chosen.taken & rows.open, chosen.tokens
        self.proposer.reveal(sight, taken, tokens, rows.ids, rows.log_prob)
        rows.reveal = rows.reveal.masked_fill(taken, sight.step)
        rows.open = rows.open & ~taken
