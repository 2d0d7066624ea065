"""`anyorder sample`: a model and a task (or a prompt, or a file with gaps) -> a run folder.

Samples are decoded in batches of fixed composition, one part file each, so that a command that was
killed goes on where it stopped and ends with the very traces of an uninterrupted one.
Decoding itself is decode/, the folder is trace/run.py.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anyorder.apps.jobs import SampleJob
from anyorder.apps.progress_bar import progress_bar
from anyorder.apps.watching import watching
from anyorder.bench.tasks import Problem, find_task
from anyorder.canvases import Sizes
from anyorder.decode.canvas import Watcher
from anyorder.decode.fill import check_lengths, has_gaps, prefix_of
from anyorder.files import alone_in
from anyorder.measure.extract import extract
from anyorder.model import Model, Request, load, policy_name
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
    subject = _subject(job, model.trained_on)
    texts = [problem.prompt for problem in subject.problems]
    chosen = model.choose(options, texts)
    check_lengths(texts, job.max_new_tokens)
    sizes = model.sizes(job.max_new_tokens, job.max_length, chosen)
    requests = _requests(job, model, subject.problems, sizes)
    model.family.check([request.canvas for request in requests], chosen)
    card = RunCard(
        command=command,
        config=_config(job, model, chosen, sizes) | {"prompt_template": subject.template},
        model_digest=model.digest,
        data_digest=subject.digest,
        vocab_digest=model.vocab.digest(),
        device=job.device,
        dtype=str(next(model.net.parameters()).dtype).removeprefix("torch."),
        seeds=(job.seed,),
    )
    assert job.batch is not None
    parts = [requests[start : start + job.batch] for start in range(0, len(requests), job.batch)]
    folder = job.out or _default_folder(job, chosen, card)
    with alone_in(folder):
        run = Run.create(folder, card)
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


@dataclass(frozen=True)
class _Subject:
    """What is asked."""

    problems: list[Problem]
    digest: str
    template: str | None = None
    """The text that a task's prompts were made from."""
    extraction: str | None = None
    """How a task finds the program in a sample."""

    def with_program(self, trace: Trace) -> Trace:
        """The sample with the program that is found in it, where a task asked for one."""
        if self.extraction is None:
            return trace
        problem = self._by_id[trace.task_id]
        found = extract(
            trace.text,
            mode=self.extraction,
            entry_point=problem.entry_point,
            prefix=problem.prefix,
        )
        return replace(trace, program=found)

    @cached_property
    def _by_id(self) -> dict[str, Problem]:
        return {problem.task_id: problem for problem in self.problems}


def _subject(job: SampleJob, trained_on: dict[str, Any]) -> _Subject:
    if job.task is not None:
        task = find_task(job.task, trained_on, data=job.data, template=job.template)
        return _Subject(task.problems(job.limit), task.digest, task.template, task.extraction)
    if job.prompt is not None:
        name, text = "prompt/0", job.prompt
    else:
        assert job.fill is not None
        name, text = f"fill/{job.fill.name}", _read_gaps(job.fill)
    return _Subject([Problem(name, text)], hashlib.sha256(text.encode()).hexdigest())


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
    assert job.samples is not None
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
        "trained_on": model.trained_on if job.task else None,
    }
    del config["out"], config["device"]
    return config


def _default_folder(job: SampleJob, chosen: Any, card: RunCard) -> Path:
    """A folder for these very settings, so that others never meet in it."""
    subject = job.task or ("fill" if job.fill else "prompt")
    name = f"{Path(job.model).name}-{subject}-{policy_name(chosen)}-{card.identity()[:8]}"
    return Path("runs") / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
