"""`anyorder sample`: a model and a task (or a prompt, or a file with gaps) -> a run folder.

Samples are decoded in batches of fixed composition, one part file each, so that a command that was
killed goes on where it stopped and ends with the very traces of an uninterrupted one. So do several
processes with a share of the batches each (shards.py), which fill one folder at the same time.
Decoding itself is decode/, the folder is trace/run.py.

What a sampling job asks of a model: the problems, the requests, and the card of the run.

Shared by `anyorder sample` (sampling.py) and by races, whose lanes are the same runs made in
another order (race_lanes.py). Nothing here decodes or writes.
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

from anyorder.apps.cache_check import CacheCheck, record_agreement, samples_to_check
from anyorder.apps.jobs import SampleJob, Share, progress_bar
from anyorder.apps.show import watching
from anyorder.bench.tasks import Problem, Task, find_task
from anyorder.decode.canvas import Sizes, Watcher, check_lengths, has_gaps, prefix_of
from anyorder.files import alone_if_free, alone_in, together_in
from anyorder.measure.extract import extract
from anyorder.model import Model, Request, load, policy_name
from anyorder.recipes.presets import find_preset
from anyorder.trace import Run, RunCard, Trace
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class SamplingTask:
    """What is asked."""

    problems: list[Problem]
    digest: str
    template: str | None = None
    """The text that a task's prompts were made from."""
    extraction: str | None = None
    """How a task finds the program in a sample."""

    @classmethod
    def of(cls, task: Task, limit: int | None) -> SamplingTask:
        """The first problems of a task."""
        return cls(task.problems(limit), task.digest, task.template, task.extraction)

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


def subject_of(job: SampleJob, trained_on: dict[str, Any]) -> SamplingTask:
    if job.task is not None:
        task = find_task(job.task, trained_on, data=job.data, template=job.template)
        return SamplingTask.of(task, job.limit)
    if job.prompt is not None:
        name, text = "prompt/0", job.prompt
    else:
        assert job.fill is not None
        name, text = f"fill/{job.fill.name}", _read_gaps(job.fill)
    return SamplingTask([Problem(name, text)], hashlib.sha256(text.encode()).hexdigest())


def _read_gaps(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if not has_gaps(text):
        raise ValueError(f"{path} has no <fill> mark: write <fill> or <fill:12> where text belongs")
    return text


@dataclass(frozen=True)
class Planned:
    """A run that can begin: all is checked, nothing is written."""

    options: Any
    """Resolved."""
    requests: list[Request]
    card: RunCard


def plan_run(
    job: SampleJob, options: dict[str, Any], model: Model, subject: SamplingTask, *, command: str
) -> Planned:
    """What a job means for a model."""
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
    return Planned(chosen, requests, card)


def _requests(
    job: SampleJob, model: Model, problems: Sequence[Problem], sizes: Sizes
) -> list[Request]:
    assert job.samples is not None
    return [
        Request(problem.task_id, number, prefix_of(text), canvas, noise, problem.entry_point)
        for problem in problems
        for text in [problem.prompt]
        for canvas in [model.canvas(text, sizes)]
        # A task's problems have names; a prompt of one's own is named by what it says.
        for noise in [problem.task_id if job.task else text]
        for number in range(job.samples)
    ]


def _config(job: SampleJob, model: Model, chosen: Any, sizes: Sizes) -> dict[str, Any]:
    """The resolved configuration: what the traces depend on (not where they are written)."""
    config = asdict(job) | {
        "fill": None if job.fill is None else str(job.fill),
        "shard": str(Share()),  # the run is one, whoever decodes it
        "family": model.family.name,
        "max_new_tokens": sizes.new_tokens,
        "max_length": sizes.length,
        "only_length_told": sizes.only_length_told,
        "options": asdict(chosen),
        "trained_on": model.trained_on if job.task else None,
    }
    # The card has device and dtype as they are, in fields of their own.
    del config["out"], config["device"], config["dtype"], config["cache_check"]
    return config


DEFAULTS = {"samples": 1, "batch": 32}


def sample_to_run(
    job: SampleJob,
    options: dict[str, Any],
    *,
    command: str,
    progress: bool = True,
    watch: bool = False,
    place: str | None = None,
) -> Run:
    """Do the job, or what is left of it, and return the run: complete, unless a shard is missing.

    `watch` shows the canvases while they fill, in place of the progress bar. `place` is the device
    to use if it has another name here than in the job: one of several GPUs.
    """
    model = load(job.model, device=place or job.device, dtype=job.dtype)
    job, options = _with_preset(job, options, model.family.name)
    subject = subject_of(job, model.trained_on)
    planned = plan_run(job, options, model, subject, command=command)
    requests, chosen = planned.requests, planned.options
    assert job.batch is not None
    check = CacheCheck(
        requests, chosen, job.seed, job.batch, samples_to_check(job.cache_check, chosen)
    )
    parts = [requests[start : start + job.batch] for start in range(0, len(requests), job.batch)]
    folder = job.out or _default_folder(job, chosen, planned.card)

    def decode(part: list[Request], watcher: Watcher | None) -> Iterator[Trace]:
        return map(subject.with_program, model.decode(part, chosen, job.seed, watcher))

    def compare(run: Run) -> None:
        record_agreement(run, model, check, progress=progress)

    work = SamplingWork(parts, decode, compare, progress, model.vocab if watch else None)
    share = job.share()
    if not share.whole:
        return _fill_together(folder, planned.card, work, share)
    with alone_in(folder):
        run = Run.create(folder, planned.card)
        try:
            _decode_parts(run, work, share)
        except BaseException:
            run.discard_if_empty()  # the corrected command shall find its folder free
            raise
        run.finish()
        work.compare(run)
    return run


@dataclass(frozen=True)
class SamplingWork:
    """What is to be decoded, and how."""

    parts: list[list[Request]]
    """Of the whole run: their composition does not depend on how they are shared."""
    decode: Callable[[list[Request], Watcher | None], Iterator[Trace]]
    compare: Callable[[Run], None]
    """Of the finished run: tells how it agrees with the exact decoder, where that is asked."""
    progress: bool
    watched: Vocab | None
    """The tokens to show the canvases with; None: unwatched."""


def _fill_together(folder: Path, card: RunCard, work: SamplingWork, share: Share) -> Run:
    """Decode a share beside others, and finish the run if nothing is missing any more."""
    run: Run | None = None
    try:
        with together_in(folder):
            run = Run.create(folder, card, together=True)
            _decode_parts(run, work, share)
    except BaseException:
        with alone_if_free(folder, without_locks=False) as alone:
            if alone and run is not None:
                run.discard_if_empty()
        raise
    with alone_if_free(folder) as alone:
        if alone and run.finish_if_whole(len(work.parts)):
            work.compare(run)
    return run


def _decode_parts(run: Run, work: SamplingWork, share: Share) -> None:
    """Decode and write the parts of a share that are not there yet."""
    done = set(run.done_parts())
    mine = share.pick(list(enumerate(work.parts)))
    there = sum(len(part) for number, part in mine if number in done)
    total = sum(len(part) for _, part in mine)
    if work.progress and len(work.parts) < share.of:
        idle = f"{len(work.parts)} batches for {share.of} shards"
        print(f"{idle}: some have nothing to do; a smaller --batch makes more", file=sys.stderr)
    if there and work.progress:
        state = "all" if run.complete or there == total else f"{there} of"
        print(f"{run.folder}: {state} {total} samples are there already", file=sys.stderr)
    quiet = run.complete or work.watched is not None
    watched = None if run.complete else work.watched
    view = watching(watched, total - there) if watched else nullcontext()
    shown = work.progress and not quiet
    with progress_bar("sampling", total, shown=shown) as advance, view as begin:
        for number, part in mine:
            if number not in done:
                run.append(number, list(work.decode(part, begin and begin(part))))
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
