"""How often is a removed middle put back? flexmdm finds the length, mdm is told it.

    python benchmarks/infill.py runs/flexmdm runs/mdm

For each held-out story the middle third of the program's tokens is taken out. flexmdm gets
`<fill>`, mdm a gap of the true length. A fill is right if the whole program is the reference, which
at layout 0 is the only right text. Both decode greedily, by confidence. One seed; the intervals
are Wilson's, at 95 %.
"""

from __future__ import annotations

import argparse
import math

import torch

import anyorder
from anyorder.data import StoriesConfig, StoriesSource
from anyorder.model import Model


def wilson(right: int, of: int, z: float = 1.96) -> tuple[float, float]:
    share = right / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return middle - spread, middle + spread


def gapped(model: Model, prompt: str, program: str, told: bool) -> tuple[str, int]:
    """The text with its gap, and how many tokens were taken out."""
    tokens = model.vocab.encode(program)
    first, last = len(tokens) // 3, 2 * len(tokens) // 3
    before, after = model.vocab.decode(tokens[:first]), model.vocab.decode(tokens[last:])
    mark = f"<fill:{last - first}>" if told else "<fill>"
    return f"{prompt}<answer>{before}{mark}{after}", last - first


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("flexmdm")
    parser.add_argument("mdm")
    parser.add_argument("--problems", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    source = StoriesSource(StoriesConfig(split="heldout"))
    problems = [source[index] for index in range(arguments.problems)]
    runs = {
        "flexmdm, steps": (arguments.flexmdm, False, {}),
        "flexmdm, events": (arguments.flexmdm, False, {"clock": "events"}),
        "mdm, told the length": (arguments.mdm, True, {}),
    }
    print(f"{'':22}{'right':>8}{'95 % interval':>18}{'length right':>14}{'calls':>8}")
    for name, (folder, told, options) in runs.items():
        model = anyorder.load(folder)
        texts = [gapped(model, prompt, program, told) for prompt, program in problems]
        traces = model.sample([text for text, _ in texts], batch=50, **options)
        right = fits = 0
        for trace, (prompt, program), (_, missing) in zip(traces, problems, texts, strict=True):
            right += (trace.prompt + trace.text).removeprefix(prompt) == program
            fits += int((trace.timing()[1] > 0).sum()) == missing
        count = len(problems)
        low, high = wilson(right, count)
        calls = sum(trace.forwards or 0 for trace in traces) / count
        interval = f"{low:.3f} - {high:.3f}"
        print(f"{name:22}{right / count:8.3f}{interval:>18}{fits / count:14.3f}{calls:8.1f}")


if __name__ == "__main__":
    main()
