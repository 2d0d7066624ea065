"""`anyorder train`: a recipe -> a trained model folder.

Puts a recipe's parts together (corpus, network, objective, batches), runs the one loop, and writes
the model folder with the averaged weights. The loop itself is train/loop.py.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anyorder.apps.corpus import Corpus, open_corpus
from anyorder.data.batches import BatchConfig, Batches
from anyorder.families import find_family
from anyorder.model import Card, Model, build, load
from anyorder.nets.transformer import Transformer, TransformerConfig
from anyorder.recipes import Recipe, find_recipe, override
from anyorder.train.loop import FitOptions, FitResult, fit


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
    corpus = open_corpus(recipe.data)
    if corpus.left_out and progress:
        print(f"{corpus.left_out} examples are too long and left out", file=sys.stderr)
    model = build(model_card(recipe, corpus), corpus.vocab, name=str(out), seed=recipe.train.seed)
    objective = family.objective(recipe.loss, corpus.vocab)
    batches = _batches(recipe, corpus, corpus.train, recipe.train.micro_batch)
    held_out = _batches(recipe, corpus, corpus.validation, recipe.train.batch)

    def export(net: nn.Module) -> None:
        Model(family, net, corpus.vocab, model.card, name=str(out), digest="").save(out)

    options = FitOptions(
        levels=family.levels,
        about={
            "family": recipe.family,
            "loss": recipe.loss,
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


def model_card(recipe: Recipe, corpus: Corpus) -> Card:
    """What the model folder will say of the model."""
    return Card(
        family=recipe.family,
        net=asdict(network_config(recipe, corpus.vocab.size)),
        max_new_tokens=recipe.data.canvas,
        max_length=recipe.data.max_length,
        recipe=recipe.as_json(),
    )


def network_config(recipe: Recipe, vocab_size: int) -> TransformerConfig:
    """The network's shape, complete."""
    net = recipe.net
    return TransformerConfig(
        vocab_size=vocab_size,
        width=net.width,
        layers=net.layers,
        heads=net.heads,
        kv_heads=net.heads if net.kv_heads is None else net.kv_heads,
        head_width=net.width // net.heads,
        mlp_width=net.mlp_width,
        causal=find_family(recipe.family).causal,
        rope_theta=net.rope_theta,
        qkv_bias=net.qkv_bias,
        o_bias=net.o_bias,
        tied=net.tied,
    )


def measure_sizes(recipe: Recipe) -> dict[str, Any]:
    """Parameters by module, tensors and memory, without training (and without the memory)."""
    corpus = open_corpus(recipe.data)
    find_family(recipe.family).objective(recipe.loss, corpus.vocab)
    _batches(recipe, corpus, corpus.train, recipe.train.micro_batch)
    with torch.device("meta"):
        net = Transformer(network_config(recipe, corpus.vocab.size))
    parameters = sum(p.numel() for p in net.parameters())
    by_module = {
        name: sum(p.numel() for p in part.parameters()) for name, part in net.named_children()
    }
    return {
        "family": recipe.family,
        "parameters": parameters,
        "by_module": {name: count for name, count in by_module.items() if count},
        "tensors": len(list(net.parameters())),
        # float32 weights, gradients, two moments, and the average
        "training_bytes": parameters * 4 * (5 if recipe.train.ema else 4),
        "tokens_per_step": recipe.train.batch * recipe.data.max_length,
    }


def _batches(recipe: Recipe, corpus: Corpus, source: Any, size: int) -> Batches:
    data = recipe.data
    fills = find_family(recipe.family).fills_canvas
    if data.align == "right" and not fills:
        raise ValueError(f"{recipe.family} has no canvas to align to: leave data.align out")
    config = BatchConfig(
        size=size,
        seed=data.seed,
        bucket=data.bucket,
        canvas=data.canvas if fills else None,
        align=data.align,
    )
    return Batches(source, corpus.vocab, config)
