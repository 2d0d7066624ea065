"""flexmdm's loss on a batch: its value by hand, its choices, its start and its optimiser groups."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anyorder.apps.train import train, train_recipe
from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.families.flexmdm.config import FlexConfig, InsertionConfig
from anyorder.families.flexmdm.loss import _items, clocks_of, insertion_bound
from anyorder.families.flexmdm.net import FlexNet
from anyorder.model import load
from anyorder.nets.shapes import TransformerConfig
from anyorder.process import insertion
from anyorder.process.noise import Noise
from anyorder.recipes import find_recipe, override
from anyorder.recipes.paper import ADDITIONS
from anyorder.training.config import TrainConfig
from anyorder.training.optimiser import parameter_groups
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abc"))
A, B, C = range(3)
BARE = BatchConfig(ending="none", after=(VOCAB.eos_id,))
NET = FlexConfig(TransformerConfig(VOCAB.size, 16, 2, 2, 1, 8, 24, time_modulated=True))


def batch() -> Batch:
    rows = [Example([A, B], [C, A, B, C, A], 0), Example([B], [C, C, A], 1), Example([C], [], 2)]
    return collate(rows, VOCAB, BARE)


def test_rows_are_prompt_anchor_answer_and_no_end() -> None:
    rows = batch()
    assert rows.ids[1].tolist()[:5] == [B, VOCAB.eos_id, C, C, A]
    assert rows.prompt_length.tolist() == [3, 2, 2]
    assert rows.length.tolist() == [8, 5, 2]


@pytest.mark.parametrize("coordinate", ["progress", "raw"])
@pytest.mark.parametrize("weighting", ["hazard", "compat"])
@pytest.mark.parametrize("normalise", ["items", "rows", "max_length"])
def test_the_loss_by_hand(coordinate: str, weighting: str, normalise: str) -> None:
    """One row and one slot at a time, from the interpolant that the objective saw."""
    net = FlexNet(replace(NET, coordinate=coordinate), seed=2)  # type: ignore[arg-type]
    config = InsertionConfig(weighting=weighting, normalise=normalise)  # type: ignore[arg-type]
    rows, noise = batch(), Noise(5, 1)
    parts = insertion_bound(VOCAB, config, 11)(net, rows, noise)
    clocks = clocks_of(net)
    seen = insertion.corrupt(_items(rows, noise, 0.0), rows.index, noise, clocks)
    total = nats = 0.0
    for row in range(3):
        t = float(seen.time[row])
        slots = int(seen.real[row].sum())
        origin = seen.origin[row, :slots].tolist()
        hidden = [bool(m) for m in seen.masked[row, :slots]]
        ids = [
            VOCAB.mask_id if masked else int(rows.ids[row, j])
            for j, masked in zip(origin, hidden, strict=True)
        ]
        look = net.look(torch.tensor([ids]), time=torch.tensor([t]))
        divide = {"items": int(rows.answer.sum()) / 3, "rows": 1, "max_length": 11}
        scale = 1 / (3 * divide[normalise])

        def weight(n: float, t: float = t) -> float:
            if weighting == "hazard":
                return min(n / (1 - t), 100.0)
            return n * (1 - t) ** (n - 1) / ((1 - t) ** n + 1e-3)

        for slot, j in enumerate(origin):
            if hidden[slot]:
                log_prob = net.head(look.states[0, slot]).log_softmax(dim=-1)
                nats -= log_prob[rows.ids[row, j]].item()
                total -= (
                    scale * weight(clocks.unmasking.exponent) * log_prob[rows.ids[row, j]].item()
                )
            if j >= int(rows.prompt_length[row]) - 1:
                following = origin[slot + 1] if slot + 1 < slots else int(rows.length[row])
                g = look.gaps[0, slot].item()
                phi = math.exp(g) - (following - j - 1) * g
                total += scale * weight(clocks.insertion.exponent) * phi
    assert parts.loss.item() == pytest.approx(total, rel=1e-4)
    assert float(parts.nats) == pytest.approx(nats, rel=1e-4)
    assert int(parts.tokens) == int(seen.masked.sum())


def test_an_empty_answer_still_teaches_its_one_gap() -> None:
    net = FlexNet(NET, seed=2)
    empty = collate([Example([C], [], 2)], VOCAB, BARE)
    parts = insertion_bound(VOCAB, InsertionConfig(), 11)(net, empty, Noise(0, 0))
    parts.loss.backward()
    assert net.gap.outer.bias.grad is not None
    assert float(net.gap.outer.bias.grad) > 0  # fewer, please


def test_infilling_corrupts_one_span_and_nothing_around_it() -> None:
    example = Example([A], [B] * 9, 0)
    rows = collate([replace(example, index=i) for i in range(200)], VOCAB, BARE)
    items = _items(rows, Noise(1, 2), 1.0)
    spans = set()
    for free, gaps in zip(items.free.tolist(), items.gaps.tolist(), strict=True):
        first, last = gaps.index(True), len(gaps) - gaps[::-1].index(True)
        assert free == [first < i < last for i in range(len(free))]
        assert gaps == [first <= i < last for i in range(len(gaps))]
        assert first >= 1  # the anchor's gap is the first that may open
        spans.add((first, last))
    assert len(spans) > 40
    assert _items(rows, Noise(1, 2), 0.0).free.equal(rows.answer)


def test_the_vocabulary_head_runs_on_masked_slots_only(monkeypatch: pytest.MonkeyPatch) -> None:
    net, seen = FlexNet(NET, seed=2), []
    head = net.head
    monkeypatch.setattr(net, "head", lambda states: (seen.append(len(states)), head(states))[1])
    parts = insertion_bound(VOCAB, InsertionConfig(), 11)(net, batch(), Noise(5, 1))
    assert seen == [int(parts.tokens)]


def test_the_additions_have_their_own_learning_rate_and_everything_may_decay() -> None:
    net = FlexNet(NET)
    config = TrainConfig(multipliers=dict.fromkeys(ADDITIONS, 2.0), decay="everything")
    groups = parameter_groups(net, config)
    by_rate = {group["multiplier"]: set(group["names"]) for group in groups}
    assert by_rate == {
        2.0: net.additions(),
        1.0: {name for name, _ in net.named_parameters()} - net.additions(),
    }
    assert {group["weight_decay"] for group in groups} == {config.weight_decay}
    assert {group["weight_decay"] for group in parameter_groups(net, TrainConfig())} == {0, 0.01}


SMALL = {"steps": 3, "warmup": 1, "batch": 4, "net.width": 16, "net.heads": 2, "net.layers": 1}
SMALL |= {"net.mlp_width": 24, "validate_batches": 1, "threads": 1}


def test_training_starts_from_an_mdm_and_remembers_which(tmp_path: Path) -> None:
    base = train("tiny/mdm", out=tmp_path / "base", progress=False, **SMALL)
    model = train(
        "tiny/flexmdm",
        out=tmp_path / "flex",
        progress=False,
        start=str(tmp_path / "base"),
        **SMALL | {"lr": 1e-12, "ema": 0.0},
    )
    ids = torch.tensor([[1, 2, 3, 4]])
    states = model.net.look(ids, time=torch.tensor([0.3])).states
    torch.testing.assert_close(states, base.net.hidden(ids), atol=1e-5, rtol=1e-5)
    assert json.loads((tmp_path / "flex" / "config.json").read_text())["recipe"]["start"]
    other = train("tiny/mdm", out=tmp_path / "other", progress=False, **SMALL | {"seed": 5})
    recipe = override(find_recipe("tiny/flexmdm"), SMALL | {"lr": 1e-12, "ema": 0.0})
    with pytest.raises(ValueError, match="start"):
        train_recipe(replace(recipe, start=str(tmp_path / "other")), tmp_path / "flex")
    assert other.digest != base.digest


def test_what_training_cannot_start_from(tmp_path: Path) -> None:
    train("tiny/mdm", out=tmp_path / "wide", progress=False, **SMALL | {"net.width": 32})
    for name in ("tiny/mdm", "tiny/flexmdm"):
        for start, message in [("wide", "another shape"), ("none", "no model")]:
            with pytest.raises(ValueError, match=message):
                train(name, out=tmp_path / "out", start=str(tmp_path / start), **SMALL)
    assert not (tmp_path / "out").exists()


def test_a_saved_flexmdm_loads_and_samples_the_same(tmp_path: Path) -> None:
    model = train("tiny/flexmdm", out=tmp_path / "m", progress=False, **SMALL)
    again = load(tmp_path / "m")
    prompt = "Mia"
    first = model.sample(prompt, steps=8, max_new_tokens=12, seed=3)[0]
    assert again.sample(prompt, steps=8, max_new_tokens=12, seed=3)[0].text == first.text
    assert first.family == "flexmdm" and first.prompt == prompt
