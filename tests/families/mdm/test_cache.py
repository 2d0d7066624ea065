"""Cached decoding: exact where it must be, the same alone and in a batch, and cheaper by count."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions, PlannedConfig
from anyorder.families.mdm.planner import PlannedNet
from anyorder.nets.denoiser import ShiftedNet, as_denoiser
from anyorder.nets.oracles import Oracle
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])


def shape(layers: int, *, causal: bool = False) -> TransformerConfig:
    return TransformerConfig(
        vocab_size=VOCAB.size,
        width=32,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_width=8,
        mlp_width=64,
        causal=causal,
    )


def sharpened(net: nn.Module) -> Any:
    """Far from uniform, so that slots and columns differ clearly."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6)
    return net.eval()


def net_of(layers: int, *, causal: bool = False) -> Any:
    return sharpened(Transformer(shape(layers, causal=causal)))


def ragged() -> list[Canvas]:
    """Prompts and gaps of several lengths; one canvas begins with a free slot."""
    return [
        Canvas.of([[0, 1], 9], VOCAB),
        Canvas.of([[2], 12], VOCAB),
        Canvas.of([[1, 1, 0, 2, 2], 7], VOCAB),
        Canvas.of([[0, 2, 1], 3], VOCAB),
        Canvas.of([[0], 4, [1, 2], 5, [0, 0, 0]], VOCAB),
        Canvas.of([6, [1]], VOCAB),
    ]


def decoded(net: Any, options: MdmOptions, canvases: list[Canvas] | None = None) -> list[Decoded]:
    canvases = canvases or ragged()
    keys = [key_of(0, number) for number in range(len(canvases))]
    return mdm.decode(net, VOCAB, canvases, keys, options)


def exact(options: MdmOptions) -> MdmOptions:
    return replace(options, cache=None, cache_refresh=None)


def label(options: MdmOptions) -> str:
    changed = {k: v for k, v in asdict(options).items() if v != getattr(MdmOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "default"


BLOCKS = [
    MdmOptions(block=4),
    MdmOptions(block=4, policy="sampled", temperature=0.7, top_p=0.9),
    MdmOptions(block=3, quota="threshold:0.5", eos="last"),
    MdmOptions(block=4, eos="fill", temperature=0.9),
    MdmOptions(block=3, policy="random", temperature=0.7, eos="forbid"),
    MdmOptions(block=5, mode="compat", policy="entropy", temperature=0.7, top_p=0.9),
    MdmOptions(block=4, policy="margin", ties="leftmost"),
]
WHOLE = [
    MdmOptions(policy="entropy", temperature=0.7),
    MdmOptions(mode="compat", steps=30, temperature=0.7, top_p=0.9),
    MdmOptions(steps=6, remask="cap:0.3", temperature=0.7),
]
CACHED = [replace(each, cache=cache) for each in BLOCKS for cache in ("prefix", "block")] + [
    replace(each, cache="prefix") for each in WHOLE
]


def quick(every: int, first: int = 0) -> list[Any]:
    """All of them, of which every so many-th, from the first on, is quick."""
    return [
        pytest.param(
            each, id=label(each), marks=() if number % every == first else pytest.mark.long
        )
        for number, each in enumerate(CACHED)
    ]


def assert_same(found: list[Decoded], wanted: list[Decoded]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.token_ids, one.reveal_step) == (other.token_ids, other.reveal_step)
        assert (one.steps, one.forwards, one.ties) == (other.steps, other.forwards, other.ties)
        assert one.changes == other.changes
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("options", quick(2))
def test_with_a_refresh_every_step_it_is_the_exact_decoder(options: MdmOptions) -> None:
    net = net_of(3)
    found = decoded(net, replace(options, cache_refresh=1))
    wanted = decoded(net, exact(options))
    assert_same(found, wanted)
    assert [each.columns for each in found] == [each.columns for each in wanted]


@pytest.mark.parametrize("options", CACHED, ids=label)
def test_one_layer_keeps_what_depends_on_its_own_token_only(options: MdmOptions) -> None:
    """Keys and values of a column do not change as long as its token does not: nothing is lost."""
    net = net_of(1)
    assert_same(decoded(net, options), decoded(net, exact(options)))


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("options", quick(3, 1))
def test_a_causal_net_loses_nothing(options: MdmOptions, shift: bool) -> None:
    """What is left of a block is final, and what is right of it cannot be seen."""
    net = as_denoiser(net_of(3, causal=True), shift=shift)
    assert_same(decoded(net, options), decoded(net, exact(options)))


PARTS = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=4), st.integers(1, 6)), min_size=1)


@settings(deadline=None, max_examples=12)
@given(
    parts=st.lists(PARTS.map(lambda found: found[:3]), min_size=1, max_size=3),
    block=st.integers(1, 7),
    cache=st.sampled_from(["prefix", "block"]),
    refresh=st.none() | st.integers(1, 4),
    shift=st.booleans(),
)
def test_any_layout_is_exact_in_a_causal_net(
    parts: list[list[tuple[list[int], int]]],
    block: int,
    cache: Any,
    refresh: int | None,
    shift: bool,
) -> None:
    canvases = [Canvas.of([one for part in row for one in part], VOCAB) for row in parts]
    options = MdmOptions(block=block, cache=cache, cache_refresh=refresh, temperature=0.7)
    net = as_denoiser(net_of(2, causal=True), shift=shift)
    assert_same(decoded(net, options, canvases), decoded(net, exact(options), canvases))


@pytest.mark.parametrize("options", quick(4, 3))
@pytest.mark.parametrize("layers", [1, 3])
def test_shifted_nets_of_both_kinds(options: MdmOptions, layers: int) -> None:
    """Dream's shift: with one layer exact, and ours equals the wrapped backbone's."""
    net = sharpened(ShiftedNet(ShiftedConfig(shape(layers))))
    found = decoded(net, options)
    assert_same(found, decoded(as_denoiser(net.backbone, shift=True), options))
    if layers == 1:
        assert_same(found, decoded(net, exact(options)))
    assert_same(decoded(net, replace(options, cache_refresh=1)), decoded(net, exact(options)))


def check_batched_equals_alone(net: Any, options: MdmOptions) -> None:
    canvases = ragged()
    for number, row in enumerate(decoded(net, options, canvases)):
        (alone,) = mdm.decode(net, VOCAB, [canvases[number]], [key_of(0, number)], options)
        assert_same([row], [alone])
        assert row.columns == alone.columns


@pytest.mark.parametrize("options", CACHED, ids=label)
def test_batched_equals_alone(options: MdmOptions) -> None:
    check_batched_equals_alone(net_of(3), options)


@pytest.mark.parametrize("options", quick(5, 1))
def test_batched_equals_alone_with_a_refresh_and_a_shift(options: MdmOptions) -> None:
    net = as_denoiser(net_of(3), shift=True)
    check_batched_equals_alone(net, replace(options, cache_refresh=3))


def test_a_deep_net_is_only_approximated() -> None:
    """The tests above could not fail otherwise: here what is kept does go out of date."""
    canvases = [Canvas.of([[number % 3] * 8, 24], VOCAB) for number in range(8)]
    net, options = net_of(3), MdmOptions(block=8, temperature=0.7)
    wanted = decoded(net, options, canvases)
    for cache in ("prefix", "block"):
        found = decoded(net, replace(options, cache=cache), canvases)  # type: ignore[arg-type]
        assert [each.log_prob for each in found] != [each.log_prob for each in wanted]
        assert [each.forwards for each in found] == [each.forwards for each in wanted]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (MdmOptions(), 12 * 17),
        (MdmOptions(cache="prefix"), 17 + 11 * 12),
        (MdmOptions(block=4, cache="prefix"), (17 + 3 * 12) + (17 + 3 * 8) + (17 + 3 * 4)),
        (MdmOptions(block=4, cache="block"), 3 * (17 + 3 * 4)),
        (MdmOptions(block=4, cache="block", cache_refresh=2), 3 * (2 * 17 + 2 * 4)),
        (MdmOptions(block=4, steps=6, cache="block"), 3 * (17 + 4)),
    ],
    ids=str,
)
def test_columns_are_counted(options: MdmOptions, columns: int, shift: int) -> None:
    """Five prompt tokens and twelve slots; a shift adds a column to every partial call."""
    net = as_denoiser(net_of(2), shift=bool(shift))
    (row,) = decoded(net, options, [Canvas.of([[0, 1, 2, 0, 1], 12], VOCAB)])
    partial = {12 * 17: 0, 17 + 11 * 12: 11, 3 * (2 * 17 + 2 * 4): 6, 3 * (17 + 4): 3}
    assert row.columns == columns + shift * partial.get(columns, 9)


def test_what_is_filled_behind_the_end_is_read_anew() -> None:
    """eos=fill writes right of the block: a kept column never stands for another token."""
    options = MdmOptions(block=4, eos="fill", temperature=1.2, cache="block")
    canvases = [Canvas.of([[0], 16], VOCAB) for _ in range(40)]
    net = net_of(2)
    rows = decoded(net, options, canvases)
    early = [row for row in rows if VOCAB.eos_id in row.token_ids[:3]]
    assert early  # an end inside the first block, with open slots left of it in some
    steps = [max(row.reveal_step[:4]) for row in early]
    ends = [row.reveal_step[row.token_ids.index(VOCAB.eos_id)] for row in early]
    assert any(last > end for last, end in zip(steps, ends, strict=True))
    one = net_of(1)
    assert_same(decoded(one, options, canvases), decoded(one, exact(options), canvases))


def planned(layers: int) -> Any:
    return sharpened(PlannedNet(PlannedConfig(shape(layers), planner_mlp_width=32)))


@pytest.mark.parametrize("cache", ["prefix", "block"])
def test_the_planner_reads_kept_states(cache: Any) -> None:
    options = MdmOptions(policy="planner", block=4, cache=cache, temperature=0.7)
    net = planned(2)
    wanted = decoded(net, exact(options))
    assert_same(decoded(net, replace(options, cache_refresh=1)), wanted)
    check_batched_equals_alone(net, options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cache": "block"}, "the whole canvas is one block: give --block, or choose --cache"),
        ({"cache": "block", "remask": "cap:0.1", "steps": 4}, "remasking refuses"),
        ({"cache_refresh": 2}, "no effect without a cache"),
        ({"cache": "none", "cache_refresh": 2}, "no effect without a cache"),
        ({"cache": "prefix", "cache_refresh": 0}, "at least 1"),
    ],
)
def test_settings_without_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mdm.resolve(MdmOptions(**given))


def test_none_is_no_cache() -> None:
    assert mdm.resolve(MdmOptions(cache="none")) == mdm.resolve(MdmOptions())


@pytest.mark.parametrize(
    ("parts", "given", "message"),
    [
        ([6], {"cache": "prefix"}, "nothing to cache: no prompt, and one block"),
        ([6], {"cache": "prefix", "block": 6}, "nothing to cache"),
        (
            [[0, 1], 6],
            {"cache": "block", "block": 6},
            "nothing to the right: choose --cache prefix",
        ),
    ],
)
def test_a_cache_with_nothing_to_keep_is_refused(
    parts: list[Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mdm.check([Canvas.of(parts, VOCAB)], mdm.resolve(MdmOptions(**given)))


def test_caches_that_keep_something_are_accepted() -> None:
    for parts, options in (
        ([6, [1]], MdmOptions(cache="block", block=6)),
        ([[0], 6], MdmOptions(cache="prefix")),
        ([6], MdmOptions(cache="block", block=3)),
        ([6], MdmOptions(cache="prefix", block=3)),
    ):
        mdm.check([Canvas.of(parts, VOCAB)], mdm.resolve(options))  # type: ignore[arg-type]


@pytest.mark.parametrize("shift", [False, True])
def test_networks_that_are_not_ours_are_refused(shift: bool) -> None:
    foreign = [lambda ids, attention_mask: torch.zeros(*ids.shape, VOCAB.size)]
    foreign += [Oracle({(0, 1): 1.0}, VOCAB.mask_id, VOCAB.size)]
    options = mdm.resolve(MdmOptions(cache="prefix"))
    for module in foreign:
        with pytest.raises(ValueError, match=r"shows none: leave --cache out, or load its weights"):
            mdm.check_network(as_denoiser(module, shift=shift), options)
