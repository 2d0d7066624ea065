"""Estimates of likelihoods: their mean, spread and standard error, against enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anyorder.data.batches import BatchConfig, Example, collate
from anyorder.data.segments import SegmentConfig
from anyorder.families.estimate import Scorer, standard_error
from anyorder.families.likelihood import drawn_nats, likelihood_of
from anyorder.nets.oracles import InsertionOracle, Oracle, SegmentInsertionOracle, SegmentOracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.masking import uniform_counts
from anyorder.process.noise import Noise
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abc"))
A, B, C = range(3)
MASK, END = VOCAB.mask_id, VOCAB.eos_id
BARE = BatchConfig(ending="none")
CPU = torch.device("cpu")
LETTERS = 10
"""Tokens of the answers below: too many to enumerate within the draws."""


def scorer(family: str, net: Any, config: BatchConfig = BARE, **settings: Any) -> Scorer:
    likelihood = likelihood_of(family)
    assert likelihood is not None
    return Scorer(likelihood, net, VOCAB, config, CPU, **settings)


def sticky() -> dict[tuple[int, ...], float]:
    """Words of a and b behind the prompt c; a letter is most often the one before it."""
    return {
        (C, *word): math.prod(0.8 if x == y else 0.2 for x, y in itertools.pairwise(word))
        for word in itertools.product((A, B), repeat=LETTERS)
    }


class Flat(Oracle):
    """An oracle whose posteriors are flattened, so that orders differ: a bound, and no equality."""

    def head(self, hidden: Tensor) -> Tensor:
        return (hidden.clamp(min=-9.0) / 2).log_softmax(dim=-1)


WORD = [A] * LETTERS
"""What it costs falls with every letter that is shown, so the number of masks matters much."""


def enumerated_draws(net: Any, word: list[int]) -> list[Tensor]:
    """What a draw gives, for all sets of masks of each size: their mean is the bound."""
    size = len(word)
    bits = torch.arange(1, 2**size)[:, None] >> torch.arange(size)
    masked = (bits & 1).bool()  # S L
    clean = torch.tensor([[C, *word]]).expand(len(masked), -1)
    hidden = torch.cat([torch.zeros(len(masked), 1, dtype=torch.bool), masked], dim=1)
    nats = -net.head(net.hidden(clean.masked_fill(hidden, MASK))).log_softmax(dim=-1)
    each = nats.gather(2, clean[:, :, None])[:, :, 0].masked_fill(~hidden, 0.0).sum(dim=1)
    count = masked.sum(dim=1)
    return [(size * each / count)[count == n].double() for n in range(1, size + 1)]


@pytest.fixture(scope="module", params=[Oracle, Flat], ids=["exact", "flat"])
def network(request: pytest.FixtureRequest) -> Any:
    return request.param(sticky(), MASK, VOCAB.size)


def repeated(network: Any, draws: int, times: int) -> list[Any]:
    asked = [Example([C], WORD, number) for number in range(times)]
    return scorer("mdm", network, draws=draws, batch=256, seed=3).estimates(asked)


def test_systematic_counts_are_unbiased_and_spread_less(network: Any) -> None:
    """Within three standard errors of the bound. Both spreads are known by enumeration.

    Twenty draws mask each of the ten numbers twice, so only the places vary. Independent numbers
    add the variance between the numbers' means.
    """
    times, draws = 150, 2 * LETTERS
    each_count = enumerated_draws(network, WORD)
    means = torch.stack([values.mean() for values in each_count])
    truth = float(means.mean())
    within = fmean(float(values.var(correction=0)) for values in each_count)
    between = float(means.var(correction=0))
    systematic, independent = (math.sqrt(v / draws) for v in (within, within + between))
    assert systematic < 0.9 * independent
    law = sticky()
    surprise = -math.log(law[(C, *WORD)] / sum(law.values()))
    if type(network) is Oracle:  # then the bound is -log p itself
        assert truth == pytest.approx(surprise, abs=1e-6)
    found = repeated(network, draws, times)
    nats = [each.nats for each in found]
    spread = stdev(nats)
    assert abs(fmean(nats) - truth) < 3 * spread / math.sqrt(times)
    rough = 3 / math.sqrt(2 * (times - 1))  # three standard errors of a standard deviation
    assert spread == pytest.approx(systematic, rel=rough)

    likelihood = likelihood_of("mdm")
    assert likelihood is not None
    rows = [Example([C], WORD, number) for number in range(draws * times)]
    batch = collate(rows, VOCAB, BARE)
    levels = torch.rand(len(rows), generator=torch.Generator().manual_seed(1)).tolist()
    noise = Noise(5, 0, tuple(levels))
    drawn = drawn_nats(
        likelihood, network, batch, lambda: likelihood.nats(network, VOCAB, batch, noise)
    )
    drawn_apart = drawn.reshape(times, draws).mean(dim=1).tolist()
    assert stdev(drawn_apart) == pytest.approx(independent, rel=rough)
    assert spread < stdev(drawn_apart)
    # The reported error is the spread, and not that of independent draws.
    reported = math.sqrt(fmean(each.error**2 for each in found))
    assert 0.8 * spread < reported < 1.25 * spread


def test_the_error_leaves_the_spread_of_the_levels_out() -> None:
    levels = [0.0, 1.0, 2.0, 3.0]
    assert standard_error(levels) == pytest.approx(math.sqrt(3 / (2 * 3 * 4)))
    assert standard_error(levels) < stdev(levels) / 2


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40))
def test_every_count_has_the_same_weight(items: int, draws: int) -> None:
    """Over all u: each number of masks occurs draws / items times. Rounding would favour some."""
    grid = items * draws  # within a cell of this grid the counts do not change
    free = torch.ones(1, items, dtype=torch.bool).expand(draws, -1)
    seen: Counter[int] = Counter()
    for cell in range(grid):
        start = (cell + 0.5) / grid
        levels = torch.tensor([(start + draw) / draws for draw in range(draws)]).double()
        seen.update(uniform_counts(free, levels).tolist())
    assert {count: Fraction(n, grid) for count, n in seen.items()} == {
        count: Fraction(draws, items) for count in range(1, items + 1)
    }


@pytest.mark.parametrize("kind", [Oracle, Flat])
def test_short_answers_are_enumerated(kind: type[Oracle]) -> None:
    """No noise: the bound is the mean over all orders of revealing the tokens."""
    law = {(C, A, B, A): 4.0, (C, A, A, B): 3.0, (C, B, A, A): 2.0, (C, B, B, B): 1.0}
    net = kind(law, MASK, VOCAB.size)
    for word in ([A, B, A], [B, B, B]):
        total = 0.0
        for order in itertools.permutations(range(3)):
            shown = torch.tensor([[C, MASK, MASK, MASK]])
            for place in order:
                log_prob = net.head(net.hidden(shown)).log_softmax(dim=-1)
                total -= float(log_prob[0, place + 1, word[place]]) / 6
                shown[0, place + 1] = word[place]
        (found,) = scorer("mdm", net, draws=7).estimates([Example([C], word, 0)])
        assert found.error == 0 and found.nats == pytest.approx(total, abs=1e-5)
        (drawn,) = scorer("mdm", net, draws=6).estimates([Example([C], word, 0)])
        assert drawn.error > 0 or kind is Oracle


def test_one_token_is_the_networks_own_probability() -> None:
    net = Transformer(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8), seed=3)
    log_prob = net.head(net.hidden(torch.tensor([[A, B, MASK]]))).log_softmax(dim=-1)[0, 2]
    (found,) = scorer("mdm", net, draws=2).estimates([Example([A, B], [C], 0)])
    assert (found.nats, found.error) == (pytest.approx(-float(log_prob[C].detach()), abs=1e-5), 0)


@pytest.mark.parametrize("length", [1, 2, 9, 30])
def test_a_network_that_knows_nothing(length: int) -> None:
    """L ln V in every draw, so without error."""

    class Blank(Transformer):
        def head(self, hidden: Tensor) -> Tensor:
            return torch.zeros(*hidden.shape[:-1], VOCAB.size)

    net = Blank(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8), seed=0)
    (found,) = scorer("mdm", net, draws=8).estimates([Example([A], [B] * length, 0)])
    assert found.nats == pytest.approx(length * math.log(VOCAB.size), rel=1e-5)
    assert found.error == pytest.approx(0, abs=1e-5)


EXAMPLES = [
    Example([A, B], [C, A, A, B, A, C], 0),
    Example([A], [B], 0),
    Example([A, B], [A, A, A, B, A, C], 0),
    Example([C, C, C], [A, C, B], 1),
    Example([B], [A, C, B, A, B, A, A], 2),
    Example([B], [], 0),
]


@pytest.mark.parametrize("family", ["mdm", "ar", "duo"])
def test_order_and_batch_size_do_not_matter(family: str) -> None:
    shape = TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8, causal=family == "ar")
    net = Transformer(replace(shape, time_modulated=family == "duo"), seed=4)
    once = scorer(family, net, draws=10, batch=1).estimates(EXAMPLES)
    heard: list[int] = []
    many = scorer(family, net, draws=10, batch=64).estimates(EXAMPLES, heard.append)
    again = scorer(family, net, draws=10, batch=7).estimates(EXAMPLES[::-1])[::-1]
    for others in (many, again):
        for one, other in zip(once, others, strict=True):
            assert other.nats == pytest.approx(one.nats, abs=1e-4)
            assert other.error == pytest.approx(one.error, abs=1e-4)
    assert once[5].nats == 0 and sum(heard) == len(EXAMPLES) - (family == "mdm")
    assert once[0].nats != pytest.approx(once[2].nats, abs=1e-3)


def test_choices_of_one_length_share_their_masks() -> None:
    """A network that does not see tokens: the choices have the same noise, so they tie exactly."""

    class Places(Transformer):
        """A token costs more the farther to the right it is; what it is does not matter."""

        def hidden(self, ids: Tensor, **inputs: Any) -> Tensor:
            place = torch.arange(ids.shape[1], dtype=torch.float32)
            return place[None, :, None].expand(len(ids), -1, 8)

        def head(self, hidden: Tensor) -> Tensor:
            rest = -torch.log1p(hidden[:, :1]) - math.log(3)
            return torch.cat([rest.expand(-1, 3), torch.zeros(len(hidden), VOCAB.size - 3)], dim=1)

    net = Places(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8), seed=0)
    asked = [Example([A], [B] * 9, 0), Example([A], [C] * 9, 0), Example([B], [C] * 9, 0)]
    first, second, other = scorer("mdm", net, draws=16).estimates(asked)
    assert first == second and first.nats != other.nats and first.error > 0


def test_ar_is_greedy_where_every_token_is_the_likeliest() -> None:
    net = Transformer(TransformerConfig(VOCAB.size, 8, 1, 2, 2, 4, 8, causal=True), seed=3)
    ids = [A, B]
    for _ in range(3):
        ids.append(int(net.head(net.hidden(torch.tensor([ids]))[:, -1]).argmax()))
    likeliest = ids[2:]
    others = [[*likeliest[:place], C if likeliest[place] != C else A] for place in range(3)]
    asked = [Example([A, B], word, 0) for word in (likeliest, likeliest[:1], *others)]
    assert scorer("ar", net, batch=2).greedy(asked) == [True, True, False, False, False]


ANSWERS = {(): 1.0, (A,): 2.0, (A, B): 3.0, (B, A, A): 2.0, (A, A, A): 2.0}
SEGMENTS = SegmentConfig(slots=3, segment_length=3)
LINES = {((A,), (B, C), ()): 3.0, ((A,), (A,), (B,)): 2.0, ((B, C), (A,), ()): 2.0}


def decode_states(self: Any, conditions: Tensor, ids: Tensor) -> Tensor:
    first = self.write(conditions).first()[:, None]
    return torch.cat([first, self.write(conditions).read(ids)], dim=1)


class Written(SegmentOracle):
    decode_states = decode_states


class WrittenInserter(SegmentInsertionOracle):
    decode_states = decode_states


def grown() -> dict[tuple[tuple[int, ...], ...], float]:
    return {tuple(line for line in lines if line): weight for lines, weight in LINES.items()}


FAMILIES: dict[str, tuple[Any, BatchConfig, Example, float]] = {
    "flexmdm": (
        InsertionOracle(ANSWERS, MASK, VOCAB.size, prompt_length=2, unmasking_exponent=1.7),
        BatchConfig(ending="none", after=(END,)),
        Example([C], [B, A, A], 0),
        0.2,
    ),
    "latentmdm": (
        Written(LINES, END, VOCAB.size, segment_length=3),
        BatchConfig(ending="none", segments=SEGMENTS, pad_slots=True),
        Example([A], [A, B, C], 0, (1, 2)),
        3 / 7,
    ),
    "flexlatent": (
        WrittenInserter(grown(), END, VOCAB.size, segment_length=3),
        BatchConfig(ending="none", after=(END,), segments=SEGMENTS),
        Example([A], [A, B, C], 0, (1, 2)),
        3 / 7,
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_other_bounds_meet_the_truth(family: str) -> None:
    """With exact posteriors, within three standard errors of the mean of repetitions."""
    net, config, example, probability = FAMILIES[family]
    times, truth = 30, -math.log(probability)
    draws = 7 if family == "latentmdm" else 60  # three slots have seven sets of masks
    asked = [replace(example, index=number) for number in range(times)]
    found = scorer(family, net, config, draws=draws, batch=600).estimates(asked)
    nats = [each.nats for each in found]
    if family == "latentmdm":
        assert nats == pytest.approx([truth] * times, abs=1e-6)
        assert not any(each.error for each in found)
        found = scorer(family, net, config, draws=6, batch=600).estimates(asked)
        nats = [each.nats for each in found]
    spread = stdev(nats)
    assert abs(fmean(nats) - truth) < 3 * spread / math.sqrt(times)
    reported = math.sqrt(fmean(each.error**2 for each in found))
    assert 0.6 * spread < reported < 1.7 * spread


def test_too_few_draws_are_refused() -> None:
    net = Oracle({(A, B): 1.0}, MASK, VOCAB.size)
    with pytest.raises(ValueError, match="draws=1: give at least 2, for a standard error"):
        scorer("mdm", net, draws=1)
