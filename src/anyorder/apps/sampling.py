"""`anyorder sample`: a model and a task (or a prompt, or a file with gaps) -> a run folder.

Samples are decoded in batches of fixed composition, one part file each, so that a command that was
killed goes on where it stopped and ends with the very traces of an uninterrupted one.
Decoding itself is decode/, the folder is trace/run.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyorder.apps.jobs import SampleJob
from anyorder.apps.progress_bar import progress_bar
from anyorder.apps.sampling_plan import plan_run, subject_of
from anyorder.apps.watching import watching
from anyorder.decode.canvas import Watcher
from anyorder.files import alone_in
from anyorder.model import Request, load, policy_name
from anyorder.recipes.presets import find_preset
from anyorder.trace import Run, RunCard, Trace
from anyorder.vocab import Vocab

DEFAULTS = {"samples": 1, "batch": 32}


def sample_to_run(
    job: SampleJob,
    options: dict[str, Any],
    *,
    command: str,
    progress: bool = True,
    watch: bool = False,
) -> Run:
    """Do the job, or what is left of it, and return the complete run.

    `watch` shows the canvases while they fill, in place of the progress bar.
    """
    model = load(job.model, device=job.device)
    job, options = _with_preset(job, options, model.family.name)
    subject = subject_of(job, model.trained_on)
    planned = plan_run(job, options, model, subject, command=command)
    requests, chosen = planned.requests, planned.options
    assert job.batch is not None
    parts = [requests[start : start + job.batch] for start in range(0, len(requests), job.batch)]
    folder = job.out or _default_folder(job, chosen, planned.card)
    with alone_in(folder):
        run = Run.create(folder, planned.card)
        try:
            _decode_parts(
                run,
                parts,
                lambda part, watcher: map(
                    subject.with_program, model.decode(part, chosen, job.seed, watcher)
                ),
                progress,
                model.vocab if watch else None,
            )
        except BaseException:
            run.discard_if_empty()  # the corrected command shall find its folder free
            raise
        run.finish()
    return run


def _decode_parts(
    run: Run,
    parts: list[list[Request]],
    decode: Callable[[list[Request], Watcher | None], Iterator[Trace]],
    progress: bool,
    watched: Vocab | None,
) -> None:
    """Decode and write the parts that are not there yet; `watched`: of these tokens, in view."""
    done = set(run.done_parts())
    there = sum(len(part) for number, part in enumerate(parts) if number in done)
    total = sum(map(len, parts))
    if there and progress:
        state = "all" if run.complete else f"{there} of"
        print(f"{run.folder}: {state} {total} samples are there already", file=sys.stderr)
    quiet = run.complete or watched is not None
    view = nullcontext() if run.complete or not watched else watching(watched, total - there)
    with progress_bar("sampling", total, shown=progress and not quiet) as advance, view as begin:
        for number, part in enumerate(parts):
            if number not in done:
                run.append(number, list(decode(part, begin and begin(part))))
            advance(len(part))


def _with_preset(
    job: SampleJob, options: dict[str, Any], family: str
) -> tuple[SampleJob, dict[str, Any]]:
    """Job and options as the preset says where the command says nothing, and the defaults."""
    settings: dict[str, Any] = {}
    decoding: dict[str, Any] = {}
    if job.preset is not None:
        preset = find_preset(job.preset)
        settings, decoding = preset.settings(family, job.task, options.get("policy"))
    settled = DEFAULTS | settings
    unset = {name: value for name, value in settled.items() if getattr(job, name) is None}
    return replace(job, **unset), {**decoding, **options}


def _default_folder(job: SampleJob, chosen: Any, card: RunCard) -> Path:
    """A folder for these very settings, so that others never meet in it."""
    subject = job.task or ("fill" if job.fill else "prompt")
    name = f"{Path(job.model).name}-{subject}-{policy_name(chosen)}-{card.identity()[:8]}"
    return Path("runs") / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
