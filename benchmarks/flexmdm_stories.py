"""Held-out stories: whole programs, and removed middles put back. flexmdm against mdm.

    python benchmarks/flexmdm_stories.py                         the shipped models
    python benchmarks/flexmdm_stories.py runs/flexmdm runs/mdm

Whole programs are written after the text of the problem. For the middles a third of the tokens of
the program is removed. flexmdm gets `<fill>` and finds the length. mdm gets a gap of the true
length and, after the program, the EOS tokens that fill its canvas in training. A program is right
if it equals the reference. At layout 0 this is the only right text. The layout is that of the
corpus of the first model, and at other layouts a right program may differ: compare rows, not
levels. All models decode greedily, by confidence. One seed; intervals are Wilson's, at 95 %.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import torch

import anyorder
from anyorder.data import StoriesConfig, StoriesSource
from anyorder.decode.canvas import Canvas
from anyorder.model import Model, Request
from anyorder.trace import Trace
from anyorder.vocab import Vocab
from tables import show

DOMINATES = """
The layers dominate: the network is called on every row at every step; hot_paths shows the parts and
the floor of a call (a FlexMDM step, batch 24). The number of calls is the cost, and its floor is
one for each slot. mdm reaches it, 64 of 64. flexmdm on a grid calls at every step, whether anything
happens or not. Its event clock calls only where something may happen: an insertion and a reveal for
each of some 35 tokens, 78 calls against a minimum of 70 events. At layout 1 a right program may
differ from the reference: compare rows, not levels.
"""

BATCH = 50


def wilson(right: int, of: int, z: float = 1.96) -> tuple[float, float]:
    share = right / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return middle - spread, middle + spread


@dataclass(frozen=True)
class Gapped:
    """A program without its middle."""

    prompt: str
    program: str
    before: list[int]
    missing: int
    after: list[int]

    @classmethod
    def of(cls, vocab: Vocab, prompt: str, program: str) -> Gapped:
        tokens = vocab.encode(program)
        first, last = len(tokens) // 3, 2 * len(tokens) // 3
        return cls(prompt, program, tokens[:first], last - first, tokens[last:])

    def canvas(self, model: Model) -> Any:
        """The canvas as in training: an open gap, or the true length and EOS up to the end."""
        vocab = model.vocab
        if model.family.answers == "bare":
            before, after = vocab.decode(self.before), vocab.decode(self.after)
            return model.canvas(f"{self.prompt}<answer>{before}<fill>{after}")
        slots = len(self.before) + self.missing + len(self.after)
        end = [vocab.eos_id] * (model.card.max_new_tokens - slots)
        start = [*vocab.encode(self.prompt), *self.before]
        return Canvas.of([start, self.missing, [*self.after, *end]], vocab)


def fill(model: Model, gaps: list[Gapped], options: dict[str, Any]) -> list[Trace]:
    chosen = model.family.choose(options)
    requests = [
        Request(str(number), 0, "", gap.canvas(model), noise=gap.prompt)
        for number, gap in enumerate(gaps)
    ]
    parts = (requests[start : start + BATCH] for start in range(0, len(requests), BATCH))
    return [trace for part in parts for trace in model.decode(part, chosen, seed=0)]


def row(name: str, traces: list[Trace], gaps: list[Gapped], given: list[str]) -> list[str]:
    """How many programs equal the reference; `given` stands before the written text."""
    right = sum(
        before + trace.text == gap.program
        for trace, gap, before in zip(traces, gaps, given, strict=True)
    )
    low, high = wilson(right, len(gaps))
    calls = sum(trace.forwards or 0 for trace in traces) / len(gaps)
    return [name, f"{right / len(gaps):.3f}", f"{low:.3f} to {high:.3f}", f"{calls:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Held-out stories: whole programs, and middles.")
    parser.add_argument("flexmdm", nargs="?", default="flexmdm")
    parser.add_argument("mdm", nargs="?", default="mdm")
    parser.add_argument("--problems", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    inserting, masked = anyorder.load(arguments.flexmdm), anyorder.load(arguments.mdm)
    layout = inserting.trained_on["layout"]
    source = StoriesSource(StoriesConfig(split="heldout", layout=layout))
    gaps = [Gapped.of(inserting.vocab, *source[index]) for index in range(arguments.problems)]
    prompts, nothing = [gap.prompt for gap in gaps], [""] * len(gaps)
    befores = [inserting.vocab.decode(gap.before) for gap in gaps]
    ways: list[tuple[str, Model, dict[str, Any]]] = [
        ("flexmdm, 128 steps", inserting, {"steps": 128}),
        ("flexmdm, 256 steps", inserting, {"steps": 256}),
        ("flexmdm, events", inserting, {"clock": "events"}),
        ("mdm", masked, {}),
    ]
    rows = []
    for name, model, options in ways:
        traces = model.sample(prompts, batch=BATCH, **options)
        rows.append(row(f"whole, {name}", traces, gaps, nothing))
    for name, model, options in ways:
        told = {"eos": "forbid"} if model is masked else {}
        traces = fill(model, gaps, options | told)
        rows.append(row(f"middle, {name}", traces, gaps, befores))
    title = f"{len(gaps)} held-out stories at layout {layout:g}"
    show(title, ["", "the reference", "95 % interval", "calls"], rows)


if __name__ == "__main__":
    main()
