"""LatentMDM's ablation table on stories: five policies, k = 1, 2, 4, by execution of the programs.

    python benchmarks/latentmdm_policies.py --problems 300 --out runs/policies

The shipped model, or one that is named. Greedy tokens, as in the paper's table. The command can be
interrupted and repeated if it has a folder (`--out`): every cell is a run there. Intervals at 95 %,
differences paired by problem (apps/segment_policies.py).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch

from anyorder.apps.jobs import SampleJob
from anyorder.apps.segment_policies import compare_policies, print_cells

DOMINATES = """
Sampling in 15 runs, and grading their programs, each in a sandbox. Latent calls are the price of a
policy, and the table counts them. Their floor is a call for every k lines and for the end of the
program, some seven at k = 1, if the slots behind that end close at once (the tail rule): left to
right reaches it, random order comes near, and the policies with scores call nearly once for each of
the 12 slots. The time of a call and its floor are hot_paths' (a LatentMDM step, batch 24).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Policies and k of a LatentMDM, by execution.")
    parser.add_argument("model", nargs="?", default="latentmdm")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path, help="where the runs stay; unset: nowhere")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = SampleJob(
        arguments.model,
        task="stories",
        limit=arguments.problems,
        seed=arguments.seed,
        batch=arguments.batch,
    )
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or Path(folder)
        cells = compare_policies(job, out, progress=not arguments.json)
    if arguments.json:
        print(json.dumps([cell.to_record() for cell in cells]))
    else:
        print_cells(cells)


if __name__ == "__main__":
    main()
