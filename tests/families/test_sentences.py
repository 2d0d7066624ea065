"""Prompts summed by sentence in families whose noise looks like tokens: duo and sflm.

Training and decoding give the layers the same vectors for a prompt, and these are the sums of what
is read without the setting. Noise is read as it is, wherever it stands.
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


def read_by(net: Any, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The vectors of each call of the network from now on."""
    calls: list[Tensor] = []
    hidden = net.hidden

    def spied(*args: Any, **named: Any) -> Tensor:
        calls.append((args[0] if args else named["vectors"]).detach())
        states: Tensor = hidden(*args, **named)
        return states

    monkeypatch.setattr(net, "hidden", spied)
    return calls


def trained_on(net: Any, kind: str, batch: Batch, noise: Noise, infill: float = 0.0) -> Tensor:
    recipe = find_recipe(f"tiny/{kind.split(',')[0]}")
    room = "uniform" if "duo" in kind else "sphere"
    changes = {f"{room}.infill": infill}
    changes |= {"uniform.curriculum": 100} if "curriculum" in kind else {}
    recipe = override(recipe, changes)
    objective = find_family(recipe.family).objective(None, VOCAB, recipe.settings, 32)
    return objective(net, batch, noise).loss


def decode(net: Any, kind: str, canvas: Canvas) -> Any:
    family = find_family(kind.split(",")[0])
    [found] = family.decode(net, VOCAB, [canvas], [7], family.choose({"steps": 3}))
    return found


def vectors(net: Any, ids: list[int]) -> Tensor:
    """What is read of clean tokens without the setting."""
    given = torch.tensor([ids])
    found = net.vectors(given) if hasattr(net, "vectors") else net.embed(given)
    return found[0].detach()


def summed(clean: Tensor) -> Tensor:
    parts = [clean[torch.tensor(places)].cumsum(0) for places in SENTENCES]
    return torch.cat(parts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("infill", [0.0, 1.0])
def test_training_and_decoding_read_the_same_sums(
    kind: str, infill: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(kind, ENDS)
    rows = [Example(PROMPT, ANSWER, number) for number in range(40)]
    batch = collate(rows, VOCAB, BatchConfig(canvas=8))
    calls = read_by(net, monkeypatch)
    trained_on(net, kind, batch, Noise(5, 1), infill)
    decode(net, kind, Canvas.of([PROMPT, 8], VOCAB))
    assert len(calls) == 1 + 3
    expected = summed(vectors(net, PROMPT))
    for call in calls:
        torch.testing.assert_close(call[:, :6], expected.expand(len(call), -1, -1))
    if infill == 0.0 and kind.startswith("sflm"):
        # Noise is read as it is: on the sphere, whatever token it began with.
        lengths = torch.cat([call[:, 6:].flatten(0, 1) for call in calls]).norm(dim=-1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
    if kind == "duo":  # ends of sentences and prompts among the noise end nothing
        table = net.embed.weight.detach()
        for call in calls:
            assert float(torch.cdist(call[:, 6:], table[None]).amin(-1).max()) < 1e-3
        shown = torch.cdist(calls[0][:, 6:], table[None]).argmin(-1)
        assert bool((shown == NEWLINE).any()) and bool((shown == C).any())


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_summed_vectors(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same loss as of a network without the setting that is handed the sums."""
    net, bare = network(kind, ENDS), network(kind, ())
    batch = collate([Example(PROMPT, ANSWER, 0)], VOCAB, BatchConfig(canvas=8))
    expected = summed(vectors(bare, PROMPT))
    plain = trained_on(bare, kind, batch, Noise(5, 1))
    hidden = bare.hidden

    def handed(*args: Any, **named: Any) -> Tensor:
        given = args[0] if args else named.pop("vectors")
        x = torch.cat([expected[None], given[:, 6:]], dim=1)
        states: Tensor = hidden(x, **named) if args else hidden(vectors=x, **named)
        return states

    monkeypatch.setattr(bare, "hidden", handed)
    loss = trained_on(net, kind, batch, Noise(5, 1))
    torch.testing.assert_close(loss, trained_on(bare, kind, batch, Noise(5, 1)))
    assert not torch.allclose(loss, plain)


@pytest.mark.parametrize("kind", ["duo", "sflm"])
def test_noise_before_the_end_of_a_prompt_moves_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap inside of the prompt: only what is given is summed, in every step."""
    net = network(kind, ENDS)
    calls = read_by(net, monkeypatch)
    before, after = [A, B], [A, C, B, NEWLINE, A, C]
    canvas = Canvas.of([before, 3, after], VOCAB)
    decode(net, kind, canvas)
    clean = vectors(net, before + after)
    first, second = clean[:4].cumsum(0), clean[4:6].cumsum(0)
    expected = torch.cat([first, second, clean[6:]])
    for call in calls:
        torch.testing.assert_close(call[0, ~torch.tensor(canvas.free)], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_setting_nothing_is_summed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(kind, ())
    batch = collate([Example(PROMPT, ANSWER, 0)], VOCAB, BatchConfig(canvas=8))
    calls = read_by(net, monkeypatch)
    trained_on(net, kind, batch, Noise(5, 1))
    assert torch.equal(calls[0][0, :6], vectors(net, PROMPT))
