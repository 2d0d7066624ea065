"""anyorder: train, sample, trace and diagnose any-order language models.

The public names, nothing else. Each is imported on first use (PEP 562), so that `import anyorder`
and `anyorder --help` stay quick and a reader of traces never waits for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder import measure
    from anyorder.apps.train import train
    from anyorder.model import Model, load, wrap
    from anyorder.trace import Run, Trace
    from anyorder.vocab import Vocab

    __version__: str

_HOME = {
    "load": "anyorder.model",
    "wrap": "anyorder.model",
    "Model": "anyorder.model",
    "train": "anyorder.apps.train",
    "Trace": "anyorder.trace",
    "Run": "anyorder.trace",
    "Vocab": "anyorder.vocab",
}
"""Public name -> the module that defines it."""

__all__ = ["Model", "Run", "Trace", "Vocab", "load", "measure", "train", "wrap"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("anyorder")
    except PackageNotFoundError:
        return "0+uninstalled"  # a source tree on the path, never installed


def __getattr__(name: str) -> Any:
    if name == "measure":
        return import_module("anyorder.measure")
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
