"""A dry run as a table for people; the numbers are dry_run.py's."""

from __future__ import annotations

from typing import Any

WIDTH = 24


def as_text(found: dict[str, Any]) -> str:
    """The sizes, what a rank holds, what a step costs, and how long it takes."""
    memory = found["memory_per_rank"]
    rows = [
        ("family", found["family"]),
        ("parameters", f"{found['parameters']:,} in {found['tensors']:,} tensors"),
        ("added to the backbone", _added(found)),
        ("by module", ", ".join(f"{name} {n:,}" for name, n in found["by_module"].items())),
        ("trained", f"{found['trained_parameters']:,}"),
        ("", ""),
        ("ranks", _ranks(found)),
        *(
            (name.removesuffix("_bytes").replace("_", " "), gib(n))
            for name, n in memory.items()
            if n
        ),
        ("a rank in all", _need(found)),
        ("host memory at the end", f"{gib(found['host_bytes'])}, on the first machine"),
        ("a checkpoint on disk", gib(found["checkpoint_bytes"])),
        ("", ""),
        ("tokens per step", f"{found['tokens_per_step']:,} at the most"),
        ("operations per step", f"{found['flops_per_step']:.3g}"),
        ("in all", f"{found['flops']:.3g}"),
    ]
    if found["days"] is not None:
        rows.append(("time", f"{found['seconds_per_step']:.3g} s a step, {_time(found['days'])}"))
    lines = [f"{name:>{WIDTH}}  {value}".rstrip() for name, value in rows]
    return "\n".join([*lines, "", *(f"assumed: {each}" for each in found["assumptions"])])


def gib(size: float) -> str:
    return f"{size / 2**30:,.3g} GiB" if size >= 2**30 else f"{size / 2**20:,.3g} MiB"


def _added(found: dict[str, Any]) -> str:
    return f"{found['added_parameters']:,} in {found['added_tensors']:,} tensors"


def _ranks(found: dict[str, Any]) -> str:
    kind = "" if found["gpu"] is None else f" {found['gpu']}"
    told = f"{found['gpus']}{kind} on {found['nodes']} "
    told += "machine" if found["nodes"] == 1 else "machines"
    each = found["micro_batches_per_rank"]
    return f"{told}; {each} micro batches of {found['micro_batch']} for each, in {found['dtype']}"


def _need(found: dict[str, Any]) -> str:
    if found["gpu_bytes"] is None:
        return gib(found["rank_bytes"])
    verdict = "fits" if found["fits"] else "does not fit"
    return f"{gib(found['rank_bytes'])} of {gib(found['gpu_bytes'])}: {verdict}"


def _time(days: float) -> str:
    if days >= 1:
        return f"{days:.3g} days"
    return f"{days * 24:.3g} hours" if days * 24 >= 1 else f"{days * 1440:.3g} minutes"
