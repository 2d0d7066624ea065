"""Where the time of the hottest paths goes: a FlexMDM step, a LatentMDM step, a training step.

Shipped tiny models at batch 1 and 24, FlexMDM once more with random weights and a vocabulary of
152,064 (the shapes of flexmdm.py), and training steps of three tiny recipes. For each:

    CPU time       of one step: many steps minus few, so that loading and starting drop out
    operations     of matrix products and attention, counted by torch
    floor          the larger of the operations at the measured rate of a float32 product of 1024^3
                   and the weights once through memory at the measured bandwidth
    by kind        torch.profiler's self time of each kind of operation; the rest is Python and the
                   dispatch of torch. The profiler makes small operations look larger

One thread, float32, medians.

    python benchmarks/hot_paths.py            some minutes
    python benchmarks/hot_paths.py --only flexmdm --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import anyorder
import flexmdm
from anyorder.apps.train import train_recipe
from anyorder.bench.tasks import find_task
from anyorder.recipes import find_recipe, override
from tables import show

DOMINATES = """
At batch 24 and in training, products and attention take 40 to 70 % of the time. Products of these
widths (64 to 272) run at 80 to 90 % of the rate of a large one. Attention with heads of 16 numbers
runs at a quarter of that rate, bound by its exponentials. The rest is passes over states (norms,
gates, rotary positions), bound by memory, and Python. At batch 1 tensors are so small that a step
is some thousand calls, and nearly all of its time is the overhead of the calls: only fewer calls
would help. With a large vocabulary the head dominates. The profile led to these changes. (1) Rotary
positions are computed in passes over whole heads, with the same bits: half their time, about 3 % of
a training step (interleaved), which is as much as the noise here. (2) With an earlier form of (1),
integer keys mixed as integers, and no ranking in steps that reveal nothing, a FlexMDM step was 10 %
cheaper at batch 1 and 9 % at batch 24, and a LatentMDM step 3 to 4 % (interleaved). (3) Few large
calls of the head, read in pieces that stay in the cache, took 15 % off the user time and 27 % off
all time of a step with 152,064 words (single runs, not interleaved). We also looked at norms
written out, attention without its mask, one product for queries, keys and values, the optimiser and
the average of weights (2 % or less), and changed nothing: none is worth a twentieth of its path.
"""

KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("aten::_scaled_dot_product",),
    "optimiser, average": ("aten::_fused_adam", "aten::_foreach"),
    "moving, sorting": (
        *("aten::index", "aten::gather", "aten::scatter", "aten::sort", "aten::nonzero"),
        *("aten::cat", "aten::copy_", "aten::roll", "aten::embedding", "aten::fill_"),
    ),
    "other operations": ("aten::",),
}
"""What the names of operations begin with; the first kind that fits counts."""
PYTHON = "between them"


@dataclass(frozen=True)
class HotPath:
    """A function that repeats a hot step."""

    run: Callable[[int], None]
    """So many rounds of it."""
    steps: int
    """Steps of a round."""
    weight_bytes: int
    """Read by a step at least once."""
    few: int = 0
    """Rounds that are taken off: one that starts something cannot be 0."""
    profiled: int = 1
    """Rounds beyond those that are looked at one operation at a time, which is slow."""
    timed: int = 3


def sampling(name: str, batch: int, **options: Any) -> HotPath:
    model = anyorder.load(name)
    problems = find_task("stories", model.trained_on).problems(batch)
    prompts = [problem.prompt for problem in problems]

    def run(rounds: int) -> None:
        for _ in range(rounds):
            model.sample(prompts, batch=batch, seed=0, **options)

    steps = max(t.steps or 0 for t in model.sample(prompts, batch=batch, seed=0, **options))
    return HotPath(run, steps, _bytes(model.net), timed=10 if batch == 1 else 2)


def large_vocabulary() -> HotPath:
    shape = replace(flexmdm.Shape(), steps=8)
    net, vocab = flexmdm.build(shape)

    def run(rounds: int) -> None:
        for _ in range(rounds):
            flexmdm.run_ours(net, vocab, shape)

    return HotPath(run, shape.steps, _bytes(net.net), timed=1)


def training(name: str, **changes: Any) -> HotPath:
    recipe = find_recipe(name)

    def run(steps: int) -> None:
        settings = {"steps": steps, "warmup": 1, "validate_every": 0, "data.layout": 1.0}
        with tempfile.TemporaryDirectory() as folder:
            train_recipe(override(recipe, settings | changes), Path(folder) / "run", progress=False)

    with tempfile.TemporaryDirectory() as folder:
        model = anyorder.train(recipe, steps=2, warmup=1, out=f"{folder}/run", progress=False)
    return HotPath(run, 1, 3 * _bytes(model.net), few=2, profiled=4, timed=8)


def _bytes(net: torch.nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in net.parameters())


PATHS: dict[str, Callable[[], HotPath]] = {
    "flexmdm step, batch 1": partial(sampling, "flexmdm", 1, steps=32),
    "flexmdm step, batch 24": partial(sampling, "flexmdm", 24, steps=32),
    "flexmdm step, vocabulary 152,064, 4 rows": large_vocabulary,
    "latentmdm step, batch 1": partial(sampling, "latentmdm", 1),
    "latentmdm step, batch 24": partial(sampling, "latentmdm", 24),
    "training step, mdm, 32 examples": partial(training, "tiny/mdm", **{"net.mlp_width": 272}),
    "training step, flexmdm, 32 examples": partial(training, "tiny/flexmdm"),
    "training step, latentmdm, 32 examples": partial(training, "tiny/latentmdm"),
}


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def floors() -> tuple[float, float]:
    """The best rates: operations per second of a large product, bytes per second of a large
    copy."""
    a, b = torch.ones(1024, 1024), torch.ones(1024, 1024)
    source = torch.ones(1 << 26)
    target = torch.empty_like(source)
    product = min(cpu_seconds(lambda: a @ b) for _ in range(12))
    copied = min(cpu_seconds(lambda: target.copy_(source)) for _ in range(6))
    return 2 * 1024**3 / product, 2 * source.numel() * source.element_size() / copied


def seconds_a_step(path: HotPath, rounds: int) -> float:
    found = []
    for _ in range(rounds):
        few, many = (cpu_seconds(partial(path.run, n)) for n in (path.few, path.few + path.timed))
        found.append((many - few) / path.timed / path.steps)
    return statistics.median(found)


def _attention(query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> int:
    rows, heads, length, width = query
    return 4 * int(rows * heads * length * key[2] * width)


def _attention_backward(grad: Any, query: Any, key: Any, *rest: Any, **more: Any) -> int:
    return 5 * _attention(query, key, None) // 2  # five products, where forward has two


ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Operations by shapes: torch's counter does not know the kernels of the CPU."""


def operations_a_step(path: HotPath) -> float:
    counts = []
    for number in (path.few, path.few + path.profiled):
        with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter:
            path.run(number)
        counts.append(counter.get_total_flops())
    return (counts[1] - counts[0]) / path.profiled / path.steps


def shares(path: HotPath) -> dict[str, float]:
    """The part of each kind of operation."""
    found: Counter[str] = Counter()
    for sign, number in ((-1, path.few), (1, path.few + path.profiled)):
        began = time.perf_counter()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            path.run(number)
            found[PYTHON] += sign * (time.perf_counter() - began)
        for event in profiler.key_averages():
            kind = kind_of(event.key)
            if kind is not None:
                found[kind] += sign * event.self_cpu_time_total / 1e6
    whole = found[PYTHON]
    found[PYTHON] -= sum(found[kind] for kind in KINDS)
    return {kind: max(0.0, found[kind] / whole) for kind in (*KINDS, PYTHON)}


def kind_of(operation: str) -> str | None:
    return next((kind for kind, starts in KINDS.items() if operation.startswith(starts)), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="paths whose name begins with this")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)  # idle threads spin, and their spinning would count as CPU time
    rate, bandwidth = floors()
    times, kinds = [], []
    for name, build in PATHS.items():
        if not name.startswith(given.only):
            continue
        path = build()
        seconds, count = seconds_a_step(path, given.rounds), operations_a_step(path)
        floor = max(count / rate, path.weight_bytes / bandwidth)
        numbers = (f"{1e3 * seconds:.2f}", f"{count / 1e9:.3f}", f"{count / seconds / 1e9:.1f}")
        times.append([name, *numbers, f"{1e3 * floor:.2f}", f"{seconds / floor:.1f}"])
        kinds.append([name, *(f"{share:.0%}" for share in shares(path).values())])
    title = (
        f"a step, beside the floor: products at {rate / 1e9:.0f} GFLOP/s, memory at "
        f"{bandwidth / 1e9:.0f} GB/s (both measured here)"
    )
    head = ["", "CPU ms", "G operations", "GFLOP/s", "floor ms", "times the floor"]
    show(title, head, times)
    show("where the time goes, by kind of operation", ["", *KINDS, PYTHON], kinds)


if __name__ == "__main__":
    main()
