"""anyorder: train, sample, trace and diagnose any-order language models.

The public names, nothing else. Each is imported on first use (PEP 562), so that `import anyorder`
and `anyorder --help` stay quick and a reader of traces never waits for torch.

`anyorder.train` is two things, the function that runs a recipe and the room with the training
loop; `anyorder.measure.order` likewise is a measure and the file that holds it. Python binds a
loaded module over any name of its parent, so these modules themselves are made callable: both
readings hold, whatever was imported first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder import measure as measure
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
    "Trace": "anyorder.trace",
    "Run": "anyorder.trace",
    "Vocab": "anyorder.vocab",
}

_CALLABLE = {
    "anyorder.train": "anyorder.apps.training",
    "anyorder.measure.order": "anyorder.measure.order",
    "anyorder.measure.arness": "anyorder.measure.arness",
    "anyorder.measure.similarity": "anyorder.measure.similarity",
    "anyorder.measure.diversity": "anyorder.measure.diversity",
    "anyorder.measure.placement": "anyorder.apps.placement",
}
"""Module -> where the function of its name is."""

__all__ = ["Model", "Run", "Trace", "Vocab", "load", "measure", "train", "wrap"]


class _Room(ModuleType):
    """A package of ours: some of its modules can also be called as the function of their name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is ModuleType and value.__name__ in ("anyorder.measure", *_CALLABLE):
            value.__class__ = _Room
        super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__name__ not in _CALLABLE:
            raise TypeError(f"module {self.__name__!r} is not callable")
        function = getattr(import_module(_CALLABLE[self.__name__]), self.__name__.split(".")[-1])
        return function(*args, **kwargs)


sys.modules[__name__].__class__ = _Room


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("anyorder")
    except PackageNotFoundError:
        return "0+uninstalled"  # a source tree on the path, never installed


def __getattr__(name: str) -> Any:
    if name in ("measure", "train"):
        return import_module(f"anyorder.{name}")
    if name == "__version__":
        return _version()
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
