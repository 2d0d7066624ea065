"""Train the tiny models that come with the package, under equal conditions.

    python recipes/shipped_models.py              all of them, a few hours on one core
    python recipes/shipped_models.py ar mdm       only these
    python recipes/shipped_models.py trails/ar --trained studies/trails/models/ar-s0
                                                  ship a training that is already done
    python recipes/shipped_models.py --cards      no training: grade what is there, write the cards

There are two sets, on the corpora stories and trails. Every model of a set sees as many texts of
the same corpus, and the parameters are equal within 1 %. flexmdm and duo begin with an mdm, and on
trails flexlatent with a latentmdm, whose texts count as their own.
The planner is the shipped mdm with a head that says what to reveal, so both are more. Trainings
resume by themselves. Each model is then graded on held-out problems, and its card.json says what
made it and what it reached.
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
from anyorder.recipes import find_recipe
from anyorder.trace.run import installed_versions

RUNS = Path("runs")
DESCRIBED = ("config.json", WEIGHTS_FILE, "vocabulary.json")
"""The files of a training that are shipped."""
BATCH = 32
STEPS, START_STEPS = 12_000, 4_000
TEXTS = STEPS * BATCH
IN_ORDER = "--first-weights in_order"
"""How the first weights of these models were drawn."""
COMMON = f"--data.layout 1 {IN_ORDER} --threads 1"
WIDE = "--net.mlp-width 272"
"""What makes ar, mdm and block as large as the others."""
PROBLEMS = 200
CORPUS = {
    "stories": ("source", "layout", "wording", "seed"),
    "trails": ("source", "trails", "seed"),
}
"""What a card says of the data."""


def texts_of(recipe: str) -> int:
    """The texts that a training by this recipe sees."""
    train = find_recipe(recipe).train
    return train.steps * train.batch


TRAILS_TEXTS = texts_of("trails/mdm")


@dataclass(frozen=True)
class Shipped:
    """How a model is made, and how it is asked for its best."""

    trainings: tuple[str, ...]
    """Commands after `anyorder train`; the last makes the model itself."""
    sampling: str = ""
    texts: int = TEXTS
    task: str = "stories"


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
    "block": Shipped(_alone("block", WIDE)),
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
        texts=TEXTS + IMITATING * BATCH + sum(TUNING) * TUNING_BATCH,
    ),
}


def _on_trails(name: str, sampling: str = "", texts: int = TRAILS_TEXTS) -> Shipped:
    return Shipped((_trails_training(name),), sampling, texts, "trails")


def _on_trails_from(
    start: str, width: int, steps: int, name: str, sampling: str = "", out: str = ""
) -> Shipped:
    """Begins with another family, because it does not learn to look facts up by itself.

    That one has this mlp width, which is the model's own, and stays in the folder `out`.
    """
    out = out or f"{start}-start"
    before = _trails_training(start, f"--net.mlp-width {width} --steps {steps}", out)
    left = find_recipe(f"trails/{name}").train.steps - steps
    begun = f"--start {RUNS / 'trails' / out} --steps {left}"
    return Shipped((before, _trails_training(name, begun)), sampling, TRAILS_TEXTS, "trails")


def _trails_training(name: str, flags: str = "", out: str = "") -> str:
    return f"trails/{name} {flags} --threads 1 --out {RUNS / 'trails' / (out or name)}"


MODELS |= {
    "trails/ar": _on_trails("ar"),
    "trails/mdm": _on_trails("mdm"),
    "trails/flexmdm": _on_trails_from("mdm", 112, 4_000, "flexmdm"),
    "trails/latentmdm": _on_trails("latentmdm"),
    "trails/flexlatent": _on_trails_from("latentmdm", 126, 3_000, "flexlatent"),
    # Another width than flexmdm's start. Its head is not tied, and begins as the mdm's table.
    "trails/duo": _on_trails_from("mdm", 108, 4_000, "duo", FEW_STEPS, "mdm-start-of-duo"),
    "trails/sflm": _on_trails("sflm", FEW_STEPS),
    "trails/block": _on_trails("block"),
    "trails/planner": _on_trails(
        "planner", "--policy planner", TRAILS_TEXTS + texts_of("trails/planner")
    ),
}


def make(name: str, shipped: Shipped, *, train: bool, trained: Path | None = None) -> None:
    """Train a model, or take a finished training; put it into the package, and write its card."""
    if train and trained is None:
        for words in shipped.trainings:
            _run(f"train {words}")
        trained = RUNS / name
    if trained is not None:
        folder = SHIPPED / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in DESCRIBED:
            shutil.copyfile(trained / file, folder / file)
    write_card(name, shipped)


def write_card(name: str, shipped: Shipped) -> None:
    """What made the model, and how many held-out problems it solves."""
    folder, run = SHIPPED / name, RUNS / f"{name}-graded"
    sampling = f"sample {name} --task {shipped.task} --limit {PROBLEMS} {shipped.sampling}".strip()
    shutil.rmtree(run, ignore_errors=True)
    _run(f"{sampling} --out {run}")
    rate = grade_run(run, GradeJob()).reports[0].rates[0]
    trained_on = load(folder).trained_on
    card = {
        "commands": [_squeezed(f"anyorder train {words}") for words in shipped.trainings],
        "parameters": sum(value.numel() for value in load(folder).net.parameters()),
        "texts": shipped.texts,
        "corpus": {key: trained_on[key] for key in CORPUS[shipped.task]},
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
    parser.add_argument("--trained", type=Path, help="the folder of a finished training")
    chosen = parser.parse_args()
    if chosen.trained is not None and len(chosen.names) != 1:
        parser.error("--trained is the training of one model: name that model")
    for name in chosen.names or MODELS:
        if name not in MODELS:
            parser.error(f"no model {name!r}: choose from {', '.join(MODELS)}")
        make(name, MODELS[name], train=not chosen.cards, trained=chosen.trained)


if __name__ == "__main__":
    main()
