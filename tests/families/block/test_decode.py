"""block against the oracle (its law is the data's), the cache against none, the rules of EOS."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.ar import decode as ar
from anyorder.families.ar.config import ArOptions
from anyorder.families.block import decode as block
from anyorder.families.block.config import BlockConfig, BlockOptions
from anyorder.families.block.net import BlockNet
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.nets.blocks import block_numbers
from anyorder.nets.denoiser import ShiftedNet
from anyorder.nets.oracles import Oracle
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
DATA = {
    word: 1.0 + (5 * word[0] + 3 * word[1] * word[3] + 2 * word[2]) % 7
    for word in itertools.product(range(3), repeat=4)
    if word[0] != word[2] or word[1] == word[3]
}
SAMPLES = 4_000


def shape(**changes: Any) -> TransformerConfig:
    usual: dict[str, Any] = {
        "vocab_size": VOCAB.size, "width": 16, "layers": 3, "heads": 2, "kv_heads": 1,
        "head_width": 8, "mlp_width": 24,
    }  # fmt: skip
    return TransformerConfig(**usual | changes)


class BlockOracle(Oracle):
    """Exact posteriors of a network that sees no later blocks."""

    def __init__(self) -> None:
        super().__init__(DATA, VOCAB.mask_id, VOCAB.size)
        self.config = BlockConfig(shape(), 2)

    def hidden(  # type: ignore[override]
        self, ids: Tensor, *, block: Tensor, mask: Tensor
    ) -> Tensor:
        shown = ids.masked_fill(~mask, VOCAB.mask_id)
        unread = 4 - ids.shape[1]
        full = torch.nn.functional.pad(shown, (0, unread), value=VOCAB.mask_id)
        return super().hidden(full)[:, : ids.shape[1]]


def canvas_of(pattern: str) -> Canvas:
    parts: list[list[int] | int] = [1 if c == "_" else VOCAB.encode(c) for c in pattern]
    return Canvas.of(parts, VOCAB)


def law_of(pattern: str) -> dict[tuple[int, ...], float]:
    fixed = {i: VOCAB.encode(c)[0] for i, c in enumerate(pattern) if c != "_"}
    kept = {x: p for x, p in DATA.items() if all(x[i] == v for i, v in fixed.items())}
    return {x: p / sum(kept.values()) for x, p in kept.items()}


def from_oracle(pattern: str, **options: Any) -> list[Decoded]:
    chosen = BlockOptions(temperature=1.0, cache="none", eos="plain", **options)
    keys = [key_of(1, pattern, i) for i in range(SAMPLES)]
    return block.decode(BlockOracle(), VOCAB, [canvas_of(pattern)] * SAMPLES, keys, chosen)


def words(pattern: str, rows: list[Decoded]) -> Counter[tuple[int, ...]]:
    canvas = canvas_of(pattern)
    return Counter((*canvas.ids[: canvas.prompt_length], *row.token_ids) for row in rows)


def p_value(law: dict[Any, float], seen: Counter[Any]) -> float:
    assert set(seen) <= set(law)
    return float(
        stats.chisquare([seen[x] for x in law], [p * SAMPLES for p in law.values()]).pvalue
    )


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("policy", ["random", "left_to_right", "right_to_left", "confidence"])
def test_one_token_a_step_reproduces_the_law(size: int, policy: str) -> None:
    rows = from_oracle("____", block=size, policy=policy)
    assert p_value(law_of("____"), words("____", rows)) > 1e-4
    order = block_numbers(torch.tensor([0]), 4, size, "after_prompt")[0].tolist()
    for row in rows[:50]:  # the blocks from left to right, each with its own steps
        assert sorted(row.reveal_step) == [1, 2, 3, 4]
        assert [order[i] for i in sorted(range(4), key=row.reveal_step.__getitem__)] == order


@pytest.mark.parametrize("origin", ["absolute", "after_prompt", "left_padded"])
@pytest.mark.parametrize("policy", ["margin", "entropy"])
def test_prompts_and_every_origin(origin: str, policy: str) -> None:
    seen = words("c___", from_oracle("c___", block=2, origin=origin, policy=policy))
    assert p_value(law_of("c___"), seen) > 1e-4


def test_two_at_once_are_drawn_apart() -> None:
    """The law of the product of marginals, for each block of two: not the data's."""
    rows = from_oracle("____", block=2, policy="random", block_steps=1)
    assert all(row.steps == row.forwards == 2 for row in rows)
    law = law_of("____")
    assert set(words("____", rows)) - set(law)  # words that the data do not have
    head = [sum(p for x, p in law.items() if x[i] == v) for i in (0, 1) for v in range(3)]
    wanted = {(v, w): head[v] * head[3 + w] for v in range(3) for w in range(3)}
    seen = Counter((row.token_ids[0], row.token_ids[1]) for row in rows)
    assert p_value(wanted, seen) > 1e-4


def test_first_hitting_is_every_order_inside_a_block_alike() -> None:
    rows = from_oracle("____", block=4, policy="random")
    orders = dict.fromkeys(itertools.permutations(range(1, 5)), 1 / 24)
    assert p_value(orders, Counter(tuple(row.reveal_step) for row in rows)) > 1e-4


def test_a_gap_sees_what_stands_behind_it_in_its_block_only() -> None:
    """Grid from 0 on, blocks of two: the slot at 2 sees the token at 3, the one at 0 does not."""
    rows = from_oracle("_b_a", block=2, origin="absolute", policy="random")
    first = {v: sum(p for x, p in law_of("_b__").items() if x[0] == v) for v in range(3)}
    assert p_value(first, Counter(row.token_ids[0] for row in rows)) > 1e-4


def net_of(*, shift: bool = False) -> BlockNet:
    net = BlockNet(BlockConfig(shape(), 3, shift=shift), seed=4).double().eval()
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim == 2:
                weight.mul_(4)
    return net


def ragged() -> list[Canvas]:
    parts: list[list[list[int] | int]] = [
        [[0, 1, 2, 0, 1], 11], [[2], 7], [[1, 1], 3, [0], 4, [2, 0, 1, 1, 2, 0], 2], [[0, 2, 1], 1],
    ]  # fmt: skip
    return [Canvas.of(each, VOCAB) for each in parts]


KEYS = [key_of(0, i) for i in range(4)]


def all_of(row: Decoded) -> tuple[Any, ...]:
    return row.token_ids, row.reveal_step, row.steps, row.ties


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("origin", ["absolute", "after_prompt", "left_padded"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.9, "policy": "entropy", "quota": "entropy_bound:1.5"},
        {"quota": "threshold:0.5", "eos": "plain"},
        {"temperature": 0.7, "policy": "random", "block_steps": 2, "eos": "fill"},
        {"quota": "dream", "policy": "margin", "block": 5},
    ],
    ids=str,
)
def test_cached_equals_uncached(shift: bool, origin: str, options: dict[str, Any]) -> None:
    net, canvases = net_of(shift=shift), ragged()
    exact, plain = (
        block.decode(
            net, VOCAB, canvases, KEYS, BlockOptions(origin=origin, cache=cache, **options)
        )
        for cache in ("exact", "none")
    )
    assert list(map(all_of, exact)) == list(map(all_of, plain))
    for one, other in zip(exact, plain, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-9, nan_ok=True)
        assert (one.columns or 0) <= (other.columns or 0)


def test_without_the_commit_it_differs() -> None:
    net, canvases = net_of(), ragged()
    rows = {
        cache: block.decode(net, VOCAB, canvases, KEYS, BlockOptions(cache=cache, eos="plain"))
        for cache in ("exact", "stale")
    }
    exact, stale = rows["exact"], rows["stale"]
    assert [each.log_prob for each in exact[:2]] != [each.log_prob for each in stale[:2]]
    # Nothing was finished before the first block: there both are the same.
    assert exact[3].log_prob == stale[3].log_prob and exact[0].log_prob[:3] == stale[0].log_prob[:3]


def test_calls_and_columns() -> None:
    """5 given tokens and 11 slots in blocks of 3: one first call, 11 steps, 3 commits."""
    (row,) = block.decode(net_of(), VOCAB, ragged()[:1], KEYS[:1], BlockOptions(eos="plain"))
    assert (row.steps, row.forwards) == (11, 1 + 11 + 3)
    assert row.columns == 5 + 3 * (3 * 3) + 2 * 2 + 3 * 3
    (none,) = block.decode(
        net_of(), VOCAB, ragged()[:1], KEYS[:1], BlockOptions(eos="plain", cache="none")
    )
    assert (none.forwards, none.columns) == (11, 3 * (8 + 11 + 14) + 2 * 16)


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("cache", ["exact", "stale"])
def test_batched_equals_alone(shift: bool, cache: Any) -> None:
    net, canvases = net_of(shift=shift), ragged()
    options = BlockOptions(temperature=0.8, quota="threshold:0.6", cache=cache)
    together = block.decode(net, VOCAB, canvases, KEYS, options)
    for canvas, key, row in zip(canvases, KEYS, together, strict=True):
        (alone,) = block.decode(net, VOCAB, [canvas], [key], options)
        assert all_of(row) == all_of(alone)
        assert (row.forwards, row.columns) == (alone.forwards, alone.columns)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_blocks_of_one_decode_as_ar_with_its_weights(temperature: float) -> None:
    """On a grid from 0 on, where the prompt is read left to right, too."""
    base = Transformer(shape(causal=True), seed=6).double().eval()
    net = net_of(shift=True)
    net.start_from(base)
    canvases = [Canvas.of([[0, 1, 2], 9], VOCAB), Canvas.of([[2], 6], VOCAB)]
    options = BlockOptions(block=1, origin="absolute", temperature=temperature)
    found = block.decode(net, VOCAB, canvases, KEYS[:2], options)
    wanted = ar.decode(base, VOCAB, canvases, KEYS[:2], ArOptions(temperature=temperature))
    for one, other, canvas in zip(found, wanted, canvases, strict=True):
        written = len(other.token_ids)
        if temperature == 0:
            assert one.token_ids[:written] == other.token_ids
            assert one.log_prob[:written] == pytest.approx(other.log_prob, abs=1e-6)
        drawn = [p for p in one.log_prob if p == p]
        ids = torch.tensor([[*canvas.ids[: canvas.prompt_length], *one.token_ids]])
        logits = base(ids).clone()
        logits[..., VOCAB.mask_id] = -torch.inf
        start = canvas.prompt_length
        chances = logits.log_softmax(-1)[0, start - 1 : -1].gather(1, ids[0, start:, None])[:, 0]
        assert drawn == pytest.approx(chances[: len(drawn)].tolist(), abs=1e-6)
        assert one.forwards == len(drawn)  # one call for each token, the prompt's included


@pytest.mark.parametrize("shift", [False, True])
def test_one_block_decodes_as_mdm(shift: bool) -> None:
    net, canvases = net_of(shift=shift), ragged()
    if shift:
        plain: Any = ShiftedNet(ShiftedConfig(shape())).double()
        plain.backbone.load_state_dict(net.backbone.state_dict())
    else:
        plain = net.backbone
    chosen = {"temperature": 0.8, "policy": "confidence", "eos": "fill"}
    grid: dict[str, Any] = {"block": 99, "origin": "absolute"}
    found = block.decode(net, VOCAB, canvases, KEYS, BlockOptions(**chosen, **grid))
    wanted = mdm.decode(plain, VOCAB, canvases, KEYS, MdmOptions(**chosen))
    assert list(map(all_of, found)) == list(map(all_of, wanted))


class Spells(BlockOracle):
    """A network that is certain of one word, EOS in it, whatever it sees."""

    def __init__(self, word: list[int]) -> None:
        self.word, self.config = torch.tensor(word), BlockConfig(shape(), 2)

    def hidden(  # type: ignore[override]
        self, ids: Tensor, *, block: Tensor, mask: Tensor
    ) -> Tensor:
        certain = torch.nn.functional.one_hot(self.word, VOCAB.size).double() * 30
        return certain[: ids.shape[1]].expand(len(ids), -1, -1)


END = VOCAB.eos_id


@pytest.mark.parametrize(
    ("eos", "tokens", "steps"),
    [
        ("plain", [0, END, 1, 2, 0, 1], [1, 2, 3, 4, 5, 6]),
        ("finish", [0, END, 1, END, END, END], [1, 2, 3, 3, 3, 3]),
        ("fill", [0, END, END, END, END, END], [1, 2, 2, 2, 2, 2]),
        ("forbid", [0, 0, 1, 2, 0, 1], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_rules_of_eos(eos: str, tokens: list[int], steps: list[int]) -> None:
    """Blocks of three: what follows EOS in its block is written, or filled, and never text."""
    net = Spells([0, END, 1, 2, 0, 1])
    options = BlockOptions(policy="left_to_right", block=3, eos=eos, cache="none")
    (row,) = block.decode(net, VOCAB, [Canvas.of([6], VOCAB)], [1], options)
    assert (row.token_ids, row.reveal_step) == (tokens, steps)
    if eos != "forbid":
        assert VOCAB.end_of(row.token_ids) == 1


def test_last_reveals_eos_after_the_others_of_its_block() -> None:
    net = Spells([END, 1, 2, 0, 1, 2])
    options = BlockOptions(block=3, eos="last", cache="none", ties="leftmost")
    (row,) = block.decode(net, VOCAB, [Canvas.of([6], VOCAB)], [1], options)
    assert row.reveal_step == [3, 1, 2, 4, 5, 6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "planner"}, "only mdm can have"),
        ({"block": 0}, "block must be at least 1"),
        ({"block": 4, "block_steps": 5}, "5 steps for a block of 4 slots"),
        ({"quota": "threshold", "block_steps": 2}, "leave --block-steps out"),
        ({"quota": "entropy_bound"}, "use the policy 'entropy'"),
        ({"eos": "never"}, "eos='never': choose 'finish'"),
        ({"policy": "random", "ties": "leftmost"}, "has no ties"),
        ({"top_p": 0.9}, "at temperature 0"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block.resolve(BlockOptions(**options))


def test_networks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="wrap masked models as mdm"):
        block.check_network(Transformer(shape()), BlockOptions())
    with pytest.raises(ValueError, match="leave --cache out"):
        block.check_network(BlockOracle(), BlockOptions())
    pooled = BlockNet(BlockConfig(shape(sentence_ends=(1, 2)), 2))
    with pytest.raises(ValueError, match="leave --origin out"):
        block.check_network(pooled, BlockOptions(origin="absolute"))
