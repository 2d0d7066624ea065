"""Masked diffusion decoding: reveal the slots of a fixed canvas in the order a policy chooses.

Paper, Section 2, "MDM inference". Each step: one network call on the canvas; the policy scores the
open slots of its window and takes some. Their tokens are drawn from the posterior and stay, unless
remasking (remasking.py) masks them again. The vocabulary head runs only on slots that a
score must read, or on the taken ones when the score reads none of it (left_to_right, random,
planner). Rows that are complete leave the batch. A cache leaves columns out of a call (cache.py).

Not here: scores and quotas (decode/policy.py, decode/quota.py), and drawing (decode/draw.py).
Letters: B rows, L positions, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from anyorder.checks import at_least, one_of
from anyorder.decode.canvas import Canvas, Decoded, Watcher, stack
from anyorder.decode.draw import Draw, Stopping, behind, ends_text, find_stopping
from anyorder.decode.loop import Proposer, StepView, keep_rows, run
from anyorder.decode.policy import Policy, Ranking, find_score, take
from anyorder.decode.quota import WindowProgress, block_of_slots, parse_quota, steps_per_block
from anyorder.families.mdm.cache import CachedCanvas, RowReader, StepRows, WholeCanvas
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.mdm.remasking import Remasker, StepCounts, parse_remasking
from anyorder.nets.denoiser import Denoiser, Planner
from anyorder.nets.transformer import refuse_uncached
from anyorder.process.remasking import Remasking
from anyorder.trace.events import Change
from anyorder.vocab import Vocab


@dataclass
class MaskRows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    ids: Tensor  # B L
    free: Tensor  # B L, open at the start
    open: Tensor  # B L
    real: Tensor  # B L
    block: Tensor  # B L
    reveal: Tensor  # B L
    log_prob: Tensor  # B L
    window: Tensor  # B, the block being closed
    window_step: Tensor  # B, steps begun in it
    window_initial: Tensor  # B, slots open when it began
    window_steps: Tensor  # B, steps planned for each window; 0: one for each slot
    forwards: Tensor  # B
    columns: Tensor  # B, columns computed in those calls
    ties: Tensor  # B

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        keep_rows(self, rows, "real")

    def before(self) -> StepRows:
        return StepRows(self.ids, self.real, self.block, self.window)


def check(canvases: Sequence[Canvas], options: MdmOptions) -> None:
    """Refuse canvases that cannot be decoded, before anything is written."""
    for canvas in canvases:
        steps_per_block(options.steps, sum(canvas.free), options.block)
    if options.cache is not None:
        _refuse_idle_cache(options, [canvas.free for canvas in canvases])
    most = max(sum(canvas.free) for canvas in canvases)
    if options.steps is not None and options.quota == "even" and options.steps > most:
        raise ValueError(f"{options.steps} steps for {most} slots: give at most one for each")


def check_network(net: Any, options: MdmOptions) -> None:
    """Refuse a policy or a cache that the network cannot serve."""
    if build_policy(options).score.reads == "plan" and not hasattr(net, "plan"):
        raise ValueError(
            "this model has no planner head, which the policy 'planner' reads: add one with "
            "`anyorder train tiny/planner --start MODEL`, or choose another policy"
        )
    if options.cache is not None:
        refuse_uncached(net)


@torch.inference_mode()
def decode(
    net: Denoiser,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: MdmOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(options)
    check_network(net, options)
    rows = start(canvases, keys, vocab, options, torch.device(device))
    reader: RowReader = WholeCanvas(net)
    if options.cache is not None:
        reader = CachedCanvas(net, options.cache, options.cache_refresh, rows.before())
    return run(MaskStepper(net, vocab, options, canvases, rows, reader), watch)


def start(
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    vocab: Vocab,
    options: MdmOptions,
    device: torch.device,
) -> MaskRows:
    ids, free, real = stack(canvases, vocab, device)
    plan = [steps_per_block(options.steps, sum(canvas.free), options.block) for canvas in canvases]
    zeros = torch.zeros(len(canvases), dtype=torch.int64, device=device)
    return MaskRows(
        row=torch.arange(len(canvases), device=device),
        key=torch.tensor(keys, dtype=torch.int64, device=device),
        ids=ids,
        free=free,
        open=free.clone(),
        real=real,
        block=block_of_slots(free, options.block),
        reveal=torch.zeros_like(ids),
        log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
        window=zeros - 1,  # so that every row enters its first window in the first step
        window_step=zeros.clone(),
        window_initial=zeros.clone(),
        window_steps=torch.tensor(plan, device=device),
        forwards=zeros.clone(),
        columns=zeros.clone(),
        ties=zeros.clone(),
    )


class MaskStepper:
    """One decoding step: window, proposals, choice, commitment. Family block has one like it."""

    def __init__(
        self,
        net: Any,
        vocab: Vocab,
        options: MdmOptions,
        canvases: Sequence[Canvas],
        rows: MaskRows,
        reader: RowReader,
    ) -> None:
        self.net, self.vocab, self.canvases, self.rows = net, vocab, canvases, rows
        self.reader = reader
        self.policy = build_policy(options)
        self.stopping = find_stopping(options.eos)
        self.planner_temperature = options.planner_temperature or 1.0
        self.proposer = Proposer(
            head=net.head,
            vocab=vocab,
            policy=self.policy,
            draw=Draw.of(options),
            forbidden=(vocab.mask_id, *(vocab.end_ids if self.stopping.forbids else ())),
            waits_for=vocab.end_ids if self.stopping.waits else (),
            # In a fixed random order, a slot that is masked again would be revealed at once.
            reshuffles=options.remask is not None,
        )
        remasking = _remasking_of(options)
        self.remasker: Remasker | None = None
        if remasking is not None and options.steps is not None:
            self.remasker = Remasker(remasking, options.steps, rows.ids.device)

    @property
    def row(self) -> Tensor:
        return self.rows.row

    def done(self, step: int) -> Tensor:
        """Rows without an open slot, once no later step can open one again.  # B"""
        complete = ~self.rows.open.any(dim=1)
        if self.remasker is not None and not self.remasker.is_over(step):
            return torch.zeros_like(complete)
        return complete

    def keep(self, rows: Tensor) -> None:
        self.rows.keep(rows)
        self.reader.keep(rows, self.rows.ids.shape[1])

    def collect(self, index: int, step: int) -> Decoded:
        rows = self.rows
        number = int(rows.row[index])
        canvas = self.canvases[number]
        span = slice(canvas.prompt_length, len(canvas.ids))
        token_ids, reveal = rows.ids[index, span].tolist(), rows.reveal[index, span].tolist()
        changes: Sequence[Change] = ()
        if self.remasker is not None:
            changes = self.remasker.changes(number, canvas.prompt_length, reveal)
        return Decoded(
            token_ids=token_ids,
            insert_step=[0] * len(token_ids),
            reveal_step=reveal,
            log_prob=rows.log_prob[index, span].tolist(),
            steps=step,
            forwards=int(rows.forwards[index]),
            columns=int(rows.columns[index]),
            ties=int(rows.ties[index]),
            changes=changes,
        )

    def advance(self, step: int) -> None:
        rows = self.rows
        eligible = self.enter_window(rows)
        progress = self._progress(rows, eligible)
        rows.window_step = rows.window_step + 1  # not in place: `progress` holds the old tensor
        turns = None
        if self.remasker is not None:
            turns = self.remasker.turns(rows.key, step, rows.free, rows.open, rows.log_prob)
        counts = self._counts(progress, turns)
        taken = torch.zeros_like(rows.open)
        if counts is None or bool(counts.any()):  # a step that reveals nothing needs no call
            taken = self._reveal(rows, eligible, progress, counts, step)
        if self.remasker is not None and turns is not None:
            # After the reveals: ReMDM decides both on the canvas before the step.
            self._mask_again(rows, turns.masked_again)
            self.remasker.note(rows.row, step, taken | turns.masked_again, rows.ids, rows.open)

    def _counts(self, progress: WindowProgress, turns: StepCounts | None) -> Tensor | None:
        """How many slots are revealed (B); None if that depends on their scores."""
        if turns is not None:
            return turns.reveals
        return None if self.policy.quota.reads_scores else self.policy.quota.counts(progress, None)

    def _reveal(
        self,
        rows: MaskRows,
        eligible: Tensor,
        progress: WindowProgress,
        counts: Tensor | None,
        step: int,
    ) -> Tensor:
        """Call the network once and reveal `counts` eligible slots; those taken.  # B L"""
        slot = torch.arange(rows.ids.shape[1], device=rows.ids.device).expand_as(rows.ids)
        # A cache may skip rows that reveal nothing. If scores decide, these are not known yet.
        needed = None if counts is None else counts > 0
        found = self.reader.states(rows.before(), needed)
        states = found.states  # B L D
        view = StepView(states, rows.key, slot, step, self._odds(rows, states, eligible))
        ranking, tokens = self.proposer.rank(view, eligible)
        if counts is None:
            ranking = self.policy.draw_lots(ranking, rows.key, slot, step)
            counts = self.policy.quota.counts(progress, _comparable(ranking))
        # A row that takes nothing did not need this call: counts must not depend on the batch.
        rows.forwards += found.calls * (counts > 0)
        rows.columns += found.columns * (counts > 0)
        taken, ties = take(ranking, counts)
        if self.policy.score.reads != "nothing":  # a fixed order has no ties to break
            rows.ties += ties
        self.proposer.reveal(view, taken, tokens, rows.ids, rows.log_prob)
        self.commit(rows, taken, step)
        return taken

    def _odds(self, rows: MaskRows, states: Tensor, eligible: Tensor) -> Tensor | None:
        """The planner's log-odds over its temperature, if the policy reads them.  # B L"""
        if self.policy.score.reads != "plan":
            return None
        net = cast(Planner, self.net)  # `check_network` made sure
        odds = net.plan(states, masked=rows.open, eligible=eligible, mask=rows.real)
        if bool(odds[eligible].isnan().any()):  # infinities are allowed: chances of 0 or 1
            raise ValueError(
                "the planner's log-odds are not numbers: its weights are damaged or its training "
                "failed; choose another policy, or train it again"
            )
        return odds.double() / self.planner_temperature

    def _mask_again(self, rows: MaskRows, which: Tensor) -> None:
        rows.ids = rows.ids.masked_fill(which, self.vocab.mask_id)
        rows.log_prob = rows.log_prob.masked_fill(which, torch.nan)
        rows.reveal = rows.reveal.masked_fill(which, 0)
        rows.open = rows.open | which

    def enter_window(self, rows: MaskRows) -> Tensor:
        """Move each row to its first block with an open slot; the open slots in it.  # B L"""
        beyond = rows.block.max() + 1
        window = torch.where(rows.open, rows.block, beyond).amin(dim=1)
        eligible = rows.open & (rows.block == window[:, None])
        entered = window != rows.window
        rows.window = window
        rows.window_step = rows.window_step.masked_fill(entered, 0)
        rows.window_initial = torch.where(entered, eligible.sum(dim=1), rows.window_initial)
        return eligible

    @staticmethod
    def _progress(rows: MaskRows, eligible: Tensor) -> WindowProgress:
        planned = torch.where(rows.window_steps > 0, rows.window_steps, rows.window_initial)
        return WindowProgress(rows.window_step, planned, rows.window_initial, eligible.sum(dim=1))

    def commit(self, rows: MaskRows, taken: Tensor, step: int) -> None:
        rows.reveal = rows.reveal.masked_fill(taken, step)
        rows.open = rows.open & ~taken
        if self.stopping.fills:
            self._fill_after_eos(rows, taken, step)

    def _fill_after_eos(self, rows: MaskRows, taken: Tensor, step: int) -> None:
        self.fill(rows, behind(taken & ends_text(rows.ids, self.vocab), rows.open), step)

    def fill(self, rows: MaskRows, filled: Tensor, step: int) -> None:
        """Close these slots with EOS."""
        rows.ids = rows.ids.masked_fill(filled, self.vocab.eos_id)
        rows.reveal = rows.reveal.masked_fill(filled, step)  # log_prob stays NaN: not drawn
        rows.open = rows.open & ~filled


def _comparable(ranking: Ranking) -> Tensor:
    """Scores for a threshold: slots that wait count only once all eligible ones wait."""
    others = (ranking.eligible & ~ranking.waits).any(dim=1, keepdim=True)
    return ranking.scores.masked_fill(ranking.waits & others, -torch.inf)


def resolve(options: MdmOptions) -> MdmOptions:
    """The same options with every unset choice filled in that has an effect; checked."""
    one_of("mode", options.mode, ("exact", "compat"))
    if options.cache == "none":
        return resolve(replace(options, cache=None))
    compat = options.mode == "compat"
    if options.remask is not None:
        _refuse_with_remasking(options)
        full = replace(options, policy=options.policy or "random")
    else:
        full = replace(
            options,
            policy=options.policy or ("sampled" if compat else "confidence"),
            quota=options.quota or _usual_quota(options),
        )
    score = build_policy(full).score
    if score.reads_vocabulary:
        # Without temperature and filters the two posteriors are equal.
        apart = compat and (options.temperature > 0 or options.filters)
        full = replace(full, posterior=options.posterior or ("filtered" if apart else "untempered"))
    if score.reads != "nothing":
        leftmost = compat or score.reads == "plan"
        full = replace(full, ties=options.ties or ("leftmost" if leftmost else "random"))
    _refuse_unused(full)
    return full


def _usual_quota(options: MdmOptions) -> str:
    if find_score(options.policy or "confidence").reads == "plan":
        return "bernoulli"
    return "dream" if options.mode == "compat" else "even"


def _refuse_with_remasking(options: MdmOptions) -> None:
    """Refuse options that remasking's schedule decides."""
    remasking = _remasking_of(options)
    if options.steps is None:
        raise ValueError("remasking follows a schedule over a number of steps: give --steps")
    if options.quota is not None:
        raise ValueError("remasking decides how many are revealed: leave --quota out")
    if options.block is not None:
        raise ValueError("remasking's schedule runs over the whole canvas: leave --block out")
    if options.mode == "compat":
        raise ValueError("the published sampler masks nothing again: leave --mode compat out")
    if find_stopping(options.eos).fills:
        raise ValueError(
            f"eos={options.eos!r} fills after an end that may be masked again: choose plain, last "
            "or forbid"
        )
    if remasking is not None and options.steps >= 1:
        remasking.grid(options.steps)


def _refuse_unused(options: MdmOptions) -> None:
    policy, stopping = build_policy(options), find_stopping(options.eos)
    name, reads_nothing = policy.score.name, policy.score.reads == "nothing"
    _refuse_around_the_planner(options, policy, stopping)
    _refuse_around_the_cache(options)
    at_least("steps", options.steps)
    if options.steps is not None and policy.quota.reads_scores:
        raise ValueError(
            f"the quota {options.quota} decides its own steps: leave --steps out, or choose "
            "another --policy or --quota"
        )
    if reads_nothing and stopping.waits:
        raise ValueError(f"eos={options.eos!r} has no effect on the policy {name!r}: leave it out")
    if not policy.score.reads_vocabulary and options.posterior is not None:
        raise ValueError(f"posterior has no effect on the policy {name!r}: leave it out")
    if reads_nothing and options.ties is not None:
        raise ValueError(f"the policy {name!r} has no ties: leave --ties out")
    Draw.of(options).refuse_idle_filters(options.posterior)


def _refuse_around_the_planner(options: MdmOptions, policy: Policy, stopping: Stopping) -> None:
    """Refuse options that only a planner uses, and those that would undo its choice."""
    plans = policy.score.reads == "plan"
    if options.planner_temperature is not None and not plans:
        raise ValueError(
            f"planner_temperature has no effect on the policy {policy.score.name!r}: leave it out"
        )
    if options.planner_temperature is not None and not 0 < options.planner_temperature < math.inf:
        raise ValueError(f"planner_temperature must be positive, not {options.planner_temperature}")
    if options.planner_temperature is not None and policy.quota.reads_scores != "log_odds":
        raise ValueError(
            "planner_temperature has no effect where the planner only ranks (remask, or a "
            "quota other than bernoulli and expected): leave it out"
        )
    if plans and options.mode == "compat":
        raise ValueError("mode='compat' is Dream's sampler, which has no planner: leave it out")
    if policy.quota.reads_scores == "log_odds" and stopping.waits:
        raise ValueError(
            f"eos={options.eos!r} would undo the planner's choice: leave it out, or choose "
            "--quota even"
        )


def _refuse_around_the_cache(options: MdmOptions) -> None:
    if options.cache == "block" and options.block is None:
        raise ValueError(
            "cache='block' keeps what is right of the current block, and the whole canvas is "
            "one block: give --block, or choose --cache prefix"
            if options.remask is None
            else "cache='block' needs --block, which remasking refuses: choose --cache prefix"
        )
    if options.cache_refresh is not None and options.cache is None:
        raise ValueError("cache_refresh has no effect without a cache: leave it out")
    at_least("cache_refresh", options.cache_refresh)


def _refuse_idle_cache(options: MdmOptions, free: Sequence[Sequence[bool]]) -> None:
    """Refuse a cache with nothing to keep on any of these canvases, given by free slots."""
    several = any(options.block is not None and sum(each) > options.block for each in free)
    left = any(each.index(True) for each in free)
    right = options.cache == "block" and not all(each[-1] for each in free)
    if not (several or left or right):
        raise ValueError(
            "there is nothing to cache: no prompt, and one block; leave --cache out, or give "
            "a smaller --block"
        )
    if options.cache == "block" and not (several or right):
        raise ValueError(
            f"blocks of {options.block} slots leave nothing to the right: choose --cache prefix, "
            "or give a smaller --block"
        )


def _remasking_of(options: MdmOptions) -> Remasking | None:
    return None if options.remask is None else parse_remasking(options.remask)


def build_policy(options: MdmOptions) -> Policy:
    return Policy(
        score=find_score(options.policy or "confidence"),
        quota=parse_quota(options.quota or "even"),
        posterior=options.posterior or "untempered",
        ties=options.ties or "random",
        block=options.block,
    )
