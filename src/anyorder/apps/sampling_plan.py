"""What a sampling job asks of a model: the problems, the requests, and the card of the run.

Shared by `anyorder sample` (sampling.py) and by races, whose lanes are the same runs made in
another order (race_lanes.py). Nothing here decodes or writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anyorder.apps.jobs import SampleJob
from anyorder.apps.shards import Share
from anyorder.bench.tasks import Problem, Task, find_task
from anyorder.canvases import Sizes
from anyorder.decode.fill import check_lengths, has_gaps, prefix_of
from anyorder.measure.extract import extract
from anyorder.model import Model, Request
from anyorder.trace import RunCard, Trace


@dataclass(frozen=True)
class Subject:
    """What is asked."""

    problems: list[Problem]
    digest: str
    template: str | None = None
    """The text that a task's prompts were made from."""
    extraction: str | None = None
    """How a task finds the program in a sample."""

    @classmethod
    def of(cls, task: Task, limit: int | None) -> Subject:
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


def subject_of(job: SampleJob, trained_on: dict[str, Any]) -> Subject:
    if job.task is not None:
        task = find_task(job.task, trained_on, data=job.data, template=job.template)
        return Subject.of(task, job.limit)
    if job.prompt is not None:
        name, text = "prompt/0", job.prompt
    else:
        assert job.fill is not None
        name, text = f"fill/{job.fill.name}", _read_gaps(job.fill)
    return Subject([Problem(name, text)], hashlib.sha256(text.encode()).hexdigest())


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
    job: SampleJob, options: dict[str, Any], model: Model, subject: Subject, *, command: str
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
