"""Adapters: no change at first, only they and a family's additions learn, merged at the end."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from anyorder.families.flexmdm.config import FlexConfig
from anyorder.families.flexmdm.net import FlexNet
from anyorder.model import load
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.training import lora
from anyorder.training.config import TrainConfig
from anyorder.training.processes import TensorReader

# Not imported here: it takes seconds, in every process that collects tests.
pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")

SHAPE = TransformerConfig(
    vocab_size=19, width=16, layers=2, heads=2, kv_heads=1, head_width=8, mlp_width=24
)
IDS = torch.arange(14).reshape(2, 7)


def adapted(config: TrainConfig, seed: int = 3) -> Transformer:
    net = Transformer(SHAPE, seed=1)
    lora.adapt(net, config, set())
    for name, value in lora.first_adapters(net, seed):
        net.get_parameter(name).data.copy_(value)
    return net


def test_at_first_nothing_changes_and_merging_gives_a_plain_network() -> None:
    plain, net = Transformer(SHAPE, seed=1), adapted(TrainConfig(lora=3, lora_scale=1.5))
    torch.testing.assert_close(net(IDS), plain(IDS))
    trained = {name for name, weight in net.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * 7 * 2, "two factors, seven maps, two layers"
    with torch.no_grad():
        for name in trained:
            net.get_parameter(name).add_(0.1)
    changed = net(IDS)
    assert not torch.allclose(changed, plain(IDS))
    before = plain.blocks[0].mlp.down.weight
    down = net.blocks[0].mlp.down
    product = down.lora_B["default"].weight @ down.lora_A["default"].weight
    merged = lora.merge(net)
    torch.testing.assert_close(merged.blocks[0].mlp.down.weight, before + 1.5 * product)
    torch.testing.assert_close(merged(IDS), changed)
    assert [name for name, _ in merged.named_parameters()] == [
        name for name, _ in plain.named_parameters()
    ]


def test_the_first_values_are_a_function_of_the_seed() -> None:
    first, again, other = (adapted(TrainConfig(lora=3), seed) for seed in (3, 3, 4))
    name = "blocks.1.attention.key.lora_A.default.weight"
    assert torch.equal(first.get_parameter(name), again.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))
    assert float(first.get_parameter(name).detach().abs().max()) <= SHAPE.width**-0.5


def test_targets_are_chosen_by_name() -> None:
    net = adapted(TrainConfig(lora=2, lora_targets=("query", "value")))
    trained = {name for name, weight in net.named_parameters() if weight.requires_grad}
    assert {name.split(".")[3] for name in trained} == {"query", "value"}
    with pytest.raises(ValueError, match=r"linear map called q_proj: choose .*down, gate"):
        adapted(TrainConfig(lora=2, lora_targets=("q_proj",)))
    with pytest.raises(ValueError, match="no layers with linear maps"):
        lora.adapt(torch.nn.Linear(2, 2), TrainConfig(lora=2), set())


def test_additions_of_a_family_are_trained_whole() -> None:
    config = FlexConfig(TransformerConfig(**vars(SHAPE) | {"time_modulated": True}))
    net = FlexNet(config)
    added = net.additions()
    lora.adapt(net, TrainConfig(lora=2), added)
    trained = {name for name, weight in net.named_parameters() if weight.requires_grad}
    assert added < trained
    assert all(".lora_" in name for name in trained - added)
    assert lora.inner_names(net).keys() == {name for name, _ in FlexNet(config).named_parameters()}


def test_training_with_adapters(ranks: ModuleType, tmp_path: Path) -> None:
    """From a trained model, resumed, exported as a plain one whose other weights are the base's."""
    base = tmp_path / "base"
    ranks.train(ranks.job("tiny/mdm", base, steps=4, dtype="float32"))
    work = ranks.job("tiny/mdm", tmp_path / "run", start=str(base), lora=2, dtype="float32")
    ranks.train(work)
    start, result = load(base).net.state_dict(), load(tmp_path / "run").net.state_dict()
    assert start.keys() == result.keys()
    changed = {name for name in start if not torch.equal(start[name], result[name])}
    assert changed == {name for name in start if name.startswith("blocks.") and
                       name.endswith("weight") and "norm" not in name}  # fmt: skip
    with TensorReader(ranks.newest(tmp_path / "run").glob("optimiser*")) as moments:
        assert all(".lora_" in name for name in moments.shapes)
    whole = (tmp_path / "run" / "model.safetensors").read_bytes()
    (tmp_path / "run" / "model.safetensors").unlink()
    ranks.train(work)  # goes on from its last step, and exports again
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == whole


def test_what_makes_no_sense_is_refused(
    ranks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="lora adapts a trained model: name one with --start"):
        ranks.train(ranks.job("tiny/mdm", tmp_path / "run", lora=2))
    with pytest.raises(ValueError, match="a new head alone"):
        ranks.train(ranks.job("tiny/planner", tmp_path / "run", lora=2, start="tiny/mdm"))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"lora needs the library peft: pip install"):
        adapted(TrainConfig(lora=2))
    assert not (tmp_path / "run").exists()
