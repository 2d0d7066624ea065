"""The one training loop, for all families.

Step s draws batch s and noise s, which are functions of their number, so nothing but the step
count and the tensors has to be remembered: a run that is killed and started again equals, bit for
bit on CPU, one that was not (same threads, same versions). With `accumulate` = A a step has the
micro batches s A, ..., s A + A - 1, and its gradient is the mean of theirs.

The loop knows nothing of corruption or of a family's loss: an `Objective` maps (network, batch,
noise) to `LossParts`. It does not build networks or data and does not write model folders: the
caller's `export` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anyorder.data.batches import Batch
from anyorder.files import alone_in
from anyorder.process.noise import Noise
from anyorder.train import checkpoint
from anyorder.train.config import TrainConfig, digest, fixed_fields
from anyorder.train.ema import Ema
from anyorder.train.folder import CHECKPOINTS, METRICS, check_folder
from anyorder.train.log import COLLECTED, Meter, MetricsFile
from anyorder.train.machine import StopSignals, steady_torch, usable_device
from anyorder.train.objectives import Objective
from anyorder.train.optimiser import (
    learning_rate_factor,
    make_optimiser,
    set_learning_rate,
    trained_parameters,
)
from anyorder.train.progress import Reporter, how_to_go_on
from anyorder.train.same_run import ABOUT, check_same_run
from anyorder.train.validation import validate

Reason = Literal["done", "minutes", "interrupted"]


class Diverged(ValueError):
    """The loss or its gradient became infinite or not a number."""


@dataclass(frozen=True)
class FitOptions:
    """What surrounds the training of one network."""

    levels: Sequence[float | None] = (None,)
    """Corruption levels of the validation grid; None draws them, the same ones each time."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """JSON about the network and the data (family, shape, digests): resuming checks it."""
    export: Callable[[nn.Module], None] | None = None
    """Called at the end, or when the minutes are over, with the weights to use (averaged)."""
    progress: bool = True
    """Tell people how it goes, on standard error."""


@dataclass(frozen=True)
class FitResult:
    """How a call of `fit` ended."""

    reason: Reason
    """"done", or why it stopped before: calling again goes on."""
    step: int
    """Steps trained by now, over all calls."""
    validation: float | None
    """Nats per token of the last validation in this call."""
    checkpoint: Path
    """The newest checkpoint."""


def fit(
    net: nn.Module,
    objective: Objective,
    batches: Callable[[int], Batch],
    validation: Sequence[Batch],
    config: TrainConfig,
    out: Path,
    options: FitOptions | None = None,
) -> FitResult:
    """Train `net` in place, going on from the newest checkpoint in `out` if there is one.

    Afterwards `net` holds the trained weights themselves; the averaged ones go to `export`.
    """
    options = FitOptions() if options is None else options
    if config.validate_every and len(validation) < config.validate_batches:
        raise ValueError(
            f"{len(validation)} validation batches for validate_batches={config.validate_batches}: "
            "give more batches, lower validate_batches, or set validate_every=0"
        )
    usable_device(config.device)
    check_folder(out)
    # Before the folder is made: what is wrong with the configuration leaves nothing behind.
    trainer = _Trainer(net, objective, config, out, options)
    surroundings = steady_torch(config.threads, config.device)
    with (
        alone_in(out),
        surroundings,
        StopSignals() as signals,
        trainer.resumed() as start,
        Reporter(
            config.steps, start, progress=options.progress, minutes=config.minutes
        ) as reporter,
    ):
        reporter.say(trainer.opening)
        return trainer.run(batches, validation[: config.validate_batches], reporter, signals)


class _Trainer:
    """A run in memory: the network with its average and optimiser, the step, the log."""

    def __init__(
        self,
        net: nn.Module,
        objective: Objective,
        config: TrainConfig,
        out: Path,
        options: FitOptions,
    ) -> None:
        self.device = torch.device(config.device)
        self.net = net.to(self.device)
        self.objective = objective
        self.config = config
        self.options = options
        self.out = out
        self.root = out / CHECKPOINTS
        about = {f"{ABOUT}{name}": value for name, value in options.about.items()}
        fields = fixed_fields(config) | {"levels": list(options.levels)} | about
        self.run_fields = json.loads(json.dumps(fields))  # as a checkpoint gives them back
        self.ema = Ema(net, config.ema) if config.ema else None
        self.optimiser = make_optimiser(net, config)
        self.parameters = list(trained_parameters(net).values())
        self.trained = checkpoint.Trained(net, self.ema, self.optimiser)
        self.meter = Meter()
        self.step = 0
        self.newest: Path | None = None
        count = sum(parameter.numel() for parameter in self.parameters)
        self.opening = f"Training {count:,} parameters for {config.steps:,} steps"

    @contextmanager
    def resumed(self) -> Iterator[int]:
        """With the newest checkpoint's tensors, if there is one, and the log open: its step."""
        self._resume()
        path = self.out / METRICS
        fresh = not path.exists()
        self.metrics = MetricsFile(path, self.step)
        try:
            yield self.step
        finally:
            self.metrics.close()
            if fresh and self.step == 0:
                path.unlink()  # the first step failed: leave nothing that looks like a training

    def _resume(self) -> None:
        checkpoint.remove_partial(self.root)
        found = checkpoint.checkpoints(self.root)
        if not found:
            self.opening += ", starting from the beginning."
            return
        self.newest = found[-1]
        state = checkpoint.read_state(self.newest)
        check_same_run(self.newest, state["run"], self.run_fields)
        self.step = int(state["step"])
        checkpoint.restore(self.newest, self.trained, self.step)
        self.meter.restore(state["meter"])
        self.opening += f", going on from step {self.step:,} ({self.newest})."
        if state["versions"] != checkpoint.versions():
            self.opening += (
                f" It was written with {state['versions']}, this is {checkpoint.versions()}: "
                "the result may differ in the last bits."
            )

    def run(
        self,
        batches: Callable[[int], Batch],
        validation: Sequence[Batch],
        reporter: Reporter,
        signals: StopSignals,
    ) -> FitResult:
        config = self.config
        began, before = time.monotonic(), self.meter.seconds
        last_validation = None
        reason: Reason = "done"
        while self.step < config.steps:
            self._train_step(batches)
            self.meter.seconds = before + time.monotonic() - began
            last = self.step == config.steps
            if last or self.step % config.log_every == 0:
                self._log(reporter)
            reporter.advance(self.step, self.meter)
            if config.validate_every and (last or self.step % config.validate_every == 0):
                last_validation = self._validate(validation, reporter)
            if not last and signals.received:
                reason = "interrupted"
            elif not last and config.minutes and time.monotonic() - began >= 60 * config.minutes:
                reason = "minutes"
            if last or reason != "done" or self.step % config.save_every == 0:
                self._save()
            if reason != "done":
                break
        assert self.newest is not None
        if reason != "interrupted" and self.options.export is not None:
            self.options.export(self._weights_to_use())
        if reason != "done":
            told = how_to_go_on(self.step, config.steps, self.newest, signals.received)
            print(told, file=sys.stderr, flush=True)
        return FitResult(reason, self.step, last_validation, self.newest)

    def _train_step(self, batches: Callable[[int], Batch]) -> None:
        """One optimiser step; numbers stay tensors, so that a GPU is not waited for."""
        config = self.config
        started = time.perf_counter()
        self.net.train()
        set_learning_rate(self.optimiser, self.step, config)
        numbers: dict[str, Tensor | float] = {}
        for micro in range(config.accumulate):
            index = self.step * config.accumulate + micro
            batch = batches(index)
            rows = len(batch.ids)
            if rows != config.micro_batch:
                raise ValueError(
                    f"batch {index} has {rows} examples, the configuration says "
                    f"{config.micro_batch} (batch / accumulate): make them agree"
                )
            batch = batch.to(self.device)
            parts = self.objective(self.net, batch, Noise(config.seed, index))
            loss = parts.loss / config.accumulate
            loss.backward()
            assert not COLLECTED & parts.extras.keys(), "an extra has the name of a metric"
            sums = {"loss": loss, "nats": parts.nats, "tokens": parts.tokens}
            for name, value in {**sums, "read": batch.length.sum(), **parts.extras}.items():
                numbers[name] = numbers.get(name, 0.0) + value.detach()
        numbers["grad_norm"] = nn.utils.clip_grad_norm_(
            self.parameters, config.clip or float("inf")
        )
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.net)
        self.step += 1
        self.meter.add(numbers, time.perf_counter() - started)

    def _log(self, reporter: Reporter) -> None:
        self._check_finite()
        rate = self.config.lr * learning_rate_factor(self.step - 1, self.config)
        row = self.meter.row(self.step, rate)
        self.metrics.write(row)
        reporter.row(row)

    def _check_finite(self) -> None:
        """Before anything is written down: a poisoned run must not replace a good checkpoint."""
        found = self.meter.first_non_finite(self.step)
        if found is None:
            return
        step, name, value = found
        kept = f"the last checkpoint is {self.newest}" if self.newest else "no checkpoint exists"
        raise Diverged(
            f"{name} is {value} at step {step}: training stopped, {kept}. The same settings would "
            "meet the same step again: train into another folder with a lower lr, a longer warmup "
            "or a smaller clip"
        )

    def _save(self) -> None:
        self._check_finite()
        self.metrics.sync()
        state = {
            "config": self.config.as_json(),
            "run": self.run_fields,
            "digest": digest(self.run_fields),
            "meter": self.meter.state(),
        }
        self.newest = checkpoint.save(self.root, self.step, self.trained, state, self.config.keep)

    def _weights_to_use(self) -> nn.Module:
        return (self.net if self.ema is None else self.ema.module).eval()

    def _validate(self, validation: Sequence[Batch], reporter: Reporter) -> float | None:
        net = self._weights_to_use()
        row: dict[str, Any] = {"kind": "validation", "step": self.step}
        row |= validate(net, self.objective, validation, self.options.levels, self.device)
        row["seconds"] = round(self.meter.seconds, 3)
        self.metrics.write(row)
        reporter.row(row)
        value: float | None = row["nats_per_token"]
        return value
