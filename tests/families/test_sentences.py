"""Prompts pooled by sentence in families whose noise looks like tokens: duo and sflm.

A network with the setting gives the states of one without it that is handed pooled columns. Noise
is no part of a prompt, whatever tokens it shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.decode.canvas import Canvas
from anyorder.families.family import find_family
from anyorder.families.sflm.config import SphereConfig
from anyorder.nets.prompts import sentence_ends
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import Noise
from anyorder.recipes import find_recipe, override
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c.", "d?", "\n"])
A, B, C, D, NEWLINE = range(5)
ENDS = sentence_ends(VOCAB)
SHAPE = TransformerConfig(
    VOCAB.size, 16, 2, 2, 2, 8, 24, qkv_bias=False, tied=False, time_modulated=True
)
PROMPT = [A, B, C, A, D, NEWLINE]
ANSWER = [B, C, A, NEWLINE, B]
SENTENCES = ((0, 1, 2), (3, 4), (5,))
"""The places of the prompt, sentence by sentence."""
KINDS = ["duo", "duo, curriculum", "sflm", "sflm, dit"]


def network(kind: str, ends: tuple[int, ...]) -> Any:
    """Past its start, where some weights are zero."""
    family = kind.split(",")[0]
    shape: Any = replace(SHAPE, sentence_ends=ends)
    if family == "sflm":
        body: Any = "dit" if "dit" in kind else "backbone"
        shape = SphereConfig(shape, most_signal=0.6, architecture=body)
    net = find_family(family).network.build(shape, seed=2)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return net


def pooled_by_hand(bare: Any, vectors: Tensor, **named: Any) -> Tensor:
    """The states of a network without the setting on the columns of rows that begin with PROMPT."""
    prompt = [vectors[:, list(places)].sum(1) for places in SENTENCES]
    x = torch.cat([torch.stack(prompt, dim=1), vectors[:, len(PROMPT) :]], dim=1)
    mask = named.pop("mask")
    if mask is not None:
        mask = mask[:, len(PROMPT) - len(SENTENCES) :]
    if hasattr(bare, "vectors"):
        states = bare.hidden(x, mask=mask, **named)
    else:
        states = bare.hidden(vectors=x, mask=mask, **named)
    of_token = [at for at, places in enumerate(SENTENCES) for _ in places]
    rest = range(len(SENTENCES), states.shape[1])
    found: Tensor = states[:, [*of_token, *rest]]
    return found


def compared(net: Any, bare: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The largest difference from the states by hand, for each call of the network from now on."""
    differences: list[float] = []
    hidden = net.hidden

    def watched(*args: Any, **named: Any) -> Tensor:
        states: Tensor = hidden(*args, **named)
        ids = named.pop("ids", None)
        vectors = named.pop("vectors", args[0] if args else None)
        if not hasattr(net, "vectors"):  # duo gives ids, or ids and vectors
            ids = args[0] if args else ids
            vectors = vectors if vectors is not None and vectors.ndim == 3 else net.embed(ids)
        expected = pooled_by_hand(bare, vectors, **named)
        differences.append(float((states - expected)[:, len(PROMPT) :].abs().max().detach()))
        return states

    monkeypatch.setattr(net, "hidden", watched)
    return differences


def trained_on(net: Any, kind: str, batch: Batch, noise: Noise, infill: float = 0.0) -> Tensor:
    recipe = find_recipe(f"tiny/{kind.split(',')[0]}")
    room = "uniform" if "duo" in kind else "sphere"
    changes = {f"{room}.infill": infill}
    changes |= {"uniform.curriculum": 100} if "curriculum" in kind else {}
    recipe = override(recipe, changes)
    objective = find_family(recipe.family).objective(None, VOCAB, recipe.settings, 32)
    return objective(net, batch, noise).loss


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("infill", [0.0, 1.0])
def test_training_and_decoding_read_pooled_prompts(
    kind: str, infill: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, bare = network(kind, ENDS), network(kind, ())
    differences = compared(net, bare, monkeypatch)
    rows = [Example(PROMPT, ANSWER, number) for number in range(40)]
    trained_on(net, kind, collate(rows, VOCAB, BatchConfig(canvas=8)), Noise(5, 1), infill)
    family = find_family(kind.split(",")[0])
    canvas = Canvas.of([PROMPT, 8], VOCAB)
    family.decode(net, VOCAB, [canvas], [7], family.choose({"steps": 3}))
    assert len(differences) == 1 + 3
    assert max(differences) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_setting_changes_the_loss(kind: str) -> None:
    net, bare = network(kind, ENDS), network(kind, ())
    batch = collate([Example(PROMPT, ANSWER, 0)], VOCAB, BatchConfig(canvas=8))
    one, other = (trained_on(each, kind, batch, Noise(5, 1)) for each in (net, bare))
    assert not torch.allclose(one, other)
