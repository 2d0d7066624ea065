"""Learning curves on trails: what each training reached after how many steps.

    python benchmarks/trails_curves.py

Reads the metrics.jsonl of the trainings in studies/trails/models, and trains nothing. Nats per
token are those of each family's own loss on held-out problems: compare them down a column of one
family, never across families. A family that begins with another one has the steps of its own part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tables import show

DOMINATES = """
Reading the metrics of a few trainings, some hundred lines each: less than a second, nearly all of
it the start of Python and its imports. Nothing is trained or sampled here.
"""

MODELS = Path("studies/trails/models")
EVERY = 1_000


def curve(folder: Path) -> dict[int, float]:
    """Step -> nats per token in validation."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return {row["step"]: row["nats_per_token"] for row in lines if row["kind"] == "validation"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="unset: all of studies/trails/models")
    folders = parser.parse_args().folders or sorted(MODELS.iterdir())
    curves = {folder.name: curve(folder) for folder in folders}
    steps = range(EVERY, max(map(max, curves.values())) + 1, EVERY)
    rows = [
        [name, *(f"{found[step]:.3f}" if step in found else "" for step in steps)]
        for name, found in curves.items()
    ]
    show("validation, nats per token after ... steps", ["training", *map(str, steps)], rows)


if __name__ == "__main__":
    main()
