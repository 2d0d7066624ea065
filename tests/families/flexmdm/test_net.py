"""The network of flexmdm: gap head, conventions, time, and the start from a pretrained model."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anyorder.data.corpora.stories import stories_vocab
from anyorder.families.flexmdm.config import FlexConfig
from anyorder.families.flexmdm.net import FlexNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

BACKBONE = TransformerConfig(13, 16, 2, 2, 1, 8, 24, time_modulated=True)
IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]])
REAL = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
TIME = torch.tensor([0.2, 0.9])


def make(**changes: object) -> FlexNet:
    return FlexNet(FlexConfig(BACKBONE, **changes), seed=4)  # type: ignore[arg-type]


def shaken(net: FlexNet) -> FlexNet:
    """Weights that are nowhere zero, as after training."""
    generator = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return net


@pytest.mark.parametrize("reads", ["left", "both"])
def test_the_gap_head_is_a_two_layer_map_of_its_neighbours(reads: str) -> None:
    net = shaken(make(gap_reads=reads, gap_offset=False))
    states = net.backbone.hidden(IDS, mask=REAL, time=TIME)
    gaps = net.look(IDS, mask=REAL, time=TIME).gaps
    gap = net.gap
    normed = torch.nn.functional.layer_norm(states, (16,), gap.norm.weight, gap.norm.bias)
    for row, last in ((0, 4), (1, 2)):
        for i in range(last + 1):
            x = normed[row, i]
            if reads == "both":
                x = torch.cat([x, normed[row, i + 1] if i < last else torch.zeros(16)])
            inner = torch.nn.functional.gelu(gap.inner.weight @ x + gap.inner.bias)
            expected = (gap.outer.weight @ inner + gap.outer.bias).clamp(-15, 15)
            torch.testing.assert_close(gaps[row, i], expected[0], atol=1e-5, rtol=1e-5)


def test_the_head_starts_near_one_third_of_a_token_and_is_clamped() -> None:
    net = make(gap_offset=False)
    torch.testing.assert_close(
        net.look(IDS, mask=REAL, time=TIME).gaps, torch.full((2, 5), -1.0), atol=0.05, rtol=0
    )
    net.gap.outer.bias.data.fill_(40.0)
    gaps = net.look(IDS, mask=REAL, time=TIME).gaps
    assert gaps.eq(15.0).all()
    gaps.sum().backward()
    assert net.gap.outer.bias.grad is not None and net.gap.outer.bias.grad.eq(0).all()


@pytest.mark.parametrize(("coordinate", "exponent"), [("progress", 1.0), ("raw", 1.7)])
def test_the_offset_is_the_log_of_what_is_still_missing(coordinate: str, exponent: float) -> None:
    plain = make(gap_offset=False, coordinate=coordinate)
    offset = make(gap_offset=True, coordinate=coordinate)
    difference = (
        offset.look(IDS, mask=REAL, time=TIME).gaps - plain.look(IDS, mask=REAL, time=TIME).gaps
    )
    expected = exponent * torch.log1p(-TIME)[:, None].expand(2, 5)
    torch.testing.assert_close(difference, expected)
    assert offset.look(IDS, time=torch.ones(2)).gaps.isfinite().all()


def test_the_release_shifts_token_states_and_leaves_gaps() -> None:
    plain, release = shaken(make()), shaken(make(convention="release"))
    a, b = (net.look(IDS, mask=REAL, time=TIME) for net in (plain, release))
    assert torch.equal(b.states[:, 1:], a.states[:, :-1])
    assert torch.equal(b.states[:, 0], a.states[:, 0])
    assert torch.equal(a.gaps, b.gaps)


def test_padding_changes_nothing() -> None:
    net = shaken(make())
    batched = net.look(IDS, mask=REAL, time=TIME)
    alone = net.look(IDS[1:, :3], time=TIME[1:])
    torch.testing.assert_close(batched.states[1, :3], alone.states[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(batched.gaps[1, :3], alone.gaps[0], atol=1e-5, rtol=1e-5)


def test_a_retrofitted_model_is_the_base_model_before_training() -> None:
    base = Transformer(replace(BACKBONE, time_modulated=False), seed=9)
    net = make()
    net.start_from(base)
    for time in (torch.zeros(2), TIME):
        look = net.look(IDS, mask=REAL, time=time)
        assert torch.equal(look.states, base.hidden(IDS, mask=REAL))
        assert torch.equal(net.head(look.states), base(IDS, mask=REAL))
    base.embed.weight.data.zero_()  # taken over, not shared
    assert net.backbone.embed.weight.abs().sum() > 0
    again = FlexNet(net.config, seed=77)
    again.start_from(shaken(net))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), net.parameters(), strict=True))


def test_a_base_of_another_shape_is_refused() -> None:
    for other in (replace(BACKBONE, layers=3), replace(BACKBONE, width=20), BACKBONE):
        base = Transformer(replace(other, time_modulated=other is BACKBONE))  # no time of its own
        with pytest.raises(ValueError, match="another shape"):
            make().start_from(base)


def test_additions_are_what_a_masked_model_lacks() -> None:
    net = make()
    base = {f"backbone.{name}" for name, _ in Transformer(BACKBONE).named_parameters()}
    plain = Transformer(replace(BACKBONE, time_modulated=False))
    kept = {f"backbone.{name}" for name, _ in plain.named_parameters()}
    own = {name for name, _ in net.named_parameters()}
    assert net.additions() == own - kept
    assert base - kept < net.additions()
    assert len(net.additions()) == 4 + 2 * BACKBONE.layers + 6


def test_the_published_size() -> None:
    """835,161,601 parameters in 66 tensors on top of 7,615,616,512 (spec of the release)."""
    backbone = TransformerConfig(
        152_064, 3584, 28, 28, 4, 128, 18_944, tied=False, time_modulated=True
    )
    with torch.device("meta"):
        net = FlexNet(FlexConfig(backbone, gap_reads="left"))
    added = net.additions()
    sizes = {name: value.numel() for name, value in net.named_parameters()}
    assert len(added) == 66
    assert sum(sizes[name] for name in added) == 835_161_601
    assert sum(sizes.values()) - 835_161_601 == 7_615_616_512


def test_frames_of_the_two_conventions() -> None:
    vocab = stories_vocab()
    assert make().config.frame(vocab) == ((), (vocab.bos_id,))
    release = make(convention="release").config
    assert release.frame(vocab) == ((vocab.bos_id,), (vocab.pad_id,))
    without: Any = SimpleNamespace(bos_id=None, eos_id=7, pad_id=7)  # as in Qwen2
    assert make().config.frame(without) == ((), (7,))
    with pytest.raises(ValueError, match="BOS"):
        release.frame(without)


def test_the_configuration_survives_json_and_refuses_nonsense() -> None:
    config = FlexConfig(BACKBONE, convention="release", coordinate="raw", gap_reads="left")
    assert FlexConfig.from_record(asdict(config)) == config
    wrong = [
        ({"convention": "other"}, "choose"),
        ({"coordinate": "t"}, "choose"),
        ({"gap_reads": "right"}, "choose"),
        ({"insertion_exponent": 0.0}, "positive"),
        ({"backbone": replace(BACKBONE, time_modulated=False)}, "time_modulated"),
        ({"backbone": replace(BACKBONE, causal=True)}, "bidirectional"),
    ]
    for change, message in wrong:
        with pytest.raises(ValueError, match=message):
            replace(config, **change)  # type: ignore[arg-type]


def test_a_base_whose_weights_mean_something_else_is_refused() -> None:
    net = make()
    theta = Transformer(replace(BACKBONE, time_modulated=False, rope_theta=5.0))
    others: list[torch.nn.Module] = [theta, make(coordinate="raw"), make(unmasking_exponent=1.0)]
    others.append(FlexNet(FlexConfig(replace(BACKBONE, rope_theta=5.0))))
    for base in others:
        with pytest.raises(ValueError, match="another shape than this network"):
            net.start_from(base)
    causal = Transformer(replace(BACKBONE, time_modulated=False, causal=True))
    net.start_from(causal)  # a known start
    assert torch.equal(net.backbone.embed.weight, causal.embed.weight)


def test_the_gap_head_has_noise_of_its_own() -> None:
    net = make()
    width = net.gap.inner.in_features
    first = net.backbone.time.inner.weight.flatten()[: 16 * width]
    both = torch.stack([net.gap.inner.weight.flatten(), first])
    assert torch.corrcoef(both)[0, 1].abs() < 0.2
