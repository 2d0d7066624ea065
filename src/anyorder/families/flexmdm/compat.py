"""mode="compat": flexmdm as the release samples it, draw for draw.

A buffer of B rows and L slots, filled with PAD, N steps of dt = 1/N from t = 0. Each step calls the
network once, on the whole buffer, and reads all of its logits:

    time     tau = 1 - (1 - t)^(gamma / a) for a net that reads raw time, 1 - (1 - t)^gamma for one
             that reads insertion progress
    unmask   v_i = argmax(logits_i / T + G_i), G = -log(-log(max(u, 1e-8)) + 1e-8); T = 0: argmax
             k ~ Poisson(#masks h_beta dt), at most #masks: the k best by the untempered softmax
             probability of v_i (`sampled`) or by negative entropy (`entropy`);
             `random` (the release's `origin`): each mask with probability 1 - exp(-h_beta dt)
    insert   counts ~ Poisson(exp(min(g, 15)) h_gamma dt) after every token, then nothing outside
             the answer's gaps, then cut from left to right when the buffer is full
    clock    t <- min(t + dt, 1 - 1e-6)

The last step fills all masks with the best token and inserts nothing. Hazards are those of the left
end (or the middle) of the step, h = alpha' / (1 - alpha + 1e-6). All numbers are float32, in which
1 - alpha loses its last digits near the end: h dt at step 510 of 512 is 0.134.

All draws come from one stream, in this order: rand(B, L, V) unless T = 0; then poisson(B), or
rand(B, L) for `random`; then poisson(B, L). The counts `floor_bernoulli`, floor(r) + (u < frac r),
read a rand(B, L) instead of that poisson(B, L). So a row depends on its neighbours here.

Only ids beyond the vocabulary are forbidden. A mask that is drawn stays a mask and can be drawn
again, and the last step may leave one. `torch.topk` orders equal scores. Insertion temperature is
the paper's, not the release's: rates over valid gaps, exp(logsumexp(g)) softmax(g / T_ins).

The release offers two ways to break up long runs of masks, which the exact decoder can use too
(`extra_of`); both are off by default. A run is a stretch of adjacent masks; its inner region leaves
out two masks at either end. The mass of a token in a window is the sum of its probabilities over
the window's masks.

    force_unmask         for each run of at least 9 in which this step takes at most the first and
                         last mask: among all windows of 4 in the inner region, and all tokens among
                         the 10 best of some mask of the window, find the pair with the most mass.
                         Take that token too, at the window's mask where it is most likely
    meaningful_replace   from the 101st step on, in all runs of at least 20 whose inner region this
                         step leaves masked: find the window of 5 and the meaningful token with the
                         most mass. If that is more than the probability of the step's least likely
                         choice, take it instead, at the window's mask where it is most likely

With both, force_unmask acts first. Among equals the leftmost wins, then the lowest id. A token is
meaningful if its text has more than white space and punctuation; special ids are not. Neither keeps
the law of the process: the first reveals more than the quota, the second decides by the drawn
tokens.

Not here: infilling (the release has none), top-p, and strings that the release lets its user
exclude. Letters: B rows, L slots of the buffer, N masks, V ids; of one row R masks of a region,
W windows, K tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas, Watcher, padded
from anyorder.decode.draw import Posterior, refuse_nan, text_logits
from anyorder.decode.growing import CallTimes, schedules
from anyorder.decode.loop import run
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.nets.denoiser import GAP_LIMIT, Inserter
from anyorder.process.schedule import Power
from anyorder.vocab import Vocab


@dataclass
class Buffer:
    """The canvases, packed to the left, then PAD. Insertions push later slots to the right.

    Unlike the rows of decode/growing.py it keeps its width: the release's draws have its shape.
    """

    ids: Tensor  # B L
    length: Tensor  # B
    prompt: Tensor  # B
    insert: Tensor  # B L
    reveal: Tensor  # B L
    log_prob: Tensor  # B L
    ties: Tensor  # B
    mask_id: int
    pad_id: int

    @classmethod
    def start(cls, canvases: Sequence[GrowingCanvas], vocab: Vocab, device: torch.device) -> Buffer:
        """Prompts, then PAD; all rows have the size of the first."""
        size = len(canvases[0].ids) + canvases[0].room
        ids, length = padded([canvas.ids for canvas in canvases], vocab.pad_id)
        ids = F.pad(ids, (0, size - ids.shape[1]), value=vocab.pad_id).to(device)
        length = length.to(device)
        return cls(
            ids=ids,
            length=length,
            prompt=length.clone(),
            insert=torch.zeros_like(ids),
            reveal=torch.zeros_like(ids),
            log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
            ties=torch.zeros_like(length),
            mask_id=vocab.mask_id,
            pad_id=vocab.pad_id,
        )

    @property
    def place(self) -> Tensor:
        return torch.arange(self.ids.shape[1], device=self.ids.device)

    @property
    def active(self) -> Tensor:
        return self.place < self.length[:, None]  # B L

    @property
    def masked(self) -> Tensor:
        return (self.ids == self.mask_id) & self.active  # B L

    @property
    def gaps(self) -> Tensor:
        """The gaps that may grow: after the prompt's last token and after all that follows."""
        return self.active & (self.place >= self.prompt[:, None] - 1)  # B L

    def grow(self, counts: Tensor, step: int) -> None:
        """Insert `counts` (B L) masks after each slot, from left to right while there is room."""
        room = self.ids.shape[1] - self.length
        until = counts.cumsum(dim=1).minimum(room[:, None])  # B L, inserted up to here
        before = F.pad(until[:, :-1], (1, 0))
        # Padding goes into an extra column, which `_moved` drops.
        target = torch.where(self.active, self.place + before, self.ids.shape[1])
        self.length = self.length + until[:, -1]
        self.ids = _moved(self.ids, target, torch.where(self.active, self.mask_id, self.pad_id))
        self.insert = _moved(self.insert, target, torch.full_like(self.insert, step))
        self.reveal = _moved(self.reveal, target, torch.zeros_like(self.reveal))
        self.log_prob = _moved(self.log_prob, target, torch.full_like(self.log_prob, torch.nan))

    def collect(self, row: int, canvas: GrowingCanvas, steps: int, times: list[float]) -> Decoded:
        """The result of one row; every step called the network, at these times."""
        span = slice(canvas.prompt_length, int(self.length[row]))
        return Decoded(
            token_ids=self.ids[row, span].tolist(),
            insert_step=self.insert[row, span].tolist(),
            reveal_step=self.reveal[row, span].tolist(),
            log_prob=self.log_prob[row, span].tolist(),
            steps=steps,
            forwards=steps,
            ties=int(self.ties[row]),
            times=times,
        )


def _moved(column: Tensor, target: Tensor, fresh: Tensor) -> Tensor:
    """The column with its entries at their targets, and `fresh` elsewhere.  # B L"""
    return F.pad(fresh, (0, 1)).scatter(1, target, column)[:, :-1]


MARGIN = 2
FORCE_RUN, FORCE_WINDOW, FORCE_BEST = 9, 4, 10
REPLACE_RUN, REPLACE_WINDOW, REPLACE_AFTER = 20, 5, 100
EMPTY = frozenset("\u200b()[]{}.,:;'\"`@#$?\\")
"""Characters without meaning, beside white space; to Python, U+200B is no white space."""


class RevealChoice(NamedTuple):
    """The slots of one row that a step will reveal."""

    masked: Tensor
    """The masks before this step.  # L"""
    taken: Tensor
    """Those of them that are revealed now.  # L"""
    tokens: Tensor
    """Their tokens; valid where taken.  # L"""
    probability: Tensor
    """The network's posteriors, one line for each mask, left to right.  # N V"""


class RegionToken(NamedTuple):
    """A token for a place within a region."""

    mass: float
    place: int
    token: int


def runs_of(masked: Tensor, least: int) -> list[tuple[int, int]]:
    """The [start, stop) of the runs with at least `least` masks, left to right."""
    edges = torch.diff(masked.long(), prepend=masked.new_zeros(1).long(),
                       append=masked.new_zeros(1).long())  # fmt: skip
    starts, stops = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    pairs = torch.stack([starts, stops], dim=1).tolist()
    return [(start, stop) for start, stop in pairs if stop - start >= least]


def force_unmask(choice: RevealChoice) -> RevealChoice:
    """Take one more token in each long run that would get none."""
    taken, tokens = choice.taken.clone(), choice.tokens.clone()
    for start, stop in runs_of(choice.masked, FORCE_RUN):
        if bool(choice.taken[start + 1 : stop - 1].any()):
            continue
        found = _best_of_frequent(_inner(choice, start, stop))
        place = start + MARGIN + found.place
        taken[place], tokens[place] = True, found.token
    return choice._replace(taken=taken, tokens=tokens)


def meaningful_replace(choice: RevealChoice, meaningful: Tensor) -> RevealChoice:
    """Replace the least likely choice by a likelier token of `meaningful` (K) in a long run."""
    places = choice.taken.nonzero()[:, 0]
    if not len(places) or not len(meaningful):
        return choice
    best: RegionToken | None = None
    for start, stop in runs_of(choice.masked, REPLACE_RUN):
        first = start + MARGIN
        if bool(choice.taken[first : stop - MARGIN].any()):
            continue
        found = _best_among(_inner(choice, start, stop), meaningful)
        if best is None or found.mass > best.mass:
            best = found._replace(place=first + found.place)
    if best is None:
        return choice
    line = choice.masked.long().cumsum(dim=0) - 1  # L, each mask's line in `probability`
    chance = choice.probability[line[places], choice.tokens[places]]
    weakest = int(chance.argmin())
    if best.mass <= float(chance[weakest]):
        return choice
    taken, tokens = choice.taken.clone(), choice.tokens.clone()
    taken[places[weakest]] = False
    taken[best.place], tokens[best.place] = True, best.token
    return choice._replace(taken=taken, tokens=tokens)


@lru_cache(maxsize=1)  # decoding every id is slow, and a process uses one vocabulary
def meaningful_ids(vocab: Vocab) -> Tensor:
    """The ids whose text has more than white space and punctuation.  # K"""
    ids = [
        id
        for id in range(vocab.size)
        if id not in vocab.special_ids
        and any(not c.isspace() and c not in EMPTY for c in vocab.decode([id]))
    ]
    return torch.tensor(ids, dtype=torch.int64)


def _inner(choice: RevealChoice, start: int, stop: int) -> Tensor:
    """The probabilities of a run's inner region.  # R V"""
    first = int(choice.masked[:start].sum())
    return choice.probability[first + MARGIN : first + stop - start - MARGIN]


def _best_of_frequent(probability: Tensor) -> RegionToken:
    """The window and the token, among the best of each mask, with the most mass."""
    best = probability.topk(min(FORCE_BEST, probability.shape[1])).indices  # R K
    # Sorted, so that among equal masses the lowest id comes first.
    candidates = best.unfold(0, FORCE_WINDOW, 1).flatten(1).sort(dim=1).values  # W 4K
    starts = torch.arange(len(candidates), device=probability.device)
    mass = sum(
        probability[starts[:, None] + offset, candidates] for offset in range(FORCE_WINDOW)
    )  # W 4K
    assert isinstance(mass, Tensor)
    window, column = divmod(int(mass.argmax()), mass.shape[1])
    token = int(candidates[window, column])
    return _placed(probability, window, FORCE_WINDOW, token, float(mass[window, column]))


def _best_among(probability: Tensor, ids: Tensor) -> RegionToken:
    """The window and the token, among the given ones, with the most mass."""
    chosen = probability[:, ids.to(probability.device)]  # R K
    windows = len(chosen) - REPLACE_WINDOW + 1
    mass = sum(chosen[offset : offset + windows] for offset in range(REPLACE_WINDOW))  # W K
    assert isinstance(mass, Tensor)
    window, column = divmod(int(mass.argmax()), mass.shape[1])
    token = int(ids[column])
    return _placed(probability, window, REPLACE_WINDOW, token, float(mass[window, column]))


def _placed(probability: Tensor, window: int, width: int, token: int, mass: float) -> RegionToken:
    inside = probability[window : window + width, token]
    return RegionToken(mass, window + int(inside.argmax()), token)


@dataclass(frozen=True)
class CompatReveals:
    """The slots that a step will reveal. Change it with `dataclasses.replace`."""

    step: int
    """The number of this step, from 1."""
    open: Tensor  # B L, bool
    """The slots that are masked now; others are never taken."""
    taken: Tensor  # B L, bool
    """The open slots that become text."""
    tokens: Tensor  # B L
    """The token drawn for every open slot, taken or not; undefined elsewhere."""
    probabilities: Callable[[int], Tensor]
    """row -> the untempered posteriors of its open slots (N V). Each call runs the vocabulary head:
    call it only for rows that need it."""


Extra = Callable[[CompatReveals], CompatReveals]


@dataclass(frozen=True)
class _Rule:
    """A rule for rows with a run of at least `run` masks, after step `after`."""

    run: int
    after: int
    change: Callable[[RevealChoice], RevealChoice]

    def concerns(self, chosen: CompatReveals, row: int) -> bool:
        return chosen.step > self.after and bool(runs_of(chosen.open[row], self.run))


def extra_of(options: FlexOptions, vocab: Vocab) -> Extra | None:
    """All enabled extras as one; None if there are none."""
    rules = []
    if options.force_unmask:
        rules.append(_Rule(FORCE_RUN, 0, force_unmask))
    if options.meaningful_replace:
        replacing = partial(meaningful_replace, meaningful=meaningful_ids(vocab))
        rules.append(_Rule(REPLACE_RUN, REPLACE_AFTER, replacing))
    return partial(_apply, rules) if rules else None


def _apply(rules: list[_Rule], chosen: CompatReveals) -> CompatReveals:
    taken, tokens = chosen.taken.clone(), chosen.tokens.clone()
    for row in range(len(taken)):
        concerned = [rule for rule in rules if rule.concerns(chosen, row)]
        if not concerned:
            continue
        probability = chosen.probabilities(row)
        choice = RevealChoice(chosen.open[row], taken[row], tokens[row], probability)
        for rule in concerned:
            choice = rule.change(choice)
        taken[row], tokens[row] = choice.taken, choice.tokens
    return replace(chosen, taken=taken, tokens=tokens)


HAZARD_EPS = 1e-6
NOISE_EPS = 1e-8
LATEST = 1 - 1e-6


@torch.inference_mode()
def decode_compat(
    net: Inserter,
    vocab: Vocab,
    canvases: Sequence[GrowingCanvas],
    options: FlexOptions,
    generator: Generator,
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Decode the rows together, on the generator's device; all draws come from the generator."""
    check_compat(canvases)
    return run(_Stepper(net, vocab, options, canvases, generator), watch)


def _with_masks_open(row: Decoded, mask_id: int) -> Decoded:
    """Show drawn masks as open: until the last step they can be drawn again."""
    masked = [token == mask_id for token in row.token_ids]
    return replace(
        row,
        reveal_step=[0 if m else s for m, s in zip(masked, row.reveal_step, strict=True)],
        log_prob=[math.nan if m else p for m, p in zip(masked, row.log_prob, strict=True)],
    )


def check_compat(canvases: Sequence[GrowingCanvas]) -> None:
    """Refuse canvases that the release's buffer cannot hold."""
    if len({len(canvas.ids) + canvas.room for canvas in canvases}) != 1:
        raise ValueError(
            "mode compat decodes rows of one canvas size, prompt included: leave max_new_tokens "
            "out, and give max_length where the model does not know its own"
        )
    for canvas in canvases:
        if any(canvas.grows[:-1]) or not canvas.grows[-1]:
            raise ValueError(
                "compat only writes after a prompt, as the release does: for text with gaps to "
                "fill, use mode='exact'"
            )


@dataclass(frozen=True)
class _Clock:
    """The network's time and the two hazards at a time of the run."""

    insertion: Power
    unmasking: Power
    network: Power
    """1 - (1 - t)^exponent is the network's time."""
    dt: float
    shift: float
    """Where in a step its hazards are read: 0 at its left end, 1/2 in its middle."""

    @classmethod
    def of(cls, net: Inserter, options: FlexOptions) -> _Clock:
        assert options.steps is not None and options.hazard is not None
        gamma, unmasking = schedules(options, net)
        raw = Power(gamma.exponent / net.insertion_exponent)
        network = {"raw": raw, "progress": gamma}[net.coordinate]
        shift = {"left": 0.0, "midpoint": 0.5}[options.hazard]
        return cls(gamma, unmasking, network, 1 / options.steps, shift)

    def model(self, t: Tensor, rows: int) -> Tensor:
        return self.network.value(t).expand(rows)  # B

    def hazard(self, schedule: Power, t: Tensor) -> Tensor:
        return hazard(schedule, t + self.shift * self.dt)


def hazard(schedule: Power, t: Tensor) -> Tensor:
    """alpha' / (1 - alpha + eps) in the precision of t."""
    return schedule.derivative(t) / (1 - schedule.value(t) + HAZARD_EPS)


def gumbel(u: Tensor) -> Tensor:
    """Gumbel noise from uniforms in [0, 1); the two epsilons keep both ends finite."""
    return -torch.log(-torch.log(u.clamp(min=NOISE_EPS)) + NOISE_EPS)


def _floor_bernoulli(rate: Tensor, generator: Generator) -> Tensor:
    whole = rate.floor()
    u = torch.rand(rate.shape, generator=generator, device=rate.device)
    return (whole + (u < rate - whole)).long()


COUNTS: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "poisson": lambda rate, generator: torch.poisson(rate, generator=generator).long(),
    "floor_bernoulli": _floor_bernoulli,
}


SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sampled": lambda probability, tokens: probability.gather(-1, tokens[:, None])[:, 0],
    "entropy": lambda probability, tokens: -torch.special.entr(probability).sum(dim=-1),
}
"""(posteriors N V, drawn tokens N) -> N."""


class _Stepper:
    """One decoding step: unmask and insert, or fill in the last step."""

    def __init__(
        self,
        net: Inserter,
        vocab: Vocab,
        options: FlexOptions,
        canvases: Sequence[GrowingCanvas],
        generator: Generator,
    ) -> None:
        assert options.mode == "compat" and options.steps is not None
        self.net, self.vocab, self.options, self.generator = net, vocab, options, generator
        self.canvases = canvases
        self.steps = options.steps
        self.clock = _Clock.of(net, options)
        self.extra = extra_of(options, vocab)
        self.buffer = Buffer.start(canvases, vocab, generator.device)
        self.row = torch.arange(len(canvases), device=generator.device)
        self.t = torch.zeros((), device=generator.device)
        self.times = CallTimes(len(canvases))

    def advance(self, step: int) -> None:
        buffer, t = self.buffer, self.t
        time = self.clock.model(t, len(self.canvases))
        self.times.add(self.row, time)
        look = self.net.look(buffer.ids, mask=buffer.active, time=time)
        if step == self.steps:
            self.fill(buffer, look.states)
            return
        self.unmask(buffer, look.states, t, step)
        self.insert(buffer, look.gaps, t, step)
        # Added up, not step / N: the release's float32 errors are part of its draws.
        self.t = (t + self.clock.dt).clamp(max=LATEST)

    def done(self, step: int) -> Tensor:
        """All rows take the same number of steps.  # B"""
        return torch.full_like(self.row, step == self.steps, dtype=torch.bool)

    def keep(self, rows: Tensor) -> None:
        raise AssertionError("all rows end together")

    def collect(self, index: int, step: int) -> Decoded:
        row = self.buffer.collect(index, self.canvases[index], step, self.times.of(index))
        return row if step == self.steps else _with_masks_open(row, self.vocab.mask_id)

    def unmask(self, buffer: Buffer, states: Tensor, t: Tensor, step: int) -> None:
        logits, masked = text_logits(self.net.head(states), self.vocab), buffer.masked
        # Only masks are read, but draws have the shape of all positions, as in the release.
        open_logits = logits[masked]  # N V
        tokens = torch.zeros_like(buffer.ids)
        tokens[masked] = self._draw(open_logits, logits.shape, masked)
        hazard = self.clock.hazard(self.clock.unmasking, t)
        if self.options.policy == "random":
            taken = self._independent(masked, hazard)
        else:
            probability = open_logits.softmax(dim=-1)
            taken = self._best(buffer, probability, tokens, hazard)
            taken, tokens = self._second_thoughts(masked, probability, taken, tokens, step)
        self._commit(buffer, logits[taken], taken, tokens[taken], step)

    def _draw(self, open_logits: Tensor, shape: torch.Size, masked: Tensor) -> Tensor:
        if self.options.temperature <= 0:
            return open_logits.argmax(dim=-1)  # N
        u = torch.rand(shape, generator=self.generator, device=masked.device)[masked]  # N V
        return (open_logits / self.options.temperature + gumbel(u)).argmax(dim=-1)

    def _independent(self, masked: Tensor, hazard: Tensor) -> Tensor:
        u = torch.rand(masked.shape, generator=self.generator, device=masked.device)  # B L
        return masked & (u < 1 - torch.exp(-hazard * self.clock.dt))

    def _best(self, buffer: Buffer, probability: Tensor, tokens: Tensor, hazard: Tensor) -> Tensor:
        """The masks with the best scores: those that are committed.  # B L"""
        masked = buffer.masked
        scores = torch.full(masked.shape, -torch.inf, device=masked.device)
        assert self.options.policy is not None
        scores[masked] = SCORES[self.options.policy](probability, tokens[masked])
        open_count = masked.sum(dim=1)
        wanted = torch.poisson(open_count * hazard * self.clock.dt, generator=self.generator)
        counts = wanted.long().minimum(open_count)
        taken = torch.zeros_like(masked)
        # topk orders equal scores in a way that depends on its k: each row has its own call.
        for row, count in enumerate(counts.tolist()):
            taken[row, scores[row].topk(count).indices] = True
        left = masked & ~taken
        first_left = scores.masked_fill(~left, -torch.inf).amax(dim=1, keepdim=True)
        buffer.ties += (taken & (scores == first_left) & left.any(dim=1, keepdim=True)).sum(dim=1)
        return taken

    def _second_thoughts(
        self, masked: Tensor, probability: Tensor, taken: Tensor, tokens: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """The slots taken (B L) and their tokens (B L), after the extras."""
        if self.extra is None:
            return taken, tokens
        row_of = masked.nonzero()[:, 0]  # N
        chosen = self.extra(
            CompatReveals(step, masked, taken, tokens, lambda row: probability[row_of == row])
        )
        return chosen.taken, chosen.tokens

    def insert(self, buffer: Buffer, gaps: Tensor, t: Tensor, step: int) -> None:
        hazard = self.clock.hazard(self.clock.insertion, t)
        rate = self._expected(gaps, buffer.gaps) * hazard * self.clock.dt
        if not bool(rate.isfinite().all()):
            raise ValueError(f"at step {step} the network's gaps are not finite: check its weights")
        assert self.options.counts is not None
        # Drawn at all positions and cut afterwards, as in the release: the stream must not shift.
        counts = COUNTS[self.options.counts](rate, self.generator)
        buffer.grow(counts * buffer.gaps, step)

    def _expected(self, gaps: Tensor, valid: Tensor) -> Tensor:
        """exp(g), moved between gaps by the insertion temperature.  # B L"""
        gaps = gaps.float().clamp(max=GAP_LIMIT)
        temperature = self.options.insertion_temperature
        if temperature == 1:
            return gaps.exp()
        gaps = gaps.masked_fill(~valid, -torch.inf)
        return gaps.logsumexp(dim=1, keepdim=True).exp() * (gaps / temperature).softmax(dim=1)

    def fill(self, buffer: Buffer, states: Tensor) -> None:
        """Turn every mask into its best token: the last step."""
        masked = buffer.masked
        logits = text_logits(self.net.head(states), self.vocab)[masked]  # N V
        self._commit(buffer, logits, masked, logits.argmax(dim=-1), self.steps)

    def _commit(
        self, buffer: Buffer, logits: Tensor, taken: Tensor, tokens: Tensor, step: int
    ) -> None:
        log_prob = Posterior(logits).log_prob(tokens)
        refuse_nan(log_prob, step)
        buffer.ids[taken] = tokens
        buffer.log_prob[taken] = log_prob
        buffer.reveal[taken] = step
