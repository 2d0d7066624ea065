"""The training loop for all families, with validation, resumption and its checks.

Step s draws batch s and noise s, which are functions of their number. So the step count and the
tensors are the whole state: on CPU, a run that was killed and resumed equals an uninterrupted one
bit for bit (same threads, same versions). With `accumulate` = A, step s has the micro batches s A,
..., s A + A - 1, and its gradient is the mean of theirs. Several processes (processes.py) divide
the micro batches among them without changing their numbers, so the result does not depend on the
number of processes. Rank 0 holds the folder, logs and prints.

An `Objective` maps (network, batch, noise) to `LossParts`; the loop knows nothing else of a family.

**Validation**: sum of nats / sum of predicted tokens over a fixed grid of held-out batches and
corruption levels, and a family's extras likewise. Batches, levels and noise are the same at every
step and in every run, so two values differ only by the weights.

**Resumption** compares the fixed fields of the checkpoint and of the run (config.py), under their
names on the command line. A folder with anything but a training in it is refused; hidden files do
not count.

Not here: networks, data, model folders (the caller's `export`), damage to files (checkpoint.py).
"""

from __future__ import annotations

import json
import re
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
from anyorder.families.family import Objective
from anyorder.files import alone_in
from anyorder.hub.weights import usable_device
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.training import checkpoint
from anyorder.training.config import MAY_CHANGE, TrainConfig, digest, fixed_fields
from anyorder.training.distributed import Replicated, Sharded, Weights, prepared
from anyorder.training.log import (
    COLLECTED,
    Followers,
    Meter,
    MetricsFile,
    Reporter,
    how_to_go_on,
)
from anyorder.training.loggers import LOGS, LoggedTraining, Logger
from anyorder.training.optimiser import (
    Ema,
    learning_rate_factor,
    make_optimiser,
    set_learning_rate,
    trained_parameters,
)
from anyorder.training.processes import (
    ALONE,
    Ranks,
    StopSignals,
    present,
    steady_torch,
)

VALIDATION_SEED = 0x76A11DA7E
"""Independent of the run's seed, so that runs with other seeds compare."""

Losses = Callable[[Batch, Noise], LossParts]
"""A network's loss on a batch."""


@torch.no_grad()
def validate(
    losses: Losses,
    validation: Sequence[Batch],
    levels: Sequence[float | None],
    device: torch.device,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Nats per token over a fixed grid of batches and corruption levels, in all and per level."""
    count = len(validation)
    cells = len(levels) * count
    sums: dict[str, Tensor] = {}
    # Every process runs in every round, because a sharded network runs in all processes or none;
    # in the last round a surplus process repeats the last cell and discards its result.
    for first in range(0, cells, ranks.count):
        cell = min(first + ranks.rank, cells - 1)
        row, number = divmod(cell, count)
        noise = Noise(VALIDATION_SEED, number, levels[row])
        parts = losses(validation[number].to(device), noise)
        for name, value in {"nats": parts.nats, "tokens": parts.tokens, **parts.extras}.items():
            table = sums.setdefault(name, torch.zeros(cells, dtype=torch.float64))
            if first + ranks.rank < cells:
                table[cell] = value.cpu().double()
    names = sorted(sums)
    table = ranks.total(torch.stack([sums[name] for name in names]))  # names x cells
    added = {name: _added(table[n].view(-1, count)) for n, name in enumerate(names)}
    nats, tokens = added.pop("nats"), added.pop("tokens")  # one for each level
    grid = [
        {"level": level, "nats_per_token": _ratio(nats[row], tokens[row])}
        for row, level in enumerate(levels)
    ]
    means = {name: _ratio(values.sum(), tokens.sum()) for name, values in added.items()}
    return {"nats_per_token": _ratio(nats.sum(), tokens.sum()), **means, "levels": grid}


def _added(values: Tensor) -> Tensor:
    """The sum over the batches of each level.  # levels x batches -> levels"""
    # One after the other: the order, and with it the last bits, must not depend on the processes.
    total = torch.zeros(len(values), dtype=torch.float64)
    for column in values.T:
        total = total + column
    return total


def _ratio(nats: Tensor, tokens: Tensor) -> float | None:
    """Nats over tokens; None (null in JSON) if that is not finite."""
    value = float(nats) / max(float(tokens), 1.0)
    return value if abs(value) < float("inf") else None


ABOUT = "about."
"""The prefix of the caller's fields about its network and data (FitOptions.about)."""
SHOWN = 4
"""Differences named in one message."""

_PLAIN = {
    "data_digest": "data (the file has changed since)",
    "vocab_digest": "vocabulary",
}
"""Words for fields whose values, digests, would not help a user."""
_NAMES = {"levels": "validation levels"}
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_same_run(folder: Path, before: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Refuse to resume with another configuration, and name the fields that differ."""
    differ = differences(before, run)
    if not differ:
        return
    more = f" and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
    raise ValueError(
        f"{folder} was trained with another configuration: {', '.join(differ[:SHOWN])}{more}. "
        "Give the earlier values to go on, or choose another output folder for a new training "
        f"(free to change: {', '.join(sorted(MAY_CHANGE))})"
    )


def differences(before: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """One phrase for each field that differs, in the order of their names."""
    old, new = _leaves(before), _leaves(run)
    names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    if any(name.startswith("data.") for name in names):
        names.discard("data_digest")  # other data settings explain another digest
    return [_phrase(name, old.get(name), new.get(name)) for name in sorted(names)]


def _leaves(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names, without the prefix `ABOUT`."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key.removeprefix(ABOUT)}"
        found |= _leaves(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _phrase(name: str, old: Any, new: Any) -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    return f"{_NAMES.get(name, name)} (checkpoint {_short(old)}, now {_short(new)})"


def _short(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value[:8]
    return repr(value)


METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"


def check_folder(folder: Path) -> None:
    """Refuse a path that is a file, or a folder with anything but a training."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file and training writes a folder: choose another --out")
    # Loggers write before the first step, which may fail.
    filled = any(not path.name.startswith(".") and path.name != LOGS for path in folder.iterdir())
    if filled and not _holds_training(folder):
        raise ValueError(f"{folder} is not empty and holds no training: choose another --out")


def _holds_training(folder: Path) -> bool:
    if (folder / CHECKPOINTS).is_dir() or (folder / METRICS).is_file():
        return True
    if not (folder / "model.safetensors").is_file():
        return False
    try:
        card = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # Models of other programs have files of these names too, but no recipe.
    return isinstance(card, dict) and bool(card.get("recipe"))


Reason = Literal["done", "minutes", "interrupted"]
REASONS: tuple[Reason, ...] = ("done", "minutes", "interrupted")
"""From weakest to strongest: if processes differ, the strongest applies."""
GRACE = 5.0
"""Seconds in which repeated signals count as one, if there are several processes."""


class Diverged(ValueError):
    """The loss or its gradient became infinite or not a number."""


@dataclass(frozen=True)
class FitOptions:
    """Options of `fit` besides the training configuration."""

    levels: Sequence[float | None] = (None,)
    """Corruption levels of the validation grid; None draws them, the same ones each time."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """JSON about the network and the data (family, shape, digests): resuming checks it."""
    export: Callable[[nn.Module], None] | None = None
    """Called at the end, or when the minutes are over, by rank 0 only, with the network, which has
    the (averaged) weights until the call returns; with a whole one on CPU if it is sharded."""
    weights: Weights | None = None
    """The first weights of a network on the meta device."""
    loggers: Sequence[Logger] = ()
    """Followers of metrics.jsonl; rank 0 alone calls them."""
    progress: bool = True
    """Print progress on standard error."""


@dataclass(frozen=True)
class FitResult:
    """How a call of `fit` ended."""

    reason: Reason
    """"done", or why it stopped early; another call continues."""
    step: int
    """Steps trained so far, over all calls."""
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
    """Train `net` in place, from the newest checkpoint in `out` if there is one.

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
    # Before the folder is made, so that a wrong configuration leaves nothing behind.
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
    """A run in memory: network, average, optimiser, step and log."""

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
        alone = self.ranks.count == 1 or config.shard == "none"
        kind = Replicated if alone else Sharded
        self.parallel = kind(net, config, self.ranks, options.weights)
        self.net = net
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
        self.trained = checkpoint.TrainingState(net, self.ema, self.optimiser)
        self.meter = Meter()
        self.followers = Followers(options.loggers if self.ranks.first else ())
        self.status: Reason | Literal["failed"] = "failed"  # until `run` ends
        self.step = 0
        self.newest: Path | None = None
        count = sum(parameter.numel() for parameter in trained_parameters(net).values())
        self.opening = f"Training {count:,} parameters for {config.steps:,} steps"
        self.opening += f" in {self.ranks.count} processes" if self.ranks.count > 1 else ""

    @contextmanager
    def resumed(self) -> Iterator[int]:
        """Restore the newest checkpoint, if there is one, and open the log; yields the step."""
        self._resume()
        self.metrics: MetricsFile | None = None  # rank 0 alone writes
        if not self.ranks.first:
            yield self.step
            return
        path = self.out / METRICS
        fresh = not path.exists()
        self.metrics = MetricsFile(path, self.step)
        self._start_followers()
        try:
            yield self.step
        finally:
            self.metrics.close()
            self.followers.end(self.status)
            if fresh and self.step == 0:
                path.unlink()  # the first step failed: the folder must not look like a training

    def _start_followers(self) -> None:
        if not self.options.loggers:
            return
        assert self.metrics is not None
        config = {**self.options.about, "train": self.config.as_json()}
        rows = self.metrics.rows()
        self.followers.start(LoggedTraining(self.out.resolve().name, self.out / LOGS, config, rows))

    def _resume(self) -> None:
        newest = -1
        if self.ranks.first:
            checkpoint.remove_partial(self.root)
            newest = max(map(checkpoint.step_of, checkpoint.checkpoints(self.root)), default=-1)
        newest = self.ranks.of_first(newest)  # another machine may see an old state of the folder
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
            if not last:  # a signal in the last step changes nothing: the run is done
                reason = self._why_stop(signals, time.monotonic() - began)
            # After log and validation, so that the checkpoint's step has all its rows.
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
            advice = how_to_go_on(self.step, config.steps, self.newest, received)
            print(advice, file=sys.stderr, flush=True)
        self.status = reason
        return FitResult(reason, self.step, last_validation, self.newest)

    def _why_stop(self, signals: StopSignals, seconds: float) -> Reason:
        """Why to stop after this step, the same in all processes; "done": no reason."""
        minutes = self.config.minutes
        reason: Reason = "minutes" if minutes and seconds >= 60 * minutes else "done"
        if signals.received:
            reason = "interrupted"
        return REASONS[self.ranks.largest(REASONS.index(reason))]

    def _train_step(self, batches: Callable[[int], Batch]) -> None:
        """One optimiser step. Numbers stay tensors, because reading one waits for the GPU."""
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
            parts = self.parallel.loss(self.objective, batch, Noise(config.seed, index))
            # The gradient is averaged over processes later, the logged loss is summed (_totals).
            self.parallel.backward(parts.loss / len(self.mine), last=micro == self.mine[-1])
            loss = parts.loss / config.accumulate
            assert not COLLECTED & parts.extras.keys(), "an extra has the name of a metric"
            sums = {"loss": loss, "nats": parts.nats, "tokens": parts.tokens}
            for name, value in {**sums, "read": batch.length.sum(), **parts.extras}.items():
                numbers[name] = numbers.get(name, 0.0) + value.detach()
        numbers = self._totals(numbers)
        numbers["grad_norm"] = self.parallel.clip(config.clip or float("inf"))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update()
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
        self._record(self.meter.row(self.step, rate), reporter)

    def _record(self, row: Mapping[str, Any], reporter: Reporter) -> None:
        if self.metrics is not None:
            self.metrics.write(row)
        self.followers.row(row)
        reporter.row(row)

    def _check_finite(self) -> None:
        """Raise `Diverged` before anything is written, so that no good checkpoint is replaced."""
        found = self.meter.first_non_finite(self.step)
        if found is None:
            return
        step, name, value = found
        last = f"the last checkpoint is {self.newest}" if self.newest else "no checkpoint exists"
        raise Diverged(
            f"{name} is {value} at step {step}: training stopped, {last}. The same settings would "
            "meet the same step again: train into another folder with a lower lr, a longer warmup "
            "or a smaller clip"
        )

    def _save(self) -> None:
        self._check_finite()
        if self.metrics is not None:
            self.metrics.sync()  # before the checkpoint: resumption cuts rows but cannot add them
        state = {
            "config": self.config.as_json(),
            "run": self.run_fields,
            "digest": digest(self.run_fields),
            "meter": self.meter.state(),
        }
        keep = self.config.keep
        self.newest = checkpoint.save(self.root, self.step, self.trained, state, keep, self.ranks)

    @contextmanager
    def _weights_to_use(self) -> Iterator[None]:
        """Inside the block, the network has its averaged weights and is in evaluation mode."""
        with nullcontext() if self.ema is None else self.ema.shown():
            self.net.eval()
            yield

    def _export(self, export: Callable[[nn.Module], None]) -> None:
        with self._weights_to_use():
            whole = self.parallel.whole()
            if whole is not None:
                export(whole.eval())
        self.ranks.wait()

    def _validate(self, validation: Sequence[Batch], reporter: Reporter) -> float | None:
        row: dict[str, Any] = {"kind": "validation", "step": self.step}
        with self._weights_to_use():
            losses = partial(self.parallel.loss, self.objective)
            row |= validate(losses, validation, self.options.levels, self.device, self.ranks)
            self.parallel.rest()
        row["seconds"] = round(self.meter.seconds, 3)
        self._record(row, reporter)
        value: float | None = row["nats_per_token"]
        return value
