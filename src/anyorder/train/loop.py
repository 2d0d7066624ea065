"""The one training loop, for all families.

Step s draws batch s and noise s, which are functions of their number, so nothing but the step
count and the tensors has to be remembered: a run that is killed and started again equals, bit for
bit on CPU, one that was not (same threads, same versions). With `accumulate` = A a step has the
micro batches s A, ..., s A + A - 1, and its gradient is the mean of theirs.

Several processes (ranks.py) share a step's micro batches, which keep their numbers and with them
their examples and noise: what is trained does not depend on how many there are. They add up their
numbers after each step and agree on when to stop; rank 0 holds the folder, logs and speaks.

The loop knows nothing of corruption or of a family's loss: an `Objective` maps (network, batch,
noise) to `LossParts`. It does not build networks or data and does not write model folders: the
caller's `export` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anyorder.data.batches import Batch
from anyorder.files import alone_in
from anyorder.process.noise import Noise
from anyorder.train import checkpoint
from anyorder.train.config import TrainConfig, digest, fixed_fields
from anyorder.train.folder import CHECKPOINTS, METRICS, check_folder
from anyorder.train.layers import prepared
from anyorder.train.log import COLLECTED, Meter, MetricsFile, NoFile
from anyorder.train.machine import StopSignals, steady_torch, usable_device
from anyorder.train.objective import Objective
from anyorder.train.optimiser import (
    learning_rate_factor,
    make_optimiser,
    set_learning_rate,
    trained_parameters,
)
from anyorder.train.progress import Reporter, how_to_go_on
from anyorder.train.ranks import present
from anyorder.train.same_run import ABOUT, check_same_run
from anyorder.train.spread import Weights, spread
from anyorder.train.validation import validate

Reason = Literal["done", "minutes", "interrupted"]
REASONS: tuple[Reason, ...] = ("done", "minutes", "interrupted")
"""From the weakest to the strongest, where processes differ."""
GRACE = 5.0
"""Seconds in which several processes may receive the same wish to stop more than once."""


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
    """Called at the end, or when the minutes are over, with the weights to use (averaged); by rank
    0 only, with a whole network on CPU where the trained one is sharded."""
    weights: Weights | None = None
    """What a network on the meta device begins with."""
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
    ranks = present()
    usable_device(str(ranks.device(config.device)))
    if ranks.first:
        check_folder(out)
    # Before the folder is made: what is wrong with the configuration leaves nothing behind.
    trainer = _Trainer(net, objective, config, out, options)
    holding: AbstractContextManager[None] = alone_in(out) if ranks.first else nullcontext()
    progress = options.progress and ranks.first
    with (
        holding,
        steady_torch(config.threads, config.device),
        prepared(net, config),
        StopSignals(GRACE if ranks.count > 1 else 0.0) as signals,
        trainer.resumed() as start,
        Reporter(config.steps, start, progress=progress, minutes=config.minutes) as reporter,
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
        self.ranks = present()
        self.mine = self.ranks.micro_batches(config.accumulate)
        self.device = self.ranks.device(config.device)
        self.spread = spread(net, config, self.ranks, options.weights)
        self.net = net
        self.objective = objective
        self.config = config
        self.options = options
        self.out = out
        self.root = out / CHECKPOINTS
        about = {f"{ABOUT}{name}": value for name, value in options.about.items()}
        fields = fixed_fields(config) | {"levels": list(options.levels)} | about
        self.run_fields = json.loads(json.dumps(fields))  # as a checkpoint gives them back
        self.ema = self.spread.average(config.ema) if config.ema else None
        self.optimiser = make_optimiser(net, config)
        self.trained = checkpoint.Trained(net, self.ema, self.optimiser)
        self.meter = Meter()
        self.step = 0
        self.newest: Path | None = None
        count = sum(parameter.numel() for parameter in trained_parameters(net).values())
        self.opening = f"Training {count:,} parameters for {config.steps:,} steps"
        self.opening += f" in {self.ranks.count} processes" if self.ranks.count > 1 else ""

    @contextmanager
    def resumed(self) -> Iterator[int]:
        """With the newest checkpoint's tensors, if there is one, and the log open: its step."""
        self._resume()
        self.metrics: MetricsFile | NoFile
        if not self.ranks.first:
            self.metrics = NoFile()
            yield self.step
            return
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
        newest = -1
        if self.ranks.first:
            checkpoint.remove_partial(self.root)
            newest = max(map(checkpoint.step_of, checkpoint.checkpoints(self.root)), default=-1)
        newest = self.ranks.of_first(newest)  # another machine may see the folder as it was
        if newest < 0:
            self.opening += ", starting from the beginning."
            return
        self.newest = checkpoint.folder_of(self.root, newest)
        state = checkpoint.read_state(self.newest, self.ranks)
        check_same_run(self.newest, state["run"], self.run_fields)
        self.step = int(state["step"])
        checkpoint.restore(self.newest, self.trained, state)
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
            if not last:
                reason = self._why_stop(signals, time.monotonic() - began)
            if last or reason != "done" or self.step % config.save_every == 0:
                self._save()
            if reason != "done":
                break
        assert self.newest is not None
        if reason != "interrupted" and self.options.export is not None:
            self._export(self.options.export)
        if reason != "done" and self.ranks.first:
            elsewhere = "a signal to another process" if reason == "interrupted" else None
            received = signals.received or elsewhere
            told = how_to_go_on(self.step, config.steps, self.newest, received)
            print(told, file=sys.stderr, flush=True)
        return FitResult(reason, self.step, last_validation, self.newest)

    def _why_stop(self, signals: StopSignals, seconds: float) -> Reason:
        """Why to stop after this step, in which all processes agree; "done": no reason."""
        minutes = self.config.minutes
        reason: Reason = "minutes" if minutes and seconds >= 60 * minutes else "done"
        if signals.received:
            reason = "interrupted"
        return REASONS[self.ranks.largest(REASONS.index(reason))]

    def _train_step(self, batches: Callable[[int], Batch]) -> None:
        """One optimiser step; numbers stay tensors, so that a GPU is not waited for."""
        config = self.config
        started = time.perf_counter()
        self.net.train()
        set_learning_rate(self.optimiser, self.step, config)
        numbers: dict[str, Tensor | float] = {}
        for micro in self.mine:
            index = self.step * config.accumulate + micro
            batch = batches(index)
            rows = len(batch.ids)
            if rows != config.micro_batch:
                raise ValueError(
                    f"batch {index} has {rows} examples, the configuration says "
                    f"{config.micro_batch} (batch / accumulate): make them agree"
                )
            batch = batch.to(self.device)
            parts = self.spread.loss(self.net, self.objective, batch, Noise(config.seed, index))
            self.spread.backward(parts.loss / len(self.mine), last=micro == self.mine[-1])
            loss = parts.loss / config.accumulate
            assert not COLLECTED & parts.extras.keys(), "an extra has the name of a metric"
            sums = {"loss": loss, "nats": parts.nats, "tokens": parts.tokens}
            for name, value in {**sums, "read": batch.length.sum(), **parts.extras}.items():
                numbers[name] = numbers.get(name, 0.0) + value.detach()
        numbers = self._totals(numbers)
        numbers["grad_norm"] = self.spread.clip(config.clip or float("inf"))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.net)
        self.step += 1
        self.meter.add(numbers, time.perf_counter() - started)

    def _totals(self, numbers: dict[str, Tensor | float]) -> dict[str, Tensor | float]:
        """Sums over the processes' micro batches, in one message."""
        if self.ranks.count == 1:
            return numbers
        names = sorted(numbers)
        values = [torch.as_tensor(numbers[name], device=self.device).double() for name in names]
        return dict(zip(names, self.ranks.total(torch.stack(values)).unbind(), strict=True))

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
        keep = self.config.keep
        self.newest = checkpoint.save(self.root, self.step, self.trained, state, keep, self.ranks)

    @contextmanager
    def _weights_to_use(self) -> Iterator[nn.Module]:
        shown = nullcontext(self.net) if self.ema is None else self.ema.shown()
        with shown as net:
            yield net.eval()

    def _export(self, export: Callable[[nn.Module], None]) -> None:
        with self._weights_to_use() as net:
            whole = self.spread.whole(net)
            if whole is not None:
                export(whole.eval())
        self.ranks.wait()

    def _validate(self, validation: Sequence[Batch], reporter: Reporter) -> float | None:
        row: dict[str, Any] = {"kind": "validation", "step": self.step}
        with self._weights_to_use() as net:
            losses = partial(self.spread.loss, net, self.objective)
            row |= validate(losses, validation, self.options.levels, self.device, self.ranks)
            self.spread.rest()
        row["seconds"] = round(self.meter.seconds, 3)
        self.metrics.write(row)
        reporter.row(row)
        value: float | None = row["nats_per_token"]
        return value
