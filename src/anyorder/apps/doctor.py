"""`anyorder doctor`: the machine, the versions, and the sandbox level that its canaries prove."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console

from anyorder.report.tables import Table, print_table

EXTRAS = {
    "hf": ("transformers", "datasets", "peft"),
    "report": ("matplotlib", "starlette", "uvicorn"),
    "lm-eval": ("lm-eval",),
    "loggers": ("tensorboard", "wandb"),
}


SANDBOX_LEVELS = {
    0: "no isolation: programs cannot be graded here",
    1: "1 (resource limits only): grading needs --allow-weak-isolation",
    2: "2 (Landlock, seccomp, resource limits)",
    3: "3 (namespaces, Landlock, seccomp, resource limits)",
}

LABELS = {"memory_gib": "memory (GiB)", "cpu_dtype": "precision on CPU"}


def examine() -> dict[str, Any]:
    """Python, torch, devices, threads, memory and extras, as JSON."""
    import torch

    from anyorder.bench.sandbox import probe

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
        "sandbox": asdict(probe()),
        "extras": {
            extra: {name: _version(name) for name in packages} for extra, packages in EXTRAS.items()
        },
    }


def print_findings(findings: dict[str, Any]) -> None:
    rows = [
        (LABELS.get(name, name), ", ".join(value) if isinstance(value, list) else str(value))
        for name, value in findings.items()
        if name not in ("extras", "sandbox")
    ]
    rows += _sandbox_rows(findings["sandbox"])
    for extra, packages in findings["extras"].items():
        missing = [package for package, version in packages.items() if version is None]
        state = (
            f"missing {', '.join(missing)}: pip install 'anyorder[{extra}]'"
            if missing
            else "installed"
        )
        rows.append((f"extra {extra}", state))
    print_table(Table((), tuple(rows)), Console(highlight=False))


def _sandbox_rows(sandbox: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The level, the canaries that were not stopped, and notes."""
    yield "sandbox", SANDBOX_LEVELS[sandbox["level"]]
    stopped = sum(check["held"] for check in sandbox["checks"])
    yield "", f"{stopped} of {len(sandbox['checks'])} canaries were stopped"
    for check in sandbox["checks"]:
        if not check["held"]:
            yield "", f"not stopped: {check['name']} ({check['mechanism']}: {check['detail']})"
    for note in sandbox["notes"]:
        yield "", note


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float | None:
    """Physical memory; None if the system does not report it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
