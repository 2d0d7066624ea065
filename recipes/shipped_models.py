"""Train the tiny models that come with the package, under equal conditions.

    python recipes/shipped_models.py              all of them, a few hours on one core
    python recipes/shipped_models.py ar mdm       only these
    python recipes/shipped_models.py --cards      no training: grade what is there, write the cards

Every model sees as many texts of the same corpus (`TEXTS`), and the parameters are equal within
1 %; flexmdm and duo begin with an mdm, whose texts count as their own. The planner is the shipped
mdm with a head that says what to reveal, so both are more. Trainings resume by themselves. Each
model is then graded on held-out problems, and its card.json says what made it and what it reached.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from anyorder.apps.grade import grade_run
from anyorder.apps.jobs import GradeJob
from anyorder.cli import main as anyorder
from anyorder.files import replacing, sha256_of
from anyorder.model import SHIPPED, WEIGHTS_FILE, load
from anyorder.trace.run import installed_versions

RUNS = Path("runs")
BATCH = 32
STEPS, START_STEPS = 12_000, 4_000
TEXTS = STEPS * BATCH
IN_ORDER = "--first-weights in_order"
"""How the first weights of these models were drawn."""
COMMON = f"--data.layout 1 {IN_ORDER} --threads 1"
WIDE = "--net.mlp-width 272"
"""What makes ar and mdm as large as the others."""
PROBLEMS = 200


@dataclass(frozen=True)
class Shipped:
    """How a model is made, and how it is asked for its best."""

    trainings: tuple[str, ...]
    """Commands after `anyorder train`; the last makes the model itself."""
    sampling: str = ""
    more_texts: int = 0
    """Seen beyond `TEXTS`, by what cannot do without."""


def _alone(name: str, flags: str = "") -> tuple[str, ...]:
    return (f"tiny/{name} {flags} --steps {STEPS} {COMMON} --out {RUNS / name}",)


def _from_mdm(name: str) -> tuple[str, ...]:
    return (
        f"tiny/mdm --steps {START_STEPS} {COMMON} --out {START}",
        f"tiny/{name} --start {START} --steps {STEPS - START_STEPS} {COMMON} --out {RUNS / name}",
    )


START = RUNS / "mdm-start"
IMITATING, TUNING, TUNING_BATCH = 2_000, (150, 70), 4
"""The planner's steps: imitation, and two stages of tuning with fewer texts a step."""
FEW_STEPS = "--steps 32 --temperature 0"
"""Of families that change all slots in every step: their surest predictions, as of the others."""
MODELS = {
    "ar": Shipped(_alone("ar", WIDE)),
    "mdm": Shipped(_alone("mdm", WIDE)),
    "flexmdm": Shipped(_from_mdm("flexmdm"), "--clock events"),
    "latentmdm": Shipped(_alone("latentmdm")),
    "flexlatent": Shipped(_alone("flexlatent"), "--clock events"),
    "duo": Shipped(_from_mdm("duo"), FEW_STEPS),
    "sflm": Shipped(_alone("sflm"), FEW_STEPS),
    # A policy for mdm: its texts and its parameters come on top of that model's.
    "planner": Shipped(
        (
            f"tiny/planner --steps {IMITATING} {IN_ORDER} --threads 1"
            f" --out {RUNS / 'planner-imitated'}",
            f"tiny/planner-grpo --start {RUNS / 'planner-imitated'} --steps {TUNING[0]} {IN_ORDER}"
            f" --threads 1 --out {RUNS / 'planner-tuned'}",
            f"tiny/planner-grpo --start {RUNS / 'planner-tuned'} --tuning.step-penalty 0.002"
            f" --steps {TUNING[1]} {IN_ORDER} --threads 1 --out {RUNS / 'planner'}",
        ),
        "--policy planner",
        more_texts=IMITATING * BATCH + sum(TUNING) * TUNING_BATCH,
    ),
}


def make(name: str, shipped: Shipped, *, train: bool) -> None:
    """Train a model, put it into the package, grade it, write its card."""
    if train:
        for words in shipped.trainings:
            _run(f"train {words}")
        folder = SHIPPED / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted((RUNS / name).iterdir()):
            if path.is_file() and path.name != "metrics.jsonl":
                shutil.copyfile(path, folder / path.name)
    write_card(name, shipped)


def write_card(name: str, shipped: Shipped) -> None:
    """What made the model, and how many held-out problems it solves."""
    folder, run = SHIPPED / name, RUNS / f"{name}-graded"
    sampling = f"sample {name} --task stories --limit {PROBLEMS} {shipped.sampling}".strip()
    shutil.rmtree(run, ignore_errors=True)
    _run(f"{sampling} --out {run}")
    rate = grade_run(run, GradeJob()).reports[0].rates[0]
    recipe = load(folder).card.recipe
    card = {
        "commands": [_squeezed(f"anyorder train {words}") for words in shipped.trainings],
        "parameters": sum(value.numel() for value in load(folder).net.parameters()),
        "texts": TEXTS + shipped.more_texts,
        "corpus": {key: recipe["data"][key] for key in ("source", "layout", "wording", "seed")},
        "weights": sha256_of(folder / WEIGHTS_FILE),
        "held_out": {
            "commands": [
                _squeezed(f"anyorder {sampling} --out {run}"),
                f"anyorder grade {run}",
            ],
            "problems": PROBLEMS,
            "solved": rate.interval.to_record(),
        },
        "versions": installed_versions(),
    }
    with replacing(folder / "card.json") as file:
        file.write(json.dumps(card, indent=2).encode() + b"\n")
    print(f"{name}: {rate.interval}")


def _run(command: str) -> None:
    print("$ anyorder", command, flush=True)
    code = anyorder(shlex.split(command))
    if code:
        raise SystemExit(code)


def _squeezed(command: str) -> str:
    return " ".join(command.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--cards", action="store_true", help="grade and write cards only")
    chosen = parser.parse_args()
    for name in chosen.names or MODELS:
        if name not in MODELS:
            parser.error(f"no model {name!r}: choose from {', '.join(MODELS)}")
        make(name, MODELS[name], train=not chosen.cards)


if __name__ == "__main__":
    main()
