"""The exact output law of the step-wise insertion sampler, pushed through its kernel.

One step at (t, s] asks the network once and then, independently given the state z:

    reveal     a number of z's masks, chosen by the policy, with tokens from the posterior
    insert     a number of new masks in every gap, at most as many as there is room for

    law(y) <- sum over z, reveals z -> z', counts c of law(z) P(z' | z) P(c | z) [y = z' with c]

The last step leaves masks that were just inserted; one more call fills them. Nothing is sampled:
`Space` lists every move once, `Rule` gives their probabilities. It does not share code with the
decoder. Letters: S states, L the longest, T tokens, P reveals, I insertions, C counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from insertion_space import Array, Asker, Beliefs, Space
from scipy import special


@dataclass(frozen=True)
class Rule:
    """One sampler."""

    steps: int = 16
    insertion: float = 1.7
    unmasking: float = 2.89
    hazard: str = "exact"
    """exact, left, midpoint or integrated."""
    counts: str = "binomial"
    """binomial, poisson or floor_bernoulli."""
    policy: str = "random"
    """random, confidence (largest probability) or sampled (the drawn token's probability)."""
    quota: str = "thinned"
    """thinned or poisson."""
    insertion_temperature: float = 1.0
    wrong_time: bool = False
    """Ask at raw t although insertion runs on another clock."""


def share(hazard: str, exponent: float, t: float, s: float) -> float:
    """How likely what waits is to happen in (t, s]; the last step does all that is left."""
    if hazard == "exact":
        return 1 - ((1 - s) / (1 - t)) ** exponent
    if hazard == "left":
        return min(1.0, exponent / (1 - t) * (s - t))
    if hazard == "midpoint":
        return min(1.0, exponent / (1 - (t + s) / 2) * (s - t))
    assert hazard == "integrated"
    return min(1.0, exponent * math.log((1 - t) / (1 - s))) if s < 1 else 1.0


def binomial(k: Array, n: Array, p: Array | float) -> Array:
    """P(k of n); 0 where k > n."""
    return special.comb(n, k) * np.power(p, k) * np.power(1 - np.asarray(p), np.maximum(n - k, 0))


# --- reveals ---------------------------------------------------------------------------------


def count_law(rule: Rule, space: Space, t: float, s: float) -> Array:
    """P(k masks are revealed | r masks).  # r k"""
    r, k = np.ogrid[: space.longest + 1, : space.longest + 1]
    chance = share(rule.hazard, rule.unmasking, t, s)
    if rule.quota == "thinned" or chance == 1:
        return binomial(k, r, chance)
    mean = r * chance
    law = np.where(k < r, np.exp(-mean) * mean**k / special.factorial(k), 0.0)
    return law + np.where(k == r, 1 - law.sum(axis=1, keepdims=True), 0.0)


def near(scores: Array) -> Array:
    """Scores to 12 binary digits, as the decoder ranks them."""
    mantissa, exponent = np.frexp(scores)
    return np.ldexp(np.round(mantissa * 4096) / 4096, exponent)


def subset_law(rule: Rule, space: Space, beliefs: Beliefs) -> Array:
    """P(these masks are chosen | their number and their tokens) for every reveal.  # P"""
    source, shown = space.reveal_source, space.revealed
    left = space.masked[source] & ~shown  # P L
    count, masks = shown.sum(axis=1), space.masks[source]
    if rule.policy == "random":
        return 1 / special.comb(masks, count)
    belief = beliefs.tokens[source]  # P L T
    if rule.policy == "sampled":
        drawn = np.take_along_axis(belief, space.reveal_token.clip(0)[:, :, None], 2)[:, :, 0]
        least = np.where(shown, drawn, np.inf).min(axis=1)  # P
        below = np.where(belief < least[:, None, None], belief, 0.0).sum(axis=2)  # P L
        return np.where(left, below, 1.0).prod(axis=1)
    assert rule.policy == "confidence"
    with np.errstate(divide="ignore"):
        scores = near(np.log(belief.max(axis=2)))
    least = np.where(shown, scores, np.inf).min(axis=1)
    best_left = np.where(left, scores, -np.inf).max(axis=1)
    # Masks that tie with the last one taken: any of them might have been.
    tied = (space.masked[source] & (scores == least[:, None])).sum(axis=1)
    tied_taken = (shown & (scores == least[:, None])).sum(axis=1)
    return np.where(least >= best_left, 1 / special.comb(tied, tied_taken), 0.0)


def token_law(space: Space, beliefs: Beliefs) -> Array:
    """The probability of the tokens of every reveal.  # P"""
    belief = beliefs.tokens[space.reveal_source]
    drawn = np.take_along_axis(belief, space.reveal_token.clip(0)[:, :, None], 2)[:, :, 0]
    return np.where(space.revealed, drawn, 1.0).prod(axis=1)


# --- insertions ------------------------------------------------------------------------------


def tempered(missing: Array, temperature: float) -> Array:
    """Lambda softmax(g / T) over the gaps of each state.  # S L+1"""
    total = missing.sum(axis=1, keepdims=True)
    power = (missing / np.maximum(total, 1e-300)) ** (1 / temperature)
    return total * power / np.maximum(power.sum(axis=1, keepdims=True), 1e-300)


def gap_counts(rule: Rule, missing: Array, part: float) -> Array:
    """P(c new masks in a gap), for c up to a number that is never passed.  # S L+1 C"""
    if rule.counts == "binomial":
        items = np.maximum(np.ceil(missing - 1e-4), 1)  # barely above a whole number is whole
        chance = np.minimum(missing * part / items, 1)
        c = np.arange(int(items.max()) + 1)
        return binomial(c, items[..., None], chance[..., None])
    assert rule.counts == "floor_bernoulli"
    whole = np.floor(missing * part)[..., None]
    rest = (missing * part)[..., None] - whole
    c = np.arange(int(whole.max()) + 2)
    return np.where(c == whole, 1 - rest, np.where(c == whole + 1, rest, 0.0))


def insert_law(rule: Rule, space: Space, missing: Array, part: float) -> Array:
    """The probability of every vector of counts, after the cap.  # I

    Where more masks are drawn than there is room for, all of them are kept with equal chance:
    P(kept = c) = sum over drawn n of P(n) prod_i binom(n_i, c_i) / binom(sum n, room).
    """
    missing = tempered(missing, rule.insertion_temperature)
    if rule.counts == "poisson":
        return poisson_insert_law(space, missing * part)
    counts = gap_counts(rule, missing, part)
    size = counts.shape[2]
    gaps = np.arange(space.longest + 1)
    reach = np.minimum(space.insert_counts, size - 1)
    drawn = counts[space.insert_source[:, None], gaps, reach]  # I L+1
    law = np.where(space.insert_counts < size, drawn, 0.0).prod(axis=1)
    full = space.fills_room
    each, kept = counts[space.insert_source[full]], space.insert_counts[full]
    ways = special.comb(np.arange(size), kept[:, :, None]) * each  # F L+1 C
    product = np.ones((len(kept), 1))
    for gap in gaps:
        grown = np.zeros((len(kept), product.shape[1] + size - 1))
        for c in range(size):
            grown[:, c : c + product.shape[1]] += product * ways[:, gap, c : c + 1]
        product = grown
    total = np.arange(product.shape[1])
    chosen = special.comb(total, kept.sum(axis=1)[:, None])
    law[full] = np.divide(product, chosen, where=chosen > 0, out=0 * product).sum(axis=1)
    return law


def poisson_insert_law(space: Space, rate: Array) -> Array:
    """The same in closed form: a Poisson total, multinomial places.  # I"""
    total_rate, counts = rate.sum(axis=1), space.insert_counts
    place = rate / np.maximum(total_rate, 1e-300)[:, None]
    drawn = counts.sum(axis=1)
    ways = special.factorial(drawn) / special.factorial(counts).prod(axis=1)
    places = ways * (place[space.insert_source] ** counts).prod(axis=1)  # I
    mean = total_rate[space.insert_source]
    at_least = special.gammainc(np.maximum(drawn, 1), mean)  # P(a Poisson number >= drawn)
    total = np.where(
        space.fills_room,
        np.where(drawn == 0, 1.0, at_least),
        np.exp(-mean) * mean**drawn / special.factorial(drawn),
    )
    return places * total


# --- the sampler -----------------------------------------------------------------------------


def asked_time(rule: Rule, net: Any, t: float) -> float:
    """What the network is told at sampler time t, in its own coordinate."""
    exponent = net.insertion_exponent if rule.wrong_time else rule.insertion
    left = (1 - t) ** exponent  # 1 - Gamma(t)
    return 1 - left if net.coordinate == "progress" else 1 - left ** (1 / net.insertion_exponent)


def step(rule: Rule, asker: Asker, law: Array, t: float, s: float) -> Array:
    """The law after one step.  # S"""
    space, beliefs = asker.space, asker.at(asked_time(rule, asker.net, t))
    masks, revealed = space.masks[space.reveal_source], space.revealed.sum(axis=1)
    reveal = count_law(rule, space, t, s)[masks, revealed]
    reveal = reveal * subset_law(rule, space, beliefs) * token_law(space, beliefs)
    insert = insert_law(rule, space, beliefs.missing, share(rule.hazard, rule.insertion, t, s))
    weight = (law[space.reveal_source] * reveal)[space.move_reveal] * insert[space.move_insert]
    return np.bincount(space.move_target, weight, minlength=len(law))


def fill(asker: Asker, law: Array) -> Array:
    """All masks revealed at once at the end of time.  # S"""
    space = asker.space
    complete = space.masks[space.reveal_target] == 0
    weight = law[space.reveal_source] * token_law(space, asker.at(1.0)) * complete
    return np.bincount(space.reveal_target, weight, minlength=len(law))


def output_law(rule: Rule, asker: Asker) -> Array:
    """The law of the sampler's output.  # S"""
    law = np.zeros(len(asker.space.strings))
    law[asker.space.index[()]] = 1.0
    for number in range(rule.steps):
        law = step(rule, asker, law, number / rule.steps, (number + 1) / rule.steps)
    return fill(asker, law)


def total_variation(law: Array, other: Array) -> float:
    return float(np.abs(law - other).sum() / 2)


def distance(rule: Rule, asker: Asker, data: dict[tuple[int, ...], float]) -> float:
    """Total variation between the sampler's law and the data's."""
    return total_variation(output_law(rule, asker), asker.space.vector(data))
