"""latentmdm's networks: what they compute, who sees whom, what may not matter, how they start."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from anyorder.families.latentmdm.config import LatentConfig
from anyorder.families.latentmdm.net import FEW_ROWS, LARGE_TABLE, LatentNet
from anyorder.hub.weights import load_weights, save_weights
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import AttentionContext
from anyorder.nets.transformer import Transformer

EOS = 3
BACKBONE = TransformerConfig(
    vocab_size=23, width=32, layers=3, heads=4, kv_heads=2, head_width=8, mlp_width=48, o_bias=True
)
CONFIG = LatentConfig(BACKBONE, slots=5, segment_length=6, eos_id=EOS)
BOTH = ["bidirectional", "prefix_lm"]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def shaken(config: LatentConfig = CONFIG, seed: int = 0) -> LatentNet:
    """A net whose every weight matters: a fresh one has zero biases and nearly equal logits."""
    net = LatentNet(config, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for weight in net.parameters():
        nn.init.normal_(weight, mean=0.5 if weight.dim() == 1 else 0, std=0.3, generator=generator)
    return net


def random_ids(rows: int, length: int, vocab: int = 23, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(EOS + 1, vocab, (rows, length), generator=generator)


def random_vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


PROMPTS, LENGTH = random_ids(3, 7), torch.tensor([7, 2, 5])
LATENTS = random_vectors(3, 4, 32)
REAL = torch.arange(4) < torch.tensor([2, 4, 3])[:, None]


# The encoder


@pytest.mark.parametrize("pooling", ["content", "with_eos"])
@torch.no_grad()
def test_a_segment_is_the_mean_of_its_states(pooling: Any) -> None:
    net = shaken(replace(CONFIG, pooling=pooling))
    ids, length = random_ids(4, 6), torch.tensor([3, 1, 6, 5])
    got = net.encode(ids, length)
    for row, count in enumerate(length.tolist()):
        tokens = ids[row : row + 1, :count]
        if pooling == "with_eos" and count < 6:  # a full segment stands without EOS
            tokens = F.pad(tokens, (0, 1), value=EOS)
        x = net.embed(tokens)
        states = net.encoder.run(x, net.encoder.plain_context(x))
        torch.testing.assert_close(got[row], states[0].mean(dim=0), **CLOSE)
    assert (got[0] - got[1]).abs().max() > 1e-2


@pytest.mark.parametrize("pooling", ["content", "with_eos"])
@torch.no_grad()
def test_the_encoder_does_not_see_padding(pooling: Any) -> None:
    net = shaken(replace(CONFIG, pooling=pooling))
    ids, length = random_ids(4, 6), torch.tensor([3, 1, 6, 5])
    got = net.encode(ids, length)
    padding = torch.arange(6) >= length[:, None]
    assert torch.equal(net.encode(torch.where(padding, (ids + 5) % 23, ids), length), got)
    torch.testing.assert_close(net.encode(F.pad(ids, (0, 9)), length), got, **CLOSE)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(net.encode(ids[order], length[order]), got[order], **CLOSE)
    bidirectional = ids.clone()
    bidirectional[0, 2] = (ids[0, 2] + 1) % 23
    one = net.encoder.run(net.embed(ids[:1]), net.encoder.plain_context(net.embed(ids[:1])))
    x = net.embed(bidirectional[:1])
    assert (net.encoder.run(x, net.encoder.plain_context(x)) - one)[0, 0].abs().max() > 1e-4


def test_no_segments_are_no_trouble() -> None:
    net = shaken()
    none = torch.zeros(0, dtype=torch.long)
    vectors = net.encode(none[:, None].expand(0, 4), none)
    states = net.decode_states(vectors, none[:, None].expand(0, 4))
    assert vectors.shape == (0, 32) and states.shape == (0, 5, 32)
    (vectors.sum() + states.sum()).backward()
    prompt = net.read(PROMPTS, LENGTH)
    assert net.conditions(prompt, LATENTS[:, :0]).shape == (3, 0, 32)
    alone = net.read(PROMPTS[:, :0], torch.zeros(3, dtype=torch.long))
    assert net.conditions(alone, LATENTS, REAL).isfinite().all()


def test_what_stands_for_an_empty_segment() -> None:
    learned = shaken()
    assert learned.empty_vector is learned.empty
    eos = shaken(replace(CONFIG, empty="eos"))
    assert eos.empty is None and torch.equal(eos.empty_vector, eos.embed.weight[EOS])
    eos.empty_vector.sum().backward()
    assert eos.embed.weight.grad is not None and eos.embed.weight.grad[EOS].eq(1).all()
    with pytest.raises(ValueError, match="no empty segments"):
        _ = shaken(replace(CONFIG, empty="none")).empty_vector


# The latent transformer


@torch.no_grad()
def test_slots_stand_right_after_the_true_prompt_and_see_all_of_it() -> None:
    net = shaken()
    got = net.conditions(net.read(PROMPTS, LENGTH), LATENTS, REAL)
    for row in range(3):
        prompt = net.embed(PROMPTS[row : row + 1, : LENGTH[row]])
        x = torch.cat([prompt, LATENTS[row : row + 1, REAL[row]]], dim=1)
        whole = net.latent.run(x, net.latent.plain_context(x))  # all queries of all layers
        torch.testing.assert_close(got[row, REAL[row]], whole[0, LENGTH[row] :], **CLOSE)


@torch.no_grad()
def test_a_prefix_lm_equals_the_full_pass_under_its_mask() -> None:
    net = shaken(replace(CONFIG, attention="prefix_lm"))
    got = net.conditions(net.read(PROMPTS, LENGTH), LATENTS, REAL)
    for row in range(3):
        before = int(LENGTH[row])
        prompt = net.embed(PROMPTS[row : row + 1, :before])
        x = torch.cat([prompt, LATENTS[row : row + 1, REAL[row]]], dim=1)
        columns = torch.arange(x.shape[1])
        visible = (columns < before) | (columns[:, None] >= before)  # queries x keys
        whole = net.latent.run(
            x, AttentionContext(net.latent.rotary.prefix(len(columns), x.device), visible)
        )
        torch.testing.assert_close(got[row, REAL[row]], whole[0, before:], **CLOSE)
        everything = net.latent.run(x, net.latent.plain_context(x))
        assert (everything - whole)[0, before:].abs().max() > 1e-3


@pytest.mark.parametrize("attention", BOTH)
@torch.no_grad()
def test_a_row_does_not_depend_on_its_batch_or_on_padding(attention: Any) -> None:
    net = shaken(replace(CONFIG, attention=attention))
    got = net.conditions(net.read(PROMPTS, LENGTH), LATENTS, REAL)
    for row in range(3):
        prompt = net.read(PROMPTS[row : row + 1, : LENGTH[row]], LENGTH[row : row + 1])
        alone = net.conditions(prompt, LATENTS[row : row + 1, REAL[row]])
        torch.testing.assert_close(got[row, REAL[row]], alone[0], **CLOSE)
    padding = torch.arange(7) >= LENGTH[:, None]
    other = net.read(torch.where(padding, (PROMPTS + 5) % 23, PROMPTS), LENGTH)
    noisy = torch.where(REAL[..., None], LATENTS, LATENTS + 1)
    assert torch.equal(net.conditions(other, noisy, REAL)[REAL], got[REAL])
    wider = net.read(F.pad(PROMPTS, (0, 20)), LENGTH)
    more = net.conditions(wider, F.pad(LATENTS, (0, 0, 0, 6)), F.pad(REAL, (0, 6)))
    torch.testing.assert_close(more[:, :4][REAL], got[REAL], **CLOSE)
    order = torch.tensor([2, 2, 0, 1])
    kept = net.conditions(net.read(PROMPTS, LENGTH).keep(order), LATENTS[order], REAL[order])
    torch.testing.assert_close(kept[REAL[order]], got[order][REAL[order]], **CLOSE)


@pytest.mark.parametrize("attention", BOTH)
@torch.no_grad()
def test_every_slot_sees_every_slot_and_prompt_token_in_order(attention: Any) -> None:
    net = shaken(replace(CONFIG, attention=attention))
    got = net.conditions(net.read(PROMPTS, LENGTH), LATENTS)
    for slot in range(4):
        changed = LATENTS.clone()
        changed[:, slot] += 1
        difference = net.conditions(net.read(PROMPTS, LENGTH), changed) - got
        assert difference.abs().amax(dim=-1).min() > 1e-3
    for column in range(2):
        other = PROMPTS.clone()
        other[:, column] = (other[:, column] + 1) % 23
        difference = net.conditions(net.read(other, LENGTH), LATENTS) - got
        assert difference.abs().amax(dim=-1).min() > 1e-4
    swapped = net.conditions(net.read(PROMPTS, LENGTH), LATENTS.flip(1)).flip(1)
    assert (swapped - got).abs().amax(dim=-1).min() > 1e-3  # places count, not only contents


@torch.no_grad()
def test_only_bidirectional_prompts_see_the_slots() -> None:
    seen: list[Tensor] = []
    net = shaken()
    net.latent.blocks[0].register_forward_hook(lambda _, __, states: seen.append(states))
    prompt = net.read(PROMPTS, LENGTH)
    net.conditions(prompt, LATENTS)
    net.conditions(prompt, LATENTS + 1)
    states, others = seen
    assert states.shape == (3, 7 + 4, 32)
    assert (states - others)[:, :7].abs().amax(dim=-1).min() > 1e-4
    seen.clear()
    prefix = shaken(replace(CONFIG, attention="prefix_lm"))
    blocks = prefix.latent.blocks
    for block in blocks:
        block.register_forward_hook(lambda _, __, states: seen.append(states))
    prompt = prefix.read(PROMPTS, LENGTH)
    assert len(seen) == len(blocks) - 1  # of the last layer only keys and values are needed
    seen.clear()
    prefix.conditions(prompt, LATENTS)
    assert [each.shape[1] for each in seen] == [4] * len(blocks)  # the prompt is not computed again


@torch.no_grad()
def test_the_last_layer_asks_at_the_slots_only() -> None:
    net = shaken()
    columns: list[tuple[int, int]] = []
    for block in net.latent.blocks:
        block.mlp.register_forward_hook(lambda _, x, y: columns.append((x[0].shape[1], y.shape[1])))
    net.conditions(net.read(PROMPTS, LENGTH), LATENTS)
    assert columns == [(11, 11), (11, 11), (4, 4)]


# The decoder


def written(net: LatentNet, conditions: Tensor, ids: Tensor) -> Tensor:
    """The decoder's states without a cache."""
    with torch.no_grad():
        return net.decode_states(conditions, ids)


def test_the_condition_is_a_token_before_the_first() -> None:
    net, other = shaken(), Transformer(CONFIG.part(2, causal=True))
    weights = dict(net.decoder.named_parameters())
    other.load_state_dict(weights | {"embed.weight": net.embed.weight})
    ids, conditions = random_ids(3, 5), random_vectors(3, 32)
    vectors = torch.cat([conditions[:, None], net.embed(ids)], dim=1)
    states = net.decode_states(conditions, ids)
    assert states.shape == (3, 6, 32)
    torch.testing.assert_close(states, other.hidden(vectors=vectors), **CLOSE)
    torch.testing.assert_close(net.head(states), other(vectors=vectors), **CLOSE)
    longer = net.decode_states(conditions, F.pad(ids, (0, 4), value=9))
    torch.testing.assert_close(longer[:, :6], states, **CLOSE)
    changed = ids.clone()
    changed[:, 2] = (ids[:, 2] + 1) % 23
    assert torch.equal(net.decode_states(conditions, changed)[:, :3], states[:, :3])


NET = shaken()


@settings(max_examples=30)
@given(
    kept=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    known=st.integers(1, 5),
    late=st.booleans(),
    seed=st.integers(0, 99),
)
def test_cut_and_gone_on_equals_written_from_scratch(
    kept: list[int], known: int, late: bool, seed: int
) -> None:
    rows = len(kept)
    conditions = random_vectors(rows, 32, seed=seed)
    old, new = random_ids(rows, 6, seed=seed), random_ids(rows, 6, seed=seed + 1)
    lengths = torch.tensor(kept).clamp(max=known)
    final = torch.where(torch.arange(6) < lengths[:, None], old, new)
    whole = written(NET, conditions, final)
    writer = NET.write(conditions)
    if late:  # the condition alone, then the tokens
        writer.first()
    writer.read(old[:, :known])
    torch.testing.assert_close(writer.first(), whole[:, 0], **CLOSE)
    writer.cut(lengths)
    while int(lengths.max()) < 6:
        states = writer.read(final.gather(1, lengths[:, None]))[:, 0]
        lengths = lengths + 1
        torch.testing.assert_close(states, whole[torch.arange(rows), lengths], **CLOSE)


@pytest.mark.parametrize("late", [False, True])
@torch.no_grad()
def test_a_writer_reads_ragged_segments(late: bool) -> None:
    ids, conditions = random_ids(3, 5), random_vectors(3, 32)
    lengths = torch.tensor([2, 5, 1])
    real = torch.arange(5) < lengths[:, None]
    whole = written(NET, conditions, ids)
    writer = NET.write(conditions)
    if late:
        writer.first()
    states = writer.read(torch.where(real, ids, EOS), real)
    torch.testing.assert_close(states[real], whole[:, 1:][real], **CLOSE)
    following = writer.read(torch.full((3, 1), 7))[:, 0]
    for row, length in enumerate(lengths.tolist()):
        longer = F.pad(ids[row : row + 1, :length], (0, 1), value=7)
        alone = written(NET, conditions[row : row + 1], longer)
        torch.testing.assert_close(following[row], alone[0, -1], **CLOSE)


@pytest.mark.parametrize("begun", [False, True])
@torch.no_grad()
def test_kept_segments_go_on_as_if_nothing_happened(begun: bool) -> None:
    ids, conditions = random_ids(3, 6), random_vectors(3, 32)
    rows = torch.tensor([2, 0, 0])
    whole = written(NET, conditions, ids)[rows]
    writer = NET.write(conditions)
    if begun:
        writer.read(ids[:, :3])
    kept = writer.keep(rows)
    if not begun:
        kept.read(ids[rows, :3])
    torch.testing.assert_close(kept.first(), whole[:, 0], **CLOSE)
    torch.testing.assert_close(kept.read(ids[rows, 3:]), whole[:, 4:], **CLOSE)
    before = writer.read(ids[:, :3] if not begun else ids[:, 3:])  # the first writer is untouched
    torch.testing.assert_close(before[rows], whole[:, 4:] if begun else whole[:, 1:4], **CLOSE)


def test_a_writer_holds_a_whole_segment_and_no_more() -> None:
    writer = NET.write(random_vectors(2, 32))
    writer.read(random_ids(2, 6))
    with pytest.raises(ValueError, match="the cache is full: it holds 7"):
        writer.read(random_ids(2, 1))
    with pytest.raises(ValueError, match="only be cut to lengths"):
        writer.cut(torch.tensor([7, 0]))
    writer.cut(torch.tensor([5, 0]))
    assert not writer.read(random_ids(2, 1)).requires_grad
    fresh = NET.write(random_vectors(2, 32))
    fresh.cut(torch.zeros(2, dtype=torch.long))
    assert fresh.first().shape == (2, 32)


# Learning


def nats(net: LatentNet, rows: int = 24, seed: int = 0) -> Tensor:
    """Cross-entropies of a whole round: some segments encoded, the others written.  # M"""
    vocab, slots, length = net.embed.num_embeddings, 4, net.segment_length - 1
    generator = torch.Generator().manual_seed(seed)
    segments = torch.randint(vocab, (rows, slots, length), generator=generator)
    prompt = torch.randint(vocab, (rows, 7), generator=generator)
    masked = torch.rand(rows, slots, generator=generator) < 0.6
    masked[:, 0] = True
    latents = net.mask_vector.expand(rows, slots, -1).clone()
    shown = ~masked
    latents[shown] = net.encode(segments[shown], torch.full((int(shown.sum()),), length))
    if net.config.empty != "none":
        latents[0, 1], masked[0, 1] = net.empty_vector, False
    lengths = torch.randint(1, 8, (rows,), generator=generator)
    conditions = net.conditions(net.read(prompt, lengths), latents)
    states = net.decode_states(conditions[masked], segments[masked][:, :-1])
    return F.cross_entropy(net.head(states).flatten(0, 1), segments[masked].flatten())


@pytest.mark.parametrize("norms", [True, False], ids=["norms", "no norms"])
@pytest.mark.parametrize("vocab", [8, 40, 260, 30_000])
@pytest.mark.parametrize("width", [64, 512])
@torch.no_grad()
def test_the_first_loss_is_that_of_a_uniform_guess(width: int, vocab: int, norms: bool) -> None:
    backbone = TransformerConfig(vocab, width, 4, 4, 4, 16, 2 * width)
    for decoder_norm in {norms, True}:
        config = replace(CONFIG, backbone=backbone, encoder_norm=norms, latent_norm=norms)
        net = LatentNet(replace(config, decoder_norm=decoder_norm), seed=11)
        assert float(nats(net)) == pytest.approx(math.log(vocab), rel=0.01)


@pytest.mark.parametrize("attention", BOTH)
@pytest.mark.parametrize("empty", ["learned", "eos"])
@pytest.mark.parametrize("norms", [True, False])
def test_gradients_reach_every_weight(attention: Any, empty: Any, norms: bool) -> None:
    pooling: Any = "content" if empty == "learned" else "with_eos"
    config = replace(CONFIG, attention=attention, empty=empty, pooling=pooling)
    net = shaken(replace(config, encoder_norm=norms, latent_norm=norms, decoder_norm=norms))
    with torch.inference_mode():
        nats(net)  # sampling first may not spoil training
    nats(net).backward()
    unused = [n for n, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert unused == []
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("attention", BOTH)
def test_a_few_steps_learn_a_rule_between_segments(attention: Any) -> None:
    """The second segment repeats the first one, whose tokens only the encoder sees."""
    backbone = TransformerConfig(12, 32, 2, 4, 4, 8, 64)
    config = replace(CONFIG, backbone=backbone, encoder_layers=1, decoder_layers=1, eos_id=None)
    net = LatentNet(replace(config, attention=attention))
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    one = torch.ones(48, dtype=torch.long)
    for _ in range(80):
        segment = torch.randint(4, 12, (48, 1), generator=generator)
        latents = torch.stack([net.encode(segment, one), net.mask_vector.expand(48, -1)])
        prompt = net.read(torch.full((48, 1), 1), one)
        conditions = net.conditions(prompt, latents.transpose(0, 1))[:, 1]
        loss = F.cross_entropy(
            net.head(net.decode_states(conditions, segment[:, :0]))[:, 0], segment[:, 0]
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.2


# Size, start, files


def count(config: LatentConfig) -> int:
    with torch.device("meta"):
        return sum(weight.numel() for weight in LatentNet(config).parameters())


def test_the_papers_size() -> None:
    backbone = TransformerConfig(151_645, 512, 10, 8, 8, 64, 1536, o_bias=True)
    bare = LatentConfig(
        backbone, empty="eos", eos_id=151_643,
        encoder_norm=False, latent_norm=False, decoder_norm=False,
    )  # fmt: skip
    assert count(bare) == 151_645 * 512 + 14 * 3_410_944 + 512 == 125_395_968
    assert count(replace(bare, decoder_norm=True)) == 125_395_968 + 512
    full = replace(bare, encoder_norm=True, latent_norm=True, decoder_norm=True, empty="learned")
    assert count(full) == 125_395_968 + 4 * 512


def test_weights_are_a_function_of_the_seed(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = LatentNet(CONFIG, seed=4).state_dict()
    torch.manual_seed(2)
    again = LatentNet(CONFIG, seed=4)
    assert all(torch.equal(first[name], w) for name, w in again.state_dict().items())
    with torch.device("meta"):
        late = LatentNet(CONFIG, seed=4)
    late.to_empty(device="cpu").reset_parameters(4)
    assert all(torch.equal(first[name], w) for name, w in late.state_dict().items())
    again.reset_parameters(5)
    for name in ("embed.weight", "mask_vector", "empty", "encoder.blocks.0.mlp.up.weight"):
        assert not torch.equal(first[name], again.state_dict()[name])
    save_weights(tmp_path / "net.safetensors", again)
    load_weights(tmp_path / "net.safetensors", late)
    assert all(
        torch.equal(a, b) for a, b in zip(again.parameters(), late.parameters(), strict=True)
    )


def test_a_network_can_begin_with_another_one() -> None:
    base = shaken(seed=5)
    net = LatentNet(replace(CONFIG, slots=9, segment_length=12, attention="prefix_lm"))
    net.start_from(base)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), base.parameters(), strict=True))
    base.embed.weight.data.zero_()  # taken over, not shared
    assert net.embed.weight.abs().sum() > 0
    others = [
        replace(CONFIG, backbone=replace(BACKBONE, layers=2)),
        replace(CONFIG, backbone=replace(BACKBONE, rope_theta=5.0)),
        replace(CONFIG, pooling="with_eos"),
        replace(CONFIG, empty="eos"),
        replace(CONFIG, decoder_norm=False),
        replace(CONFIG, encoder_layers=1),
    ]
    for other in others:
        with pytest.raises(ValueError, match="another shape than this network"):
            net.start_from(LatentNet(other))
    with pytest.raises(ValueError, match="Transformer cannot be the start of a LatentNet"):
        net.start_from(Transformer(BACKBONE))


def test_the_configuration_survives_json() -> None:
    config = replace(CONFIG, attention="prefix_lm", pooling="with_eos", segment_by="statement")
    assert LatentConfig.from_record(json.loads(json.dumps(asdict(config)))) == config
    with pytest.raises(TypeError, match="wings"):
        LatentConfig.from_record(asdict(config) | {"wings": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backbone": replace(BACKBONE, causal=True)}, "bidirectional backbone"),
        ({"backbone": replace(BACKBONE, tied=False)}, "one table"),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1"),
        ({"decoder_layers": 0}, "decoder_layers must be at least 1"),
        ({"slots": 0}, "slots must be at least 1"),
        ({"segment_length": 0}, "segment_length must be at least 1"),
        ({"segment_by": "verse"}, "choose 'line' or 'statement' or 'fixed'"),
        ({"pooling": "max"}, "choose 'content' or 'with_eos'"),
        ({"empty": "zero"}, "choose 'learned' or 'eos' or 'none'"),
        ({"attention": "causal"}, "choose 'bidirectional' or 'prefix_lm'"),
        ({"empty": "eos", "eos_id": None}, "give eos_id"),
        ({"pooling": "with_eos", "eos_id": None}, "give eos_id"),
        ({"eos_id": 23}, "no id below vocab_size=23"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)


def test_a_net_without_time_takes_none() -> None:
    with pytest.raises(ValueError, match="not time-modulated"):
        NET.conditions(NET.read(PROMPTS, LENGTH), LATENTS, time=torch.zeros(3))


@torch.no_grad()
def test_few_states_under_a_large_table_have_the_same_logits() -> None:
    backbone = TransformerConfig(LARGE_TABLE // 16, 16, 1, 2, 2, 8, 32)
    net = LatentNet(replace(CONFIG, backbone=backbone), seed=5)
    states = torch.randn(FEW_ROWS + 2, 16, generator=torch.Generator().manual_seed(0))
    whole = states @ net.embed.weight.T
    for rows in (1, 2, FEW_ROWS, FEW_ROWS + 1):
        logits = net.head(states[:rows])
        torch.testing.assert_close(logits, whole[:rows], atol=1e-5, rtol=1e-4)
        assert logits.is_contiguous()


@torch.no_grad()
def test_attention_begins_by_copying() -> None:
    """The identity is in the value maps and, times the table's scale, in the output maps."""
    net = LatentNet(replace(CONFIG, backbone=TransformerConfig(40, 64, 4, 4, 4, 16, 96)), seed=3)
    for stack in (net.encoder, net.latent, net.decoder):
        attention = [module for name, module in stack.named_modules() if name.endswith("attention")]
        assert attention
        for each in attention:
            value, out = each.get_submodule("value").weight, each.get_submodule("out").weight
            assert float(value.diagonal().mean()) == pytest.approx(1.0, abs=0.06)
            assert float(out.diagonal().mean()) == pytest.approx(1.0, abs=0.06)  # a unit table
            rest = value - value.diagonal().diag()
            assert abs(float(rest.mean())) < 0.01
    # Grouped heads share values: there is nothing to copy to, so neither map has it.
    net = LatentNet(replace(CONFIG, backbone=TransformerConfig(40, 64, 4, 4, 2, 16, 96)), seed=3)
    out = net.decoder.get_submodule("blocks.0.attention.out").weight
    assert abs(float(out.diagonal().mean())) < 0.06


@torch.no_grad()
def test_without_norms_even_the_surest_first_state_is_a_uniform_guess() -> None:
    """The first column of the decoder sees only itself: there every layer copies the same."""
    backbone = TransformerConfig(30_000, 128, 10, 4, 4, 32, 256)
    config = replace(CONFIG, backbone=backbone, slots=16)
    bare = replace(config, encoder_norm=False, latent_norm=False, decoder_norm=False)
    net = LatentNet(bare, seed=1)
    prompt = torch.randint(30_000, (4, 7), generator=torch.Generator().manual_seed(0))
    latents = net.mask_vector.expand(4, 16, -1)
    conditions = net.conditions(net.read(prompt, torch.full((4,), 7)), latents)
    first = net.decode_states(conditions.flatten(0, 1), torch.zeros(64, 0, dtype=torch.int64))
    logits = net.head(first[:, 0])
    costs = logits.logsumexp(dim=-1) - logits.mean(dim=-1) - math.log(30_000)
    assert float(costs.max()) < 0.01 * math.log(30_000)
