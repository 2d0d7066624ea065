"""What `anyorder data` is asked to do: its flags, checked, and opened into a plan."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from anyorder import __version__
from anyorder.apps.data_against import NOTHING, OpenedBenchmark, open_benchmarks
from anyorder.apps.data_sources import OpenedSource, open_sources
from anyorder.data.corpora import CorpusRecipe, Limits, Mode, find_corpus
from anyorder.vocab import Vocab

Dedup = Literal["near", "exact", "none"]
Files = Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE..", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ALIAS..", help_behavior_hint="")]
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")]
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Place = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")]
Way = Annotated[Dedup | None, tyro.conf.arg(metavar="near|exact|none", help_behavior_hint="")]

RESULTS = 1
"""Raised when the same flags give other shards than before."""


@dataclass(frozen=True)
class DataJob:
    """The flags of `anyorder data`."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
    """tinygsm, gsm8k-programs, code-mixture, or one of its sources."""
    source: Files = ()
    """Local files (.jsonl, .jsonl.gz, .parquet), or `hub`; of a mixture ALIAS=FILE. Unset: hub."""
    without: Names = ()
    """Sources of a mixture to leave out."""
    limit: Count = None
    """Rows to read of each source; unset: all."""
    vocab: Name = None
    """The vocabulary: stories, bytes, a folder or a hub id; unset: the recipe's."""
    against: Files = ()
    """Files of HumanEval, MBPP or GSM8K to keep out, or `none`; unset: from the hub."""
    mode: Mode = "exact"
    """exact: answers must parse; compat: the published filters."""
    dedup: Way = None
    """Which duplicates to drop; unset: near, and with compat none, as published."""
    near: float = 0.8
    """The similarity from which rows are near duplicates."""
    max_tokens: Count = None
    """The longest row with what stands around it; unset: the recipe's limit."""
    validation: Share = None
    """The share of rows that is never trained on; unset: the recipe's."""
    seed: int = 0
    """Chooses the validation rows."""
    shard_rows: int = 32_768
    """Rows that are read for one shard; work up to the last shard survives a kill."""
    workers: int = 1
    """Processes that make rows; the shards do not depend on it."""
    out: Place = None
    """The folder to make; unset: data/RECIPE."""

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("max_tokens", 2), ("shard_rows", 1), ("workers", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}: give a whole number from {least} on")
        if not 0 < self.near <= 1:
            raise ValueError(f"near is {self.near}: give a similarity above 0 and up to 1")
        if self.validation is not None and not 0 <= self.validation < 1:
            raise ValueError(f"validation is {self.validation}: give a share from 0 to below 1")
        if self.near != DataJob.near and self.ways != "near":
            raise ValueError("near has no effect without near duplicates: give --dedup near")

    @property
    def ways(self) -> Dedup:
        return self.dedup or ("none" if self.mode == "compat" else "near")


@dataclass(frozen=True)
class DataPlan:
    """Everything that decides which bytes are written."""

    recipe: CorpusRecipe
    job: DataJob
    sources: tuple[OpenedSource, ...]
    vocab: Vocab
    limits: Limits
    benchmarks: tuple[OpenedBenchmark, ...]
    validation: float
    out: Path

    def settings(self) -> dict[str, Any]:
        """What the manifest says of how the shards were made; its digest names the work."""
        job = self.job
        return {
            "results": RESULTS,
            "recipe": self.recipe.name,
            "mode": job.mode,
            "limit": job.limit,
            "dedup": job.ways,
            "near": job.near if job.ways == "near" else None,
            "max_tokens": self.limits.total,
            "validation": self.validation,
            "seed": job.seed,
            "shard_rows": job.shard_rows,
            "vocab_digest": self.vocab.digest(),
            "sources": {source.spec.alias: source.content for source in self.sources},
            "against": [benchmark.as_json() for benchmark in self.benchmarks],
        }

    def identity(self) -> str:
        text = json.dumps(self.settings(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def warnings(self) -> list[str]:
        """What the user is told before anything is read."""
        found = [
            f"{source.spec.alias} is {source.spec.licence}: what is trained on it is not for "
            f"commercial use (--without {source.spec.alias} leaves it out of a mixture)"
            for source in self.sources
            if not source.spec.commercial
        ]
        if not self.benchmarks:
            found.append("not decontaminated: benchmark problems in the data will be trained on")
        return found


def open_plan(job: DataJob) -> DataPlan:
    """Find what the flags name."""
    from anyorder.apps.corpus import open_vocab  # brings torch: not for --help

    recipe = find_corpus(job.recipe)
    if job.mode not in recipe.limits:
        raise ValueError(f"{recipe.name} has no published filters: leave --mode out")
    limits = recipe.limits[job.mode]
    if job.max_tokens is not None:
        limits = replace(limits, total=job.max_tokens)
    against = job.against or ((NOTHING,) if job.mode == "compat" else ())
    return DataPlan(
        recipe=recipe,
        job=job,
        sources=open_sources(recipe, job.source, job.without),
        vocab=open_vocab(job.vocab or recipe.vocab),
        limits=limits,
        benchmarks=open_benchmarks(against),
        validation=recipe.validation if job.validation is None else job.validation,
        out=job.out or Path("data") / recipe.name,
    )


def made_by() -> str:
    """The program that wrote a manifest."""
    return f"anyorder {__version__}"
