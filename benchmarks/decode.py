"""What two savings of the decoders are worth, measured beside their operation counts.

    ar   the prompt prefilled in one call       against   fed token by token, head included
    mdm  the vocabulary head on open slots only against   the head on every position

Both sides run in this process on the same weights, interleaved and repeated. The table shows
medians of CPU time and the ratio of multiply-adds. The shapes are those of the paper's 125M models:
14 layers, width 512, vocabulary 151,645, canvas 512, prompt 62.

    python benchmarks/decode.py            a few minutes
    python benchmarks/decode.py --small    seconds, to try the script
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas
from anyorder.families.ar import decode as ar
from anyorder.families.mdm import decode as mdm
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.vocab import Vocab
from tables import show

DOMINATES = """
ar spends its time reading the weights. A token is one row, and every product with it is bound by
memory: layers and head are 125 million numbers, half a gigabyte a token. Read for each of the 64
new tokens, that is 8 to 9 GB/s; a product of one row with the table alone reaches 10. Prefilling
reads the weights once for the whole prompt. mdm spends its time in products over 512 columns, at
more than half of the rate of a large one (hot_paths), so at less than twice the floor. The rest is
attention and, with the confidence policy, passes over the logits of all open slots.
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of one comparison."""

    vocab_size: int = 151_645
    width: int = 512
    layers: int = 14
    mlp_width: int = 1536
    canvas: int = 512
    prompt: int = 62
    new_tokens: int = 64
    """ar: tokens written after the prompt."""
    steps: int = 6
    """mdm: steps over the canvas; more would only repeat the same work."""
    repeats: int = 3

    def layer_work(self, positions: int, keys: int) -> float:
        """Multiply-adds of all layers on some positions, each of which sees some keys."""
        per_position = 4 * self.width**2 + 3 * self.width * self.mlp_width + 2 * keys * self.width
        return float(self.layers * positions * per_position)

    def head_work(self, positions: int) -> float:
        return float(positions * self.width * self.vocab_size)


SMALL = Shape(
    vocab_size=2_000,
    width=64,
    layers=2,
    mlp_width=128,
    canvas=96,
    prompt=16,
    new_tokens=16,
    steps=4,
    repeats=2,
)


def build(shape: Shape, *, causal: bool) -> tuple[Transformer, Vocab]:
    # Only sizes matter here: the pieces' text is never looked at.
    vocab = Vocab.words([f"<{i}>" for i in range(shape.vocab_size - 4)])
    config = TransformerConfig(
        vocab_size=vocab.size,
        width=shape.width,
        layers=shape.layers,
        heads=8,
        kv_heads=8,
        head_width=shape.width // 8,
        mlp_width=shape.mlp_width,
        causal=causal,
        o_bias=True,
    )
    return Transformer(config).eval(), vocab


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def compare(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each side, interleaved; the first round only warms up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, work in sides.items():
            seconds = cpu_seconds(work)
            if turn:
                times[name].append(seconds)
    return {name: statistics.median(values) for name, values in times.items()}


class NeverEnds:
    """The vocabulary's end token is barred, so that every run writes equally many tokens."""

    def __init__(self, net: Transformer, eos_id: int) -> None:
        self.net, self.eos_id = net, eos_id
        self.hidden, self.new_cache = net.hidden, net.new_cache

    def head(self, hidden: Tensor) -> Tensor:
        logits = self.net.head(hidden)
        logits[..., self.eos_id] = -torch.inf
        return logits


@torch.inference_mode()
def token_by_token(net: NeverEnds, prompt: list[int], new_tokens: int) -> list[int]:
    """The other side of the comparison: one call for every prompt token, with its logits."""
    cache = net.new_cache(1, len(prompt) + new_tokens)
    logits = torch.empty(0)
    for token in prompt:
        logits = net.head(net.hidden(torch.tensor([[token]]), cache=cache)[:, 0])
    written: list[int] = []
    while True:
        written.append(int(logits.argmax()))
        if len(written) == new_tokens:
            return written
        logits = net.head(net.hidden(torch.tensor([[written[-1]]]), cache=cache)[:, 0])


def measure_ar(shape: Shape) -> None:
    net, vocab = build(shape, causal=True)
    endless = NeverEnds(net, vocab.eos_id)
    prompt = [(7 * i) % 1000 for i in range(shape.prompt)]
    canvas = Canvas.of([prompt, shape.new_tokens], vocab)

    def prefilled() -> list[int]:
        (row,) = ar.decode(endless, vocab, [canvas], [0], ar.ArOptions())  # type: ignore[arg-type]
        return row.token_ids

    assert prefilled() == token_by_token(endless, prompt, shape.new_tokens), "the sides must agree"
    seconds = compare(
        {
            "prefill": prefilled,
            "token by token": lambda: token_by_token(endless, prompt, shape.new_tokens),
        },
        shape.repeats,
    )
    total = shape.prompt + shape.new_tokens
    layers = shape.layer_work(total - 1, total // 2)
    work = {
        "prefill": layers + shape.head_work(shape.new_tokens),
        "token by token": layers + shape.head_work(total - 1),
    }
    show_sides(f"ar, {shape.prompt} + {shape.new_tokens} tokens", seconds, work)


class HeadEverywhere:
    """The same network with its head inside: logits for every position, picked afterwards."""

    def __init__(self, net: Transformer) -> None:
        self.net = net

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        return self.net.head(self.net.hidden(ids, mask=mask))

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def measure_mdm(shape: Shape, policy: str) -> None:
    net, vocab = build(shape, causal=False)
    slots = shape.canvas - shape.prompt
    canvas = Canvas.of([[(7 * i) % 1000 for i in range(shape.prompt)], slots], vocab)
    options = mdm.MdmOptions(policy=policy, steps=shape.steps, eos="forbid")
    everywhere = HeadEverywhere(net)
    sides: dict[str, Callable[[], object]] = {
        "open slots": lambda: mdm.decode(net, vocab, [canvas], [0], options),
        "everywhere": lambda: mdm.decode(everywhere, vocab, [canvas], [0], options),
    }
    seconds = compare(sides, shape.repeats)
    counts = [slots // shape.steps + (i < slots % shape.steps) for i in range(shape.steps)]
    open_before = [slots - sum(counts[:i]) for i in range(shape.steps)]
    read = 0 if policy in ("left_to_right", "random") else sum(open_before)
    layers = shape.steps * shape.layer_work(shape.canvas, shape.canvas)
    work = {
        "open slots": layers + shape.head_work(read + slots),
        "everywhere": layers + shape.head_work(shape.canvas * shape.steps),
    }
    show_sides(f"mdm, {policy}, canvas {shape.canvas}, {shape.steps} steps", seconds, work)


def show_sides(title: str, seconds: dict[str, float], work: dict[str, float]) -> None:
    """Print two sides, the quick one first, and the ratio of their times."""
    (quick, slow) = seconds
    rows = [
        [name, f"{spent:.2f}", f"{work[name] / 1e9:.1f}", f"{2 * work[name] / spent / 1e9:.0f}"]
        for name, spent in seconds.items()
    ]
    ratios = (seconds[slow] / seconds[quick], work[slow] / work[quick])
    rows.append(["ratio", *(f"{ratio:.2f}" for ratio in ratios), ""])
    show(title, ["", "CPU s", "G multiply-adds", "GFLOP/s"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small shapes, to try the script")
    shape = SMALL if parser.parse_args().small else Shape()
    torch.set_num_threads(1)  # idle threads spin, and their spinning would count as CPU time
    print(f"one thread, float32, medians of {shape.repeats}; {shape}")
    measure_ar(shape)
    measure_mdm(shape, "confidence")
    measure_mdm(shape, "random")


if __name__ == "__main__":
    main()
