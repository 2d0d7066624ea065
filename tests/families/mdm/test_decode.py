"""mdm against the oracle (its law is the data's law) and against itself (batched equals alone)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import pytest
import torch
from scipy import stats

from anyorder.decode.canvas import Canvas
from anyorder.decode.policy import SCORES, Score
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.nets.oracles import Oracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
DATA = {
    sequence: 1.0 + (5 * sequence[0] + 3 * sequence[1] * sequence[3] + 2 * sequence[2]) % 7
    for sequence in itertools.product(range(3), repeat=4)
    if sequence[0] != sequence[2] or sequence[1] == sequence[3]
}
ORACLE = Oracle(DATA, VOCAB.mask_id, VOCAB.size)
SAMPLES = 4_000
MANY = 20_000
"""In the long suite, for what is only slightly wrong."""


def canvas_of(pattern: str) -> Canvas:
    """'ab__' freezes a and b, and leaves two slots free."""
    parts: list[list[int] | int] = [1 if c == "_" else VOCAB.encode(c) for c in pattern]
    return Canvas.of(parts, VOCAB)


def law_of(pattern: str) -> dict[tuple[int, ...], float]:
    """The data's law given what the pattern freezes."""
    fixed = {i: VOCAB.encode(c)[0] for i, c in enumerate(pattern) if c != "_"}
    kept = {x: p for x, p in DATA.items() if all(x[i] == v for i, v in fixed.items())}
    total = sum(kept.values())
    return {x: p / total for x, p in kept.items()}


def decoded_law(
    pattern: str, options: MdmOptions, seed: int, samples: int = SAMPLES
) -> Counter[tuple[int, ...]]:
    canvas = canvas_of(pattern)
    keys = [key_of(seed, pattern, i) for i in range(samples)]
    rows = mdm.decode(ORACLE, VOCAB, [canvas] * samples, keys, options)
    prefix = canvas.ids[: canvas.prompt_length]
    return Counter((*prefix, *row.token_ids) for row in rows)


def check_law(pattern: str, options: MdmOptions, seed: int, samples: int = SAMPLES) -> None:
    """What comes out has the law of the data."""
    law, seen = law_of(pattern), decoded_law(pattern, options, seed, samples)
    assert set(seen) <= set(law)
    observed = [seen[x] for x in law]
    assert stats.chisquare(observed, [p * samples for p in law.values()]).pvalue > 1e-4


@pytest.mark.parametrize("samples", [SAMPLES, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("pattern", ["____", "a___", "_b__", "_a_c", "b__a"])
@pytest.mark.parametrize("policy", ["random", "left_to_right"])
def test_output_law_is_the_data_law(pattern: str, policy: str, samples: int) -> None:
    check_law(pattern, MdmOptions(policy=policy, temperature=1.0), seed=1, samples=samples)


def fixed_order(order: Sequence[int]) -> Score:
    """A score that takes the positions in the given order."""
    when = torch.tensor([order.index(position) for position in range(len(order))])
    return Score("fixed", lambda items: -when[items.position].double(), reads="nothing")


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (2, 0, 3, 1)])
def test_a_fixed_order_reproduces_the_data(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCORES, "fixed", fixed_order(order))
    check_law("____", MdmOptions(policy="fixed", temperature=1.0), seed=4)


@pytest.mark.long
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
@pytest.mark.parametrize("pattern", ["____", "c___", "__a_", "_b_c"])
def test_every_fixed_order_reproduces_the_data(
    order: tuple[int, ...], pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCORES, "fixed", fixed_order(order))
    check_law(pattern, MdmOptions(policy="fixed", temperature=1.0), seed=4, samples=MANY)


@pytest.mark.parametrize("samples", [SAMPLES, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("policy", ["confidence", "margin", "entropy"])
def test_confidence_order_with_draws_is_exact_too(policy: str, samples: int) -> None:
    """Any order that looks only at what is revealed leaves the law unchanged."""
    check_law("____", MdmOptions(policy=policy, temperature=1.0), seed=2, samples=samples)


def test_many_tokens_a_step_is_not_exact() -> None:
    """Drawing two slots at once ignores their dependence: the test above can fail."""
    law = law_of("____")
    seen = decoded_law("____", MdmOptions(policy="random", temperature=1.0, steps=1), seed=3)
    observed = [seen[x] for x in law]
    assert sum(observed) < SAMPLES  # sequences outside the data occur
    assert not set(seen) <= set(law)


def test_log_probabilities_add_up_to_the_datas() -> None:
    """One token a step: the chain rule gives log p(x) whatever the order."""
    law = law_of("____")
    for policy in ("random", "confidence"):
        keys = [key_of(9, i) for i in range(200)]
        options = MdmOptions(policy=policy, temperature=1.0)
        for row in mdm.decode(ORACLE, VOCAB, [canvas_of("____")] * 200, keys, options):
            expected = torch.tensor(law[tuple(row.token_ids)]).log()
            assert sum(row.log_prob) == pytest.approx(float(expected), abs=1e-4)


def small_net(width: int = 32) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=VOCAB.size,
        width=width,
        layers=2,
        heads=4,
        kv_heads=2,
        head_width=8,
        mlp_width=64,
    )
    net = Transformer(config).eval()
    with torch.no_grad():
        for parameter in net.parameters():  # far from uniform, so that slots differ clearly
            if parameter.ndim == 2:
                parameter.mul_(6)
    return net


def ragged() -> list[Canvas]:
    frozen = [[0, 1], [2], [1, 1, 0, 2, 2], [0, 2, 1]]
    canvases = [
        Canvas.of([ids, slots], VOCAB) for ids, slots in zip(frozen, (9, 12, 7, 3), strict=True)
    ]
    return [*canvases, Canvas.of([[0], 4, [1, 2], 5, [0, 0, 0]], VOCAB)]


OPTIONS = [
    MdmOptions(policy=policy, temperature=temperature, top_p=top_p)
    for policy in ("confidence", "sampled", "margin", "entropy", "left_to_right", "random")
    for temperature, top_p in ((0.0, 1.0), (0.7, 1.0), (0.7, 0.9))
] + [
    MdmOptions(steps=3),
    MdmOptions(quota="threshold:0.6", temperature=0.7),
    MdmOptions(mode="compat", policy="entropy", temperature=0.7, top_p=0.9),
    MdmOptions(eos="fill", temperature=0.7),
    MdmOptions(eos="last"),
    MdmOptions(eos="forbid", temperature=0.7),
    MdmOptions(block=4, temperature=0.7),
    MdmOptions(block=3, quota="threshold:0.5", eos="last"),
    MdmOptions(mode="compat", steps=30, temperature=0.7, top_p=0.9, block=None),
    MdmOptions(posterior="filtered", top_k=2),
]


def label(options: MdmOptions) -> str:
    """The fields that differ from the default."""
    changed = {k: v for k, v in asdict(options).items() if v != getattr(MdmOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "default"


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_batched_equals_alone(options: MdmOptions) -> None:
    net, canvases = small_net(), ragged()
    keys = [key_of(0, i) for i in range(len(canvases))]
    together = mdm.decode(net, VOCAB, canvases, keys, options)
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = mdm.decode(net, VOCAB, [canvas], [key], options)
        assert row.token_ids == alone.token_ids
        assert row.reveal_step == alone.reveal_step
        assert (row.steps, row.forwards, row.ties) == (alone.steps, alone.forwards, alone.ties)
        assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_resolving_twice_changes_nothing(options: MdmOptions) -> None:
    assert mdm.resolve(mdm.resolve(options)) == mdm.resolve(options)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_what_comes_out_is_well_formed(options: MdmOptions) -> None:
    canvases = ragged()
    rows = mdm.decode(small_net(), VOCAB, canvases, list(range(len(canvases))), options)
    for canvas, row in zip(canvases, rows, strict=True):
        start = canvas.prompt_length
        for token, step, old, free in zip(
            row.token_ids, row.reveal_step, canvas.ids[start:], canvas.free[start:], strict=True
        ):
            assert token != VOCAB.mask_id
            assert (1 <= step <= row.steps) if free else (step == 0 and token == old)
        if options.eos == "forbid":
            assert VOCAB.eos_id not in row.token_ids


def test_slots_that_are_equal_up_to_rounding_are_ties() -> None:
    """All masks and nothing else: every position sees the same, so noise must choose."""
    net, canvas = small_net(), Canvas.of([12], VOCAB)
    keys = [key_of(3, i) for i in range(24)]
    rows = mdm.decode(net, VOCAB, [canvas] * 24, keys, MdmOptions(steps=1 + 11))
    firsts = {row.reveal_step.index(1) for row in rows}
    assert len(firsts) > 5 and all(row.ties >= 1 for row in rows)


def test_blocks_close_from_left_to_right() -> None:
    canvas = Canvas.of([[0], 12], VOCAB)
    (row,) = mdm.decode(small_net(), VOCAB, [canvas], [1], MdmOptions(block=4, steps=6))
    blocks = [row.reveal_step[i : i + 4] for i in (0, 4, 8)]
    assert max(blocks[0]) < min(blocks[1]) and max(blocks[1]) < min(blocks[2])
    assert row.steps == 6 and [len(set(b)) for b in blocks] == [2, 2, 2]


def test_left_to_right_order() -> None:
    canvas = Canvas.of([[0], 3, [1], 2], VOCAB)
    (row,) = mdm.decode(small_net(), VOCAB, [canvas], [1], MdmOptions(policy="left_to_right"))
    assert row.reveal_step == [1, 2, 3, 0, 4, 5]
    assert row.ties == 0


class Uniform:
    """A denoiser that knows nothing: every slot ties with every other."""

    def hidden(
        self,
        ids: torch.Tensor,
        *,
        mask: torch.Tensor | None = None,
        time: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self.heads = 0
        return torch.zeros(*ids.shape, 1)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        self.heads += len(hidden)
        return torch.zeros(len(hidden), VOCAB.size)


def test_ties_are_counted() -> None:
    canvas = Canvas.of([[0], 5], VOCAB)
    (row,) = mdm.decode(Uniform(), VOCAB, [canvas], [1], MdmOptions(ties="leftmost"))
    assert row.reveal_step == [1, 2, 3, 4, 5]
    assert row.ties == 4  # the last slot had no rival


def test_dream_steps_without_a_reveal_cost_no_forward() -> None:
    canvas = Canvas.of([[0], 20], VOCAB)
    (row,) = mdm.decode(Uniform(), VOCAB, [canvas], [1], MdmOptions(mode="compat"))
    assert row.steps == 20 and row.forwards == 19
    assert min(row.reveal_step) == 2 and row.reveal_step.count(20) == 2


def test_head_runs_on_taken_slots_only_when_the_score_reads_nothing() -> None:
    net, canvas = Uniform(), Canvas.of([[0], 30], VOCAB)
    mdm.decode(net, VOCAB, [canvas], [1], MdmOptions(policy="random", steps=1))
    assert net.heads == 30
    mdm.decode(net, VOCAB, [canvas], [1], MdmOptions(policy="random"))
    assert net.heads == 1  # the last step's call


def test_eos_last_waits() -> None:
    class LikesEos(Uniform):
        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(len(hidden), VOCAB.size)
            logits[: len(hidden) // 2, VOCAB.eos_id] = 9.0  # the left half is sure of EOS
            return logits

    canvas = Canvas.of([[0], 8], VOCAB)
    options = MdmOptions(eos="last", steps=2)
    (row,) = mdm.decode(LikesEos(), VOCAB, [canvas], [1], options)
    assert row.reveal_step[:4] == [2] * 4 and row.reveal_step[4:] == [1] * 4
    (plain,) = mdm.decode(LikesEos(), VOCAB, [canvas], [1], MdmOptions(steps=2))
    assert plain.reveal_step[:4] == [1] * 4


def test_fill_after_eos() -> None:
    class EosAtThree(Uniform):
        def hidden(
            self,
            ids: torch.Tensor,
            *,
            mask: torch.Tensor | None = None,
            time: torch.Tensor | None = None,
        ) -> torch.Tensor:
            return torch.arange(ids.shape[1]).float()[None, :, None].expand(*ids.shape, 1)

        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(len(hidden), VOCAB.size)
            logits[:, 1] = 1.0
            logits[hidden[:, 0] == 3, VOCAB.eos_id] = 9.0
            return logits

    canvas = Canvas.of([[0], 6], VOCAB)
    (row,) = mdm.decode(EosAtThree(), VOCAB, [canvas], [1], MdmOptions(eos="fill"))
    assert row.token_ids == [1, 1, *[VOCAB.eos_id] * 4]
    assert row.reveal_step[2:] == [1] * 4 and row.steps == 3


def test_eos_last_does_not_blur_the_order() -> None:
    class NearlySure(Uniform):
        """Every slot proposes EOS; their certainties differ in the twelfth digit."""

        def hidden(
            self, ids: torch.Tensor, *, mask: torch.Tensor | None = None,
            time: torch.Tensor | None = None,
        ) -> torch.Tensor:  # fmt: skip
            return torch.arange(ids.shape[1]).float()[None, :, None].expand(*ids.shape, 1)

        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(len(hidden), VOCAB.size)
            logits[:, VOCAB.eos_id] = 27 + hidden[:, 0]
            return logits

    canvas = Canvas.of([[0], 8], VOCAB)
    for eos in ("plain", "last"):
        (row,) = mdm.decode(NearlySure(), VOCAB, [canvas], [1], MdmOptions(eos=eos))
        assert row.reveal_step == [8, 7, 6, 5, 4, 3, 2, 1] and row.ties == 0
    sure = MdmOptions(eos="last", quota="threshold")
    (row,) = mdm.decode(NearlySure(), VOCAB, [canvas], [1], sure)
    assert row.steps == 1


def test_logits_that_are_not_numbers_end_in_an_error() -> None:
    class Broken(Uniform):
        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            return torch.full((len(hidden), VOCAB.size), torch.nan)

    for policy in ("confidence", "random", "sampled"):
        for temperature, top_p in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.9)):
            options = MdmOptions(policy=policy, temperature=temperature, top_p=top_p)
            with pytest.raises(ValueError, match="not finite"):
                mdm.decode(Broken(), VOCAB, [canvas_of("a___")], [1], options)


def test_too_few_logits_are_named() -> None:
    class Narrow(Uniform):
        def head(self, hidden: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(hidden), VOCAB.size - 2)

    with pytest.raises(ValueError, match="vocabulary of 7"):
        mdm.decode(Narrow(), VOCAB, [canvas_of("a___")], [1], MdmOptions())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"policy": "l2r"}, "unknown policy"),
        ({"quota": "odd"}, "unknown quota"),
        ({"eos": "never"}, "unknown eos"),
        ({"steps": 0}, "at least 1"),
        ({"mode": "fast"}, "exact"),
        ({"quota": "threshold", "steps": 4}, "its own steps"),
        ({"quota": "threshold", "policy": "entropy"}, "threshold"),
        ({"eos": "last", "policy": "random"}, "no effect"),
        ({"posterior": "filtered", "policy": "left_to_right"}, "no effect"),
        ({"posterior": "filtered", "policy": "random", "mode": "compat"}, "no effect"),
        ({"posterior": "filtered"}, "untempered one at temperature 0"),
        ({"ties": "leftmost", "policy": "random"}, "no ties"),
        ({"ties": "rightmost"}, "leftmost"),
        ({"block": 0}, "block must be at least 1"),
        ({"top_p": 0.9}, "at temperature 0"),
        ({"top_k": 3, "policy": "random", "mode": "compat"}, "at temperature 0"),
    ],
)
def test_wrong_or_unused_options_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mdm.resolve(MdmOptions(**wrong))  # type: ignore[arg-type]


def test_compat_is_the_dream_sampler() -> None:
    full = mdm.resolve(MdmOptions(mode="compat", temperature=0.2))
    assert (full.policy, full.quota, full.posterior, full.ties) == (
        "sampled", "dream", "filtered", "leftmost",
    )  # fmt: skip
    assert mdm.resolve(MdmOptions(mode="compat", top_p=0.9)).top_p == 0.9


def test_steps_that_blocks_cannot_share_are_refused_beforehand() -> None:
    with pytest.raises(ValueError, match="multiple of 3"):
        mdm.check([Canvas.of([[0], 12], VOCAB)], MdmOptions(block=4, steps=7))


def test_canvas_refuses_masks_in_frozen_text_and_empty_spans() -> None:
    with pytest.raises(ValueError, match="mask"):
        Canvas.of([[0, VOCAB.mask_id], 3], VOCAB)
    with pytest.raises(ValueError, match="at least one"):
        Canvas.of([[0], 0], VOCAB)
    with pytest.raises(ValueError, match="no free slot"):
        Canvas.of([[0, 1]], VOCAB)
