"""The verbs about models and the machine: train, data, export, push, play, doctor.

Their flags, and what they print. The flags of `train` are the fields of the recipe. The work is in
apps/: train.py, dry_run.py, pipeline/, export.py, play/, doctor.py.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from anyorder.apps.jobs import Count, ExportOptions, FolderFlag, Name, NumberFlag
from anyorder.checks import did_you_mean
from anyorder.cli import PROGRAM, UsageError
from anyorder.cli.parsing import (
    ASKS_FOR_HELP,
    FlagGroup,
    described,
    found_device,
    help_width,
    job_flags,
    parse,
)
from anyorder.recipes import Recipe, find_recipe, recipe_names

HELP = """\
Train a model by recipe. If you repeat the command, it continues from the last checkpoint.

Recipes: {recipes}.

Each recipe explains its own flags: anyorder train RECIPE --help

  anyorder train tiny/mdm --out runs/mdm
  anyorder train tiny/mdm --steps 20 --warmup 5 --lr 1e-3 --data.layout 0.5 --out runs/short
  anyorder train paper/flexmdm-dreamcoder-7b --dry-run --gpus 16 --gpu h100
"""
RECIPE_HELP = """\
Train {name}. If you repeat the command, it continues from the last checkpoint.

  anyorder train {name} --dry-run
  anyorder train {name} --out runs/{folder}
"""

ONLY_DRY = ("gpus", "gpu", "nodes", "utilisation", "length")
TRAIN_GROUPS = (
    FlagGroup("most used", ("out", "steps", "batch", "lr", "seed", "minutes", "device", "json")),
    FlagGroup("what is trained", ("family", "loss", "start", "first_weights")),
    FlagGroup(
        "optimiser",
        (
            *("optimiser", "muon_lr", "accumulate", "warmup", "final_lr_fraction", "multipliers"),
            *("betas", "eps"),
            *("weight_decay", "decay", "clip", "ema"),
        ),
    ),
    FlagGroup(
        "what is logged and stored",
        (
            *("log_every", "validate_every", "validate_batches", "save_every", "keep"),
            *("logger", "logger_arg"),
        ),
    ),
    FlagGroup("what it would cost", ("dry_run", *ONLY_DRY)),
    FlagGroup(
        "expert (precision, memory, several processes, adapters)",
        (
            *("dtype", "threads", "shard", "reduce", "recompute", "compile"),
            *("lora", "lora_scale", "lora_targets"),
        ),
    ),
)


@dataclass(frozen=True)
class TrainFlags:
    """Where to train to, what it would cost, and every field of the recipe."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: FolderFlag = None
    """The model folder; unset: runs/<recipe>."""
    logger: Annotated[
        str | None,
        tyro.conf.arg(metavar="tensorboard|wandb|trackio", help_behavior_hint=""),
    ] = None
    """Also show the rows of metrics.jsonl in this program, or in one of an installed package
    (docs/loggers.md)."""
    logger_arg: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...", help_behavior_hint="")
    ] = ()
    """Settings of the logger, such as project=mine mode=offline."""
    dry_run: bool = False
    """Train nothing, and show the costs: parameters by module, tensors, memory of a rank, time."""
    gpus: Count = None
    """--dry-run: the number of GPUs, one rank each; unset: 1."""
    gpu: Name = None
    """--dry-run: b200, h200, h100, a100-80, a100-40, l40s, a6000 or rtx4090. A recipe that does not
    fit is refused. Unset: no time, and no check whether it fits."""
    nodes: Count = None
    """--dry-run: the number of machines; unset: eight GPUs in each."""
    utilisation: NumberFlag = None
    """--dry-run: the share of the GPU's stated arithmetic that training reaches; unset: 0.4."""
    length: NumberFlag = None
    """--dry-run: the mean tokens of an example, for the time; unset: the maximum length."""
    json: bool = False
    """Print one JSON document."""


def train_verb(words: list[str]) -> None:
    """Find the recipe, then train by it or show the costs."""
    if not words or words[0] in ASKS_FOR_HELP:
        if not words:
            raise UsageError(
                f"name a recipe: {', '.join(recipe_names())} (see {PROGRAM} train --help)"
            )
        print(f"usage: {PROGRAM} train RECIPE [--flag value ...]\n")
        print("\n".join(described(HELP.format(recipes=", ".join(recipe_names())), help_width())))
        return
    name, *rest = words
    if name not in recipe_names():
        close = did_you_mean(name, recipe_names())
        raise UsageError(f"no recipe {name!r}{close} (see {PROGRAM} train --help)")
    recipe = find_recipe(name)
    flags = parse(
        TrainFlags,
        f"train {name}",
        rest,
        default=TrainFlags(recipe),
        about=RECIPE_HELP.format(name=name, folder=name.rpartition("/")[2]),
        groups=TRAIN_GROUPS,
        auto_device=recipe.train.device == "cpu",  # the published ones say cuda
    )
    flags = replace(flags, recipe=_on_found_device(flags.recipe, speaks=not flags.dry_run))
    asked = _asked_of_net(rest)
    if flags.logger_arg and flags.logger is None:
        raise UsageError("--logger-arg belongs to --logger: name one, or leave it out")
    if flags.dry_run:
        if flags.logger is not None:
            raise UsageError("--dry-run trains nothing: leave --logger out")
        _dry_run(flags, asked, own=recipe)
        return
    unused = [each for each in ONLY_DRY if getattr(flags, each) is not None]
    if unused:
        raise UsageError(
            f"--{unused[0]} belongs to --dry-run: leave it out; torchrun says how many GPUs train"
        )
    _train(flags, flags.out or Path("runs") / name.replace("/", "-"), asked)


def _on_found_device(recipe: Recipe, *, speaks: bool) -> Recipe:
    first = os.environ.get("RANK", "0") == "0"  # of several processes only the first prints
    device = found_device(recipe.train.device, speaks=speaks and first)
    return replace(recipe, train=replace(recipe.train, device=device))


def _asked_of_net(words: Sequence[str]) -> list[str]:
    """The settings of the network that a command line names."""
    flags = (word.partition("=")[0] for word in words if word.startswith("--net."))
    names = (flag.removeprefix("--net.").removeprefix("no-") for flag in flags)
    return [name.replace("-", "_") for name in names]


def _logger_settings(words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for name, sign, _ in pairs:
        if not name or not sign:
            raise UsageError(f"--logger-arg {name}: give KEY=VALUE, such as project=mine")
    return {name: value for name, _, value in pairs}


def _train(flags: TrainFlags, out: Path, asked: Sequence[str]) -> None:
    from anyorder.apps.train import train_recipe
    from anyorder.training.loggers import find_logger

    settings = _logger_settings(flags.logger_arg)
    loggers = () if flags.logger is None else (find_logger(flags.logger, settings),)
    result = train_recipe(flags.recipe, out, asked=asked, loggers=loggers)
    if result.reason == "interrupted":  # there is no model yet
        raise KeyboardInterrupt
    if os.environ.get("RANK", "0") != "0":  # of several processes only the first prints
        return
    if flags.json:
        print(json.dumps({"model": str(out), **asdict(result)}, default=str))
        return
    print(f"{out}: {result.step} steps ({result.reason}). Sample from it:")
    source = flags.recipe.data.source
    what = f"--task {source} --limit 8" if source in ("stories", "trails") else "--prompt ..."
    print(f"  {PROGRAM} sample {shlex.quote(str(out))} {what}")


def _dry_run(flags: TrainFlags, asked: Sequence[str], own: Recipe) -> None:
    from anyorder.apps.dry_run import UTILISATION, Machine, as_text, dry_run, find_gpu, refusal
    from anyorder.apps.train import shaped_by
    from anyorder.hub.files import is_hub_id
    from anyorder.loading import open_shape

    recipe = flags.recipe
    # A recipe has the shape of its own start: costs are shown where there is no network, too.
    if recipe.start is not None and not (recipe.start == own.start and is_hub_id(recipe.start)):
        recipe = shaped_by(recipe, open_shape(recipe.start), asked)
    machine = Machine(
        gpus=1 if flags.gpus is None else flags.gpus,
        gpu=None if flags.gpu is None else find_gpu(flags.gpu),
        nodes=flags.nodes,
        utilisation=UTILISATION if flags.utilisation is None else flags.utilisation,
        length=flags.length,
    )
    found = dry_run(recipe, machine)
    print(json.dumps(found) if flags.json else as_text(found))
    if found["fits"] is False:
        raise ValueError(refusal(recipe, machine, found))


DATA_GROUPS = (
    FlagGroup("what to read", ("source", "without", "limit")),
    FlagGroup("what is left out", ("against", "dedup", "near", "max_tokens", "mode")),
    FlagGroup("what is written and printed", ("out", "vocab", "validation", "json")),
    FlagGroup("expert", ("seed", "shard_rows", "workers")),
)


def data_verb(words: list[str]) -> None:
    """Make shards to train on: filter, decontaminate, remove duplicates, tokenise.

    Recipes: tinygsm; gsm8k-programs (GSM8K's training answers as programs); code-mixture, or one of
    its sources: rstarcoder-seed-sft, rstarcoder-synthetic-sft, opc-sft-stage2-educational,
    KodCode-V1-SFT-4o, OpenCodeInstruct-score1-py-all. Their rows come from the hub, or from local
    files with the same columns. If you repeat a command, it continues where it stopped. The dropped
    rows and the reasons are in dropped.jsonl, the counts in manifest.json (docs/data.md).

      echo '{"question": "2 + 3?", "answer": "It is <<2+3=5>>5. #### 5"}' > rows.jsonl
      anyorder data gsm8k-programs --source rows.jsonl --vocab bytes --against none \\
        --validation 0 --out data/rows
    """
    from anyorder.apps.pipeline import make_shards
    from anyorder.apps.pipeline.inputs import DataJob, open_plan

    flags = parse(job_flags(DataJob), "data", words, about=data_verb.__doc__, groups=DATA_GROUPS)
    plan = open_plan(flags.job)
    manifest = make_shards(plan)
    if flags.json:
        print(json.dumps({"folder": str(plan.out), **manifest}))
        return
    for source in manifest["sources"]:
        print(_source_line(source))
    rows = manifest["rows"]
    print(
        f"{plan.out}: {rows['train']:,} rows to train on ({manifest['rows_an_epoch']:,} an epoch), "
        f"{rows['validation']:,} to validate on. Train on them:"
    )
    print(f"  {PROGRAM} train RECIPE --data.source {plan.out} --data.vocab {plan.out}")


def _source_line(source: dict[str, Any]) -> str:
    reasons = "; ".join(f"{reason} {count:,}" for reason, count in source["left_out"].items())
    return (
        f"{source['alias']} ({source['licence']}): {source['read']:,} rows read, "
        f"{source['train'] + source['validation']:,} kept; left out: {reasons or 'none'}"
    )


@dataclass(frozen=True)
class ExportFlags:
    """What to export, how and where to."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A model folder, a shipped name or a hub id."""
    out: Path
    """The folder to make."""
    options: Annotated[ExportOptions, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON document."""


EXPORT_GROUPS = (
    FlagGroup("what and where to", ("out",)),
    FlagGroup("how it is written", ("layout", "dtype", "shard_gb")),
    FlagGroup("what is printed", ("json",)),
)


def export_verb(words: list[str]) -> None:
    """Write a model as a folder that other libraries can read, with a model card.

    anyorder export mdm --out shared/mdm
    anyorder export ar --out shared/ar --dtype bfloat16 --shard-gb 5
    """
    flags = parse(ExportFlags, "export", words, about=export_verb.__doc__, groups=EXPORT_GROUPS)
    from anyorder.apps.export import export_to

    made = export_to(flags.model, flags.out, flags.options)
    if flags.json:
        print(json.dumps(made))
    else:
        print(f"{made['folder']}: {len(made['files'])} files in the layout {made['layout']}")


@dataclass(frozen=True)
class PushFlags:
    """What to upload, and where to."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """An exported folder, a model folder or a shipped name."""
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """The repository; it is made if it does not exist."""
    private: bool = False
    """Make the repository visible only to its owner."""
    json: bool = False
    """Print one JSON document."""


PUSH_GROUPS = (
    FlagGroup("what and where to", ("private",)),
    FlagGroup("what is printed", ("json",)),
)


def push_verb(words: list[str]) -> None:
    """Upload a model to the hub, with a model card. Log in with `hf auth login` first.

    A folder that `anyorder export` wrote is uploaded unchanged; any other model is exported first.

      anyorder push mdm me/mdm --private
    """
    flags = parse(PushFlags, "push", words, about=push_verb.__doc__, groups=PUSH_GROUPS)
    from anyorder.apps.export import push_model

    done = push_model(flags.model, flags.repo, private=flags.private)
    if flags.json:
        print(json.dumps(done))
    else:
        print(f"{done['repo']}: {done['commit']}")


PLAY_GROUPS = (
    FlagGroup("what to open", ("device",)),
    FlagGroup("where", ("port", "no_browser", "json")),
)


def play_verb(words: list[str]) -> None:
    """Open a local page: type a prompt, watch it being written in any order, compare policies.

    Only this machine can reach it, and only with the address that is printed. Ctrl-C ends it.

      anyorder play
      anyorder play mdm --port 8000 --no-browser
    """
    from anyorder.apps.play import PlayJob, play

    owner = job_flags(PlayJob, "Print one JSON document: the address.")
    about = play_verb.__doc__
    flags = parse(owner, "play", words, about=about, groups=PLAY_GROUPS, auto_device=True)
    play(replace(flags.job, device=found_device(flags.job.device)), as_json=flags.json)


def doctor_verb(words: list[str]) -> None:
    """Show what this machine offers: devices, threads, memory, how well programs can be confined,
    installed extras.

      anyorder doctor
      anyorder doctor --json
    """
    flags = parse(job_flags(None), "doctor", words, about=doctor_verb.__doc__)
    from anyorder.apps.doctor import examine, print_findings

    findings = examine()
    if flags.json:
        print(json.dumps(findings))
    else:
        print_findings(findings)
