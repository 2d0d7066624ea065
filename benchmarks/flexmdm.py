"""flexmdm decoding against the published procedure, on the same weights: time and peak memory.

    published   each step: the whole canvas through the network; logits, softmax and Gumbel noise
                for every position in float32; a host sync for every gap (written out below)
    ours        families/flexmdm/decode.py in exact mode, with the same temperature, score and
                count laws

Shapes: width 256, 4 layers, vocabulary 152,064, canvas 768, prompt 150, 128 steps, 4 rows. Random
weights give no sensible lengths. So on both sides the output of the gap head is replaced by the
output of a model that expects 200 tokens: log((1 - alpha) * 200 / number of gaps).

Each side runs in its own process with one thread. The ratio compares user time. Kernel time, which
provides fresh pages for large temporaries, depends on the allocator and has its own column. Memory
is the peak of the resident size minus the size after the weights are loaded. A published step costs
the same on any canvas and takes more than ten seconds. So by default 8 steps, evenly spread over
the run, are timed and scaled to 128; the steps between them move the canvas by the same clocks,
with random tokens.

    python benchmarks/flexmdm.py                    some minutes
    python benchmarks/flexmdm.py --timed-steps 128  every published step
    python benchmarks/flexmdm.py --small            seconds, to try the script
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyorder.decode.canvas import GrowingCanvas
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexConfig, FlexOptions
from anyorder.families.flexmdm.net import FlexNet
from anyorder.nets.denoiser import Look
from anyorder.nets.shapes import TransformerConfig
from anyorder.vocab import Vocab
from tables import show

DOMINATES = """
Ours spends most of its time in the vocabulary head on the open slots, then in the layers; hot_paths
has the distance of such a step to its floor. A head call of 220 slots runs at 83 % of the rate of a
large product, one of 55 at half of it, because the table (156 MB) goes through the cache each time.
So there are few large calls, read a few rows at a time (`decode/loop.py`). Before that, 24
such steps took 15.7 s in user mode and 4.3 s in the kernel, which hands out pages for large
temporaries; now they take 13.4 s and 1.2 s. The published procedure computes head, softmax and
noise at all 768 positions of 4 rows, and spends most of its time in the kernel. Its totals are
scaled from the timed steps to all steps.
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of the comparison."""

    vocab_size: int = 152_064
    width: int = 256
    layers: int = 4
    canvas: int = 768
    prompt: int = 150
    answer: int = 200
    """Expected number of generated tokens."""
    steps: int = 128
    rows: int = 4
    timed_steps: int = 8
    """Published steps that are really made."""
    temperature: float = 0.1
    insertion: float = 2.9
    unmasking: float = 2.89


SMALL = Shape(vocab_size=2_000, width=64, layers=2, canvas=128, prompt=24, answer=32, steps=32)


class Sized:
    """A network whose gaps expect a given number of tokens, spread evenly over the answer's gaps.

    Everything is computed as before; only the numbers that the gap head returns are exchanged.
    """

    def __init__(self, net: FlexNet, shape: Shape) -> None:
        self.net, self.shape = net, shape
        self.coordinate = net.coordinate
        self.insertion_exponent = net.insertion_exponent
        self.unmasking_exponent = net.unmasking_exponent
        self.head = net.head

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        look = self.net.look(ids, mask=mask, time=time)
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return Look(look.states, self.gaps(real, time).expand_as(look.gaps))

    def gaps(self, real: Tensor, time: Tensor) -> Tensor:
        number = real.sum(dim=1) - self.shape.prompt + 1
        missing = (1 - time) ** self.insertion_exponent * self.shape.answer  # time is raw here
        return (missing / number).log().float()[:, None]  # B 1


def build(shape: Shape) -> tuple[Sized, Vocab]:
    # Only sizes matter here: the pieces' text is never looked at.
    vocab = Vocab.words([f"<{i}>" for i in range(shape.vocab_size - 4)])
    backbone = TransformerConfig(
        vocab_size=vocab.size,
        width=shape.width,
        layers=shape.layers,
        heads=shape.width // 32,
        kv_heads=shape.width // 32,
        head_width=32,
        mlp_width=3 * shape.width,
        tied=False,
        time_modulated=True,
    )
    config = FlexConfig(backbone, convention="release", coordinate="raw", gap_reads="left")
    return Sized(FlexNet(config).eval(), shape), vocab


def prompts(shape: Shape, vocab: Vocab) -> list[tuple[int, ...]]:
    assert vocab.bos_id is not None
    middle = range(shape.prompt - 2)
    return [
        (vocab.bos_id, *((7 * i + row) % 1000 for i in middle), vocab.pad_id)
        for row in range(shape.rows)
    ]


class Published:
    """The published loop: computes everything at every position, with one host sync per gap."""

    def __init__(self, net: Sized, vocab: Vocab, shape: Shape) -> None:
        self.net, self.vocab, self.shape = net, vocab, shape
        self.stream = torch.Generator().manual_seed(0)
        self.x = torch.full((shape.rows, shape.canvas), vocab.pad_id)
        self.x[:, : shape.prompt] = torch.tensor(prompts(shape, vocab))
        self.length = [shape.prompt] * shape.rows

    def active(self) -> Tensor:
        return torch.arange(self.shape.canvas) < torch.tensor(self.length)[:, None]  # B L

    def tau(self, t: Tensor) -> Tensor:
        return 1 - (1 - t) ** (self.shape.insertion / self.net.insertion_exponent)

    def step(self, number: int, *, real: bool) -> None:
        """One step; without `real`, no network, and random tokens in its place."""
        dt = 1 / self.shape.steps
        t = torch.full((self.shape.rows,), number * dt)
        active = self.active()
        masked = (self.x == self.vocab.mask_id) & active
        if real:
            look = self.net.look(self.x, mask=active, time=self.tau(t))
            gaps = look.gaps
            tokens, confidence = self.proposals(self.net.head(look.states).float(), masked)
        else:
            gaps = self.net.gaps(active, self.tau(t)).expand(masked.shape)
            tokens = torch.randint(1000, masked.shape, generator=self.stream)
            confidence = torch.rand(masked.shape, generator=self.stream)
            confidence = confidence.masked_fill(~masked, -torch.inf)
        if number == self.shape.steps - 1:
            self.x = torch.where(masked, tokens, self.x)
            return
        hazard = _hazard(self.shape.unmasking, t)
        counts = torch.poisson(masked.sum(dim=1) * hazard * dt, generator=self.stream)
        for row in range(self.shape.rows):
            count = min(int(counts[row].item()), int(masked[row].sum().item()))
            chosen = confidence[row].topk(count).indices
            self.x[row, chosen] = tokens[row, chosen]
        rate = gaps.clamp(max=15).exp() * _hazard(self.shape.insertion, t)[:, None] * dt
        self.insert(torch.poisson(rate, generator=self.stream))

    def proposals(self, logits: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """A token for every position, and the untempered probability of those at masks.  # B L"""
        u = torch.rand(logits.shape, generator=self.stream)
        gumbel = -torch.log(-torch.log(u.clamp(min=1e-8)) + 1e-8)
        tokens = (logits / self.shape.temperature + gumbel).argmax(dim=-1)
        probability = logits.softmax(dim=-1)
        confidence = probability.gather(-1, tokens[:, :, None])[:, :, 0]
        return tokens, confidence.masked_fill(~masked, -torch.inf)

    def insert(self, counts: Tensor) -> None:
        first = self.shape.prompt - 1
        for row in range(self.shape.rows):
            room = self.shape.canvas - self.length[row]
            longer: list[int] = []
            for i in range(self.shape.canvas):
                wanted = int(counts[row, i].item())
                given = min(wanted, room) if first <= i < self.length[row] else 0
                room -= given
                if i < self.length[row]:
                    longer += [int(self.x[row, i].item()), *[self.vocab.mask_id] * given]
            self.length[row] = len(longer)
            self.x[row, : len(longer)] = torch.tensor(longer)


def _hazard(exponent: float, t: Tensor) -> Tensor:
    return exponent * (1 - t) ** (exponent - 1) / ((1 - t) ** exponent + 1e-6)


@dataclass
class Spent:
    """CPU seconds."""

    user: float = 0.0
    kernel: float = 0.0

    def measure(self, work: Callable[[], Any]) -> Any:
        """Run something and add its time."""
        before = resource.getrusage(resource.RUSAGE_SELF)
        result = work()
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.user += after.ru_utime - before.ru_utime
        self.kernel += after.ru_stime - before.ru_stime
        return result

    def times(self, factor: float) -> Spent:
        return Spent(self.user * factor, self.kernel * factor)


@torch.inference_mode()
def run_published(net: Sized, vocab: Vocab, shape: Shape) -> tuple[Spent, list[int]]:
    """The time of the timed steps, scaled to all steps, and the lengths of the answers."""
    loop, spent = Published(net, vocab, shape), Spent()
    timed = {(2 * i + 1) * shape.steps // (2 * shape.timed_steps) for i in range(shape.timed_steps)}
    for number in range(shape.steps):
        if number in timed:
            spent.measure(partial(loop.step, number, real=True))
        else:
            loop.step(number, real=False)
    lengths = [length - shape.prompt for length in loop.length]
    return spent.times(shape.steps / len(timed)), lengths


def run_ours(net: Sized, vocab: Vocab, shape: Shape) -> tuple[Spent, list[int]]:
    grows = (False,) * (shape.prompt - 1) + (True,)
    canvases = [
        GrowingCanvas(ids, grows, shape.canvas - shape.prompt) for ids in prompts(shape, vocab)
    ]
    options = FlexOptions(
        policy="sampled",
        steps=shape.steps,
        quota="poisson",
        counts="poisson",
        insertion_schedule=shape.insertion,
        unmasking_schedule=shape.unmasking,
        temperature=shape.temperature,
    )
    spent, keys = Spent(), list(range(shape.rows))
    rows = spent.measure(lambda: flexmdm.decode(net, vocab, canvases, keys, options))
    return spent, [len(row.token_ids) for row in rows]


SIDES: dict[str, Callable[[Sized, Vocab, Shape], tuple[Spent, list[int]]]] = {
    "published": run_published,
    "ours": run_ours,
}


def run_side(side: str, shape: Shape) -> None:
    """Run one side in this process and print one line of JSON: seconds, megabytes and lengths."""
    net, vocab = build(shape)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * os.sysconf("SC_PAGE_SIZE")
    spent, lengths = SIDES[side](net, vocab, shape)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(asdict(spent) | {"peak": (peak - before) / 1e6, "lengths": lengths}))


def show_sides(results: dict[str, dict[str, Any]], shape: Shape) -> None:
    rows = []
    for side, result in results.items():
        seconds = [f"{result[part]:.1f}" for part in ("user", "kernel")]
        each = f"{result['user'] / shape.steps:.3f}"
        tokens = sum(result["lengths"]) / shape.rows
        rows.append([side, *seconds, each, f"{result['peak']:,.0f}", f"{tokens:.0f}"])
    theirs, ours = results["published"], results["ours"]
    time, memory = (f"{theirs[part] / ours[part]:.1f}" for part in ("user", "peak"))
    rows.append(["ratio", time, "", "", memory, ""])
    head = ["", "user s", "kernel s", "user s a step", "peak MB", "tokens a row"]
    show(f"one thread, float32, {shape.timed_steps} published steps timed, {shape}", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--timed-steps", type=int, help="published steps that are really made")
    parser.add_argument("--side", choices=list(SIDES), help="run one side, print JSON")
    arguments = parser.parse_args()
    shape = SMALL if arguments.small else Shape()
    if arguments.timed_steps is not None:
        if not 1 <= arguments.timed_steps <= shape.steps:
            parser.error(f"--timed-steps must be between 1 and {shape.steps}")
        shape = replace(shape, timed_steps=arguments.timed_steps)
    torch.set_num_threads(1)  # idle threads spin, and their spinning would count as CPU time
    if arguments.side:
        run_side(arguments.side, shape)
    else:
        compare(shape)


def compare(shape: Shape) -> None:
    """Both sides, each in its own process with the arguments of this one."""
    results = {}
    for side in SIDES:
        done = subprocess.run(
            [sys.executable, __file__, "--side", side, *sys.argv[1:]],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        results[side] = json.loads(done.stdout)
    show_sides(results, shape)


if __name__ == "__main__":
    main()
