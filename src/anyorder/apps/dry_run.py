"""`anyorder train RECIPE --dry-run`: what a recipe costs, computed without training it.

The network is built on the meta device, so any machine can do this. Let P be the parameters, T
those that learn, W the ranks, and S the ranks that share one copy of the weights (`shard`: full
S = W, hybrid S = the ranks of a machine, none S = 1). In float32 a rank holds, in bytes,

    weights 4 P / S    gradients 4 T / S    optimiser 8 T / S    average 4 P / S
    whole gradients    4 T between micro batches, if they are reduced once a step
    gathered weights   two layers, and all weights outside layers, in the computing type
    activations        what a micro batch keeps for its backward pass (costs.py)
    logits             of the predicted positions, at the peak (costs.py)

and time = steps * operations of a step / (W * peak of the GPU * utilisation).

The GPU numbers are from data sheets: dense tensor cores for bfloat16, ordinary cores for float32
and float64 (torch's default); memory is what the driver reports. If a recipe does not fit,
`refusal` names the cheapest changes that make it fit, in this order: types and reductions,
smaller micro batches, recomputation, more GPUs, and last adapters, which train a different model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from anyorder.apps.costs import (
    MicroBatch,
    activation_bytes,
    flops,
    logit_bytes,
    micro_batch,
    vocabulary,
)
from anyorder.apps.jobs import flags_of
from anyorder.apps.train import check_settings, checked_vocab_size, freeze, network_config
from anyorder.checks import at_least, refuse_unknown
from anyorder.families.family import find_family
from anyorder.families.latentmdm.loss import LOGITS
from anyorder.families.latentmdm.net import LatentNet
from anyorder.recipes import Recipe, override
from anyorder.training.distributed import BUCKET, layer_names, units

GIB = 2**30
USABLE = 0.92
"""The share of a GPU's memory that is left after driver, libraries and fragmentation."""


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU."""

    name: str
    gib: float
    """Memory."""
    bfloat16: float
    """Peak operations per second, in units of 10^12."""
    float32: float
    float64: float
    node: int = 8
    """GPUs of a usual machine."""

    @property
    def usable(self) -> float:
        """Bytes that training can use."""
        return self.gib * GIB * USABLE

    def peak(self, dtype: str) -> float:
        """Peak operations per second."""
        peaks = {"bfloat16": self.bfloat16, "float32": self.float32, "float64": self.float64}
        return peaks[dtype] * 1e12


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("b200", 179.0, 2250.0, 75.0, 37.0),
        Gpu("h200", 140.4, 989.0, 67.0, 34.0),
        Gpu("h100", 79.6, 989.0, 67.0, 34.0),
        Gpu("a100-80", 80.0, 312.0, 19.5, 9.7),
        Gpu("a100-40", 40.0, 312.0, 19.5, 9.7),
        Gpu("l40s", 45.0, 362.0, 91.6, 1.4),
        Gpu("a6000", 48.0, 155.0, 38.7, 0.6),
        Gpu("rtx4090", 24.0, 165.0, 82.6, 1.3),
    )
}


def find_gpu(name: str) -> Gpu:
    refuse_unknown("GPU", name.lower(), GPUS)
    return GPUS[name.lower()]


LAYERS_GATHERED = 2
"""The layer that computes, and the next one, which is prefetched."""
UTILISATION = 0.4
"""The share of a GPU's peak that good training runs of billions of parameters reach."""
SIZES = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True)
class Machine:
    """The machine to train on."""

    gpus: int = 1
    """Ranks: one for each GPU."""
    gpu: Gpu | None = None
    """None: no time, and no verdict whether it fits."""
    nodes: int | None = None
    """Machines; None: as few as usual machines with such GPUs allow."""
    utilisation: float = UTILISATION
    length: float | None = None
    """Mean tokens of an example; None: all have the maximum length."""

    def __post_init__(self) -> None:
        at_least("--gpus", self.gpus)
        if self.nodes is not None and (self.nodes < 1 or self.gpus % self.nodes):
            raise ValueError(
                f"{self.gpus} GPUs do not divide among {self.nodes} machines: give each as many"
            )
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"--utilisation {self.utilisation}: give a share in (0, 1]")
        at_least("--length", self.length)

    @property
    def machines(self) -> int:
        if self.nodes is not None:
            return self.nodes
        most = 8 if self.gpu is None else self.gpu.node
        enough = (n for n in range(1, self.gpus + 1) if n * most >= self.gpus)
        return next(n for n in enough if not self.gpus % n)


def meta_network(recipe: Recipe) -> nn.Module:
    """The recipe's network on the meta device, frozen where training freezes it.

    The data is opened only if the recipe does not give the size of the vocabulary.
    """
    vocab_size = recipe.net.vocab_size or checked_vocab_size(recipe)
    network = find_family(recipe.family).network
    with torch.device("meta"):
        net = network.build(network_config(recipe, vocab_size))
    freeze(net, recipe.frozen)
    return net


def measure_sizes(recipe: Recipe, net: nn.Module | None = None) -> dict[str, Any]:
    """Parameters by module, tensors, and memory for training."""
    net = meta_network(recipe) if net is None else net
    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    parameters = sum(sizes.values())
    added = find_family(recipe.family).network.additions(net)
    by_module: dict[str, int] = {}
    for name, size in sizes.items():
        part = "added" if name in added else name.removeprefix("backbone.").split(".")[0]
        by_module[part] = by_module.get(part, 0) + size
    return {
        "family": recipe.family,
        "parameters": parameters,
        "backbone_parameters": parameters - by_module.get("added", 0),
        "added_parameters": by_module.get("added", 0),
        "by_module": by_module,
        "tensors": len(sizes),
        "added_tensors": len(added),
        # float32 weights, gradients, two moments, and the average
        "training_bytes": parameters * 4 * (5 if recipe.train.ema else 4),
        "tokens_per_step": recipe.train.batch * recipe.data.max_length,
    }


def dry_run(recipe: Recipe, machine: Machine, net: nn.Module | None = None) -> dict[str, Any]:
    """Sizes, memory and time of a recipe; `fits` is None if no GPU is named.

    `net` is the recipe's network on the meta device, if the caller has built it.
    """
    check_division(recipe, machine.gpus)
    check_settings(recipe, machine.gpus)
    most = recipe.data.max_length
    if machine.length is not None and machine.length > most:
        raise ValueError(f"--length {machine.length:g}: examples have at most {most} tokens")
    net = meta_network(recipe) if net is None else net
    batch = micro_batch(recipe, machine.length)
    learning = _learning(recipe, net)
    memory = _memory(recipe, machine, net, batch, learning)
    need = sum(memory.values())
    parameters = sum(weight.numel() for weight in net.parameters())
    held = parameters + _adapters(recipe, net)
    step = _step_flops(recipe, net, batch, learning)
    gpu = machine.gpu
    found = measure_sizes(recipe, net) | {
        "trained_parameters": learning,
        "micro_batch": recipe.train.micro_batch,
        "micro_batches_per_rank": recipe.train.accumulate // machine.gpus,
        "memory_per_rank": {f"{name}_bytes": round(size) for name, size in memory.items()},
        "rank_bytes": round(need),
        "host_bytes": 4 * parameters,
        "checkpoint_bytes": 4 * held * (2 if recipe.train.ema else 1) + 8 * learning,
        "flops_per_step": step,
        "flops": step * recipe.train.steps,
        "gpus": machine.gpus,
        "nodes": machine.machines,
        "dtype": recipe.train.dtype,
        "gpu": None if gpu is None else gpu.name,
        "gpu_bytes": None if gpu is None else round(gpu.gib * GIB),
        "fits": None if gpu is None else need <= gpu.usable,
        "utilisation": machine.utilisation,
        "seconds_per_step": None,
        "days": None,
        "assumptions": _assumptions(recipe, machine),
    }
    if gpu is not None:
        speed = machine.gpus * gpu.peak(recipe.train.dtype) * machine.utilisation
        found["seconds_per_step"] = step / speed
        found["days"] = step / speed * recipe.train.steps / 86_400
    return found


def check_division(recipe: Recipe, ranks: int) -> None:
    """Refuse what the loop would refuse: all ranks need equally many micro batches."""
    train = recipe.train
    if train.accumulate % ranks:
        fitting = [n for n in range(ranks, train.batch + 1, ranks) if not train.batch % n]
        remedy = (
            f"--accumulate {' or '.join(map(str, fitting[:3]))}"
            if fitting
            else f"--batch and --accumulate that are multiples of {ranks}"
        )
        raise ValueError(
            f"{train.accumulate} micro batches do not divide among {ranks} GPUs: give {remedy}"
        )


def _learning(recipe: Recipe, net: nn.Module) -> int:
    """Parameters that learn: all that are not frozen, or adapters and the family's additions."""
    if not recipe.train.lora:
        return sum(weight.numel() for weight in net.parameters() if weight.requires_grad)
    added = find_family(recipe.family).network.additions(net)
    return _adapters(recipe, net) + sum(net.get_parameter(name).numel() for name in added)


def _adapters(recipe: Recipe, net: nn.Module) -> int:
    """Parameters that adapters add to the network."""
    train = recipe.train
    added = find_family(recipe.family).network.additions(net)
    maps = [
        module
        for name in layer_names(net)
        if isinstance(module := net.get_submodule(name), nn.Linear)
        and f"{name}.weight" not in added
        and (not train.lora_targets or name.rpartition(".")[2] in train.lora_targets)
    ]
    return sum(train.lora * (each.in_features + each.out_features) for each in maps)


def _memory(
    recipe: Recipe, machine: Machine, net: nn.Module, batch: MicroBatch, learning: int
) -> dict[str, float]:
    """Bytes of one rank, by what they are for."""
    train = recipe.train
    size = SIZES[train.dtype]
    master = max(size, 4)  # half precision keeps its weights in float32
    whole = sum(weight.numel() for weight in net.parameters())
    held = whole + _adapters(recipe, net)
    ranks = {"full": machine.gpus, "hybrid": machine.gpus // machine.machines, "none": 1}
    shards = ranks[train.shard]
    layers = [sum(weight.numel() for weight in layer.parameters()) for layer in units(net)]
    largest, root = max(layers, default=0), whole - sum(layers)
    sharded = machine.gpus > 1 and train.shard != "none"
    # Adam has two moments of each learning weight.
    found = {
        "weights": master * held / shards,
        "gradients": master * learning / shards,
        "optimiser": 2 * master * learning / shards,
        "average": master * learning / shards if train.ema else 0.0,
    }
    if sharded:
        found["gathered_weights"] = float(size * (root + LAYERS_GATHERED * largest))
        several = train.accumulate // machine.gpus > 1 and train.reduce == "step"
        share = learning / whole
        found["whole_gradients"] = (
            float(master * learning) if several else master * share * (root + largest)
        )
    else:
        found["cast_weights"] = float(size * learning) if size < master else 0.0
        found["message"] = 2.0 * master * BUCKET if machine.gpus > 1 else 0.0
    return found | _batch_memory(recipe, net, batch)


def _batch_memory(recipe: Recipe, net: nn.Module, batch: MicroBatch) -> dict[str, float]:
    """Bytes that the largest micro batch needs."""
    train = recipe.train
    size = SIZES[train.dtype]
    saved = activation_bytes(net, batch.peak, wide=max(size, 4), narrow=size)
    activations = saved.layers + saved.around
    if train.recompute:
        activations = saved.inputs + saved.largest + saved.around
    activations = max(activations, saved.passing)
    table = vocabulary(net)
    logits = batch.peak.predicted * table.shape[0]
    own_head = any(isinstance(module, LatentNet) for module in net.modules())
    if own_head and logits > LOGITS:  # computed in parts, plus a gradient of the table
        return {"activations": activations, "logits": 4.0 * (2 * LOGITS + table.numel())}
    return {"activations": activations, "logits": logits * logit_bytes(recipe)}


def _step_flops(recipe: Recipe, net: nn.Module, batch: MicroBatch, learning: int) -> float:
    """Operations of one optimiser step, over all ranks."""
    train = recipe.train
    own_head = any(isinstance(module, LatentNet) for module in net.modules())
    frozen = recipe.loss == "imitation"
    found = flops(net, batch.mean, head_learns=0.0 if frozen else 3.0 if own_head else 2.0)
    backward = found.backward
    if train.lora:  # frozen weights pass on gradients of states only
        adapted = learning / sum(weight.numel() for weight in net.parameters())
        backward = found.forward * (1.0 + 2.0 * adapted)
    again = found.layers if train.recompute else 0.0
    return train.accumulate * (found.forward + backward + again)


def _assumptions(recipe: Recipe, machine: Machine) -> list[str]:
    length = machine.length
    found = [
        "every example has max_length tokens: shorter ones cost less (--length N: their mean)"
        if length is None
        else f"examples of {length:g} tokens on the average; memory for the longest",
    ]
    if machine.gpu is not None:
        found += [
            f"{machine.utilisation:.0%} of {machine.gpu.peak(recipe.train.dtype) / 1e12:g} * 10^12 "
            f"operations a second in {recipe.train.dtype} (--utilisation)",
            f"of {machine.gpu.gib:g} GiB {machine.gpu.usable / GIB:.1f} can be used",
        ]
    if recipe.train.compile:
        found.append("torch.compile may keep less than these activations")
    if recipe.loss == "grpo":
        found.append("decoding and grading of the samples are not counted")
    return found


WIDTH = 24


def as_text(found: dict[str, Any]) -> str:
    """A dry run as a table: sizes, memory of a rank, operations and time."""
    memory = found["memory_per_rank"]
    rows = [
        ("family", found["family"]),
        ("parameters", f"{found['parameters']:,} in {found['tensors']:,} tensors"),
        (
            "added to the backbone",
            f"{found['added_parameters']:,} in {found['added_tensors']:,} tensors",
        ),
        ("by module", ", ".join(f"{name} {n:,}" for name, n in found["by_module"].items())),
        ("trained", f"{found['trained_parameters']:,}"),
        ("", ""),
        ("ranks", _ranks(found)),
        *(
            (name.removesuffix("_bytes").replace("_", " "), gib(n))
            for name, n in memory.items()
            if n
        ),
        ("a rank in all", _need(found)),
        ("host memory at the end", f"{gib(found['host_bytes'])}, on the first machine"),
        ("a checkpoint on disk", gib(found["checkpoint_bytes"])),
        ("", ""),
        ("tokens per step", f"{found['tokens_per_step']:,} at the most"),
        ("operations per step", f"{found['flops_per_step']:.3g}"),
        ("in all", f"{found['flops']:.3g}"),
    ]
    if found["days"] is not None:
        rows.append(("time", f"{found['seconds_per_step']:.3g} s a step, {_time(found['days'])}"))
    lines = [f"{name:>{WIDTH}}  {value}".rstrip() for name, value in rows]
    return "\n".join([*lines, "", *(f"assumed: {each}" for each in found["assumptions"])])


def gib(size: float) -> str:
    return f"{size / GIB:,.3g} GiB" if size >= GIB else f"{size / 2**20:,.3g} MiB"


def _ranks(found: dict[str, Any]) -> str:
    kind = "" if found["gpu"] is None else f" {found['gpu']}"
    machines = "1 machine" if found["nodes"] == 1 else f"{found['nodes']} machines"
    return (
        f"{found['gpus']}{kind} on {machines}; {found['micro_batches_per_rank']} micro batches of "
        f"{found['micro_batch']} for each, in {found['dtype']}"
    )


def _need(found: dict[str, Any]) -> str:
    if found["gpu_bytes"] is None:
        return gib(found["rank_bytes"])
    verdict = "fits" if found["fits"] else "does not fit"
    return f"{gib(found['rank_bytes'])} of {gib(found['gpu_bytes'])}: {verdict}"


def _time(days: float) -> str:
    if days >= 1:
        return f"{days:.3g} days"
    return f"{days * 24:.3g} hours" if days * 24 >= 1 else f"{days * 1440:.3g} minutes"


MORE = (2, 4, 8, 16, 32, 64)
RANK = 64


def refusal(recipe: Recipe, machine: Machine, found: dict[str, Any]) -> str:
    """Why a recipe cannot be trained on a machine, and what to do about it."""
    assert machine.gpu is not None
    largest = max(found["memory_per_rank"], key=found["memory_per_rank"].get)
    share = found["memory_per_rank"][largest] / GIB
    name = largest.removesuffix("_bytes").replace("_", " ")
    return (
        f"it does not fit: a rank needs {found['rank_bytes'] / GIB:.1f} GiB and one "
        f"{machine.gpu.name} has {machine.gpu.usable / GIB:.1f} to use (most of it: {name}, "
        f"{share:.1f} GiB). {_advice(recipe, machine)}"
    )


def _advice(recipe: Recipe, machine: Machine) -> str:
    net = meta_network(recipe)
    candidates = (_changes(recipe, machine), _adapter_changes(recipe, machine))
    ways = filter(None, (_first_that_fits(recipe, machine, each, net) for each in candidates))
    if found := ", or with ".join(ways):
        return f"It fits with {found}"
    return "No GPUs of this kind are enough: choose larger ones, or a smaller network"


def _first_that_fits(
    recipe: Recipe,
    machine: Machine,
    candidates: Iterator[tuple[dict[str, Any], int]],
    net: nn.Module,
) -> str:
    """The first changes that fit, as flags. None changes the network, so `net` is reused."""
    for changes, gpus in candidates:
        try:
            tried = override(recipe, changes)
            fits = dry_run(tried, replace(machine, gpus=gpus, nodes=None), net)["fits"]
        except ValueError:
            continue  # these changes contradict the recipe
        if fits:
            given = {"gpus": gpus} if gpus != machine.gpus else {}
            return " ".join(flags_of(given | changes))
    return ""


def _changes(recipe: Recipe, machine: Machine) -> Iterator[tuple[dict[str, Any], int]]:
    """Changes that train the same model, cheapest first: (settings, GPUs)."""
    train = recipe.train
    cheap = _cheap(recipe, machine.gpus)
    for gpus in (machine.gpus, *(n for n in MORE if n > machine.gpus)):
        for recompute in ({}, {} if train.recompute else {"recompute": True}):
            yield from ((cheap | recompute | less, gpus) for less in _smaller(recipe, gpus))
        cheap = _cheap(recipe, 2)


def _adapter_changes(recipe: Recipe, machine: Machine) -> Iterator[tuple[dict[str, Any], int]]:
    """Changes that train adapters only, on the same machine."""
    if recipe.train.lora or recipe.frozen:
        return
    cheap = _cheap(recipe, machine.gpus) | {"recompute": True}
    for less in _smaller(recipe, machine.gpus):
        yield cheap | less | {"lora": RANK}, machine.gpus


def _cheap(recipe: Recipe, gpus: int) -> dict[str, Any]:
    """Changes that cost little or no time."""
    wanted: dict[str, Any] = {"dtype": "bfloat16"}
    if gpus > 1:
        wanted |= {"reduce": "micro", "shard": "full"}
    return {name: value for name, value in wanted.items() if getattr(recipe.train, name) != value}


def _smaller(recipe: Recipe, gpus: int) -> Iterator[dict[str, int]]:
    """Smaller and smaller micro batches, from the recipe's down to one example each."""
    train = recipe.train
    for number in range(train.accumulate, train.batch + 1):
        if not train.batch % number and not number % gpus:
            yield {} if number == train.accumulate else {"accumulate": number}
