"""FlexMDM decoding: reveal masks and insert slots, until nothing is missing.

Paper, Section 4.1 and appendix D. Each step is one network call on canvases trimmed to the longest
row, at the time that the clock gives (decode/growing.py):

    unmask   the clock says how many masks each row reveals, the policy which; their tokens are
             drawn from the posterior, as in mdm
    insert   the clock inserts masked slots into the gaps, by the counts of the same call

Later insertions move everything to their right, so a reveal fixes a token and its order, not its
position. Masks that remain when time is over are revealed at once by one more call. Rows leave the
batch when their time is over, or when they are full and have no masks.

In exact mode scores should not read the drawn token: ranking by its probability (`sampled`, as
published) is biased however many steps are taken. EOS, BOS, PAD and the mask are never drawn: only
insertions decide the length.

Not here: mode="compat" (compat.py). Letters: B rows, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from anyorder.checks import one_of
from anyorder.decode.canvas import Decoded, GrowingCanvas, Watcher
from anyorder.decode.draw import Draw, role_ids
from anyorder.decode.growing import CallTimes, GrowingRows, RunningClock, finished
from anyorder.decode.loop import Proposer, StepView, run
from anyorder.decode.policy import Policy, find_unplanned_score, take
from anyorder.decode.quota import find_clocked_quota
from anyorder.families.flexmdm.compat import (
    REPLACE_AFTER,
    CompatReveals,
    check_compat,
    decode_compat,
    extra_of,
)
from anyorder.families.flexmdm.config import COMPAT_POLICIES, FlexOptions
from anyorder.families.flexmdm.correct import correct_tokens
from anyorder.nets.denoiser import Inserter
from anyorder.vocab import Vocab


def check(canvases: Sequence[GrowingCanvas], options: FlexOptions) -> None:
    """Refuse canvases that cannot be decoded, before anything is written."""
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
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(options)
    if options.mode == "compat":
        # As published, all rows share one stream: that of the first key.
        generator = torch.Generator(device).manual_seed(keys[0])
        return decode_compat(net, vocab, canvases, options, generator, watch)
    rows = GrowingRows.start(canvases, keys, vocab, torch.device(device))
    decoded = run(_Stepper(net, vocab, options, canvases, rows), watch)
    if not options.correct:
        return decoded
    return correct_tokens(net, vocab, canvases, decoded, options.correct, device, watch)


class _Stepper:
    """One decoding step: network call, plan, reveals, insertions."""

    def __init__(
        self,
        net: Inserter,
        vocab: Vocab,
        options: FlexOptions,
        canvases: Sequence[GrowingCanvas],
        rows: GrowingRows,
    ) -> None:
        self.net, self.vocab, self.canvases, self.rows = net, vocab, canvases, rows
        self.extra = extra_of(options, vocab) if options.has_extras else None
        self.clock, self.times = RunningClock(options, net), CallTimes(len(rows))
        self.proposer = Proposer(
            head=net.head,
            vocab=vocab,
            policy=build_policy(options),
            draw=Draw.of(options),
            forbidden=role_ids(vocab),
            reshuffles=True,
            draws_first=self.extra is not None,
        )

    @property
    def row(self) -> Tensor:
        return self.rows.row

    def done(self, step: int) -> Tensor:
        return finished(self.rows)

    def collect(self, index: int, step: int) -> Decoded:
        number = int(self.rows.row[index])
        return self.rows.collect(index, self.canvases[number], step, self.times.of(number))

    def keep(self, rows: Tensor) -> None:
        self.rows.keep(rows)

    def advance(self, step: int) -> None:
        rows = self.rows
        time = self.clock.time(rows)
        self.times.add(rows.row, time)
        look = self.net.look(rows.ids, mask=rows.real, time=time)
        rows.forwards += 1
        plan = self.clock.plan(rows, look.gaps, step)
        # Reveal first: insertions move positions, and `look` has the old ones.
        self._reveal(rows, StepView(look.states, rows.key, rows.slot, step), plan.reveals)
        rows.grow(plan.inserts, step, self.vocab)
        rows.left, rows.bound = plan.left, plan.bound

    def _reveal(self, rows: GrowingRows, view: StepView, counts: Tensor) -> None:
        if self.extra is None and not bool(counts.any()):
            return  # the usual case for short texts: the vocabulary head would run for nothing
        all_open = counts >= rows.open.sum(dim=1)  # B
        scored = rows.open
        if self.extra is None:
            # Rows that take all their slots need no ranking, unless it draws their tokens.
            some = counts > 0 if self.proposer.draws else (counts > 0) & ~all_open
            scored = rows.open & some[:, None]
        ranking, tokens = self.proposer.rank(view, scored)
        taken, ties = take(ranking, counts)
        taken = taken | (rows.open & all_open[:, None])
        if self.proposer.policy.score.reads != "nothing":
            rows.ties += ties
        if self.extra is not None:
            assert tokens is not None
            look_up = partial(self.proposer.probabilities, view, rows.open)
            chosen = self.extra(CompatReveals(view.step, rows.open, taken, tokens, look_up))
            taken, tokens = chosen.taken & rows.open, chosen.tokens
        self.proposer.reveal(view, taken, tokens, rows.ids, rows.log_prob)
        rows.reveal = rows.reveal.masked_fill(taken, view.step)
        rows.open = rows.open & ~taken


def resolve(options: FlexOptions) -> FlexOptions:
    """The same options with every unset choice filled in that has an effect; checked."""
    one_of("mode", options.mode, ("exact", "compat"))
    options = replace(options, clock=options.clock or _usual_clock(options))
    full = options.with_schedules("kept" if options.mode == "compat" else "carried")
    Draw.of(options)  # refuses temperatures and shares out of range
    options.check_corrections()
    if options.meaningful_replace and options.steps is not None and options.steps <= REPLACE_AFTER:
        raise ValueError(
            f"meaningful_replace begins after step {REPLACE_AFTER}: give more steps, or leave "
            "it out"
        )
    return _resolve_compat(full) if options.mode == "compat" else _resolve_exact(full)


def _usual_clock(options: FlexOptions) -> Literal["steps", "events"]:
    """Events, which solve more, unless an option is set that only a grid has."""
    needs_grid = (options.steps, options.quota, options.counts, options.hazard)
    if options.mode == "compat" or options.has_extras or needs_grid != (None,) * 4:
        return "steps"
    return "events"


def _resolve_exact(options: FlexOptions) -> FlexOptions:
    full = replace(options.with_exact_clock(), policy=options.policy or "confidence")
    if options.clock == "events":
        full.refuse_set(
            "with clock='events', which does one thing at a time",
            "force_unmask",
            "meaningful_replace",
        )
    policy = build_policy(full)
    if policy.score.reads == "nothing":
        full.refuse_set(f"on the policy {full.policy!r}", "posterior", "ties")
    else:
        full = replace(
            full, posterior=options.posterior or "untempered", ties=options.ties or "random"
        )
    Draw.of(full).refuse_idle_filters(full.posterior)
    return full


def _resolve_compat(options: FlexOptions) -> FlexOptions:
    one_of("clock", options.clock, ("steps",), "in mode compat")
    full = replace(
        options,
        policy=options.policy or "sampled",
        steps=512 if options.steps is None else options.steps,
        counts=options.counts or "poisson",
        hazard=options.hazard or "left",
    )
    one_of("policy", full.policy, COMPAT_POLICIES, "in mode compat")
    one_of("counts", full.counts, ("poisson", "floor_bernoulli"), "in mode compat")
    one_of("hazard", full.hazard, ("left", "midpoint"), "in mode compat")
    if full.unmasking_schedule == "carried":
        raise ValueError(
            "the published sampler keeps the unmasking schedule: in mode compat choose "
            "unmasking_schedule='kept' or an exponent"
        )
    if full.policy == "random":
        full.refuse_set(
            "on the policy 'random' in mode compat, where each mask decides for itself",
            "quota",
            "force_unmask",
            "meaningful_replace",
        )
    else:
        full = replace(full, quota=options.quota or "poisson")
        one_of("quota", full.quota, ("poisson",), "in mode compat")
    full.refuse_set(
        "in mode compat, as in the published sampler",
        "posterior",
        "ties",
        "top_p",
        "top_k",
        "correct",
    )
    return full


def build_policy(options: FlexOptions) -> Policy:
    return Policy(
        score=find_unplanned_score(options.policy or "confidence"),
        quota=find_clocked_quota(options.quota or "thinned"),
        posterior=options.posterior or "untempered",
        ties=options.ties or "random",
    )
