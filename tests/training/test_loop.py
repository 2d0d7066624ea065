"""The loop: resumes bit for bit, stops cleanly, validates on a fixed grid, exports the average."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from anyorder.hub.weights import usable_device
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.training.loop import VALIDATION_SEED, Diverged, FitOptions, fit, validate


class Killed(BaseException):
    """Stands for SIGKILL: nothing handles it."""


def killing_batches(toy: ModuleType, at: int) -> Any:
    def batches(step: int) -> Any:
        if step == at:
            raise Killed
        return toy.batch_of(step)

    return batches


def options(**changes: Any) -> FitOptions:
    return replace(FitOptions(levels=(0.3, 0.9, None), progress=False), **changes)


@pytest.mark.parametrize("kills", [[20], [25], [5, 10, 11, 39], [33, 33, 12]])
def test_killed_and_resumed_equals_uninterrupted(
    toy: ModuleType, tmp_path: Path, uninterrupted: Path, fingerprint: Any, kills: list[int]
) -> None:
    for at in kills:
        net = toy.ToyNet(seed=at)  # other initial weights: the checkpoint must bring its own
        if not (tmp_path / "checkpoints").exists():
            net = toy.ToyNet()
        batches = killing_batches(toy, at)
        with contextlib.suppress(Killed):
            fit(net, toy.objective, batches, toy.VALIDATION, toy.CONFIG, tmp_path, options())
    toy.train(tmp_path)
    assert fingerprint(tmp_path) == fingerprint(uninterrupted)


def test_two_times_twenty_is_forty_steps(
    toy: ModuleType, tmp_path: Path, uninterrupted: Path
) -> None:
    """The same, on the weights in memory, with an interval of saving that is not the other's."""
    _, whole = toy.train(tmp_path / "whole", save_every=40)
    with pytest.raises(Killed):
        fit(
            toy.ToyNet(),
            toy.objective,
            killing_batches(toy, 20),
            toy.VALIDATION,
            replace(toy.CONFIG, save_every=20),
            tmp_path / "halves",
            options(),
        )
    result, halves = toy.train(tmp_path / "halves", save_every=20)
    assert result.step == 40
    for name, value in whole.state_dict().items():
        assert torch.equal(value, halves.state_dict()[name]), name


def test_the_toy_is_learned(uninterrupted: Path, metrics: Any) -> None:
    rows = metrics(uninterrupted)
    losses = [row["nats_per_token"] for row in rows if row["kind"] == "train"]
    assert sum(losses[-5:]) / 5 < losses[0] - 0.5
    assert [row["step"] for row in rows if row["kind"] == "train"] == [*range(3, 40, 3), 40]
    assert [row["step"] for row in rows if row["kind"] == "validation"] == [7, 14, 21, 28, 35, 40]
    assert all("first" in row for row in rows if row["kind"] == "train"), "a family's extras"


def test_looking_does_not_change_training(toy: ModuleType, tmp_path: Path) -> None:
    _, looked = toy.train(tmp_path / "a", validate_every=2, log_every=1, save_every=3, ema=0.0)
    _, blind = toy.train(tmp_path / "b", validate_every=0, log_every=40, save_every=40, ema=0.0)
    for name, value in looked.state_dict().items():
        assert torch.equal(value, blind.state_dict()[name]), name


def test_accumulated_micro_batches_equal_one_batch(toy: ModuleType, tmp_path: Path) -> None:
    def plain(net: nn.Module, batch: Any, noise: Noise) -> LossParts:
        logits = net(batch.ids)
        nats = nn.functional.cross_entropy(logits.flatten(0, 1), batch.ids.flatten())
        return LossParts(loss=nats, nats=nats.detach() * 48, tokens=torch.tensor(48))

    seen: list[int] = []

    def micro(index: int) -> Any:
        seen.append(index)
        return toy.batch_of(index, rows=4)

    config = replace(toy.CONFIG, steps=10, validate_every=0, log_every=1)
    one, four = toy.ToyNet(), toy.ToyNet()
    fit(one, plain, toy.batch_of, [], config, tmp_path / "one", options())
    config = replace(config, accumulate=2)
    fit(four, plain, micro, [], config, tmp_path / "two", options())
    assert seen == list(range(20))
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, four.state_dict()[name], rtol=1e-4, atol=1e-5)
    rows = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two")]
    for first, second in zip(*(map(json.loads, part) for part in rows), strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-4)
        assert first["grad_norm"] == pytest.approx(second["grad_norm"], rel=1e-3)


def test_batches_of_another_size_are_refused(toy: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch 0 has 8 examples, the configuration says 16"):
        toy.train(tmp_path, batch=16)


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_divergence_names_the_step_and_keeps_the_checkpoint(
    toy: ModuleType, tmp_path: Path, poison: str
) -> None:
    def poisoned(net: nn.Module, batch: Any, noise: Noise) -> LossParts:
        parts = toy.objective(net, batch, noise)
        if noise.step == 28 and noise.seed == 0:
            weight = net.mix.weight.sum()  # type: ignore[union-attr,operator]
            bad = weight * math.nan if poison == "loss" else (weight * 0).sqrt()
            return replace(parts, loss=parts.loss + bad)
        return parts

    what = "loss is nan" if poison == "loss" else "grad_norm is nan"
    with pytest.raises(Diverged, match=rf"{what} at step 29.*step-00000020.*lower lr"):
        fit(
            toy.ToyNet(),
            poisoned,
            toy.batch_of,
            toy.VALIDATION,
            replace(toy.CONFIG, log_every=100, validate_every=0),
            tmp_path,
            options(),
        )
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000010", "step-00000020"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_saves(
    toy: ModuleType,
    tmp_path: Path,
    uninterrupted: Path,
    fingerprint: Any,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    def batches(step: int) -> Any:
        if step == 16:
            signal.raise_signal(number)
        return toy.batch_of(step)

    before = signal.getsignal(number)
    exported: list[nn.Module] = []
    result = fit(
        toy.ToyNet(),
        toy.objective,
        batches,
        toy.VALIDATION,
        toy.CONFIG,
        tmp_path,
        options(export=exported.append),
    )
    assert (result.reason, result.step) == ("interrupted", 17)
    assert result.checkpoint.name == "step-00000017"
    assert not exported
    assert signal.getsignal(number) is before, "handlers are put back"
    said = capsys.readouterr().err
    assert number.name in said
    assert "Run the same command again" in said
    toy.train(tmp_path)
    assert fingerprint(tmp_path) == fingerprint(uninterrupted)


def test_a_second_interrupt_acts_at_once(toy: ModuleType, tmp_path: Path) -> None:
    def batches(step: int) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return toy.batch_of(step)

    # A suite that runs in the background is started with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    net, told = toy.ToyNet(), options()
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(net, toy.objective, batches, toy.VALIDATION, toy.CONFIG, tmp_path, told)
    finally:
        signal.signal(signal.SIGINT, before)


def test_minutes_end_early_and_go_on(
    toy: ModuleType, tmp_path: Path, uninterrupted: Path, fingerprint: Any
) -> None:
    exported: list[nn.Module] = []
    calls = 0
    while True:
        result, _ = toy.train(tmp_path, options(export=exported.append), minutes=1e-9)
        calls += 1
        if result.reason == "done":
            break
        assert result.reason == "minutes"
        assert result.step == calls
    assert calls == 40
    assert len(exported) == 40
    assert fingerprint(tmp_path) == fingerprint(uninterrupted)


def test_export_gets_the_average_and_a_finished_run_only_exports(
    toy: ModuleType, tmp_path: Path
) -> None:
    given: list[dict[str, torch.Tensor]] = []

    def export(net: nn.Module) -> None:
        assert not net.training
        given.append({name: value.clone() for name, value in net.state_dict().items()})

    _, net = toy.train(tmp_path, options(export=export))
    assert not torch.equal(given[0]["mix.weight"], net.mix.weight)
    before = (tmp_path / "metrics.jsonl").read_text()
    result, _ = toy.train(tmp_path, options(export=export))
    assert (result.reason, result.step) == ("done", 40)
    assert (tmp_path / "metrics.jsonl").read_text() == before
    assert all(torch.equal(value, given[1][name]) for name, value in given[0].items())


def test_without_averaging_the_weights_themselves_are_exported(
    toy: ModuleType, tmp_path: Path
) -> None:
    given: list[nn.Module] = []
    result, net = toy.train(tmp_path, options(export=given.append), ema=0.0)
    assert given == [net]
    assert not (result.checkpoint / "ema.safetensors").exists()
    assert toy.train(tmp_path, ema=0.0)[0].step == 40


def test_validation_is_a_fixed_grid(toy: ModuleType, tmp_path: Path, metrics: Any) -> None:
    last: list[nn.Module] = []
    toy.train(tmp_path, options(export=lambda net: last.append(copy.deepcopy(net))))
    row = [row for row in metrics(tmp_path) if row["kind"] == "validation"][-1]
    device = torch.device("cpu")

    def losses(batch: Any, noise: Noise) -> LossParts:
        parts: LossParts = toy.objective(last[0], batch, noise)
        return parts

    again = validate(losses, toy.VALIDATION, (0.3, 0.9, None), device)
    assert row["nats_per_token"] == again["nats_per_token"], "the averaged weights, equal noise"
    grid = {cell["level"]: cell["nats_per_token"] for cell in row["levels"]}
    assert list(grid) == [0.3, 0.9, None]
    assert grid[0.3] < grid[0.9], "fewer masks, easier"
    nats = tokens = 0.0
    for level in (0.3, 0.9, None):
        for number, batch in enumerate(toy.VALIDATION):
            parts = toy.objective(last[0], batch, Noise(VALIDATION_SEED, number, level))
            nats, tokens = nats + float(parts.nats), tokens + float(parts.tokens)
    assert row["nats_per_token"] == pytest.approx(nats / tokens, rel=1e-6)


def test_too_few_validation_batches(toy: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 validation batches for validate_batches=9"):
        toy.train(tmp_path, validate_batches=9)
    assert not list(tmp_path.iterdir()), "nothing half-written"


def test_it_trains_outside_the_main_thread(
    toy: ModuleType, tmp_path: Path, uninterrupted: Path, fingerprint: Any
) -> None:
    thread = threading.Thread(target=toy.train, args=(tmp_path,))
    thread.start()
    thread.join(timeout=240)
    assert not thread.is_alive()
    assert fingerprint(tmp_path) == fingerprint(uninterrupted)


def test_a_missing_device_is_refused(toy: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device 'nonsense' cannot be used here"):
        usable_device("nonsense")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="give cpu"):
            toy.train(tmp_path, device="cuda")


def test_settings_of_torch_hold_inside_and_are_put_back(toy: ModuleType, tmp_path: Path) -> None:
    seen: set[tuple[bool, int]] = set()

    def watching(net: nn.Module, batch: Any, noise: Noise) -> LossParts:
        seen.add((torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()))
        return toy.objective(net, batch, noise)

    config = replace(toy.CONFIG, threads=2)
    fit(toy.ToyNet(), watching, toy.batch_of, toy.VALIDATION, config, tmp_path, options())
    assert seen == {(True, 2)}, "racing threads would add gradients in any order"
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
