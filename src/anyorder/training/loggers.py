"""Loggers: followers of metrics.jsonl that show a training in TensorBoard, wandb or trackio.

A logger has three functions: `start` when the log is opened, `row` after a row is in metrics.jsonl,
`end` when the training stops. Rank 0 alone calls them. A logger never stops or changes a training:
if it fails, a line says so and it is left out from then on (log.py: Followers).

A training that was killed begins again at its last checkpoint, and metrics.jsonl is cut back to it.
So `start` is given every row that stands, and each logger ends with exactly the rows of
metrics.jsonl, also after a kill or a failure of its own:

    tensorboard   hides what it wrote before (purge_step), and writes all rows again
    trackio       removes the run that it made before, and writes all rows again
    wandb         goes on with the run of the same id, and sends the steps that it does not have;
                  rows that it has already are the same ones, since a resumed training repeats them

Rows of one step (training and validation) go to wandb and trackio together, with the next step: so
a kill between the two leaves no half of a step. Packages add loggers by the entry points of
`anyorder.loggers`; a function of (step, row) is a logger, too (docs/loggers.md).
"""

from __future__ import annotations

import inspect
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from anyorder.checks import did_you_mean, refuse_unknown
from anyorder.files import replacing
from anyorder.plugins import entries, load_entry

MetricsRow = Mapping[str, Any]
LOGS = "logs"
"""The folder of the loggers' files, beside metrics.jsonl."""
PROJECT = "anyorder"


@dataclass(frozen=True)
class LoggedTraining:
    """What a logger knows of a training when it starts."""

    name: str
    """The name of its folder."""
    folder: Path
    """Where a logger may write; each uses its own name in it."""
    config: Mapping[str, Any]
    """JSON: the settings of the training, and of its network and data."""
    rows: Sequence[MetricsRow]
    """The rows of metrics.jsonl so far; later ones that a logger may have are cut off."""


@runtime_checkable
class Logger(Protocol):
    """What a training calls."""

    def start(self, training: LoggedTraining) -> None: ...

    def row(self, step: int, row: MetricsRow) -> None: ...

    def end(self, status: str) -> None:
        """`status`: done, minutes, interrupted or failed."""


Callback = Callable[[int, MetricsRow], object]
"""A function that gets every new row, with its step."""


def numbers(row: MetricsRow) -> dict[str, float]:
    """The numbers of a row by name, such as train/loss; those that are not finite are left out."""
    kind = row["kind"]
    found = {f"{kind}/{name}": value for name, value in row.items() if name != "step"}
    for each in found.pop(f"{kind}/levels", ()):
        level = "drawn" if each["level"] is None else f"{each['level']:g}"
        found[f"{kind}/nats_per_token/{level}"] = each["nats_per_token"]
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


class TensorBoard:
    """Event files, for `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: str | None = None) -> None:
        _need("tensorboard", "tensorboard")
        self._folder = folder

    def start(self, training: LoggedTraining) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = training.folder / "tensorboard"
        if self._folder is not None:  # which may hold other trainings
            folder = Path(self._folder) / training.name
        # Step 0 hides all events of earlier files: those of a killed process may have gaps.
        self._writer: Any = SummaryWriter(str(folder), purge_step=0)
        self._writer.add_text("config", f"```\n{json.dumps(training.config, indent=2)}\n```")
        for row in training.rows:
            self._write(row["step"], row)
        self._writer.flush()

    def row(self, step: int, row: MetricsRow) -> None:
        self._write(step, row)
        self._writer.flush()

    def end(self, status: str) -> None:
        self._writer.close()

    def _write(self, step: int, row: MetricsRow) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, step)


class _Tracker(ABC):
    """What wandb and trackio have in common: runs, with one call for all numbers of a step."""

    package = ""

    def __init__(self, **settings: str | None) -> None:
        _need(self.package, self.package)
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._step = 0
        self._numbers: dict[str, float] = {}

    def start(self, training: LoggedTraining) -> None:
        self._run = self._open(training, _run_id(training.folder / self.package))
        for row in training.rows:
            self.row(row["step"], row)

    def row(self, step: int, row: MetricsRow) -> None:
        if step != self._step:
            self._send()
        self._step = step
        self._numbers |= numbers(row)

    def end(self, status: str) -> None:
        self._send()
        self._run.finish()

    @abstractmethod
    def _open(self, training: LoggedTraining, run_id: str) -> Any:
        """The package's run, new or continued."""

    def _send(self) -> None:
        if self._numbers:
            self._run.log(self._numbers, step=self._step)
        self._numbers = {}


class Wandb(_Tracker):
    """Weights & Biases, online or (mode=offline) as files for `wandb sync`."""

    package = "wandb"

    def __init__(
        self,
        project: str = PROJECT,
        name: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(project=project, name=name, entity=entity, group=group, mode=mode)

    def end(self, status: str) -> None:
        self._send()
        self._run.finish(exit_code=int(status == "failed"))

    def _open(self, training: LoggedTraining, run_id: str) -> Any:
        wandb = import_module(self.package)
        run = wandb.init(
            **{"name": training.name, **self._settings},
            id=run_id,
            resume="allow",
            dir=training.folder,
            config=dict(training.config),
            settings=wandb.Settings(console="off"),  # the training prints for itself
        )
        self._first = run.step  # the first step that the run lacks; offline 0
        return run

    def _send(self) -> None:
        if self._step < self._first:
            self._numbers = {}
        super()._send()


class Trackio(_Tracker):
    """trackio, in its local database."""

    package = "trackio"

    def __init__(
        self, project: str = PROJECT, name: str | None = None, group: str | None = None
    ) -> None:
        super().__init__(project=project, name=name, group=group)

    def _open(self, training: LoggedTraining, run_id: str) -> Any:
        trackio = import_module(self.package)
        # With the id, because another training may have this name, and its run must stay.
        name = f"{self._settings.get('name', training.name)}-{run_id}"
        try:
            earlier = list(trackio.Api().runs(self._settings["project"]))
        except ValueError:  # there is no such project yet
            earlier = []
        for run in earlier:
            if run.name == name:
                run.delete()
        return trackio.init(
            **{**self._settings, "name": name}, config=dict(training.config), embed=False
        )


@dataclass(frozen=True)
class _Function:
    """A callback as a logger; rows from before a resumption are not repeated."""

    function: Callback

    def start(self, training: LoggedTraining) -> None:
        pass

    def row(self, step: int, row: MetricsRow) -> None:
        self.function(step, row)

    def end(self, status: str) -> None:
        pass


LOGGERS: dict[str, Callable[..., Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
}
"""Name -> what makes the logger, from settings that are strings."""


def find_logger(name: str, settings: Mapping[str, str] | None = None) -> Logger:
    """A logger of ours or of an installed package. Refuses what it does not know or lacks."""
    refuse_unknown("logger", name, (*LOGGERS, *entries("loggers")))
    make = LOGGERS[name] if name in LOGGERS else load_entry("loggers", name)
    known = inspect.signature(make).parameters
    free = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    for setting in settings or {}:
        if setting not in known and not free:
            raise ValueError(
                f"the logger {name} has no setting {setting!r} ({', '.join(known) or 'none'})"
                f"{did_you_mean(setting, known)}"
            )
    logger: Logger = make(**(settings or {}))
    return logger


def as_logger(given: str | Logger | Callback) -> Logger:
    """A logger by name, a logger, or a function of (step, row)."""
    if isinstance(given, str):
        return find_logger(given)
    if isinstance(given, Logger):
        return given
    if not callable(given):
        raise ValueError(f"{given!r} is no logger: give a name, a logger or a function")
    return _Function(given)


def _need(logger: str, package: str) -> None:
    if find_spec(package) is None:
        raise ValueError(f"the logger {logger} needs a package: pip install {package}")


def _run_id(folder: Path) -> str:
    """The id of the run in a service: made once, and kept with the training."""
    path = folder / "run_id"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(secrets.token_hex(4).encode())
    return path.read_text(encoding="ascii")
