"""flexlatent's network: anchor, gaps, time, and the start from a network of latentmdm."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.data.corpora.stories import stories_vocab
from anyorder.families.flexlatent.config import FlexLatentConfig
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.latentmdm.config import LatentConfig
from anyorder.families.latentmdm.net import LatentNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

BACKBONE = TransformerConfig(
    vocab_size=23, width=16, layers=2, heads=2, kv_heads=1, head_width=8, mlp_width=24,
    time_modulated=True,
)  # fmt: skip
LATENT = LatentConfig(BACKBONE, slots=5, segment_length=6, empty="none")
CONFIG = FlexLatentConfig(LATENT)
BOTH = ["bidirectional", "prefix_lm"]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
ANCHOR = 1
GENERATOR = torch.Generator().manual_seed(0)
LENGTH = torch.tensor([7, 1, 4])  # the anchor included: the second prompt is empty
PROMPTS = torch.randint(4, 23, (3, 7), generator=GENERATOR)
PROMPTS[torch.arange(3), LENGTH - 1] = ANCHOR
LATENTS = torch.randn(3, 4, 16, generator=GENERATOR)
REAL = torch.arange(4) < torch.tensor([2, 4, 0])[:, None]
TIME = torch.tensor([0.2, 0.9, 0.5])


def make(attention: Any = "bidirectional", seed: int = 4) -> FlexLatentNet:
    return FlexLatentNet(replace(CONFIG, latent=replace(LATENT, attention=attention)), seed=seed)


def shaken(net: Any) -> Any:
    """Weights that are nowhere zero, as after training."""
    generator = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return net


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("attention", BOTH)
@torch.no_grad()
def test_gaps_are_read_from_both_sides_with_what_is_known_to_be_missing(
    attention: Any, offset: bool
) -> None:
    net = shaken(make(attention))
    net.config = replace(net.config, gap_offset=offset)
    look = net.look(net.read(PROMPTS, LENGTH), LATENTS, REAL, time=TIME)
    assert look.states.shape == (3, 4, 16) and look.gaps.shape == (3, 5)
    for row in range(3):
        count, end = int(REAL[row].sum()), int(LENGTH[row]) - 1
        anchor = net.backbone.embed(torch.tensor([[ANCHOR]]))
        items = torch.cat([anchor, LATENTS[row : row + 1, :count]], dim=1)
        prompt = net.backbone.read(PROMPTS[row : row + 1, :end], torch.tensor([end]))
        states = net.backbone.conditions(prompt, items, time=TIME[row : row + 1])[0]
        torch.testing.assert_close(look.states[row, :count], states[1:], **CLOSE)
        normed = F.layer_norm(states, (16,), net.gap.norm.weight, net.gap.norm.bias)
        sides = torch.cat([normed, F.pad(normed[1:], (0, 0, 0, 1))], dim=-1)
        known = torch.log1p(-TIME[row]) if offset else 0.0
        expected = net.gap.outer(F.gelu(net.gap.inner(sides)))[:, 0] + known
        torch.testing.assert_close(look.gaps[row, : count + 1], expected, **CLOSE)


@pytest.mark.parametrize("attention", BOTH)
@torch.no_grad()
def test_a_row_does_not_depend_on_its_batch_or_on_padding(attention: Any) -> None:
    net = shaken(make(attention))
    batched = net.look(net.read(PROMPTS, LENGTH), LATENTS, REAL, time=TIME)
    gaps = F.pad(REAL, (1, 0), value=True)
    for row in range(3):
        count = int(REAL[row].sum())
        prompt = net.read(PROMPTS[row : row + 1, : LENGTH[row]], LENGTH[row : row + 1])
        alone = net.look(prompt, LATENTS[row : row + 1, :count], time=TIME[row : row + 1])
        torch.testing.assert_close(batched.states[row, :count], alone.states[0], **CLOSE)
        torch.testing.assert_close(batched.gaps[row, : count + 1], alone.gaps[0], **CLOSE)
    padding = torch.arange(7) >= LENGTH[:, None]
    other = net.read(torch.where(padding, 9, PROMPTS), LENGTH)
    noisy = net.look(other, torch.where(REAL[..., None], LATENTS, LATENTS + 1), REAL, time=TIME)
    assert torch.equal(noisy.states[REAL], batched.states[REAL])
    assert torch.equal(noisy.gaps[gaps], batched.gaps[gaps])
    wider = net.look(net.read(F.pad(PROMPTS, (0, 9)), LENGTH), LATENTS, REAL, time=TIME)
    torch.testing.assert_close(wider.gaps[gaps], batched.gaps[gaps], **CLOSE)
    order = torch.tensor([2, 0, 0])
    kept = net.look(
        net.read(PROMPTS, LENGTH).keep(order), LATENTS[order], REAL[order], time=TIME[order]
    )
    torch.testing.assert_close(kept.gaps[gaps[order]], batched.gaps[order][gaps[order]], **CLOSE)


@pytest.mark.parametrize("attention", BOTH)
@torch.no_grad()
def test_time_and_segments_matter_to_the_first_gap(attention: Any) -> None:
    net = shaken(make(attention))
    prompt = net.read(PROMPTS, LENGTH)

    def first_gap(latents: Tensor, time: float) -> Tensor:
        look = net.look(prompt, latents, time=torch.full((3,), time))
        return look.gaps[:, 0]

    none = LATENTS[:, :0]
    assert (first_gap(none, 0.2) - first_gap(none, 0.9)).abs().max() > 1e-2
    assert (first_gap(none, 0.2) - first_gap(LATENTS, 0.2)).abs().max() > 1e-2
    further = LATENTS.clone()
    further[:, 3] += 1  # not a neighbour of the first gap
    assert (first_gap(further, 0.2) - first_gap(LATENTS, 0.2)).abs().max() > 1e-2
    net.config = replace(net.config, gap_offset=True)
    last = net.look(prompt, LATENTS, time=torch.ones(3))
    assert last.gaps.isfinite().all() and last.gaps.max() < -30


@torch.no_grad()
def test_a_prefix_prompt_is_read_once_for_all_times() -> None:
    net = shaken(make("prefix_lm"))
    seen: list[tuple[int, ...]] = []
    for block in net.backbone.latent.blocks:
        block.register_forward_hook(lambda _, __, states: seen.append(tuple(states.shape)))
    prompt = net.read(PROMPTS, LENGTH)
    assert seen == [(3, 6, 16)]
    seen.clear()
    for time in (TIME, TIME / 2):
        net.look(prompt, LATENTS, time=time)
    assert seen == [(3, 5, 16)] * 4  # the anchor and the slots


@torch.no_grad()
def test_the_time_is_the_latent_transformers_alone() -> None:
    net = make()
    timed = {name for name, _ in net.named_parameters() if "modulation" in name or ".time." in name}
    assert timed and all(name.startswith("backbone.latent.") for name in timed)
    assert net.coordinate == "progress"
    assert (net.insertion_exponent, net.unmasking_exponent) == (1.7, 2.89)
    assert (net.slots, net.segment_length) == (5, 6)
    assert net.mask_vector is net.backbone.mask_vector
    with pytest.raises(ValueError, match="time-modulated"):
        net.backbone.conditions(net.backbone.read(PROMPTS, LENGTH), LATENTS)


@pytest.mark.parametrize("attention", BOTH)
@pytest.mark.parametrize("empty", ["learned", "none"])
@torch.no_grad()
def test_before_training_it_is_the_latent_network_it_began_with(attention: Any, empty: Any) -> None:
    plain = replace(BACKBONE, time_modulated=False)
    shape = replace(LATENT, backbone=plain, empty=empty, attention=attention, slots=3)
    base = shaken(LatentNet(shape, seed=9))
    net = make(attention)
    before = net.gap.inner.weight.clone()
    net.start_from(base)
    anchor = base.embed(torch.full((3, 1), ANCHOR))
    items, real = torch.cat([anchor, LATENTS], dim=1), F.pad(REAL, (1, 0), value=True)
    expected = base.conditions(base.read(PROMPTS[:, :-1], LENGTH - 1), items, real)[:, 1:]
    for time in (torch.zeros(3), TIME):
        look = net.look(net.read(PROMPTS, LENGTH), LATENTS, REAL, time=time)
        assert torch.equal(look.states[REAL], expected[REAL])
    if attention == "bidirectional":  # to which an anchor is a prompt token like any other
        same = base.conditions(base.read(PROMPTS, LENGTH), LATENTS, REAL)
        torch.testing.assert_close(look.states[REAL], same[REAL], **CLOSE)
    ids, length = PROMPTS[:, :5], torch.tensor([5, 1, 3])
    assert torch.equal(net.encode(ids, length), base.encode(ids, length))
    states = net.decode_states(LATENTS[0], ids[:1].expand(4, -1))
    assert torch.equal(states, base.decode_states(LATENTS[0], ids[:1].expand(4, -1)))
    assert torch.equal(net.write(LATENTS[0]).first(), base.write(LATENTS[0]).first())
    assert torch.equal(net.head(states), base.head(states))
    assert torch.equal(net.gap.inner.weight, before)
    again = make(attention, seed=77)
    again.start_from(shaken(net))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), net.parameters(), strict=True))


def test_a_base_whose_weights_mean_something_else_is_refused() -> None:
    net = make()
    plain = replace(LATENT, backbone=replace(BACKBONE, time_modulated=False))
    others: list[torch.nn.Module] = [
        LatentNet(replace(plain, backbone=replace(plain.backbone, rope_theta=5.0))),
        LatentNet(replace(plain, encoder_layers=1)),
        LatentNet(LATENT),  # no time of its own
        FlexLatentNet(replace(CONFIG, unmasking_exponent=1.0)),
        FlexLatentNet(replace(CONFIG, latent=replace(LATENT, latent_norm=False))),
    ]
    for base in others:
        with pytest.raises(ValueError, match="another shape than this network"):
            net.start_from(base)
    with pytest.raises(ValueError, match="Transformer cannot be the start of a LatentNet"):
        net.start_from(Transformer(BACKBONE))


def test_additions_are_what_a_latent_network_lacks() -> None:
    net = make()
    plain = LatentNet(replace(LATENT, backbone=replace(BACKBONE, time_modulated=False)))
    kept = {f"backbone.{name}" for name, _ in plain.named_parameters()}
    assert net.additions() == {name for name, _ in net.named_parameters()} - kept
    assert len(net.additions()) == 4 + 2 * BACKBONE.layers + 6


@pytest.mark.parametrize("attention", BOTH)
def test_gradients_reach_every_weight(attention: Any) -> None:
    net = shaken(make(attention))
    segments, length = PROMPTS[:, :5], torch.tensor([5, 2, 4])
    latents = net.mask_vector.expand(3, 2, -1).clone()
    latents[:, 1] = net.encode(segments, length)
    look = net.look(net.read(PROMPTS, LENGTH), latents, time=TIME)
    logits = net.head(net.decode_states(look.states[:, 0], segments))
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), segments.flatten())
    (loss + look.gaps.exp().mean()).backward()
    unused = [n for n, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert unused == []


def test_the_start_of_the_gap_head() -> None:
    net = make()
    look = net.look(net.read(PROMPTS, LENGTH), LATENTS, time=torch.zeros(3))
    torch.testing.assert_close(look.gaps, torch.full((3, 5), -1.0), atol=0.05, rtol=0)
    again = make()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    drawn = net.backbone.encoder.blocks[0].attention.query.weight.flatten()
    both = torch.stack([net.gap.inner.weight.flatten()[: len(drawn)], drawn])
    assert torch.corrcoef(both)[0, 1].abs() < 0.2  # noise of its own
    with torch.device("meta"):
        assert FlexLatentNet(CONFIG).gap.outer.weight.is_meta


def test_the_anchor_is_bos_or_else_eos() -> None:
    vocab = stories_vocab()
    assert CONFIG.frame(vocab) == ((), (vocab.bos_id,))
    without: Any = SimpleNamespace(bos_id=None, eos_id=7, pad_id=7)  # as in Qwen2
    assert CONFIG.frame(without) == ((), (7,))
    assert not isinstance(make(), FlexNet)


def test_the_configuration_survives_json_and_refuses_nonsense() -> None:
    config = replace(CONFIG, latent=replace(LATENT, attention="prefix_lm"), insertion_exponent=1.0)
    assert FlexLatentConfig.from_record(json.loads(json.dumps(asdict(config)))) == config
    assert config.backbone is BACKBONE
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"latent": replace(LATENT, backbone=replace(BACKBONE, time_modulated=False))}, "time_mod"),
        ({"latent": replace(LATENT, empty="learned")}, "no padding segments"),
        ({"insertion_exponent": 0.0}, "positive"),
        ({"unmasking_exponent": float("inf")}, "positive"),
    ]
    for change, message in wrong:
        with pytest.raises(ValueError, match=message):
            replace(config, **change)
