"""`anyorder doctor`: what this machine offers."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

from rich.console import Console
from rich.table import Table

EXTRAS = {
    "hf": ("transformers", "datasets", "peft"),
    "report": ("matplotlib", "starlette", "uvicorn"),
    "syntax": ("tree-sitter", "tree-sitter-python"),
    "lm-eval": ("lm-eval",),
}


LABELS = {"memory_gib": "memory (GiB)", "cpu_dtype": "precision on CPU"}


def examine() -> dict[str, Any]:
    """Python, torch, devices, threads, memory and extras, as JSON."""
    import torch

    devices = ["cpu"]
    devices += [
        f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())
    ]
    return {
        "anyorder": _version("anyorder"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "devices": devices,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(),
        "cpu_dtype": "float32",
        "extras": {
            extra: {name: _version(name) for name in packages} for extra, packages in EXTRAS.items()
        },
    }


def print_findings(findings: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in findings.items():
        if name != "extras":
            table.add_row(
                LABELS.get(name, name), ", ".join(value) if isinstance(value, list) else str(value)
            )
    for extra, packages in findings["extras"].items():
        missing = [package for package, version in packages.items() if version is None]
        state = (
            f"missing {', '.join(missing)}: pip install 'anyorder[{extra}]'"
            if missing
            else "installed"
        )
        table.add_row(f"extra {extra}", state)
    Console().print(table, markup=False)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float | None:
    """Physical memory, where the system tells."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
