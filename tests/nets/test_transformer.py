"""The backbone: what it computes, what padding may not do, how it starts, how large it is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import AttentionContext, Stack
from anyorder.nets.transformer import Transformer

CONFIG = TransformerConfig(
    vocab_size=23, width=32, layers=2, heads=4, kv_heads=2, head_width=8, mlp_width=48, o_bias=True
)


def shaken(config: TransformerConfig, seed: int = 0) -> Transformer:
    """A net whose every weight matters: a fresh one has zero biases and nearly equal logits."""
    net = Transformer(config, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for weight in net.parameters():
        nn.init.normal_(weight, mean=0.5 if weight.dim() == 1 else 0, std=0.3, generator=generator)
    return net


def random_ids(rows: int, length: int, vocab: int = 23, seed: int = 0) -> Tensor:
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(seed))


# Parity with transformers


def copy_from_transformers(theirs: nn.Module, config: TransformerConfig) -> Transformer:
    """Our net with the weights of a Qwen2, Qwen3 or Llama causal model of `transformers`."""
    renamed = {
        "model.embed_tokens": "embed",
        "model.layers": "blocks",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.out",
        "self_attn.q_norm": "attention.query_norm",
        "self_attn.k_norm": "attention.key_norm",
        "gate_proj": "gate",
        "up_proj": "up",
        "down_proj": "down",
        "model.norm": "norm",
        "lm_head": "unembed",
    }
    weights = {}
    for name, weight in theirs.state_dict().items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        weights[name] = weight
    if config.tied:
        weights.pop("unembed.weight", None)
    net = Transformer(config)
    net.load_state_dict(weights)
    return net


HEAD_WIDTHS = {"qwen2": 8, "qwen3": 10, "llama": 8}
"""Qwen3's heads need not add up to the width."""


def random_transformers_model(kind: str, tied: bool) -> Any:
    transformers = pytest.importorskip("transformers")
    family = {"qwen2": "Qwen2", "qwen3": "Qwen3", "llama": "Llama"}[kind]
    config = getattr(transformers, family + "Config")(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=HEAD_WIDTHS[kind],
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 12345.0},
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(7)
    for name, weight in model.named_parameters():
        # Weights large enough for attention and biases to matter, logits of order one.
        mean = 1.0 if "norm" in name else 0.0
        nn.init.normal_(weight, mean=mean, std=0.15, generator=generator)
    return model


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", HEAD_WIDTHS)
@torch.no_grad()
def test_logits_equal_those_of_transformers(kind: str, tied: bool, causal: bool) -> None:
    theirs = random_transformers_model(kind, tied)
    config = TransformerConfig(
        97, 48, 2, 6, 2, HEAD_WIDTHS[kind], 80,
        causal=causal, rope_theta=12345.0, norm_eps=1e-5, qkv_bias=kind == "qwen2", tied=tied,
        qk_norm=kind == "qwen3",
    )  # fmt: skip
    ours = copy_from_transformers(theirs, config)
    ids = random_ids(3, 37, 97)
    # Additive 4D mask: all zeros shows everything to everyone.
    everything = None if causal else torch.zeros(3, 1, 37, 37)
    expected = theirs(ids, attention_mask=everything).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(ours(ids), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_padding_and_positions_equal_those_of_transformers() -> None:
    theirs = random_transformers_model("qwen2", True)
    config = TransformerConfig(
        97, 48, 2, 6, 2, 8, 80, causal=True, rope_theta=12345.0, norm_eps=1e-5
    )
    ours = copy_from_transformers(theirs, config)
    ids = random_ids(2, 9, 97)
    mask = torch.tensor([[False] * 3 + [True] * 6, [True] * 9])  # padded on the left
    positions = torch.stack([(torch.arange(9) - 3).clamp(min=0), torch.arange(9) + 4])
    got = ours(ids, mask=mask, positions=positions)
    expected = theirs(ids, attention_mask=mask.long(), position_ids=positions).logits
    torch.testing.assert_close(got[mask], expected[mask], atol=1e-5, rtol=1e-5)
    assert got.isfinite().all()


# Who sees whom


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_the_future_matters_only_to_a_bidirectional_net(causal: bool) -> None:
    net = shaken(replace(CONFIG, causal=causal))
    ids = random_ids(1, 12)
    changed = ids.clone()
    changed[0, 7] = (ids[0, 7] + 1) % 23
    difference = (net(ids) - net(changed)).abs().amax(dim=-1)[0]
    assert difference[7:].min() > 1e-3
    assert (difference[:7] == 0).all() if causal else (difference[:7] > 1e-4).all()


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_padding_does_not_influence_real_positions(causal: bool) -> None:
    net = shaken(replace(CONFIG, causal=causal))
    ids = random_ids(3, 16)
    lengths = torch.tensor([16, 5, 9])
    mask = torch.arange(16) < lengths[:, None]
    logits = net(ids, mask=mask)
    other_padding = torch.where(mask, ids, (ids + 5) % 23)
    assert torch.equal(net(other_padding, mask=mask)[mask], logits[mask])
    for row, length in enumerate(lengths.tolist()):
        alone = net(ids[row : row + 1, :length])
        torch.testing.assert_close(logits[row, :length], alone[0], atol=2e-6, rtol=1e-6)
    wider = F.pad(ids, (0, 50)), F.pad(mask, (0, 50))
    got = net(wider[0], mask=wider[1])[:, :16]
    torch.testing.assert_close(got[mask], logits[mask], atol=2e-6, rtol=1e-6)
    if causal:
        torch.testing.assert_close(net(ids)[mask], logits[mask], atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_a_row_of_padding_is_harmless(causal: bool) -> None:
    net = shaken(replace(CONFIG, causal=causal))
    mask = torch.tensor([[True] * 4, [False] * 4])
    logits = net(random_ids(2, 4), mask=mask)
    logits[mask].square().mean().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@torch.no_grad()
def test_positions_are_relative_and_matter() -> None:
    net = shaken(CONFIG)
    ids = random_ids(2, 10)
    plain = net(ids)
    columns = torch.arange(10).expand(2, 10)
    assert torch.equal(net(ids, positions=columns), plain)
    torch.testing.assert_close(net(ids, positions=columns + 31), plain, atol=2e-5, rtol=1e-4)
    assert (net(ids, positions=2 * columns) - plain).abs().max() > 1e-2


# The pieces


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_vectors_replace_ids_and_the_head_serves_chosen_positions(tied: bool) -> None:
    net = shaken(replace(CONFIG, tied=tied))
    ids = random_ids(2, 6)
    hidden = net.hidden(ids)
    assert torch.equal(net.hidden(vectors=net.embed(ids)), hidden)
    chosen = torch.tensor([[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]]).bool()
    picked = net.head(hidden[chosen])
    assert picked.shape == (3, 23)
    torch.testing.assert_close(picked, net(ids)[chosen])
    table = net.embed.weight if tied else net.unembed.weight
    torch.testing.assert_close(picked, hidden[chosen] @ table.T)


def test_norm_statistics_are_taken_in_float32() -> None:
    net = Transformer(CONFIG).bfloat16()
    x = (300 * torch.randn(50, 32, generator=torch.Generator().manual_seed(0))).bfloat16()
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    got = net.blocks[0].mlp_norm(x).double()
    assert ((got - exact).abs() <= 2**-8 * exact.abs() + 1e-9).all()


def test_every_weight_is_used_and_learns() -> None:
    net = shaken(replace(CONFIG, tied=False, time_modulated=True))
    loss = F.cross_entropy(
        net(random_ids(2, 6), time=torch.rand(2)).flatten(0, 1), torch.arange(12)
    )
    loss.backward()
    unused = [n for n, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert unused == []


def test_sampling_in_inference_mode_does_not_spoil_training() -> None:
    net = Transformer(replace(CONFIG, causal=True))
    with torch.inference_mode():
        net(random_ids(1, 5))
    net(random_ids(1, 5)).sum().backward()


def test_half_precision_nets_keep_exact_rotary_tables() -> None:
    net = Transformer(CONFIG)
    before = net.rotary.prefix(5, torch.device("cpu"))[0].clone()
    after = net.bfloat16().rotary.prefix(5, torch.device("cpu"))[0]
    assert after.dtype == torch.float32 and torch.equal(before, after)


def test_the_forward_compiles_into_one_graph() -> None:
    torch._dynamo.reset()
    for config in (replace(CONFIG, causal=True), replace(CONFIG, time_modulated=True)):
        net = shaken(config)
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        ids, mask = random_ids(2, 6), torch.arange(6) < torch.tensor([[6], [4]])
        more = {"time": torch.rand(2)} if config.time_modulated else {}
        torch.testing.assert_close(compiled(ids, mask=mask, **more), net(ids, mask=mask, **more))


# The stack below


def test_parameters_keep_their_names_and_their_order() -> None:
    """Files of weights, optimiser states and seeds depend on them."""
    net = Transformer(replace(CONFIG, layers=1, tied=False, time_modulated=True))
    attention = [
        f"attention.{part}.{kind}"
        for part in ("query", "key", "value", "out")
        for kind in ("weight", "bias")
    ]
    block = ["attention_norm.weight", *attention, "mlp_norm.weight"]
    block += ["mlp.gate.weight", "mlp.up.weight", "mlp.down.weight"]
    block += ["modulation.project.weight", "modulation.project.bias"]
    time = [f"time.{part}.{kind}" for part in ("inner", "outer") for kind in ("weight", "bias")]
    blocks = [f"blocks.0.{name}" for name in block]
    names = ["embed.weight", *time, *blocks, "norm.weight", "unembed.weight"]
    assert [name for name, _ in net.named_parameters()] == names


@torch.no_grad()
def test_the_last_columns_alone_are_those_of_the_whole() -> None:
    net = shaken(replace(CONFIG, time_modulated=True))
    x, time = net.embed(random_ids(3, 9)), torch.tensor([0.1, 0.5, 0.9])
    mask = torch.arange(9) < torch.tensor([9, 7, 8])[:, None]
    for positions in (None, torch.arange(9).expand(3, 9) + 4):
        context = net.plain_context(x, mask, positions)
        whole = net.run(x, context, time=time)
        for skip in (0, 4, 9):
            got = net.run(x, context, time=time, skip=skip)
            torch.testing.assert_close(got, whole[:, skip:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_what_was_remembered_is_seen_like_what_is_there() -> None:
    net = shaken(replace(CONFIG, causal=True))
    x = net.embed(random_ids(2, 9))
    whole = net.run(x, net.plain_context(x))
    memory = net.remember(x[:, :5], net.plain_context(x[:, :5]))
    later = torch.arange(9) <= torch.arange(5, 9)[:, None]
    rotation = net.rotary.pick(torch.arange(5, 9)[None], 9)
    got = net.run(x[:, 5:], AttentionContext(rotation, later, join=memory.precede))
    torch.testing.assert_close(got, whole[:, 5:], atol=1e-5, rtol=1e-5)
    rows = torch.tensor([1, 1, 0])
    kept = net.run(x[rows, 5:], AttentionContext(rotation, later, join=memory.keep(rows).precede))
    torch.testing.assert_close(kept, whole[rows, 5:], atol=1e-5, rtol=1e-5)


def test_a_stack_may_end_without_a_norm() -> None:
    net, bare = shaken(CONFIG), Stack(CONFIG, final_norm=False)
    bare.load_state_dict(
        {name: w for name, w in net.state_dict().items() if name.startswith("blocks.")}
    )
    x = net.embed(random_ids(2, 6))
    states = bare.run(x, bare.plain_context(x))
    torch.testing.assert_close(net.norm(states), net.run(x, net.plain_context(x)))
    assert (states - net.norm(states)).abs().max() > 0.1


# The start


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("vocab", [8, 40, 260, 30_000])
@pytest.mark.parametrize("width", [64, 512])
@torch.no_grad()
def test_the_first_loss_is_that_of_a_uniform_guess(width: int, vocab: int, tied: bool) -> None:
    config = TransformerConfig(vocab, width, 3, 4, 4, 16, 2 * width, tied=tied, causal=True)
    net = Transformer(config, seed=11)
    ids = random_ids(4, 33, vocab)
    repeated = ids[:, :1].expand(-1, 33)  # as under a mask token: one input everywhere
    for inputs, targets in ((ids[:, :-1], ids[:, 1:]), (repeated[:, 1:], ids[:, 1:])):
        loss = F.cross_entropy(net(inputs).flatten(0, 1), targets.flatten())
        assert float(loss) == pytest.approx(math.log(vocab), rel=0.01)


def test_weights_are_a_function_of_the_seed() -> None:
    torch.manual_seed(1)
    first = Transformer(CONFIG, seed=4).state_dict()
    torch.manual_seed(2)
    again = Transformer(CONFIG, seed=4)
    assert all(torch.equal(first[name], w) for name, w in again.state_dict().items())
    again.reset_parameters(5)
    assert not torch.equal(first["embed.weight"], again.embed.weight)
    with torch.device("meta"):
        late = Transformer(CONFIG, seed=4)
    late.to_empty(device="cpu").reset_parameters(4)
    assert all(torch.equal(first[name], w) for name, w in late.state_dict().items())


# The size


def count(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(weight.numel() for weight in Transformer(config).parameters())


def test_parameter_counts_of_known_models() -> None:
    paper = TransformerConfig(151_645, 512, 14, 8, 8, 64, 1536, o_bias=True)
    assert count(paper) == 151_645 * 512 + 14 * 3_410_944 + 512 == 125_395_968
    dream = TransformerConfig(152_064, 3584, 28, 28, 4, 128, 18_944, tied=False)
    assert count(dream) == 7_615_616_512
    assert count(replace(dream, time_modulated=True)) - count(dream) == 102_778_368 + 719_523_840
    llada = TransformerConfig(126_464, 4096, 32, 32, 32, 128, 12_288, qkv_bias=False, tied=False)
    assert count(llada) == 8_015_581_184


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 3}, "does not divide heads"),
        ({"head_width": 7}, "even"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"width": 31, "time_modulated": True}, "even"),
        ({"rope_theta": 0.0}, "positive"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)


def test_wrong_inputs_are_refused() -> None:
    net = Transformer(CONFIG)
    ids = random_ids(2, 4)
    with pytest.raises(ValueError, match="ids or vectors"):
        net.hidden()
    with pytest.raises(ValueError, match="boolean"):
        net.hidden(ids, mask=torch.ones_like(ids))
    with pytest.raises(ValueError, match=r"of shape \(2, 4\)"):
        net.hidden(ids, mask=torch.ones(2, 5, dtype=torch.bool))
