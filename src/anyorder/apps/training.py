"""`anyorder train`: a recipe -> a trained model folder.

Puts a recipe's parts together (corpus, network, objective, batches), runs the one loop, and writes
the model folder with the averaged weights. The loop itself is train/loop.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anyorder.apps.corpus import Corpus, open_corpus
from anyorder.apps.planner_tuning import grpo
from anyorder.data.batches import BatchConfig, Batches
from anyorder.decode.fill import Frame
from anyorder.families import find_family
from anyorder.model import Card, Model, build, load
from anyorder.nets.transformer import TransformerConfig
from anyorder.recipes import Recipe, find_recipe, override
from anyorder.train.loop import FitOptions, FitResult, fit
from anyorder.train.objectives import Objective
from anyorder.vocab import Vocab


def train(recipe: str | Recipe, *, out: str | Path, progress: bool = True, **changes: Any) -> Model:
    """Train by recipe and load the result: `train("tiny/mdm", steps=500, out="runs/mdm")`.

    `changes` are the recipe's fields by name; nested ones as `**{"net.width": 96}`. Calling it
    again goes on from the last checkpoint.
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    result = train_recipe(override(chosen, changes), Path(out), progress=progress)
    if result.reason == "interrupted":
        raise KeyboardInterrupt  # what was exported before, if anything, is not this result
    return load(Path(out))


def train_recipe(recipe: Recipe, out: Path, *, progress: bool = True) -> FitResult:
    """Train, going on from what `out` holds, and write the model folder there."""
    family = find_family(recipe.family)
    if recipe.frozen and recipe.start is None:
        raise ValueError("what is frozen must have been trained: name a model with --start")
    corpus = _open_corpus(recipe)
    if progress:
        for remark in corpus.remarks():
            print(remark, file=sys.stderr)
    model = build(model_card(recipe, corpus), corpus.vocab, name=str(out), seed=recipe.train.seed)
    base_digest = None if recipe.start is None else _begin_with(model, recipe.start)
    _freeze(model.net, recipe.frozen)
    objective = _objective(recipe, corpus.vocab)
    batches = _batches(recipe, corpus, corpus.train, recipe.train.micro_batch)
    held_out = _batches(recipe, corpus, corpus.validation, recipe.train.batch)

    def export(net: nn.Module) -> None:
        Model(family, net, corpus.vocab, model.card, name=str(out), digest="").save(out)

    options = FitOptions(
        levels=family.levels,
        about={
            "family": recipe.family,
            "loss": recipe.loss,
            "start": base_digest,
            "settings": None if recipe.settings is None else asdict(recipe.settings),
            "net": asdict(recipe.net),
            "data": asdict(recipe.data),
            "data_digest": corpus.digest,
            "vocab_digest": corpus.vocab.digest(),
        },
        export=export,
        progress=progress,
    )
    validation = [held_out(i) for i in range(recipe.train.validate_batches)]
    return fit(model.net, objective, batches, validation, recipe.train, out, options)


def _open_corpus(recipe: Recipe) -> Corpus:
    """The recipe's data; rows also hold an end, or the ids around their prompt."""
    ends = find_family(recipe.family).answers in ("eos", "canvas")
    return open_corpus(
        recipe.data,
        lambda vocab: ends + sum(map(len, _frame(recipe, vocab))),
        getattr(recipe, "segments", None),
    )


def _frame(recipe: Recipe, vocab: Vocab) -> Frame:
    config = network_config(recipe, vocab.size, vocab.eos_id)
    return find_family(recipe.family).frame(config, vocab)


OWN_LOSSES: dict[str, Callable[[Recipe, Vocab], Objective]] = {"grpo": grpo}
"""Losses that need more rooms than a family's: samples are decoded and graded for them."""


def _objective(recipe: Recipe, vocab: Vocab) -> Objective:
    if recipe.loss in OWN_LOSSES:
        return OWN_LOSSES[recipe.loss](recipe, vocab)
    family = find_family(recipe.family)
    return family.objective(recipe.loss, vocab, recipe.settings, recipe.data.max_length)


def _begin_with(model: Model, start: str) -> str:
    """Give a fresh network the weights of a trained one; the digest of what it began with."""
    base = load(start)
    if base.vocab.digest() != model.vocab.digest():
        raise ValueError(f"{start} has another vocabulary than this recipe: train with its own")
    model.family.network.start(model.net, base.net)
    return base.digest


def _freeze(net: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Take the gradients from some parameters: no optimiser sees them, and they keep every bit."""
    for name, parameter in net.named_parameters():
        if name.startswith(prefixes):
            parameter.requires_grad_(False)


def model_card(recipe: Recipe, corpus: Corpus) -> Card:
    """What the model folder will say of the model."""
    return Card(
        family=recipe.family,
        net=asdict(network_config(recipe, corpus.vocab.size, corpus.vocab.eos_id)),
        max_new_tokens=recipe.data.canvas,
        max_length=recipe.data.max_length,
        recipe=recipe.as_json(),
    )


def network_config(recipe: Recipe, vocab_size: int, eos: int = 0) -> Any:
    """The network's configuration, complete; its shape does not depend on which id is EOS."""
    net, family = recipe.net, find_family(recipe.family)
    backbone = TransformerConfig(
        vocab_size=vocab_size if net.vocab_size is None else net.vocab_size,
        width=net.width,
        layers=net.layers,
        heads=net.heads,
        kv_heads=net.heads if net.kv_heads is None else net.kv_heads,
        head_width=net.width // net.heads,
        mlp_width=net.mlp_width,
        causal=family.causal,
        rope_theta=net.rope_theta,
        qkv_bias=net.qkv_bias,
        o_bias=net.o_bias,
        tied=net.tied,
    )
    return family.network.complete(backbone, recipe, eos)


def measure_sizes(recipe: Recipe) -> dict[str, Any]:
    """Parameters by module, tensors and memory, without training (and without the memory).

    A recipe that says how many rows its embedding has needs no data for that.
    """
    vocab_size = recipe.net.vocab_size or _checked_vocab_size(recipe)
    network = find_family(recipe.family).network
    with torch.device("meta"):
        net = network.build(network_config(recipe, vocab_size))
    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    parameters = sum(sizes.values())
    added = network.additions(net)
    by_module: dict[str, int] = {}
    for name, size in sizes.items():
        part = "added" if name in added else name.removeprefix("backbone.").split(".")[0]
        by_module[part] = by_module.get(part, 0) + size
    return {
        "family": recipe.family,
        "parameters": parameters,
        "backbone_parameters": parameters - by_module.get("added", 0),
        "added_parameters": by_module.get("added", 0),
        "by_module": by_module,
        "tensors": len(sizes),
        "added_tensors": len(added),
        # float32 weights, gradients, two moments, and the average
        "training_bytes": parameters * 4 * (5 if recipe.train.ema else 4),
        "tokens_per_step": recipe.train.batch * recipe.data.max_length,
    }


def _checked_vocab_size(recipe: Recipe) -> int:
    """The vocabulary's size, once everything that training would ask for has been asked for."""
    corpus = _open_corpus(recipe)
    _objective(recipe, corpus.vocab)
    _batches(recipe, corpus, corpus.train, recipe.train.micro_batch)
    return corpus.vocab.size


def _batches(recipe: Recipe, corpus: Corpus, source: Any, size: int) -> Batches:
    data = recipe.data
    family = find_family(recipe.family)
    fills = family.answers == "canvas"
    if data.align == "right" and not fills:
        raise ValueError(f"{recipe.family} has no canvas to align to: leave data.align out")
    before, after = _frame(recipe, corpus.vocab)
    config = BatchConfig(
        size=size,
        seed=data.seed,
        bucket=data.bucket,
        canvas=data.canvas if fills else None,
        align=data.align,
        ending="eos" if family.answers in ("eos", "canvas") else "none",
        before=before,
        after=after,
        segments=getattr(recipe, "segments", None),
        pad_slots=family.answers == "slots",
    )
    return Batches(source, corpus.vocab, config)
