"""`anyorder train`: a recipe -> a trained model folder.

It assembles a recipe's parts (corpus, network, objective, batches), runs the training loop
(training/loop.py), and writes the model folder with the averaged weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from anyorder.apps.corpus import Corpus, open_corpus
from anyorder.data.batches import Batch, BatchConfig, Batches
from anyorder.decode.canvas import Frame
from anyorder.families.family import Family, Objective, find_family
from anyorder.loading import Opened, open_weights
from anyorder.model import Card, Model, build, checked_config, load
from anyorder.nets.init import NamedSeed
from anyorder.nets.prompts import check_prompts, sentence_ends
from anyorder.nets.shapes import as_record
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.recipes import Recipe, find_recipe, override
from anyorder.training import lora
from anyorder.training.checkpoint import saved_config
from anyorder.training.config import BEFORE, TrainConfig
from anyorder.training.distributed import Weights
from anyorder.training.loop import CHECKPOINTS, FitOptions, FitResult, fit
from anyorder.training.processes import Ranks, joined
from anyorder.vocab import Vocab


def train(recipe: str | Recipe, *, out: str | Path, progress: bool = True, **changes: Any) -> Model:
    """Train by recipe and load the result: `train("tiny/mdm", steps=500, out="runs/mdm")`.

    `changes` are the recipe's fields by name; nested ones as `**{"net.width": 96}`. A second
    call continues from the last checkpoint.
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    result = train_recipe(override(chosen, changes), Path(out), progress=progress)
    if result.reason == "interrupted":
        raise KeyboardInterrupt  # an older export in `out` is not this result
    return load(Path(out))


def train_recipe(recipe: Recipe, out: Path, *, progress: bool = True) -> FitResult:
    """Train, or continue from the checkpoint in `out`, and write the model folder there.

    Under torchrun all processes call this; rank 0 writes and prints.
    """
    with joined(recipe.train.device) as ranks:
        return _train(recipe, out, ranks, progress=progress and ranks.first)


def _train(recipe: Recipe, out: Path, ranks: Ranks, *, progress: bool) -> FitResult:
    family = find_family(recipe.family)
    _check_start(recipe, ranks)
    with ranks.one_before_others():  # so that files are downloaded once
        corpus = _open_corpus(recipe)
        base = None if recipe.start is None else _open_start(recipe.start, corpus.vocab)
    if progress:
        for remark in corpus.remarks():
            print(remark, file=sys.stderr)
    recipe = _as_begun(recipe, out, ranks, progress=progress)
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
            "data": asdict(recipe.data),
            "data_digest": corpus.digest,
            "vocab_digest": corpus.vocab.digest(),
        },
        export=export,
        progress=progress,
        weights=weights,
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


def _open_start(start: str, vocab: Vocab) -> Opened:
    """The trained model to start from, with the same vocabulary; its weights are read later."""
    base = open_weights(start)
    if base.vocab.digest() != vocab.digest():
        raise ValueError(f"{start} has another vocabulary than this recipe: train with its own")
    return base


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
