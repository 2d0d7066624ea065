"""The formulas of a dry run beside torch's own counters, on the tiny recipes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from anyorder.apps import train as training
from anyorder.apps.costs import LAYERS, MicroBatch, Shapes, activation_bytes, flops, micro_batch
from anyorder.apps.dry_run import Machine, _batch_memory, dry_run
from anyorder.families.family import find_family
from anyorder.families.sflm.net import DiT
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Stack
from anyorder.nets.transformer import Transformer
from anyorder.process import uniform
from anyorder.process.noise import Noise
from anyorder.recipes import Recipe, find_recipe, override
from anyorder.training.optimiser import Ema, make_optimiser

ROWS = 8


class Step:
    """One micro batch of a recipe, ready to be gone through."""

    def __init__(self, name: str, **changes: Any) -> None:
        self.name = name
        self.recipe: Recipe = override(find_recipe(name), {"batch": ROWS, **changes})
        corpus = training._open_corpus(self.recipe)
        config = training.network_config(self.recipe, corpus.vocab.size, corpus.vocab.eos_id)
        self.net: nn.Module = find_family(self.recipe.family).network.build(config)
        for parameter_name, parameter in self.net.named_parameters():
            if self.recipe.frozen and parameter_name.startswith(self.recipe.frozen):
                parameter.requires_grad_(False)
        self.batches = training._batches(self.recipe, corpus, corpus.train, ROWS)
        self.batch = self.batches(0)
        self.objective = training._objective(self.recipe, corpus.vocab)

    def loss(self) -> Any:
        return self.objective(self.net, self.batch, Noise(0, 0))

    def shapes(self) -> Shapes:
        """What this very batch is: the columns that layers see, the places that the head sees."""
        seen: dict[nn.Module, list[tuple[int, int]]] = {}
        predicted = [0]

        def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            seen.setdefault(module, []).append(tuple(inputs[0].shape[:2]))

        hooks = [
            inner.blocks[0].register_forward_pre_hook(look)
            for inner in self.net.modules()
            if isinstance(inner, Stack | DiT)
        ]
        with count_heads(self.net, predicted):
            self.loss()
        for hook in hooks:
            hook.remove()
        counted = {name: seen.get(part.blocks[0], []) for name, part in stacks(self.net).items()}
        if "encoder" not in counted:
            rows, columns = next(iter(counted.values()))[0]
            return Shapes(rows, columns, predicted[0])
        shown, written = (sum(n for n, _ in counted[name]) for name in ("encoder", "decoder"))
        tokens = sum(n * length for name in ("encoder", "decoder") for n, length in counted[name])
        rows, columns = counted["latent"][0]
        slots = columns - int(self.batch.prompt_length.max())
        return Shapes(
            rows,
            columns,
            predicted[0],
            prompt=columns - slots,
            slots=slots,
            shown=shown,
            written=written,
            segment=tokens / (shown + written),
        )


def stacks(net: nn.Module) -> dict[str, Any]:
    return {
        name.rpartition(".")[2]: module
        for name, module in net.named_modules()
        if isinstance(module, Stack | DiT)
    }


@contextmanager
def count_heads(net: nn.Module, counted: list[int]) -> Iterator[None]:
    """Count the states that are multiplied with the vocabulary's table."""
    tables = [value for name, value in net.named_parameters() if name.endswith("embed.weight")]

    class Look(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
                sizes = [tuple(each.shape) for each in args[-2:]]
                wide = {tuple(table.shape) for table in tables}
                if (sizes[1][1], sizes[1][0]) in wide:
                    counted[0] += sizes[0][0]
            return func(*args, **(kwargs or {}))

    with Look():
        yield


@lru_cache
def step_of(name: str) -> Step:
    return Step(name)


@pytest.fixture
def step(request: pytest.FixtureRequest) -> Iterator[Step]:
    """The step of a recipe, made once, without gradients."""
    found = step_of(request.param)
    yield found
    found.net.zero_grad(set_to_none=True)


TOKENS = ["tiny/ar", "tiny/mdm", "tiny/flexmdm", "tiny/duo", "tiny/sflm", "tiny/planner"]


ALL = [*TOKENS, "tiny/latentmdm", "tiny/flexlatent"]


@pytest.mark.parametrize("step", ALL, indirect=True)
def test_operations_are_those_that_torch_counts(step: Step) -> None:
    name = step.name
    shapes = step.shapes()
    found = flops(step.net, shapes, head_learns=0.0 if name == "tiny/planner" else 2.0)
    # The kernel that the processor has for attention is not counted by torch.
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            loss = step.loss().loss
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    near = 0.01 if name in TOKENS else 0.05  # segments go in groups of like length
    assert found.forward == pytest.approx(forward.get_total_flops(), rel=near)
    assert found.backward == pytest.approx(backward.get_total_flops(), rel=near)


def test_two_streams_are_counted() -> None:
    step = Step("tiny/block", **{"blocks.sizes": (4,)})
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step.loss().loss.backward()
    seen = step.shapes()  # of both streams
    found = flops(step.net, replace(seen, columns=seen.columns / 2))
    assert found.total == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_the_published_dit_is_counted_too() -> None:
    step = Step("tiny/sflm", **{"net.architecture": "dit"})
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step.loss().loss.backward()
    assert flops(step.net, step.shapes()).total == pytest.approx(
        counter.get_total_flops(), rel=0.01
    )


class Live(TorchDispatchMode):
    """Counts the bytes of all tensors that are made inside and still there."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, Tensor) and each.untyped_storage()._cdata not in self.sizes:
                storage = each.untyped_storage()
                self.sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage._cdata)
        return found

    def _free(self, key: int) -> None:
        self.now -= self.sizes.pop(key, 0)


def saved_bytes(net: nn.Module, run: Any) -> int:
    """What autograd keeps, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    assert result is not None
    return sum(
        tensor.untyped_storage().nbytes() for key, tensor in found.items() if key not in weights
    )


SHAPE = TransformerConfig(
    vocab_size=50, width=32, layers=3, heads=4, kv_heads=2, head_width=8, mlp_width=112, tied=False
)
WAYS = {
    "plain": {},
    "time": {"time_modulated": True},
    "many keys": {"kv_heads": 4},
    "wide heads": {"head_width": 16},
    "norms of heads": {"qk_norm": True},
    "narrow map": {"mlp_width": 24},
}


@pytest.mark.parametrize("way", WAYS)
def test_layers_keep_what_autograd_saves(way: str) -> None:
    def measured(layers: int) -> int:
        config = replace(SHAPE, **WAYS[way], layers=layers)
        net = Transformer(config)
        ids = torch.zeros(4, 40, dtype=torch.long)
        time = torch.full((4,), 0.5) if config.time_modulated else None
        return saved_bytes(net, lambda: net.hidden(ids, mask=ids == 0, time=time))

    net = Transformer(replace(SHAPE, **WAYS[way]))
    told = activation_bytes(net, Shapes(4, 40, 0), wide=4, narrow=4)
    assert told.layers / 3 == pytest.approx(measured(3) - measured(2), rel=0.01)
    assert told.inputs == 3 * 4 * 40 * 32 * 4
    assert told.largest == told.layers / 3
    assert told.layers + told.around == pytest.approx(measured(3), rel=0.02)


def test_layers_of_the_dit_too() -> None:
    def measured(layers: int) -> tuple[nn.Module, int]:
        config = replace(
            SHAPE, kv_heads=4, qkv_bias=False, time_modulated=True, layers=layers, mlp_width=128
        )
        net = DiT(config)
        vectors, time = torch.zeros(4, 40, 32, requires_grad=True), torch.full((4,), 0.5)
        return net, saved_bytes(net, lambda: net.hidden(vectors=vectors, time=time))

    (net, three), (_, two) = measured(3), measured(2)
    assert isinstance(net, DiT)
    layer = net.blocks[0]
    told = 4 * 40 * LAYERS[type(layer)](net.config, 4, 4)
    assert told == pytest.approx(three - two, rel=0.03)


@pytest.mark.parametrize("step", ALL, indirect=True)
def test_a_micro_batch_needs_what_is_told(step: Step) -> None:
    """All tensors of one step, counted, without the weights and their gradients."""
    shapes = step.shapes()
    told = sum(_batch_memory(step.recipe, step.net, MicroBatch(shapes, shapes)).values())
    with Live() as live:
        step.loss().loss.backward()
    grads = sum(each.grad.nbytes for each in step.net.parameters() if each.grad is not None)
    # Gradients of weights are made while activations go: the peak has some of them.
    assert 0.9 * (live.peak - grads) < told < 1.15 * live.peak


@pytest.mark.parametrize(
    "step", ["tiny/mdm", "tiny/flexmdm", "tiny/latentmdm", "tiny/planner"], indirect=True
)
def test_what_a_rank_holds_is_what_tensors_there_are(step: Step) -> None:
    told = dry_run(step.recipe, Machine())["memory_per_rank"]
    optimiser = make_optimiser(step.net, step.recipe.train)
    average = Ema(step.net, step.recipe.train.ema)
    step.loss().loss.backward()
    optimiser.step()
    weights = list(step.net.parameters())
    moments = [each for state in optimiser.state.values() for each in state.values() if each.ndim]
    assert told["weights_bytes"] == sum(each.nbytes for each in weights)
    assert told["gradients_bytes"] == sum(w.grad.nbytes for w in weights if w.grad is not None)
    scalars = sum(2 * w.nbytes for w in weights if w.requires_grad and not w.ndim)
    assert told["optimiser_bytes"] == sum(each.nbytes for each in moments) + scalars
    assert told["average_bytes"] == sum(each.nbytes for each in average._averages)


def test_logits_of_duo() -> None:
    """The bound of duo keeps more than a cross-entropy: 28 bytes for a logit, not 12."""
    count, words, width = 40, 3000, 4
    states, table = torch.zeros(count, width, requires_grad=True), torch.zeros(words, width)
    table.requires_grad_()
    token = torch.zeros(count, dtype=torch.long)
    half = torch.full((count,), 0.5, dtype=torch.float64)
    with Live() as live:
        chosen = torch.arange(words)
        log_prob = nn.functional.linear(states, table).index_select(-1, chosen).log_softmax(dim=-1)
        nats = uniform.bound(log_prob, token + 1, token, half, -half)
        parts = uniform.mean_over_tokens(nats, -log_prob.gather(1, token[:, None]))
        parts.loss.backward()
    assert live.peak / (count * words) == pytest.approx(28, rel=0.05)


@pytest.mark.parametrize("step", ["tiny/mdm", "tiny/flexmdm", "tiny/duo"], indirect=True)
def test_batches_are_no_larger_than_told(step: Step) -> None:
    """Of many batches of the corpus none predicts more, or is longer, than the largest."""
    told = micro_batch(step.recipe)
    counts = []
    for number in range(6):
        batch = step.batches(number)
        with torch.no_grad():
            counts.append(int(step.objective(step.net, batch, Noise(0, number)).tokens))
        assert batch.ids.shape[1] <= told.peak.columns
    assert max(counts) <= told.peak.predicted
