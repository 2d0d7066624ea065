"""First weights: drawn one at a time they are those of a network that was built whole, and by name
they do not depend on each other."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyorder.apps.train import network_config, train_recipe
from anyorder.families.family import find_family
from anyorder.model import load
from anyorder.nets.init import NamedSeed
from anyorder.recipes import RECIPES, find_recipe, override
from anyorder.training.checkpoint import SEAL
from anyorder.training.config import digest
from anyorder.training.distributed import Base, ShardedInit, _Change

TINY = [name for name in RECIPES if name.startswith("tiny/")]


def network(name: str, **changes: Any) -> Any:
    recipe = find_recipe(name)
    changes = {f"net.{key}": value for key, value in ({"layers": 2} | changes).items()}
    return find_family(recipe.family).network, network_config(override(recipe, changes), 97, 1)


def weights(name: str, seed: int, **changes: Any) -> dict[str, Tensor]:
    """The first weights, by their names in the backbone."""
    kind, config = network(name, **changes)
    found = kind.build(config, seed=seed).named_parameters()
    return {name.removeprefix("backbone."): value.detach() for name, value in found}


@pytest.mark.parametrize("seed", [5, NamedSeed(5)], ids=["in_order", "by_name"])
@pytest.mark.parametrize("name", [*TINY, "dit"])
def test_they_are_what_the_constructor_draws(name: str, seed: int) -> None:
    kind, config = network("tiny/sflm", architecture="dit") if name == "dit" else network(name)
    built = dict(kind.build(config, seed=seed).named_parameters())
    first = ShardedInit(lambda: kind.build(config, seed=seed))
    assert all(weight.is_meta for weight in first.net.parameters())
    for _ in range(2):  # as often as asked
        drawn = dict(first())
        assert drawn.keys() == built.keys()
        for key, value in drawn.items():
            assert torch.equal(value, built[key]), key


@pytest.mark.parametrize("seed", [5, NamedSeed(5)], ids=["in_order", "by_name"])
def test_by_name_only_what_stays_is_drawn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modulations are drawn, then zero: others draw after them from one stream, not by name."""
    kind, config = network("tiny/flexmdm")
    first = ShardedInit(lambda: kind.build(config, seed=seed))
    apply, drawn = _Change.apply, []

    def counted(change: _Change, *rest: Any) -> None:
        if change.generator is not None:
            drawn.append(change.weight)
        apply(change, *rest)

    monkeypatch.setattr(_Change, "apply", counted)
    values = dict(first())
    stays = sum(value.std() > 0 for value in values.values() if value.ndim > 1)
    zeroed = sum("modulation" in name for name in values if name.endswith("weight"))
    assert zeroed == 2
    assert len(drawn) == stays + (0 if isinstance(seed, NamedSeed) else zeroed)


@pytest.mark.parametrize(
    ("name", "changes", "other", "more"),
    [
        ("tiny/mdm", {}, "tiny/mdm", {"tied": False}),
        ("tiny/mdm", {}, "tiny/mdm", {"mlp_width": 48}),
        ("tiny/mdm", {}, "tiny/ar", {}),
        ("tiny/mdm", {}, "tiny/flexmdm", {}),
        ("tiny/mdm", {}, "tiny/duo", {}),
        ("tiny/mdm", {"mlp_width": 272}, "tiny/planner", {}),
        ("tiny/latentmdm", {"mlp_width": 132}, "tiny/flexlatent", {}),
        ("tiny/latentmdm", {}, "tiny/latentmdm", {"empty": "eos"}),
        ("tiny/flexmdm", {}, "tiny/flexmdm", {"gap_reads": "left"}),
    ],
)
def test_by_name_they_do_not_depend_on_other_weights(
    name: str, changes: dict[str, Any], other: str, more: dict[str, Any]
) -> None:
    """Where name and shape agree, so does the value."""
    one, two = weights(name, NamedSeed(5), **changes), weights(other, NamedSeed(5), **more)
    shared = [key for key in one.keys() & two.keys() if one[key].shape == two[key].shape]
    assert sum(float(one[key].abs().sum()) > 0 for key in shared) > 8
    for key in shared:
        # The gain under a head depends on whether that is the table.
        assert key == "norm.weight" or torch.equal(one[key], two[key]), key


def test_in_order_they_do() -> None:
    """The parts for time draw between the layers: what begins another way is as expected."""
    one, two = weights("tiny/mdm", 5), weights("tiny/flexmdm", 5)
    assert torch.equal(one["norm.weight"], two["norm.weight"])
    assert not torch.equal(one["embed.weight"], two["embed.weight"])


def test_by_name_more_layers_leave_the_others_alone() -> None:
    few, many = (weights("tiny/mdm", NamedSeed(5), layers=layers) for layers in (2, 3))
    for name, value in few.items():
        # The maps that write into the stream are smaller in a deeper network.
        writes = name.endswith(("attention.out.weight", "mlp.down.weight"))
        factor = math.sqrt(3 / 2) if writes else 1.0
        torch.testing.assert_close(many[name] * factor, value, rtol=1e-6, atol=1e-7)
    assert len(many) > len(few)


@pytest.mark.parametrize("name", [*TINY, "dit"])
def test_by_name_no_two_weights_are_alike(name: str) -> None:
    kind, config = network("tiny/sflm", architecture="dit") if name == "dit" else network(name)
    found = kind.build(config, seed=NamedSeed(5)).named_parameters()
    drawn = [value.detach() for _, value in found if value.ndim > 1]
    drawn = [value for value in drawn if float(value.abs().sum()) > 0]
    starts = [value.flatten()[:16] / value.flatten()[:16].norm() for value in drawn]
    likeness = torch.stack(starts) @ torch.stack(starts).T
    assert len(drawn) > 8 and float(likeness.fill_diagonal_(0).max()) < 0.99


SMALL = {"net.layers": 1, "batch": 8, "warmup": 0, "validate_every": 0, "log_every": 1}


@pytest.mark.parametrize("name", [name for name in TINY if "planner" not in name])
def test_by_name_training_begins_at_ln_v(name: str, tmp_path: Path) -> None:
    recipe = override(find_recipe(name), SMALL | {"steps": 1})
    train_recipe(recipe, tmp_path, progress=False)
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert row["step"] == 1
    assert row["nats_per_token"] == pytest.approx(math.log(load(tmp_path).vocab.size), rel=0.05)
    assert load(tmp_path).card.recipe["train"]["first_weights"] == "by_name"


def forget_the_rule(out: Path) -> None:
    """Make the newest checkpoint one from before `first_weights` existed."""
    path = sorted((out / "checkpoints").glob("step-*"))[-1] / "state.json"
    state = json.loads(path.read_text())
    del state["config"]["first_weights"], state[SEAL]
    path.write_text(json.dumps(state | {SEAL: digest(state)}))


def test_an_older_training_goes_on_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Again and again by the command that began it, which names no rule."""
    recipe = override(find_recipe("tiny/mdm"), SMALL | {"steps": 4, "save_every": 1})
    old = override(recipe, {"first_weights": "in_order"})
    train_recipe(old, tmp_path / "whole", progress=False)
    train_recipe(override(old, {"minutes": 1e-9}), tmp_path / "halves", progress=False)
    forget_the_rule(tmp_path / "halves")
    train_recipe(override(recipe, {"minutes": 1e-9}), tmp_path / "halves", progress=True)
    assert "began with first_weights=in_order" in capsys.readouterr().err
    train_recipe(recipe, tmp_path / "halves", progress=False)
    whole, halves = (load(tmp_path / name) for name in ("whole", "halves"))
    assert whole.digest == halves.digest
    assert halves.card.recipe["train"]["first_weights"] == "in_order"


def test_a_training_by_name_does_not_go_on_in_order(tmp_path: Path) -> None:
    recipe = override(find_recipe("tiny/mdm"), SMALL | {"steps": 2})
    train_recipe(recipe, tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"first_weights \(checkpoint 'by_name', now None\)"):
        train_recipe(override(recipe, {"first_weights": "in_order"}), tmp_path, progress=False)


def test_a_trained_network_is_copied_weight_by_weight() -> None:
    mdm, shape = network("tiny/mdm")
    flex, config = network("tiny/flexmdm")
    base = mdm.build(shape, seed=2)
    whole = flex.build(config, seed=5)
    flex.start(whole, base)
    with torch.device("meta"):
        empty = mdm.build(shape)
    asked: list[str] = []

    def tensor(name: str) -> Tensor:
        asked.append(name)
        return base.get_parameter(name).detach()

    first = ShardedInit(lambda: flex.build(config, seed=5), Base(empty, tensor), flex.start)
    assert not asked, "nothing is read before it is needed"
    for key, value in first():
        assert torch.equal(value, whole.get_parameter(key)), key
    assert sorted(asked) == sorted(name for name, _ in base.named_parameters()), "each once"


class Hidden(nn.Module):
    """Draws from a global stream."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 3, bias=False)


class Computed(nn.Module):
    """Begins with a function of another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))
        with torch.no_grad():
            self.weight.copy_(torch.arange(3.0).sqrt())


def test_what_cannot_be_repeated_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"map\.weight are not a function of the seed"):
        dict(ShardedInit(Hidden)())
    with pytest.raises(ValueError, match=r"weight are computed from other tensors"):
        dict(ShardedInit(Computed)())


PROGRAM = """
import resource
from anyorder.apps.train import network_config
from anyorder.families.family import find_family
from anyorder.recipes import find_recipe, override
from anyorder.training.distributed import ShardedInit
recipe = override(find_recipe("tiny/mdm"), {"net.width": 512, "net.layers": 24, "net.heads": 8,
                                            "net.mlp_width": 1536})
build, config = find_family("mdm").network.build, network_config(recipe, 97, 1)
first = ShardedInit(lambda: build(config, seed=5))
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, size = peak(), 0
for name, value in first():
    size += 4 * value.numel()
print(size, peak() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="kilobytes are Linux's unit of ru_maxrss")
def test_nobody_holds_them_all() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=True
    )
    size, memory = map(int, done.stdout.split())
    assert size > 300e6
    assert memory < 0.1 * size
