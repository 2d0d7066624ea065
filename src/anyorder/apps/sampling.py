"""`anyorder sample`: a model and a task (or a prompt, or a file with gaps) -> a run folder.

Samples are decoded in batches of fixed composition, one part file each, so that a command that was
killed goes on where it stopped and ends with the very traces of an uninterrupted one.
Decoding itself is decode/, the folder is trace/run.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anyorder.apps.jobs import SampleJob
from anyorder.bench.tasks import Problem, find_task
from anyorder.model import FILL, Model, Request, load
from anyorder.trace import Run, RunCard


def sample_to_run(
    job: SampleJob, options: dict[str, Any], *, command: str, progress: bool = True
) -> Run:
    """Do the job, or what is left of it, and return the complete run."""
    model = load(job.model, device=job.device)
    if job.fill is not None or FILL.search(job.prompt or ""):
        # A gap of given length has no end to find: without this, EOS would cut the text in two.
        options = {"eos": "forbid"} | options
    chosen = model.family.choose(options)
    problems, data_digest = _problems(job, model)
    parts = _parts(_requests(job, model, problems), job.batch)
    card = RunCard(
        command=command,
        config=_config(job, model, chosen),
        model_digest=model.digest,
        data_digest=data_digest,
        vocab_digest=model.vocab.digest(),
        device=job.device,
        dtype="float32",
        seeds=(job.seed,),
    )
    run = Run.create(job.out or _default_folder(job, chosen), card)
    done = set(run.done_parts())
    with _bar(sum(map(len, parts)), progress and not run.complete) as advance:
        for number, requests in enumerate(parts):
            if number not in done:
                run.append(number, list(model.decode(requests, chosen, job.seed)))
            advance(len(requests))
    run.finish()
    return run


def _problems(job: SampleJob, model: Model) -> tuple[list[Problem], str | None]:
    if job.task is not None:
        task = find_task(job.task, model.card.recipe.get("data", {}))
        return task.problems(job.limit), task.digest
    if job.prompt is not None:
        return [Problem("prompt/0", job.prompt)], None
    assert job.fill is not None
    try:
        text = job.fill.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {job.fill}: {error}") from None
    if not FILL.search(text):
        raise ValueError(
            f"{job.fill} has no <fill> mark: write <fill> or <fill:12> where text belongs"
        )
    return [Problem(f"fill/{job.fill.name}", text)], None


def _requests(job: SampleJob, model: Model, problems: Sequence[Problem]) -> list[Request]:
    requests = [
        Request(problem.task_id, number, problem.prompt, canvas, problem.entry_point)
        for problem in problems
        for canvas in [model.canvas(problem.prompt, job.max_new_tokens, job.max_length)]
        for number in range(job.samples)
    ]
    first, step = job.share()
    return requests[first::step]


def _parts(requests: list[Request], batch: int) -> list[list[Request]]:
    return [requests[start : start + batch] for start in range(0, len(requests), batch)]


def _config(job: SampleJob, model: Model, chosen: Any) -> dict[str, Any]:
    """The resolved configuration: what the traces depend on (not where they are written)."""
    config = asdict(job) | {
        "fill": None if job.fill is None else str(job.fill),
        "family": model.family.name,
        "max_new_tokens": job.max_new_tokens or model.card.max_new_tokens,
        "max_length": job.max_length or model.card.max_length,
        "options": asdict(chosen),
    }
    del config["out"], config["device"]
    return config


def _default_folder(job: SampleJob, chosen: Any) -> Path:
    subject = job.task or ("fill" if job.fill else "prompt")
    order = getattr(chosen, "policy", "left_to_right")
    name = f"{Path(job.model).name}-{subject}-{order}-seed{job.seed}"
    return Path("runs") / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Any]:
    """A progress bar on standard error; gives the function that advances it."""
    columns = (TextColumn("sampling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not shown or not console.is_terminal) as bar:
        task = bar.add_task("sampling", total=total)
        yield lambda count: bar.advance(task, count)
