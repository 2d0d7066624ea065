"""sflm's loss on a batch: its value by hand, what is noised and predicted, and that it resumes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from anyorder.apps.dry_run import measure_sizes
from anyorder.apps.train import network_config, train
from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.families.sflm.config import SphereConfig, SphereLossConfig
from anyorder.families.sflm.loss import noised_positions, noised_vectors, sphere_mean
from anyorder.families.sflm.net import SphereNet
from anyorder.model import load
from anyorder.nets.shapes import TransformerConfig
from anyorder.process import sphere
from anyorder.process.noise import Noise
from anyorder.recipes import find_recipe, override
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abc"))
A, B, C = range(3)
WIDTH = 24
SHAPE = TransformerConfig(
    VOCAB.size, WIDTH, 2, 2, 2, 8, 24, qkv_bias=False, tied=False, time_modulated=True
)
PLAIN = SphereLossConfig()


def net_of(architecture: str = "backbone") -> SphereNet:
    """Past its start, where the head is not zero."""
    config = SphereConfig(SHAPE, most_signal=0.6, architecture=architecture)  # type: ignore[arg-type]
    net = SphereNet(config, seed=2)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return net


def batch() -> Batch:
    rows = [Example([A, B], [C, A, B], 4), Example([B], [C], 1), Example([C, C, C], [], 2)]
    return collate(rows, VOCAB, BatchConfig(canvas=4))


@pytest.mark.parametrize("architecture", ["backbone", "dit"])
def test_the_loss_by_hand(architecture: str) -> None:
    """One row at a time, one position at a time."""
    net, rows, noise = net_of(architecture), batch(), Noise(5, 1)
    parts = sphere_mean(VOCAB, PLAIN, 0)(net, rows, noise)
    levels, nats = noise.levels(3), []
    for row in range(3):
        first, last = int(rows.prompt_length[row]), int(rows.length[row])
        time = 1e-3 + (1 - 1e-3) * float(levels[row])
        signal = torch.tensor([1e-3 + (0.6 - 1e-3) * (1 - time)], dtype=torch.float64)
        table = net.unit_table()
        seen = [table[token] for token in rows.ids[row, :first]]
        for position in range(first, last):
            z = sphere.training_noise(noise, rows.index[row][None], torch.tensor([position]), WIDTH)
            clean = table[rows.ids[row, position]].double()[None]
            seen.append(sphere.slerp(z, clean, signal)[0].float())
        logits = net.head(net.hidden(torch.stack(seen)[None], signal=signal))[0]
        log_prob = logits.log_softmax(dim=-1)
        nats += [-log_prob[i, rows.ids[row, i]] for i in range(first, last)]
    total = float(torch.stack(nats).sum().detach())
    assert len(nats) == 12 == int(parts.tokens)
    assert float(parts.loss.detach()) == pytest.approx(total / 12, abs=1e-5)
    assert float(parts.nats) == pytest.approx(total, abs=1e-4)


def test_prompts_stay_clean_and_answers_do_not() -> None:
    net, rows, noise = net_of(), batch(), Noise(5, 1)
    noised = noised_positions(rows, noise, PLAIN)
    assert torch.equal(noised, rows.answer)
    clean = net.vectors(rows.ids).detach()
    signal = torch.tensor([0.001, 0.3, 0.6], dtype=torch.float64)
    seen = noised_vectors(clean, noised, signal, rows.index, noise)
    assert torch.equal(seen[~noised], clean[~noised])
    assert torch.allclose(seen[noised].norm(dim=-1), torch.ones(12), atol=1e-6)
    near = (seen * clean).sum(dim=-1)
    assert bool((near[noised] < 0.99).all())
    assert float(near[0][noised[0]].mean()) < float(near[2][noised[2]].mean())


def test_an_answers_noise_belongs_to_its_example() -> None:
    net, noise = net_of(), Noise(5, 1)
    rows = batch()
    alone = collate([Example([B], [C], 1)], VOCAB, BatchConfig(canvas=4))
    signal = torch.tensor([0.2, 0.2, 0.2], dtype=torch.float64)
    together = noised_vectors(net.vectors(rows.ids), rows.answer, signal, rows.index, noise)
    single = noised_vectors(net.vectors(alone.ids), alone.answer, signal[:1], alone.index, noise)
    assert torch.allclose(together[1, :5], single[0], atol=1e-6)


def test_what_a_prompt_is_does_not_count_but_teaches() -> None:
    """The prompt's tokens are not predicted, and their vectors get a gradient all the same."""
    net = net_of()
    rows = collate([Example([A, A], [B, B, B, B], 0)], VOCAB, BatchConfig(canvas=4))
    sphere_mean(VOCAB, PLAIN, 0)(net, rows, Noise(1, 1)).loss.backward()
    gradient = net.backbone.embed.weight.grad
    assert gradient is not None
    for token, taught in ((A, True), (B, True), (C, False)):
        assert bool(gradient[token].abs().sum() > 1e-8) is taught
    across = (gradient * net.backbone.embed.weight.detach()).sum(dim=1)
    assert torch.allclose(across, torch.zeros(VOCAB.size), atol=1e-6)  # only directions matter


def test_some_examples_have_one_gap() -> None:
    rows = collate([Example([A], [B] * 9, i) for i in range(400)], VOCAB, BatchConfig(canvas=10))
    noised = noised_positions(rows, Noise(2, 3), SphereLossConfig(infill=0.5))
    assert bool((noised <= rows.answer).all())
    whole = (noised == rows.answer).all(dim=1)
    assert 0.4 < float(whole.double().mean()) < 0.65
    runs = torch.nn.functional.pad(noised.int(), (1, 1)).diff(dim=1).abs().sum(dim=1)
    assert set(runs.tolist()) <= {0, 2}
    validated = noised_positions(rows, Noise(2, 3, level=0.5), SphereLossConfig(infill=0.5))
    assert torch.equal(validated, rows.answer)  # whole answers, whatever training does
    with pytest.raises(ValueError, match="a share from 0 to 1"):
        SphereLossConfig(infill=1.5)


def test_validation_levels_are_times() -> None:
    """A higher level is noisier: there less of the loss can be known."""
    found = [sphere.training_times(Noise(0, 0, level), 2).tolist() for level in (0.25, 0.75)]
    assert found[0] == pytest.approx([0.25075, 0.25075]) and found[1][0] > found[0][0]


def test_the_recipes() -> None:
    tiny = find_recipe("tiny/sflm")
    assert measure_sizes(tiny)["parameters"] == pytest.approx(424_000, rel=0.02)
    config = network_config(tiny, 167)
    assert config.most_signal == pytest.approx(sphere.enough_signal(167, 64, 0.1))
    sizes = [measure_sizes(find_recipe(f"paper/{name}-125m")) for name in ("sflm", "duo", "mdm")]
    own, duo, mdm = (each["parameters"] for each in sizes)
    assert own == duo == 125_560_320 and abs(own / mdm - 1) < 0.02  # they may race
    published = find_recipe("paper/sflm-205m")
    assert measure_sizes(published)["parameters"] / 1e6 == pytest.approx(205, abs=0.5)
    for name in ("paper/sflm-125m", "paper/sflm-205m"):
        config = network_config(find_recipe(name), 0)
        assert config.most_signal == pytest.approx(0.1553, abs=1e-4)
    with pytest.raises(ValueError, match=r"leave data\.align out"):
        network_config(override(tiny, {"data.align": "right"}), 167)
    with pytest.raises(ValueError, match="the dit uses neither"):
        override(tiny, {"net.architecture": "dit", "net.kv_heads": 2})
    with pytest.raises(ValueError, match=r"leave net\.tied out"):
        override(tiny, {"net.architecture": "dit", "net.tied": True})


SMALL = {"net.width": 32, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32, "batch": 8}


def logged(out: Path) -> list[str]:
    return (out / "metrics.jsonl").read_text().splitlines()


def test_a_tied_table_learns_and_decodes(tmp_path: Path) -> None:
    """One matrix is the vectors and the head; a saved model is the same one."""
    settings = {**SMALL, "net.tied": True, "steps": 30, "warmup": 5, "log_every": 1, "lr": 1e-2}
    model = train("tiny/sflm", out=tmp_path, progress=False, **settings)
    losses = [row["loss"] for row in map(json.loads, logged(tmp_path)) if row["kind"] == "train"]
    assert losses[0] < math.log(model.vocab.size) + 1 and losses[-1] < 0.8 * losses[0]
    assert model.net.backbone.unembed is None  # type: ignore[union-attr]
    trace = model.sample(["Tom picks some plums."], steps=2, seed=0)[0]
    again = load(tmp_path).sample(["Tom picks some plums."], steps=2, seed=0)[0]
    assert trace.token_ids.tolist() == again.token_ids.tolist()


@pytest.mark.parametrize("architecture", ["backbone", "dit"])
def test_training_begins_at_ln_v_and_learns(architecture: str, tmp_path: Path) -> None:
    settings = {**SMALL, "net.architecture": architecture, "steps": 30, "warmup": 5}
    model = train("tiny/sflm", out=tmp_path, progress=False, log_every=1, lr=1e-2, **settings)
    losses = [row["loss"] for row in map(json.loads, logged(tmp_path)) if row["kind"] == "train"]
    assert losses[0] == pytest.approx(math.log(model.vocab.size), abs=1e-4)
    assert losses[-1] < 0.8 * losses[0]
    assert model.config.most_signal == pytest.approx(
        sphere.enough_signal(model.vocab.size, 32, 0.1)
    )


def test_a_run_that_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    from anyorder.data import Batches, StoriesConfig, StoriesSource, stories_vocab
    from anyorder.training.config import TrainConfig
    from anyorder.training.loop import FitOptions, fit

    class Killed(BaseException):
        pass

    vocab = stories_vocab()
    shape = TransformerConfig(vocab.size, 32, 1, 2, 2, 16, 32, tied=False, time_modulated=True)
    config = TrainConfig(steps=10, batch=8, accumulate=2, warmup=2, save_every=3, validate_every=0)
    source = Batches(StoriesSource(StoriesConfig()), vocab, BatchConfig(size=4, canvas=64))

    def run(out: Path, kill_at: int | None = None) -> SphereNet:
        def batches(index: int) -> Batch:
            if index == kill_at:
                raise Killed
            return source(index)

        net = SphereNet(SphereConfig(shape, most_signal=0.45), seed=3)
        objective = sphere_mean(vocab, SphereLossConfig(infill=0.5), 112)
        fit(net, objective, batches, [], config, out, FitOptions(progress=False))
        return net

    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", kill_at=14)
    resumed = run(tmp_path / "killed")
    pairs: list[tuple[Tensor, Tensor]] = list(
        zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    )
    assert all(torch.equal(first, second) for first, second in pairs)
