"""anyorder: train, sample, trace and diagnose any-order language models.

The public names, nothing else. Each is imported on first use (PEP 562), so that `import anyorder`
and `anyorder --help` stay quick and a reader of traces never waits for torch.

`anyorder.train` is two things, the function that runs a recipe and the room with the training
loop. Python binds a loaded subpackage over any name of its parent, so the room itself is made
callable: both readings hold, whatever was imported first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder.apps.training import train as train
    from anyorder.model import Model as Model
    from anyorder.model import load as load
    from anyorder.model import wrap as wrap
    from anyorder.trace import Run as Run
    from anyorder.trace import Trace as Trace
    from anyorder.vocab import Vocab as Vocab

    __version__: str

_PUBLIC = {
    "load": "anyorder.model",
    "wrap": "anyorder.model",
    "Model": "anyorder.model",
    "train": "anyorder.apps.training",
    "Trace": "anyorder.trace",
    "Run": "anyorder.trace",
    "Vocab": "anyorder.vocab",
}

__all__ = ["Model", "Run", "Trace", "Vocab", "load", "train", "wrap"]


class _TrainRoom(ModuleType):
    """The subpackage `anyorder.train`, which can also be called as the public function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _public("train")(*args, **kwargs)


class _Package(ModuleType):
    """This package: it turns its subpackage `train` into a `_TrainRoom` when Python binds it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "train" and type(value) is ModuleType:
            value.__class__ = _TrainRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _public(name: str) -> Any:
    return getattr(import_module(_PUBLIC[name]), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("anyorder")
    except PackageNotFoundError:
        return "0+uninstalled"  # a source tree on the path, never installed


def __getattr__(name: str) -> Any:
    if name == "train":
        return import_module("anyorder.train")
    if name == "__version__":
        return _version()
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _public(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
