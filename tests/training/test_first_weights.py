"""First weights one at a time are those of a network that was built whole."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyorder.apps.train import network_config
from anyorder.families.family import find_family
from anyorder.recipes import RECIPES, find_recipe, override
from anyorder.training.distributed import Base, ShardedInit

TINY = [name for name in RECIPES if name.startswith("tiny/")]


def network(name: str, **changes: Any) -> Any:
    recipe = find_recipe(name)
    changes = {f"net.{key}": value for key, value in ({"layers": 2} | changes).items()}
    return find_family(recipe.family).network, network_config(override(recipe, changes), 97, 1)


@pytest.mark.parametrize("name", [*TINY, "dit"])
def test_they_are_what_the_constructor_draws(name: str) -> None:
    kind, config = network("tiny/sflm", architecture="dit") if name == "dit" else network(name)
    built = dict(kind.build(config, seed=5).named_parameters())
    first = ShardedInit(lambda: kind.build(config, seed=5))
    assert all(weight.is_meta for weight in first.net.parameters())
    for _ in range(2):  # as often as asked
        drawn = dict(first())
        assert drawn.keys() == built.keys()
        for key, value in drawn.items():
            assert torch.equal(value, built[key]), key


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
