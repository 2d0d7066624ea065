"""`anyorder train`: a recipe -> a trained model folder.

It assembles a recipe's parts (corpus, network, objective, batches), runs the training loop
(training/loop.py), and writes the model folder with the averaged weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from anyorder.apps.corpus import Corpus, open_corpus
from anyorder.data.batches import Batch, BatchConfig, Batches
from anyorder.decode.canvas import Frame
from anyorder.families.family import Family, Objective, find_family
from anyorder.loading import ModelShape, Opened, open_weights
from anyorder.model import Card, Model, build, checked_config, load
from anyorder.nets.init import FREE_SETTINGS, NamedSeed, same_setting
from anyorder.nets.prompts import check_prompts, sentence_ends
from anyorder.nets.shapes import as_record
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.recipes import Recipe, find_recipe, override
from anyorder.training import lora
from anyorder.training.checkpoint import saved_config
from anyorder.training.config import BEFORE, TrainConfig
from anyorder.training.distributed import Weights
from anyorder.training.loggers import Callback, Logger, as_logger
from anyorder.training.loop import ABOUT, CHECKPOINTS, FitOptions, FitResult, fit
from anyorder.training.processes import Ranks, joined
from anyorder.vocab import Vocab


def train(
    recipe: str | Recipe,
    *,
    out: str | Path,
    progress: bool = True,
    loggers: Sequence[str | Logger | Callback] = (),
    **changes: Any,
) -> Model:
    """Train by recipe and load the result: `train("tiny/mdm", steps=500, out="runs/mdm")`.

    `changes` are the recipe's fields by name; nested ones as `**{"net.width": 96}`. A second
    call continues from the last checkpoint. `loggers`: names (tensorboard, wandb, trackio), loggers
    or functions of (step, row), which get every row of metrics.jsonl.
    """
    chosen = override(find_recipe(recipe) if isinstance(recipe, str) else recipe, changes)
    asked = [name.removeprefix(NET) for name in changes if name.startswith(NET)]
    following = tuple(map(as_logger, loggers))
    result = train_recipe(chosen, Path(out), asked=asked, progress=progress, loggers=following)
    if result.reason == "interrupted":
        raise KeyboardInterrupt  # an older export in `out` is not this result
    return load(Path(out))


def train_recipe(
    recipe: Recipe,
    out: Path,
    *,
    asked: Collection[str] = (),
    progress: bool = True,
    loggers: Sequence[Logger] = (),
) -> FitResult:
    """Train, or continue from the checkpoint in `out`, and write the model folder there.

    `asked`: the settings of the net that the user chose; a start that contradicts them is refused.
    Under torchrun all processes call this; rank 0 writes and prints.
    """
    with joined(recipe.train.device) as ranks:
        show = progress and ranks.first
        return _train(recipe, out, ranks, asked, progress=show, loggers=loggers)


def _train(
    recipe: Recipe,
    out: Path,
    ranks: Ranks,
    asked: Collection[str],
    *,
    progress: bool,
    loggers: Sequence[Logger],
) -> FitResult:
    family = find_family(recipe.family)
    _check_start(recipe, ranks)
    recipe = _as_begun(recipe, out, ranks, progress=progress)
    saved = saved_config(out / CHECKPOINTS, "run").get(f"{ABOUT}net")
    if ranks.of_first(int(isinstance(saved, dict) and not saved.get("shift"))):
        asked = {*asked, "shift"}  # it began without, as all did before a start could decide
    with ranks.one_before_others():  # so that files are downloaded once
        base = None if recipe.start is None else open_weights(recipe.start)
        shaped = recipe if base is None else shaped_by(recipe, base, asked)
        corpus = _open_corpus(shaped)
        if base is not None:
            _check_vocab(base, corpus.vocab)
    if progress:
        remarks = [*corpus.remarks(), *_shape_remarks(recipe, shaped)]
        print(*remarks, sep="\n", end="\n" if remarks else "", file=sys.stderr)
    recipe = shaped
    card = model_card(recipe, corpus)
    net, weights = _network(recipe, card, corpus.vocab, base, ranks)
    objective = _objective(recipe, corpus.vocab)
    batches = _batches(recipe, corpus, corpus.train, recipe.train.micro_batch)
    held_out = _batches(recipe, corpus, corpus.validation, recipe.train.batch)

    def export(net: nn.Module) -> None:
        plain = lora.merge(net) if recipe.train.lora else net
        Model(family, plain, corpus.vocab, card, name=str(out), digest="").save(out)

    options = FitOptions(
        levels=family.levels,
        about={
            "family": recipe.family,
            "loss": recipe.loss,
            "start": None if base is None else base.digest,
            "settings": None if recipe.settings is None else asdict(recipe.settings),
            "net": recipe.as_json()["net"],
            "data": recipe.as_json()["data"],
            "data_digest": corpus.digest,
            "vocab_digest": corpus.vocab.digest(),
            # Not in the digest; trainings that began without a prefix go on without the key.
            **({"prefix": list(corpus.vocab.prefix_ids)} if corpus.vocab.prefix_ids else {}),
        },
        export=export,
        progress=progress,
        weights=weights,
        loggers=loggers,
    )
    validation = [held_out(i) for i in range(recipe.train.validate_batches)]
    return fit(net, objective, batches, validation, recipe.train, out, options)


def _as_begun(recipe: Recipe, out: Path, ranks: Ranks, *, progress: bool) -> Recipe:
    """The recipe, with in_order if the training in `out` began so.

    Trainings from before one could choose did, and their command does not say so.
    """
    saved = saved_config(out / CHECKPOINTS)
    began = {**BEFORE, **saved}["first_weights"] if saved else recipe.train.first_weights
    # Rank 0 decides: another machine may see an old state of the folder.
    if not ranks.of_first(int(began == "in_order" != recipe.train.first_weights)):
        return recipe
    if progress:
        print("This training began with first_weights=in_order, and goes on so.", file=sys.stderr)
    return override(recipe, BEFORE)


def _first_seed(train: TrainConfig) -> int:
    """The seed of the first weights, which decides how they are drawn, too (nets/init.py)."""
    return NamedSeed(train.seed) if train.first_weights == "by_name" else train.seed


def _check_start(recipe: Recipe, ranks: Ranks) -> None:
    """Refuse a recipe that cannot be trained, before anything is read."""
    ranks.micro_batches(recipe.train.accumulate)
    if recipe.frozen and recipe.start is None:
        raise ValueError("the frozen weights must be trained already: name a model with --start")
    check_settings(recipe, ranks.count)


def check_settings(recipe: Recipe, ranks: int) -> None:
    """Refuse settings that contradict each other; dry runs call this too."""
    if recipe.train.lora and recipe.start is None:
        raise ValueError("lora adapts a trained model: name one with --start, or leave lora out")
    if recipe.train.lora and recipe.frozen:
        raise ValueError("this recipe trains a new head alone, without adapters: leave lora out")
    if recipe.loss in OWN_LOSSES and ranks > 1 and recipe.train.shard != "none":
        raise ValueError(
            f"{recipe.loss} decodes as many steps as each sample needs, which processes with parts "
            "of a network cannot do together: give shard=none"
        )


def _network(
    recipe: Recipe, card: Card, vocab: Vocab, base: Opened | None, ranks: Ranks
) -> tuple[nn.Module, Weights | None]:
    """The network to train, with its first weights or, if sharded, on the meta device."""
    train, network = recipe.train, find_family(recipe.family).network
    seed = _first_seed(train)
    weights: Weights | None = None
    if ranks.count == 1 or train.shard == "none":
        net = build(card, vocab, name="", seed=seed).net
        if base is not None:
            network.start(net, base.model().net)
    else:
        from anyorder.training.distributed import Base, ShardedInit

        config = checked_config(card, vocab)
        begin = None if base is None else Base(base.net, base.tensor)
        weights = ShardedInit(lambda: network.build(config, seed=seed), begin, network.start)
        net = weights.net
    freeze(net, recipe.frozen)
    if train.lora:
        weights = _with_adapters(net, network.additions(net), train, weights)
    return net, weights


def _with_adapters(
    net: nn.Module, additions: set[str], train: TrainConfig, weights: Weights | None
) -> Weights | None:
    """Put adapters into a network; return its first weights if it has none yet."""
    lora.adapt(net, train, additions)
    names = lora.inner_names(net)
    if weights is None:
        for name, value in lora.first_adapters(net, _first_seed(train)):
            net.get_parameter(name).data.copy_(value)
        return None

    def both() -> Iterator[tuple[str, Tensor]]:
        for name, value in weights():
            yield names[name], value
        yield from lora.first_adapters(net, _first_seed(train))

    return both


def _open_corpus(recipe: Recipe) -> Corpus:
    """The recipe's data; rows have room for an end and for the ids around their prompt."""
    ends = find_family(recipe.family).answers in ("eos", "canvas")
    return open_corpus(
        recipe.data,
        lambda vocab: ends + sum(map(len, _frame(recipe, vocab))),
        getattr(recipe, "segments", None),
        recipe.trails,
    )


def _frame(recipe: Recipe, vocab: Vocab) -> Frame:
    config = _config_for(recipe, vocab)
    return find_family(recipe.family).frame(config, vocab)


def _grpo(recipe: Recipe, vocab: Vocab) -> Objective:
    from anyorder.apps.planner_grpo import grpo  # here: it grades, so it imports the sandbox

    return grpo(recipe, vocab)


OWN_LOSSES: dict[str, Callable[[Recipe, Vocab], Objective]] = {"grpo": _grpo}
"""Losses that live outside families, because they decode and grade samples."""


def _objective(recipe: Recipe, vocab: Vocab) -> Objective:
    if recipe.loss in OWN_LOSSES:
        return OWN_LOSSES[recipe.loss](recipe, vocab)
    family = find_family(recipe.family)
    objective = family.objective(recipe.loss, vocab, recipe.settings, recipe.data.max_length)
    if recipe.net.prompt == "tokens":
        return objective
    ends = sentence_ends(vocab)

    def checked(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        check_prompts(batch.ids, batch.prompt_length, ends)
        return objective(net, batch, noise)

    return checked


def shaped_by(recipe: Recipe, base: Opened | ModelShape, asked: Collection[str] = ()) -> Recipe:
    """The recipe with the shape of the model that it starts from.

    What the base has too is the base's; what the family adds to it is the recipe's. Settings that
    the user asked for stay, and those that contradict the base are refused together.
    """
    family, given = find_family(recipe.family), _settings(base.config)
    mine = recipe.net.backbone(base.vocab.size, causal=family.causal)
    own = {each.name: getattr(recipe.net, each.name) for each in fields(recipe.net)}
    own |= {name: value for name, value in vars(mine).items() if name in own}
    given["prompt"] = "sentences" if given.get("sentence_ends") else "tokens"
    changes = {
        name: given[name]
        for name, value in own.items()
        if name in given and name not in CHOSEN and not same_setting(value, given[name])
    }
    wrong = sorted(set(asked) & set(changes) - MAY_DIFFER)
    if wrong:
        each = ", ".join(f"net.{name} is {changes[name]} and not {own[name]}" for name in wrong)
        raise ValueError(
            f"{base.name} has another shape than you asked for ({each}): leave these out, since "
            "--start takes the shape of the model"
        )
    if (heads := given.get("head_width")) is not None and recipe.net.head_width != heads:
        # The usual one, which recipes do not name, follows the width.
        changes["head_width"] = None if heads == given["width"] / given["heads"] else heads
    changes |= family.network.follow(recipe.net, base.config)
    kept = {name: value for name, value in changes.items() if name not in asked}
    return replace(recipe, net=replace(recipe.net, **kept))


NET = "net."
MAY_DIFFER = {"tied", "vocab_size"}
"""Settings of a backbone that one may ask for: the weights fit, or the names and shapes tell."""
CHOSEN = (FREE_SETTINGS | {"shift"}) - MAY_DIFFER
"""Settings that a network chooses, whatever it starts from; `Network.follow` decides on shift."""


def _settings(config: Any) -> dict[str, Any]:
    """The settings of a network and of the networks in it, by name."""
    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        found |= _settings(value) if is_dataclass(value) else {name: value}
    return found


def _shape_remarks(recipe: Recipe, shaped: Recipe) -> list[str]:
    before, after = asdict(recipe.net), asdict(shaped.net)
    other = [f"{name} {value}" for name, value in after.items() if value != before[name]]
    return [f"The network has the shape of {recipe.start}: {', '.join(other)}."] if other else []


def _check_vocab(base: Opened, vocab: Vocab) -> None:
    if base.vocab.digest() != vocab.digest():
        raise ValueError(
            f"{base.name} has another vocabulary than this recipe: train with its own "
            f"(--data.vocab {base.name})"
        )


def freeze(net: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Freeze parameters by prefix: the optimiser skips them, and they keep every bit."""
    for name, parameter in net.named_parameters():
        if name.startswith(prefixes):
            parameter.requires_grad_(False)


def model_card(recipe: Recipe, corpus: Corpus) -> Card:
    """The card of the model folder."""
    return Card(
        family=recipe.family,
        net=as_record(_config_for(recipe, corpus.vocab)),
        max_new_tokens=recipe.data.canvas,
        max_length=recipe.data.max_length,
        recipe=recipe.as_json(),
    )


def network_config(
    recipe: Recipe, vocab_size: int, eos: int = 0, sentence_ends: tuple[int, ...] = ()
) -> Any:
    """The network's complete configuration; ids do not change its shapes."""
    return find_family(recipe.family).network_config(recipe, vocab_size, eos, sentence_ends)


def _config_for(recipe: Recipe, vocab: Vocab) -> Any:
    ends = sentence_ends(vocab) if recipe.net.prompt == "sentences" else ()
    return network_config(recipe, vocab.size, vocab.eos_id, ends)


def checked_vocab_size(recipe: Recipe) -> int:
    """The size of the vocabulary, after all checks that training would make of the data."""
    corpus = _open_corpus(recipe)
    _objective(recipe, corpus.vocab)
    _batches(recipe, corpus, corpus.train, recipe.train.micro_batch)
    return corpus.vocab.size


def _batches(recipe: Recipe, corpus: Corpus, source: Any, size: int) -> Batches:
    data, family = recipe.data, find_family(recipe.family)
    if data.align == "right" and family.answers != "canvas":
        raise ValueError(f"{recipe.family} has no canvas to align to: leave data.align out")
    config = batch_config(
        family,
        _frame(recipe, corpus.vocab),
        data.canvas,
        data.align,
        size=size,
        seed=data.seed,
        bucket=data.bucket,
        segments=getattr(recipe, "segments", None),
    )
    return Batches(source, corpus.vocab, config)


def batch_config(
    family: Family, frame: Frame, canvas: int, align: Any, **others: Any
) -> BatchConfig:
    """How the rows of a family are made, in training and wherever its loss is computed."""
    fills = family.answers == "canvas"
    return BatchConfig(
        canvas=canvas if fills else None,
        align=align if fills else "left",
        ending="eos" if family.answers in ("eos", "canvas") else "none",
        before=frame[0],
        after=frame[1],
        pad_slots=family.answers == "slots",
        **others,
    )
