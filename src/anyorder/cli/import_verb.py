"""`anyorder import`: its flags, and what it prints. The work is apps/importing.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from anyorder.cli.parsing import command_line, parse

# Optional flags: help shows what to give, and no "None".
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Place = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
Format = Annotated[
    Literal["jsonl", "snapshots", "dream", "flexmdm", "latentmdm"] | None,
    tyro.conf.arg(help_behavior_hint="", metavar="jsonl|snapshots|dream|flexmdm|latentmdm"),
]


@dataclass(frozen=True)
class Flags:
    """Make a run folder of traces that another library wrote.

    JSON lines, one object per sample: task_id, sample, prompt, tokens (strings), insert_step and
    reveal_step (per token), and optionally log_prob, segment, score (per token), candidates, steps,
    entry_point, policy (docs/traces.md). Steps count from 1; 0 means given from the start. `text`
    alone, without tokens and steps, is accepted too.

    Canvases of ids, one per step (.pt with tensors only, .npy, .npz, .json): dllm's `histories` or
    a list that begins before step 1 (snapshots), Dream's `history` (dream), a trace of the FlexMDM
    release, or a folder of them with its tasks.json (flexmdm). They need --tokenizer.

    Records of the LatentMDM release, segment by segment: --format latentmdm, with --tokenizer.

      anyorder import theirs.jsonl --out runs/theirs
      anyorder import history.pt --out runs/dream --tokenizer Dream-7B --mask-id 151666
        --prompt-length 87
      anyorder import traces/humaneval --out runs/release --tokenizer Dream-Coder-7B
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """The file, or a folder of files of canvases."""
    out: Path
    """The run folder to make."""
    format: Format = None
    """What the file holds; unset: seen from its content."""
    tokenizer: Place = None
    """The model's tokenizer.json, its folder, or one with vocab.json and merges.txt."""
    mask_id: Count = None
    """The id of the mask; unset: as the file or the vocabulary says."""
    eos_id: Count = None
    """The id that ends and pads a sequence; known for Dream, LLaDA and Qwen2 masks."""
    prompt_length: Count = None
    """Ids in front of the answer; unset: as the file says, else up to the first mask."""
    variant: Name = None
    """Which model and policy of a release folder, such as flexmdm__top_k."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    flags = parse(Flags, "import", words)
    from anyorder.apps.imports import ImportOptions, import_traces

    options = ImportOptions(
        format=flags.format,
        tokenizer=flags.tokenizer,
        mask_id=flags.mask_id,
        eos_id=flags.eos_id,
        prompt_length=flags.prompt_length,
        variant=flags.variant,
    )
    run, count = import_traces(
        flags.path, flags.out, command=command_line("import", words), options=options
    )
    if flags.json:
        print(json.dumps({"run": str(run.folder), "samples": count}))
    else:
        print(f"{count} samples in {run.folder}")
