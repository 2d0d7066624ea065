"""Which items come next: scores, tie rules, and `take`. Shared by all any-order families.

In each step the network proposes content for every open item, a *score* ranks the items, and a
quota says how many are taken (quota.py). The scores, larger meaning sooner:

    confidence      log of the largest probability
    sampled         log-probability of the token that was drawn
    margin          difference of the two largest probabilities
    entropy         negative entropy
    left_to_right   minus the position
    right_to_left   the position
    random          keyed noise, one number per slot
    planner         log-odds of the network's own planner head (families/mdm/planner.py)

Segments (latentmdm, flexlatent) can be ranked by position, at random, or by the log-probabilities
of the candidate's tokens, its closing EOS included (paper, appendix E):

    average         their mean
    minimum         the smallest
    first           the first (ReFusion)

Scores read the untempered posterior by default; `filtered` reads the one that tokens are drawn from
(after temperature, top-p and top-k), as the Dream family does. A tie rule separates equal scores:
`random` (keyed noise) or `leftmost`. Scores that differ by less than the error of float32 count as
equal. Every choice that a tie rule made is counted.
Letters: N items, B rows, L canvas positions, T positions of a segment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from anyorder.checks import at_least, one_of
from anyorder.decode.draw import Posterior
from anyorder.decode.quota import Even, ItemwiseQuota, Quota, Scale
from anyorder.plugins import entries, load_entry
from anyorder.process.noise import Stream, uniform

NEAR = 1 << 12
"""Scores that agree to one part in this many count as equal."""


@dataclass(frozen=True)
class Written:
    """Candidates of segments, as far as they are written so far."""

    log_prob: Tensor
    """Untempered, of each token; entries beyond `length` are undefined.  # N T"""
    length: Tensor
    """Tokens written, the closing EOS included; at least one.  # N"""

    @property
    def present(self) -> Tensor:
        """Where there is a token.  # N T"""
        places = torch.arange(self.log_prob.shape[1], device=self.length.device)
        return places < self.length[:, None]


@dataclass(frozen=True)
class Items:
    """The open items that a score ranks."""

    position: Tensor
    """The position of each item on the canvas.  # N"""
    key: Tensor
    """The noise key of each item's row.  # N"""
    posterior: Posterior | None = None
    """The network's posterior; None for scores that do not read it."""
    tokens: Tensor | None = None
    """The tokens drawn for the items; None for scores that do not read them.  # N"""
    slot: Tensor | None = None
    """The number that keys each item's noise; None: its position, if the canvas is fixed.  # N"""
    step: int | None = None
    """Set if a random order is shuffled again in each step; None: one order for all steps."""
    written: Written | None = None
    """The candidates, where items are segments and the score reads them."""
    odds: Tensor | None = None
    """The planner's log-odds of revealing each item now, where the score reads them.  # N"""


@dataclass(frozen=True)
class Score:
    """A named way to rank items."""

    name: str
    rank: Callable[[Items], Tensor]
    """Items to float64 scores, larger sooner.  # N"""
    reads: Literal["nothing", "posterior", "token", "plan", "opening", "segment"] = "posterior"
    """What must be computed before ranking. Decoders skip the vocabulary head for `nothing` and
    `plan`. Of a segment, `opening` reads the first token and `segment` all of it."""
    is_log_probability: bool = False
    """Whether a threshold quota may compare it with a probability."""
    is_negative_entropy: bool = False
    """Whether an entropy_bound quota may add it up."""
    bound: Callable[[Written], Tensor] | None = None
    """For scores of segments: the best score that unfinished candidates can still reach.  # N"""

    @property
    def scale(self) -> Scale | None:
        """How a quota may read the score; None: it only ranks."""
        if self.reads == "plan":
            return "log_odds"
        if self.is_negative_entropy:
            return "negative_entropy"
        return "log_probability" if self.is_log_probability else None

    @property
    def reads_vocabulary(self) -> bool:
        """Whether the items' logits are needed before they can be ranked."""
        return self.reads not in ("nothing", "plan")


def _posterior(items: Items) -> Posterior:
    assert items.posterior is not None
    return items.posterior


def _sampled(items: Items) -> Tensor:
    assert items.tokens is not None
    return _posterior(items).log_prob(items.tokens)


def _random(items: Items) -> Tensor:
    slot = items.position if items.slot is None else items.slot
    step = () if items.step is None else (items.step,)
    return uniform(0, int(Stream.ORDER), items.key, slot, *step)


def _planner(items: Items) -> Tensor:
    assert items.odds is not None
    return items.odds.to(torch.float64)


def _written(items: Items) -> Written:
    assert items.written is not None
    return items.written


def _average_bound(written: Written) -> Tensor:
    """No log-probability is above 0 and no segment longer than T: at best, T - length zeros."""
    return _sum(written) / written.log_prob.shape[1]


def _sum(written: Written) -> Tensor:
    return written.log_prob.masked_fill(~written.present, 0.0).sum(dim=1)


def _smallest(written: Written) -> Tensor:
    """The score, and also its bound: later tokens can only lower it."""
    return written.log_prob.masked_fill(~written.present, torch.inf).amin(dim=1)


LEFT_TO_RIGHT = Score(
    "left_to_right", lambda items: -items.position.to(torch.float64), reads="nothing"
)
RIGHT_TO_LEFT = Score(
    "right_to_left", lambda items: items.position.to(torch.float64), reads="nothing"
)
RANDOM = Score("random", _random, reads="nothing")

SCORES = {
    score.name: score
    for score in (
        Score(
            "confidence",
            lambda items: _posterior(items).log_confidence(),
            is_log_probability=True,
        ),
        Score("sampled", _sampled, reads="token", is_log_probability=True),
        Score("margin", lambda items: _posterior(items).margin_below_one()),
        Score(
            "entropy",
            lambda items: _posterior(items).negative_entropy(),
            is_negative_entropy=True,
        ),
        LEFT_TO_RIGHT,
        RIGHT_TO_LEFT,
        RANDOM,
        Score("planner", _planner, reads="plan"),
    )
}
"""Scores of tokens."""

SEGMENT_SCORES = {
    score.name: score
    for score in (
        Score(
            "average",
            lambda items: _sum(_written(items)) / _written(items).length,
            reads="segment",
            bound=_average_bound,
        ),
        Score(
            "minimum", lambda items: _smallest(_written(items)), reads="segment", bound=_smallest
        ),
        Score("first", lambda items: _written(items).log_prob[:, 0], reads="opening"),
        LEFT_TO_RIGHT,
        RIGHT_TO_LEFT,
        RANDOM,
    )
}
"""Scores of segments."""


@dataclass(frozen=True)
class Policy:
    """All choices about the order of reveals: score, quota, ties and blocks."""

    score: Score = SCORES["confidence"]
    quota: Quota = field(default_factory=Even)
    posterior: Literal["untempered", "filtered"] = "untempered"
    """Which distribution the score reads."""
    ties: Literal["random", "leftmost"] = "random"
    block: int | None = None
    """Close blocks of this many free slots from left to right; None: the whole canvas at once."""

    def __post_init__(self) -> None:
        one_of("posterior", self.posterior, ("untempered", "filtered"))
        one_of("ties", self.ties, ("random", "leftmost"))
        at_least("block", self.block)
        wanted = self.quota.reads_scores
        if wanted is not None and wanted != self.score.scale:
            raise ValueError(NEEDED[wanted].format(policy=repr(self.score.name)))

    def draw_lots(self, ranking: Ranking, key: Tensor, slot: Tensor, step: int) -> Ranking:
        """The ranking with the winners first, if the quota draws for each item."""
        if not isinstance(self.quota, ItemwiseQuota):
            return ranking
        # Lifting the winners lets `take` serve these quotas like all others.
        lots = uniform(0, int(Stream.PLAN), key[:, None], step, slot)  # B L
        return replace(ranking, scores=self.quota.lift(ranking.scores, lots))


NEEDED: dict[Scale, str] = {
    "log_probability": "the quotas threshold and factor compare probabilities, which {policy} is "
    "not: use the policy 'confidence' or 'sampled', or another quota",
    "log_odds": "the quotas bernoulli and expected read a planner's chances, which {policy} does "
    "not give: use the policy 'planner', or another quota",
    "negative_entropy": "the quota entropy_bound adds up entropies, which {policy} does not give: "
    "use the policy 'entropy', or another quota",
}
"""The error for a policy whose scores a quota cannot read."""


def register_policy(score: Score) -> None:
    """Add your own score as a policy. If it reads nothing, it ranks tokens and segments."""
    if score.name in (*SCORES, *SEGMENT_SCORES):
        raise ValueError(f"there is a policy {score.name!r} already: choose another name")
    if score.reads in ("nothing", "posterior", "token", "plan"):
        SCORES[score.name] = score
    if score.reads in ("nothing", "opening", "segment"):
        SEGMENT_SCORES[score.name] = score


def find_score(name: str) -> Score:
    """A score of tokens."""
    return _find(name, SCORES, SEGMENT_SCORES, "segments")


def find_unplanned_score(name: str) -> Score:
    """A score of tokens for networks that have no planner."""
    score = find_score(name)
    if score.reads == "plan":
        raise ValueError(f"the policy {name!r} reads a planner, which only mdm can have")
    return score


def find_segment_score(name: str) -> Score:
    """A score of segments."""
    return _find(name, SEGMENT_SCORES, SCORES, "tokens")


def _find(name: str, scores: dict[str, Score], others: dict[str, Score], ranked: str) -> Score:
    """The score of that name; those of installed packages are registered on first use."""
    if name not in scores and name not in others and name in entries("policies"):
        register_policy(load_entry("policies", name))
    if name in scores:
        return scores[name]
    known = f"the policy {name!r} ranks {ranked}"
    problem = known if name in others else f"unknown policy {name!r}"
    raise ValueError(f"{problem}: choose one of {', '.join(scores)}")


def near_ties_as_ties(scores: Tensor) -> Tensor:
    """Scores rounded to 12 binary digits: those that agree to about 2e-4 become equal."""
    # The last digits of a float32 network change with the shape of the batch. They must not decide
    # the order: the tie rule decides.
    mantissa, exponent = torch.frexp(scores)
    return torch.ldexp((mantissa * NEAR).round() / NEAR, exponent)


@dataclass(frozen=True)
class Ranking:
    """Input of `take`: larger scores first, items that wait after all others."""

    scores: Tensor  # B L
    eligible: Tensor  # B L, bool: the items that may be taken
    waits: Tensor  # B L, bool
    tie_break: Tensor  # B L, the larger one wins among equals

    def order(self) -> Tensor:
        """Positions from the first to be taken to the last; ineligible ones at the end.  # B L"""
        order = self.tie_break.argsort(dim=1, descending=True, stable=True)
        # Stable sorts, the least important key first, sort by all keys.
        for key in (self.scores, ~self.waits, self.eligible):
            values = key.gather(1, order).to(torch.float64)
            order = order.gather(1, values.argsort(dim=1, descending=True, stable=True))
        return order


def take(ranking: Ranking, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The `counts` (B) first items of each row (B L), and how many of these choices were ties (B).

    A taken item counts as a tie when an item that ranks equally was left behind.
    """
    order = ranking.order()
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    rank = torch.empty_like(order).scatter(1, order, places)
    available = ranking.eligible.sum(dim=1)
    taken = rank < torch.minimum(counts, available)[:, None]
    # An index past the end is clamped to a wrong item: `some_left` removes those rows below.
    first_left = order.gather(1, counts.clamp(max=order.shape[1] - 1)[:, None])  # B 1
    equal = (ranking.scores == ranking.scores.gather(1, first_left)) & (
        ranking.waits == ranking.waits.gather(1, first_left)
    )
    some_left = counts < available
    return taken, (taken & equal).sum(dim=1) * some_left


def tie_noise(
    policy: Policy, keys: Tensor, step: int, length: int, slot: Tensor | None = None
) -> Tensor:
    """The order among equal scores: fresh keyed noise in each step, or the position.  # B L

    `slot` (B L) keys the noise instead of the position where slots move.
    """
    position = torch.arange(length, device=keys.device)
    if policy.ties == "leftmost":
        return -position.to(torch.float64).expand(len(keys), length)
    return uniform(0, int(Stream.TIE), keys[:, None], step, position if slot is None else slot)
