"""What to sample: the plain description of a sampling job, quick to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.shards import Share

# Optional flags: help shows what to give, and no "None".
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Number = Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


@dataclass(frozen=True)
class SampleJob:
    """What to sample, from what, how often and where to."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A shipped model (ar, mdm, planner, flexmdm, latentmdm, flexlatent, duo or sflm), a folder
    written by `anyorder train`, or a published checkpoint: its folder or hub id
    (docs/checkpoints.md)."""
    task: Name = None
    """A task to take prompts from: stories, humaneval, humaneval+, mbpp, mbpp+, livecodebench or
    gsm8k (docs/tasks.md)."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the published dataset."""
    template: Name = None
    """How prompts are worded: a published template of the task, or a file with {prompt}."""
    preset: Name = None
    """A published protocol (docs/presets.md); every flag beside it overrides it."""
    prompt: Text = None
    """A prompt, or a text with <fill> or <fill:12> marks; <answer> marks where the answer begins,
    if that is before the first gap."""
    fill: Folder = None
    """A file with such marks; plain <fill> has as many slots as a prompt gets, or opens as many as
    it needs (flexmdm, flexlatent; latentmdm: whole lines)."""
    limit: Count = None
    """Only the first problems of the task."""
    samples: Count = None
    """Samples for each prompt; unset: 1, or the preset's number."""
    seed: int = 0
    """Names the noise: a sample depends on (seed, task, sample number) only. (flexmdm in mode
    compat: on its batch too, as published.)"""
    batch: Count = None
    """Samples decoded together; unset: 32, or the preset's number."""
    cache_check: Count = None
    """With --cache: so many samples are decoded exactly too, and the agreement is shown and
    recorded; 0: none; unset: 4."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    dtype: Name = None
    """The precision of weights and network: float32, bfloat16, float16 or float64; unset: float32
    on a CPU, elsewhere as stored."""
    shard: Annotated[str | None, tyro.conf.arg(metavar="i/n", help_behavior_hint="")] = None
    """Only every n-th batch from the i-th on: n processes fill one folder together, and the last
    one finishes it. Unset: as torchrun or a Slurm array says, else all."""
    max_new_tokens: Count = None
    """Free slots after a prompt, or at most so many in all within --max-length (growing canvases:
    flexmdm, flexlatent); unset: as in training."""
    max_length: Count = None
    """The largest canvas; unset: as in training."""
    out: Folder = None
    """The run folder; unset: runs/<model>-<task>-<policy>-<digest of the settings>."""

    def __post_init__(self) -> None:
        given = [name for name in ("task", "prompt", "fill") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of --task, --prompt and --fill")
        for name in ("samples", "batch", "limit", "max_new_tokens", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        if self.cache_check is not None and self.cache_check < 0:
            raise ValueError(f"--cache-check must be at least 0, not {self.cache_check}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"--seed must be from 0 to 2^63 - 1, not {self.seed}")
        for name in ("limit", "data", "template"):
            if getattr(self, name) is not None and self.task is None:
                raise ValueError(f"--{name} belongs to a task: use it with --task")
        self.share()

    def share(self) -> Share:
        """What falls to this job; all of it where nothing is said."""
        return Share() if self.shard is None else Share.parse(self.shard)
