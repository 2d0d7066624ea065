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

Validation: nats per token on a fixed grid of held-out batches and corruption levels.

The value is sum of nats / sum of predicted tokens over all cells, and a family's extras likewise
(flexmdm's gap loss: with it, both heads are watched). Batches, levels and noise are the
same at every step and in every run, so that two numbers differ only by the weights. Several
processes share the cells out among them and add up the same numbers in the same order. This does
not decide when to validate or with which weights: see loop.py.

Whether a checkpoint belongs to the run that wants to go on from it, and if not, why.

The two runs' fixed fields are compared leaf by leaf, under the names that a command line gives
them: `net.width` and not the whole of `net`. Fields that are free to change are not among them
(config.py). This does not look for damage: see checkpoint.py.

The folder that a run trains in: whose it may be, and the names in it that are the loop's.

A folder with other things in it is refused, so that a training never mixes with a sampling run or
somebody's files. Hidden files do not count: a lock or a desktop's notes do not fill a folder.
Holding the folder is `files.alone_in`; what is written there is the business of checkpoint.py,
log.py and the caller's export.
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
from anyorder.families.backbone import Objective
from anyorder.files import alone_in
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.training import checkpoint
from anyorder.training.config import MAY_CHANGE, TrainConfig, digest, fixed_fields
from anyorder.training.distributed import Weights, prepared, spread
from anyorder.training.log import COLLECTED, Meter, MetricsFile, NoFile, Reporter, how_to_go_on
from anyorder.training.optimiser import (
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
    usable_device,
)

VALIDATION_SEED = 0x76A11DA7E
"""Not the run's seed, so that runs with other seeds compare."""

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
    # Everybody takes part in every round, because a sharded network runs in all processes or none.
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
    """The sum over a level's batches, one after the other.  # levels x batches -> levels"""
    total = torch.zeros(len(values), dtype=torch.float64)
    for column in values.T:
        total = total + column
    return total


def _ratio(nats: Tensor, tokens: Tensor) -> float | None:
    """Nats over tokens; None (JSON's null) when that is no finite number."""
    value = float(nats) / max(float(tokens), 1.0)
    return value if abs(value) < float("inf") else None


ABOUT = "about."
"""Before the name of what the caller says of its network and data (FitOptions.about)."""
SHOWN = 4
"""Differences named in one message."""

_PLAIN = {
    "data_digest": "data (the file has changed since)",
    "vocab_digest": "vocabulary",
}
"""What a digest that differs means; its value tells people nothing."""
_NAMES = {"levels": "validation levels"}
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_same_run(folder: Path, before: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Refuse to go on with another configuration, naming the fields that differ."""
    differ = differences(before, run)
    if not differ:
        return
    more = f" and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
    raise ValueError(
        f"{folder} was trained with another configuration: {', '.join(differ[:SHOWN])}{more}. "
        "Give the earlier values to go on, or choose another output folder to start anew "
        f"(free to change: {', '.join(sorted(MAY_CHANGE))})"
    )


def differences(before: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """One phrase for each field that differs, in the order of their names."""
    old, new = _leaves(before), _leaves(run)
    names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    if any(name.startswith("data.") for name in names):
        names.discard("data_digest")  # other settings make other data: the file is not to blame
    return [_phrase(name, old.get(name), new.get(name)) for name in sorted(names)]


def _leaves(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names, without the mark of the caller's own."""
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
    """Refuse a folder that is a file, or is filled with something else than a training."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file and training writes a folder: choose another --out")
    filled = any(not path.name.startswith(".") for path in folder.iterdir())
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
    # Models of other programs have files of these names too, but none says by what recipe.
    return isinstance(card, dict) and bool(card.get("recipe"))


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
        self.trained = checkpoint.TrainingState(net, self.ema, self.optimiser)
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
