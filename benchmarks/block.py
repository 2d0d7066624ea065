"""Cached block decoding against mdm, ar and block decoding without a cache, at the 125M shapes.

    block, cached     the active block's columns in every step, and once more when it is finished
    block, uncached   all columns up to the active block in every step
    mdm               all columns of the canvas in every step
    ar                one column for each token, with keys and values of all before it

Random weights, one row, float32. The shapes are those of the paper's 125M models: 14 layers, width
512, vocabulary 151,645. The prompt has 62 tokens and the canvas 512 columns, of which each side
writes the first tokens only. One token a step and the policy random, so that each step reads one
row of the head on every side and the sides differ in what the layers compute. All sides run in this
process, interleaved and repeated. The table has medians of CPU time and multiply-adds, the counts
by the formulas below from what the decoders recorded; ratios are to the cached decoder.

    python benchmarks/block.py            some minutes
    python benchmarks/block.py --small    seconds, to try the script
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.ar import decode as ar
from anyorder.families.block import decode as block
from anyorder.families.block.config import BlockConfig, BlockOptions
from anyorder.families.block.net import BlockNet
from anyorder.families.mdm import decode as mdm
from decode import SMALL, NeverEnds, Shape, build, compare
from tables import show

DOMINATES = """
Calls of few columns read all weights for little work: a call of the cached decoder (4 columns)
takes 1.3 times as long as one of ar (1 column), one of 16 columns 1.7 times. So with one token a
step, block decoding is slower than ar, also because of the commit, and faster than without a cache
by less than the operations say. Two tokens a step halve the steps of a block, not its commit. The
times are of a busy machine and of two rounds: read the ratios as rough.
"""

BASE = "block of 4, cached"


@dataclass(frozen=True)
class Side:
    """One decoder on its canvas."""

    work: Callable[[], list[Decoded]]
    tokens: int
    """Tokens that it writes; each of mdm costs the same, so a few are enough."""
    keys: int
    """Keys that a column sees, on average."""


def sides_of(shape: Shape, few: int) -> dict[str, Side]:
    causal, vocab = build(shape, causal=True)
    plain, _ = build(shape, causal=False)
    blocks = BlockNet(BlockConfig(plain.config, 4)).eval()
    blocks.backbone.load_state_dict(plain.state_dict())
    prompt = [(7 * i) % 1000 for i in range(shape.prompt)]
    rest = [(5 * i) % 1000 for i in range(shape.canvas - shape.prompt - few)]
    short = Canvas.of([prompt, shape.new_tokens], vocab)
    # Given tokens behind the slots cost mdm as much as slots: it computes all columns.
    whole = Canvas.of([prompt, few, rest], vocab)
    endless = NeverEnds(causal, vocab.eos_id)
    middle = shape.prompt + shape.new_tokens // 2

    def block_side(**options: object) -> Side:
        chosen = BlockOptions(policy="random", eos="forbid", **options)  # type: ignore[arg-type]
        return Side(
            lambda: block.decode(blocks, vocab, [short], [0], chosen), shape.new_tokens, middle
        )

    masked = mdm.MdmOptions(policy="random", eos="forbid")
    return {
        BASE: block_side(),
        "the same, 2 tokens a step": block_side(block_steps=2),
        "block of 4, uncached": block_side(cache="none"),
        "block of 16, cached": block_side(block=16),
        "mdm": Side(lambda: mdm.decode(plain, vocab, [whole], [0], masked), few, shape.canvas),
        "ar": Side(
            lambda: ar.decode(endless, vocab, [short], [0], ar.ArOptions()),  # type: ignore[arg-type]
            shape.new_tokens,
            middle,
        ),
    }


def measure(shape: Shape, few: int) -> None:
    sides = sides_of(shape, few)
    rows: dict[str, Decoded] = {}

    def keep(name: str) -> None:
        (rows[name],) = sides[name].work()

    seconds = compare({name: lambda name=name: keep(name) for name in sides}, shape.repeats)
    lines, base = [], (0.0, 0.0)
    for name, side in sides.items():
        row = rows[name]
        # What is written last by ar is never read.
        columns = row.columns or shape.prompt + shape.new_tokens - 1
        work = shape.layer_work(columns, side.keys) + shape.head_work(side.tokens)
        each = (seconds[name] / side.tokens, work / side.tokens)
        base = each if name == BASE else base
        ratios = [f"{mine / theirs:.2f}" for mine, theirs in zip(each, base, strict=True)]
        counts = [f"{row.forwards / side.tokens:.2f}", f"{columns / side.tokens:.1f}"]
        lines.append([name, *counts, f"{1000 * each[0]:.0f}", f"{each[1] / 1e9:.2f}", *ratios])
    show(
        f"for each token, the prompt's share included; {shape.new_tokens} tokens (mdm {few})",
        ["", "calls", "columns", "CPU ms", "G multiply-adds", "time ratio", "operation ratio"],
        lines,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    shape = replace(SMALL if given.small else Shape(), repeats=given.repeats)
    torch.set_num_threads(1)  # idle threads spin, and their spinning would count as CPU time
    print(f"one thread, float32, one row, medians of {shape.repeats}; {shape}")
    measure(shape, few=4)


if __name__ == "__main__":
    main()
