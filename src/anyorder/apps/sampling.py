"""`anyorder sample`: a model and a task (or a prompt, or a file with gaps) -> a run folder.

Samples are decoded in batches of fixed composition, one part file each, so that a command that was
killed goes on where it stopped and ends with the very traces of an uninterrupted one.
Decoding itself is decode/, the folder is trace/run.py.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anyorder.apps.jobs import SampleJob
from anyorder.bench.tasks import Problem, find_task
from anyorder.decode.fill import check_lengths, has_gaps, prefix_of
from anyorder.families import Sizes
from anyorder.files import alone_in
from anyorder.model import Model, Request, load, policy_name
from anyorder.trace import Run, RunCard, Trace


def sample_to_run(
    job: SampleJob, options: dict[str, Any], *, command: str, progress: bool = True
) -> Run:
    """Do the job, or what is left of it, and return the complete run."""
    model = load(job.model, device=job.device)
    problems, data_digest = _problems(job, model)
    texts = [problem.prompt for problem in problems]
    chosen = model.choose(options, texts)
    check_lengths(texts, job.max_new_tokens)
    sizes = model.sizes(job.max_new_tokens, job.max_length, chosen)
    requests = _requests(job, model, problems, sizes)
    model.family.check([request.canvas for request in requests], chosen)
    card = RunCard(
        command=command,
        config=_config(job, model, chosen, sizes),
        model_digest=model.digest,
        data_digest=data_digest,
        vocab_digest=model.vocab.digest(),
        device=job.device,
        dtype=str(next(model.net.parameters()).dtype).removeprefix("torch."),
        seeds=(job.seed,),
    )
    parts = [requests[start : start + job.batch] for start in range(0, len(requests), job.batch)]
    folder = job.out or _default_folder(job, chosen, card)
    with alone_in(folder):
        run = Run.create(folder, card)
        try:
            _decode_parts(run, parts, lambda part: model.decode(part, chosen, job.seed), progress)
        except BaseException:
            run.discard_if_empty()  # the corrected command shall find its folder free
            raise
        run.finish()
    return run


def _decode_parts(
    run: Run,
    parts: list[list[Request]],
    decode: Callable[[list[Request]], Iterator[Trace]],
    progress: bool,
) -> None:
    """Decode and write the parts that are not there yet."""
    done = set(run.done_parts())
    there = sum(len(part) for number, part in enumerate(parts) if number in done)
    total = sum(map(len, parts))
    if there and progress:
        state = "all" if run.complete else f"{there} of"
        print(f"{run.folder}: {state} {total} samples are there already", file=sys.stderr)
    with _bar(total, progress and not run.complete) as advance:
        for number, part in enumerate(parts):
            if number not in done:
                run.append(number, list(decode(part)))
            advance(len(part))


def _problems(job: SampleJob, model: Model) -> tuple[list[Problem], str]:
    """What to sample, and a digest of it."""
    if job.task is not None:
        task = find_task(job.task, model.card.recipe.get("data", {}))
        return task.problems(job.limit), task.digest
    if job.prompt is not None:
        name, text = "prompt/0", job.prompt
    else:
        assert job.fill is not None
        name, text = f"fill/{job.fill.name}", _read_gaps(job.fill)
    return [Problem(name, text)], hashlib.sha256(text.encode()).hexdigest()


def _read_gaps(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if not has_gaps(text):
        raise ValueError(f"{path} has no <fill> mark: write <fill> or <fill:12> where text belongs")
    return text


def _requests(
    job: SampleJob, model: Model, problems: Sequence[Problem], sizes: Sizes
) -> list[Request]:
    requests = [
        Request(problem.task_id, number, prefix_of(text), canvas, noise, problem.entry_point)
        for problem in problems
        for text in [problem.prompt]
        for canvas in [model.canvas(text, sizes)]
        # A task's problems have names; a prompt of one's own is named by what it says.
        for noise in [problem.task_id if job.task else text]
        for number in range(job.samples)
    ]
    first, step = job.share()
    if first >= len(requests):
        raise ValueError(f"--shard {job.shard} is empty: there are {len(requests)} samples")
    return requests[first::step]


def _config(job: SampleJob, model: Model, chosen: Any, sizes: Sizes) -> dict[str, Any]:
    """The resolved configuration: what the traces depend on (not where they are written)."""
    config = asdict(job) | {
        "fill": None if job.fill is None else str(job.fill),
        "family": model.family.name,
        "max_new_tokens": sizes.new_tokens,
        "max_length": sizes.length,
        "only_length_told": sizes.only_length_told,
        "options": asdict(chosen),
    }
    del config["out"], config["device"]
    return config


def _default_folder(job: SampleJob, chosen: Any, card: RunCard) -> Path:
    """A folder for these very settings, so that others never meet in it."""
    subject = job.task or ("fill" if job.fill else "prompt")
    name = f"{Path(job.model).name}-{subject}-{policy_name(chosen)}-{card.identity()[:8]}"
    return Path("runs") / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Any]:
    """A progress bar on standard error; gives the function that advances it."""
    columns = (TextColumn("sampling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not shown or not console.is_terminal) as bar:
        task = bar.add_task("sampling", total=total)
        yield lambda count: bar.advance(task, count)
