"""flexmdm on hand-set networks: what comes out, ends, extras, refusals, batched equals alone."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch
from flex_mocks import ANCHOR, INFILL, VOCAB, Mock, about, by_place, decode, prompt, ragged
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.compat import CompatReveals
from anyorder.families.flexmdm.config import FlexConfig, FlexOptions
from anyorder.families.flexmdm.net import FlexNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import key_of
from anyorder.trace.trace import Trace

OPTIONS = [
    FlexOptions(),
    FlexOptions(temperature=0.8, top_p=0.9, counts="poisson", quota="poisson"),
    FlexOptions(policy="random", temperature=1.0, counts="floor_bernoulli", hazard="left"),
    FlexOptions(policy="sampled", temperature=0.7, posterior="filtered", hazard="midpoint"),
    FlexOptions(policy="left_to_right", unmasking_schedule="carried", insertion_temperature=0.5),
    FlexOptions(policy="margin", ties="leftmost", unmasking_schedule=1.0, insertion_schedule=1.7),
    FlexOptions(policy="entropy", steps=5, temperature=1.0, force_unmask=True),
    FlexOptions(clock="events", temperature=0.8),
    FlexOptions(clock="events", policy="random", unmasking_schedule=1.0),
]


def label(options: FlexOptions) -> str:
    changed = {k: v for k, v in asdict(options).items() if v != getattr(FlexOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "default"


def shortened(options: FlexOptions) -> FlexOptions:
    events = options.clock == "events" or options.steps is not None
    return options if events else replace(options, steps=20)


def small_net() -> FlexNet:
    backbone = TransformerConfig(
        vocab_size=VOCAB.size, width=32, layers=2, heads=4, kv_heads=2, head_width=8, mlp_width=64,
        time_modulated=True,
    )  # fmt: skip
    net = FlexNet(FlexConfig(backbone), seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # far from uniform, so that slots and gaps differ clearly
        for name, parameter in net.named_parameters():
            if parameter.ndim == 2 and "modulation" not in name:
                parameter.mul_(4)
            elif parameter.ndim == 2:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        net.gap.outer.weight.mul_(60)
        net.gap.outer.bias.fill_(0.7)
    return net


def assert_same(row: Decoded, alone: Decoded) -> None:
    exact = ("token_ids", "insert_step", "reveal_step", "steps", "forwards", "ties")
    for name in exact:
        assert getattr(row, name) == getattr(alone, name), name
    assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
@pytest.mark.parametrize("kind", ["mock", "net"])
def test_batched_equals_alone(options: FlexOptions, kind: str) -> None:
    net = small_net() if kind == "net" else Mock(about(14).missing, by_place)
    canvases, options = ragged(), shortened(options)
    keys = [key_of(0, i) for i in range(len(canvases))]
    together = flexmdm.decode(net, VOCAB, canvases, keys, options)
    assert sum(len(row.token_ids) for row in together) > 12
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = flexmdm.decode(net, VOCAB, [canvas], [key], options)
        assert_same(row, alone)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_what_comes_out_is_well_formed(options: FlexOptions) -> None:
    """Frozen text stays, closed gaps stay closed, and traces replay what the network saw."""
    options = shortened(options)
    frozen = list(INFILL.ids[INFILL.prompt_length :])
    specials = {VOCAB.mask_id, VOCAB.pad_id, VOCAB.eos_id, VOCAB.bos_id}
    inserted = 0
    for seed in range(6):
        seen: list[list[int]] = []

        def missing(
            ids: Tensor, mask: Tensor, left: Tensor, seen: list[list[int]] = seen
        ) -> Tensor:
            seen.append(ids[0].tolist())
            return 9 * left / mask.sum(dim=1, keepdim=True)

        net = Mock(missing, by_place)
        (row,) = flexmdm.decode(net, VOCAB, [INFILL], [key_of(seed)], options)
        given = [i for i, p in enumerate(row.log_prob) if math.isnan(p)]
        assert [row.token_ids[i] for i in given] == frozen
        assert all(row.insert_step[i] == row.reveal_step[i] == 0 for i in given)
        assert given[-1] == len(row.token_ids) - 1  # nothing after the last token's closed gap
        assert given[1] == given[0] + 1  # nor between the two in the middle
        new = [i for i in range(len(row.token_ids)) if i not in given]
        assert len(new) <= INFILL.room and not {row.token_ids[i] for i in new} & specials
        assert all(1 <= row.insert_step[i] < row.reveal_step[i] <= row.steps for i in new)
        inserted += len(new)
        assert row.forwards == len(seen) == row.steps
        trace = Trace.from_tokens(
            VOCAB,
            row.token_ids,
            prompt_ids=INFILL.ids[: INFILL.prompt_length],
            insert_step=row.insert_step,
            reveal_step=row.reveal_step,
            steps=row.steps,
        )
        for step, ids in enumerate(seen):  # the canvas that call step + 1 saw
            assert trace.replay(step).ids(VOCAB.mask_id, prompt=True).tolist() == ids
    assert inserted > 6


def test_the_head_runs_on_few_slots() -> None:
    """Ranked ones and taken ones; only taken ones where the score reads nothing."""
    net = Mock(about(30).missing, by_place)
    (row,) = decode(net, [prompt(0)], steps=40)
    assert sum(net.headed) > len(row.token_ids)
    assert all(h <= 2 * m for h, m in zip(net.headed, net.masks, strict=True))
    net = about(30)
    (row,) = decode(net, [prompt(0)], steps=40, policy="random")
    assert sum(net.headed) == len(row.token_ids) > 10


def test_left_to_right_reveals_the_leftmost() -> None:
    (row,) = decode(about(20), [prompt(0)], steps=30, policy="left_to_right")
    order = list(zip(row.insert_step, row.reveal_step, strict=True))
    for i, (_, reveal) in enumerate(order):
        # A slot that was there, masked, to the left of a revealed one must not be passed over.
        assert all(r <= reveal for insert, r in order[:i] if insert < reveal)


def test_slots_left_at_the_end_are_filled_by_one_more_call() -> None:
    """All five tokens come in the last step of one: they are revealed by a second call."""
    net = Mock(lambda ids, mask, left: 5.0 * (ids == ANCHOR).double() + 1e-30, by_place)
    (row,) = decode(net, [prompt(0)], steps=1)
    assert row.insert_step == [1] * 5 and row.reveal_step == [2] * 5
    assert (row.steps, row.forwards) == (2, 2)
    assert net.headed == [0, 5]
    nothing = Mock(lambda ids, mask, left: left * 0 + 1e-30)
    (row,) = decode(nothing, [prompt(0)], steps=7)
    assert row.token_ids == [] and (row.steps, row.forwards) == (7, 7)


def test_a_full_row_without_masks_leaves_early() -> None:
    net = Mock(lambda ids, mask, left: 50.0 + 0 * left)
    (row,) = decode(net, [prompt(0, room=2)], steps=100)
    assert len(row.token_ids) == 2 and row.steps == max(row.reveal_step) < 100


def test_extras_may_change_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def all_at_once(chosen: CompatReveals) -> CompatReveals:
        probability = chosen.probabilities(0)
        assert torch.allclose(probability.sum(dim=-1), torch.ones(int(chosen.open[0].sum())))
        assert not probability[:, [VOCAB.mask_id, VOCAB.eos_id]].any()
        seen.append(chosen.step)
        return replace(chosen, taken=chosen.open, tokens=torch.full_like(chosen.tokens, 2))

    monkeypatch.setattr(flexmdm, "extra_of", lambda options, vocab: all_at_once)
    net = Mock(about(9).missing, by_place)
    (row,) = decode(net, [prompt(0)], steps=12, force_unmask=True)
    assert seen == list(range(1, row.steps + 1))
    assert set(row.token_ids) == {2}
    assert all(r == i + 1 for i, r in zip(row.insert_step, row.reveal_step, strict=True))


def test_force_unmask_breaks_up_long_runs() -> None:
    net = Mock(lambda ids, mask, left: 15.0 * (ids == ANCHOR).double() + 1e-30, by_place)
    slow = {"steps": 30, "unmasking_schedule": 0.01, "insertion_schedule": 60.0}
    (plain,) = decode(net, [prompt(0, room=15)], **slow)
    (forced,) = decode(net, [prompt(0, room=15)], force_unmask=True, **slow)
    assert min(forced.reveal_step) < min(plain.reveal_step)


def test_broken_networks_end_in_an_error() -> None:
    for value in (math.nan, -1.0):  # the log of a negative number is none
        net = Mock(lambda ids, mask, left, value=value: value + 0 * left)
        with pytest.raises(ValueError, match="gaps are not numbers"):
            decode(net, [prompt(0)], steps=4)
    net = Mock(about(5).missing, lambda place: torch.full((len(place), VOCAB.size), math.nan))
    with pytest.raises(ValueError, match="not finite"):
        decode(net, [prompt(0)], steps=4)


def test_canvases_that_cannot_grow_are_refused() -> None:
    with pytest.raises(ValueError, match="no gap"):
        flexmdm.check([GrowingCanvas((0, 1), (False, False), 5)], FlexOptions())
    with pytest.raises(ValueError, match="at least 1"):
        flexmdm.check([prompt(0, room=0)], FlexOptions())
    with pytest.raises(ValueError, match="exact"):
        flexmdm.check([INFILL], FlexOptions(mode="compat"))


def test_a_wide_canvas_passes_the_head_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    net, canvases = Mock(about(14).missing, by_place), ragged()
    whole = decode(net, canvases, steps=20, temperature=0.8)
    monkeypatch.setattr("anyorder.decode.loop.HEAD_BUDGET", 2 * VOCAB.size)
    monkeypatch.setattr("anyorder.decode.loop.READ_BUDGET", 3 * VOCAB.size)
    pieces = decode(net, canvases, steps=20, temperature=0.8)
    for row, same in zip(pieces, whole, strict=True):
        assert_same(row, same)
