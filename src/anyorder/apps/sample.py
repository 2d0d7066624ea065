"""`anyorder sample`: a model and a task (or a prompt, or a file with gaps) -> a run folder.

Samples are decoded in batches of fixed composition, one part file each. So a killed command
continues where it stopped, and its traces equal those of an uninterrupted one. For the same reason
several processes can fill one folder, each with a share of the batches (`Share` in jobs.py).

Prompts are plain text, or turns of a chat (`prompts_of`): a system message, if there is one, the
prompt as the user's turn, and how the assistant begins, if that is given. The run card records a
chat under `chat`: the template's digest, these parts and a digest of the prompts.

`plan_run` turns a job into requests and a run card, and neither decodes nor writes; races use it
too (race/plan.py). Decoding is in decode/ and families/, the run folder in trace/run.py.

A cache (families/mdm/cache.py) is an approximation. A run with `--cache` therefore decodes some of
its samples, evenly spaced, again without it and from the same noise. `agreement` compares the
tokens, the reveal steps and the texts. The result is printed and stored in the run card. If a run
is complete but its check was interrupted, repeating the command does the check. Accuracy is not
compared: see `anyorder grade`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from anyorder.apps.jobs import SampleJob, Share, progress_bar
from anyorder.apps.show import legend, shaded, watching
from anyorder.bench.tasks import Problem, Task, find_task
from anyorder.decode.canvas import Sizes, Watcher, check_lengths, has_gaps, prefix_of
from anyorder.files import alone_if_free, alone_in, together_in
from anyorder.model import Model, Request, load, policy_name
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.run import CARD_FILE
from anyorder.vocab import Vocab
from anyorder.vocab.chat import AnyPrompt, ChatMessage, ChatTemplate


@dataclass(frozen=True)
class SamplingTask:
    """The problems to sample, of a task or of one text."""

    problems: list[Problem]
    digest: str
    template: str | None = None
    """The template of a task's prompts."""
    extraction: str | None = None
    """How a task finds the program in a sample."""

    @classmethod
    def of(cls, task: Task, limit: int | None) -> SamplingTask:
        """The first problems of a task."""
        return cls(task.problems(limit), task.digest, task.template, task.extraction)

    def with_program(self, trace: Trace) -> Trace:
        """The sample with its extracted program, if the task has an extraction."""
        if self.extraction is None:
            return trace
        problem = self._by_id[trace.task_id]
        text = trace.text if problem.middle is None else trace.filled
        return replace(trace, program=problem.program(text, self.extraction))

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
class JobPrompts:
    """The prompts of a job."""

    texts: Sequence[AnyPrompt]
    record: dict[str, Any] = field(default_factory=dict)
    """What the run card says of them; nothing for plain text."""
    remark: str = ""


def prompts_of(job: SampleJob, model: Model, subject: SamplingTask) -> JobPrompts:
    """The prompt of each problem, in the form that the job or the model asks for."""
    _refuse_spellings(job, model, subject)
    plain = [problem.prompt for problem in subject.problems]
    wanted = job.chat or "auto"
    if any(map(has_gaps, plain)):
        if wanted not in ("auto", "off") or job.system is not None or job.prefill is not None:
            raise ValueError(
                "a text with <fill> marks is no turn of a chat: leave the marks out, or --chat, "
                "--system and --prefill"
            )
        return _gaps(job, model, subject) if job.task else JobPrompts(plain)
    unknown = model.vocab.chat is None and bool(model.card.recipe)  # we trained it, without chats
    if wanted == "off" or (wanted == "auto" and unknown):
        _refuse_parts(job, subject)
        return JobPrompts(plain)
    # Here: most models of ours have no template.
    from anyorder.hub.chats import MODES, check_spellings, choose_chat

    chosen = choose_chat(wanted, job.model, model.vocab.chat, model.trained_on)
    if chosen.template is None:
        _refuse_parts(job, subject)
        return JobPrompts(plain, remark=chosen.remark)
    remark = check_spellings(chosen.template, model.vocab)
    found = _chats(job, model, subject.problems, chosen.template)
    return found if wanted in MODES else replace(found, remark=remark)


def _gaps(job: SampleJob, model: Model, subject: SamplingTask) -> JobPrompts:
    from anyorder.apps.infilling import gap_prompts  # here: most tasks have no gaps

    found = gap_prompts(model, subject.problems, slots=job.max_new_tokens, template=job.template)
    return JobPrompts(found.texts, {"gaps": found.told})


def _chats(
    job: SampleJob, model: Model, problems: Sequence[Problem], template: ChatTemplate
) -> JobPrompts:
    conversations = [_messages(job, problem) for problem in problems]
    found = template.prompts(conversations, model.vocab)
    texts = hashlib.sha256("\0".join(prompt.text for prompt in found).encode())
    chat = {
        "mode": "on",  # `auto` as it was decided: the run can be reproduced under another name
        "template_digest": template.digest,
        "system": job.system,
        "prefill": job.prefill,
        "prompts_digest": texts.hexdigest(),
    }
    if job.chat not in (None, "auto", "on"):
        # The template's text, not its path: a file may move, and a run be reproduced without it.
        chat |= {"mode": "template", "template": template.source}
    return JobPrompts(found, {"chat": chat})


def _messages(job: SampleJob, problem: Problem) -> list[ChatMessage]:
    system = problem.system if job.system is None else job.system
    prefill = problem.prefill if job.prefill is None else job.prefill
    turns = {"system": system, "user": problem.prompt, "assistant": prefill}
    return [
        {"role": role, "content": text} for role, text in turns.items() if text or role == "user"
    ]


def _refuse_parts(job: SampleJob, subject: SamplingTask) -> None:
    """Refuse what only a chat can hold."""
    for name in ("system", "prefill"):
        if getattr(job, name) is not None:
            raise ValueError(f"--{name} belongs to a chat: give --chat on, or --chat FILE")
    if any(problem.prefill for problem in subject.problems):
        raise ValueError(
            f"--template {job.template} is worded for a chat: give --chat on, or another template"
        )


def _refuse_spellings(job: SampleJob, model: Model, subject: SamplingTask) -> None:
    """Refuse a prompt template that tries to write special tokens."""
    if job.template is None or subject.template is None:
        return
    for name in model.vocab.special_names.values():
        if name in subject.template:
            raise ValueError(
                f"template {job.template} spells the special token {name!r}, which a prompt's text "
                "cannot hold: leave the chat markup out of it and give --chat on, or put the "
                "markup into a chat template and give its file: --chat FILE (docs/chat.md)"
            )


@dataclass(frozen=True)
class Planned:
    """A run that is checked and can begin; nothing is written yet."""

    options: Any
    """Resolved."""
    requests: list[Request]
    card: RunCard
    remark: str = ""
    """A line for the user about the form of the prompts."""


def plan_run(
    job: SampleJob, options: dict[str, Any], model: Model, subject: SamplingTask, *, command: str
) -> Planned:
    """Resolve and check a job for a model."""
    prompts = prompts_of(job, model, subject)
    texts = prompts.texts
    chosen = model.choose(options, texts)
    check_lengths(texts, job.max_new_tokens)
    sizes = model.sizes(job.max_new_tokens, job.max_length, chosen)
    requests = _requests(job, model, list(zip(subject.problems, texts, strict=True)), sizes)
    model.family.check([request.canvas for request in requests], chosen)
    card = RunCard(
        command=command,
        config=_config(job, model, chosen, sizes)
        | {"prompt_template": subject.template, **prompts.record},
        model_digest=model.digest,
        data_digest=subject.digest,
        vocab_digest=model.vocab.digest(),
        device=job.device,
        dtype=str(next(model.net.parameters()).dtype).removeprefix("torch."),
        seeds=(job.seed,),
        facts={each.task_id: dict(each.facts) for each in subject.problems if each.facts} or None,
        lossy=model.vocab.lossy or None,
    )
    return Planned(chosen, requests, card, prompts.remark)


def _requests(
    job: SampleJob, model: Model, prompts: Sequence[tuple[Problem, AnyPrompt]], sizes: Sizes
) -> list[Request]:
    assert job.samples is not None
    return [
        Request(problem.task_id, number, prefix_of(text), canvas, noise, problem.entry_point)
        for problem, text in prompts
        for canvas in [model.canvas(text, sizes)]
        # Noise is keyed by the problem, so a sample does not depend on batch or neighbours.
        # A prompt without a task has no id: its text is the key.
        for noise in [problem.task_id if job.task else problem.prompt]
        for number in range(job.samples)
    ]


def _config(job: SampleJob, model: Model, chosen: Any, sizes: Sizes) -> dict[str, Any]:
    """The resolved configuration: everything that the traces depend on."""
    config = asdict(job) | {
        "fill": None if job.fill is None else str(job.fill),
        "shard": str(Share()),  # how the work is shared does not change the run
        "family": model.family.name,
        "max_new_tokens": sizes.new_tokens,
        "max_length": sizes.length,
        "only_length_told": sizes.only_length_told,
        "options": asdict(chosen),
        "trained_on": model.trained_on if job.task else None,
    }
    # Device and dtype are fields of the card; the others do not change the traces. A chat is
    # recorded as it was resolved.
    for name in ("out", "device", "dtype", "cache_check", "chat", "system", "prefill"):
        del config[name]
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
    """Do the job, or the rest of it, and return the run, complete unless a shard is missing.

    `watch` shows the canvases while they fill, in place of the progress bar. `place` is the device
    if it differs from the job's name for it, such as one of several GPUs.
    """
    model = load(job.model, device=place or job.device, dtype=job.dtype)
    job, options = _with_preset(job, options, model.family.name)
    subject = subject_of(job, model.trained_on)
    planned = plan_run(job, options, model, subject, command=command)
    if planned.remark and progress:
        print(planned.remark, file=sys.stderr)
    requests, chosen = planned.requests, planned.options
    assert job.batch is not None
    checked = samples_to_check(job.cache_check, chosen)
    parts = [requests[start : start + job.batch] for start in range(0, len(requests), job.batch)]
    folder = job.out or _default_folder(job, chosen, planned.card)

    def decode(part: list[Request], watcher: Watcher | None) -> Iterator[Trace]:
        return map(subject.with_program, model.decode(part, chosen, job.seed, watcher))

    def compare(run: Run) -> None:
        record_agreement(run, model, planned, job, checked, progress=progress)

    work = SamplingWork(parts, decode, compare, progress, model.vocab if watch else None)
    share = job.share()
    if not share.whole:
        return _fill_together(folder, planned.card, work, share)
    with alone_in(folder):
        run = Run.create(folder, planned.card)
        try:
            _decode_parts(run, work, share)
        except BaseException:
            run.discard_if_empty()  # so that a corrected command can use the folder
            raise
        run.finish()
        work.compare(run)
    return run


@dataclass(frozen=True)
class SamplingWork:
    """The batches of a run, and how to decode them."""

    parts: list[list[Request]]
    """All batches of the run; they do not depend on how the work is shared."""
    decode: Callable[[list[Request], Watcher | None], Iterator[Trace]]
    compare: Callable[[Run], None]
    """Compares the finished run with the exact decoder, if that was requested."""
    progress: bool
    watched: Vocab | None
    """The vocabulary to show canvases with; None: do not show them."""


def _fill_together(folder: Path, card: RunCard, work: SamplingWork, share: Share) -> Run:
    """Decode a share beside other processes, and finish the run if no part is missing."""
    run: Run | None = None
    try:
        with together_in(folder):
            run = Run.create(folder, card, together=True)
            _decode_parts(run, work, share)
    except BaseException:
        # Without locks another process may still be writing: then nothing is removed.
        with alone_if_free(folder, without_locks=False) as alone:
            if alone and run is not None:
                run.discard_if_empty()
        raise
    with alone_if_free(folder) as alone:
        if alone and run.finish_if_whole(len(work.parts)):
            work.compare(run)
    return run


def _decode_parts(run: Run, work: SamplingWork, share: Share) -> None:
    """Decode and write the missing parts of a share."""
    done = set(run.done_parts())
    mine = share.pick(list(enumerate(work.parts)))
    there = sum(len(part) for number, part in mine if number in done)
    total = sum(len(part) for _, part in mine)
    if work.progress and len(work.parts) < share.of:
        idle = f"{len(work.parts)} batches for {share.of} shards"
        print(f"{idle}: some have nothing to do; a smaller --batch makes more", file=sys.stderr)
    if there and work.progress:
        state = "all" if run.complete or there == total else f"{there} of"
        print(f"{run.folder}: {state} {total} samples exist already", file=sys.stderr)
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
    """Fill what the command leaves unset from the preset, then from DEFAULTS."""
    settings: dict[str, Any] = {}
    decoding: dict[str, Any] = {}
    if job.preset is not None:
        from anyorder.recipes.presets import find_preset  # recipes import much

        preset = find_preset(job.preset)
        settings, decoding = preset.settings(family, job.task, options.get("policy"))
    job = replace(job, chat=None) if job.chat == "auto" else job
    settled = DEFAULTS | settings
    unset = {name: value for name, value in settled.items() if getattr(job, name) is None}
    return replace(job, **unset), {**decoding, **options}


def _default_folder(job: SampleJob, chosen: Any, card: RunCard) -> Path:
    """A folder named by the settings, so that runs of different settings never share it."""
    subject = job.task or ("fill" if job.fill else "prompt")
    name = f"{Path(job.model).name}-{subject}-{policy_name(chosen)}-{card.identity()[:8]}"
    return Path("runs") / "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


DEFAULT_SAMPLES = 4


@dataclass(frozen=True)
class Agreement:
    """How cached samples compare with exact ones."""

    samples: int
    slots: int
    """Compared slots of all samples."""
    tokens: float
    steps: float
    texts: float
    columns: float
    """Columns that the network computed, as a share of the exact decoder's."""

    def __str__(self) -> str:
        return (
            f"as the exact decoder's: {self.tokens:.1%} of tokens, {self.steps:.1%} of reveal "
            f"steps, {self.texts:.1%} of texts (of {self.samples} "
            f"{'sample' if self.samples == 1 else 'samples'}), "
            f"for {self.columns:.1%} of its columns"
        )


def agreement(exact: Sequence[Trace], cached: Sequence[Trace], end_ids: Sequence[int]) -> Agreement:
    """Compare samples of the same requests, in the same order."""
    tokens, steps, slots = 0, 0, 0
    for one, other in zip(exact, cached, strict=True):
        assert one.token_ids is not None and other.token_ids is not None
        end = max(_length(one.token_ids, end_ids), _length(other.token_ids, end_ids))
        revealed, others_step = (trace.timing()[1][:end] for trace in (one, other))
        # Given slots have step 0: they agree by construction and would flatter the cache.
        free = revealed > 0
        slots += int(free.sum())
        tokens += int((one.token_ids[:end] == other.token_ids[:end])[free].sum())
        steps += int((revealed == others_step)[free].sum())
    texts = sum(one.text == other.text for one, other in zip(exact, cached, strict=True))
    columns = [sum(trace.columns or 0 for trace in side) for side in (cached, exact)]
    return Agreement(
        samples=len(exact),
        slots=slots,
        tokens=tokens / slots,
        steps=steps / slots,
        texts=texts / len(exact),
        columns=columns[0] / columns[1],
    )


def _length(token_ids: Any, end_ids: Sequence[int]) -> int:
    """The number of tokens up to and including the first end of sequence."""
    ends = np.flatnonzero(np.isin(token_ids, end_ids))
    return int(ends[0]) + 1 if ends.size else len(token_ids)


def cache_agreement(
    model: Model, prompts: str | Sequence[str], *, seed: int = 0, **options: Any
) -> Agreement:
    """Sample prompts with `options`, then without their cache, and compare."""
    if options.get("cache") in (None, "none"):
        raise ValueError("there is nothing to compare without a cache: give cache='prefix'")
    without = {name: value for name, value in options.items() if not name.startswith("cache")}
    exact = model.sample(prompts, seed=seed, **without)
    return agreement(exact, model.sample(prompts, seed=seed, **options), model.vocab.end_ids)


def samples_to_check(given: int | None, options: Any) -> int:
    """How many samples to decode twice. A number for a run without a cache is an error."""
    if getattr(options, "cache", None) in (None, "none"):
        if given is not None:
            raise ValueError("--cache-check compares with a cache: give --cache, or leave it out")
        return 0
    return DEFAULT_SAMPLES if given is None else given


def record_agreement(
    run: Run, model: Model, planned: Planned, job: SampleJob, samples: int, *, progress: bool = True
) -> None:
    """Decode some samples of a complete run without its cache, and store the agreement.

    The run card has the agreement; it is not made again for the same number of samples.
    """
    assert job.batch is not None
    wanted, known = min(samples, len(planned.requests)), run.card.agreement
    if not wanted or (known is not None and known["samples"] == wanted):
        return
    chosen = [planned.requests[i * len(planned.requests) // wanted] for i in range(wanted)]
    caches = {each.name for each in fields(planned.options)} & {"cache", "cache_refresh"}
    plain = replace(planned.options, **dict.fromkeys(caches))
    exact: list[Trace] = []
    with progress_bar("the exact decoder, to compare", wanted, shown=progress) as advance:
        for start in range(0, wanted, job.batch):
            part = chosen[start : start + job.batch]
            exact += model.decode(part, plain, job.seed)
            advance(len(part))
    keys = {(request.task_id, request.sample) for request in chosen}
    stored = {(t.task_id, t.sample): t for t in run.traces() if (t.task_id, t.sample) in keys}
    cached = [stored[trace.task_id, trace.sample] for trace in exact]
    found = agreement(exact, cached, model.vocab.end_ids)
    run.card = replace(run.card, agreement=asdict(found))
    run.card.write(run.folder / CARD_FILE)


def summary(run: Run) -> dict[str, Any]:
    """What `anyorder sample --json` prints."""
    traces = list(run.traces())
    compared = {} if run.card.agreement is None else {"agreement": run.card.agreement}
    return {
        "run": str(run.folder),
        "samples": len(traces),
        "seconds": round(sum(trace.seconds or 0.0 for trace in traces), 3),
        "forwards": sum(trace.forwards or 0 for trace in traces),
        **compared,
        "texts": [
            {"task_id": trace.task_id, "sample": trace.sample, "text": trace.text}
            for trace in traces
        ],
    }


def print_run(run: Run, shown: int = 3) -> None:
    """Print the first few samples, coloured by order, and one line about the run."""
    console = Console(highlight=False)
    traces = list(run.traces())
    for trace in traces[:shown]:
        console.print(Text(f"{trace.task_id} sample {trace.sample}", style="bold"))
        console.print(Text(trace.prompt.rstrip("\n"), style="dim"))
        console.print(shaded(trace))
        console.print()
    if len(traces) > shown:
        console.print(f"... and {len(traces) - shown} more\n")
    if console.is_terminal:
        console.print(legend())
    tokens = sum(len(trace.reveal_step) for trace in traces if trace.reveal_step is not None)
    facts = [f"{len(traces)} {'sample' if len(traces) == 1 else 'samples'}"]
    facts += [", ".join(sorted({str(trace.policy) for trace in traces}))]
    facts += [f"{sum(trace.forwards or 0 for trace in traces)} forwards"]
    facts += [f"{sum(trace.seconds or 0 for trace in traces):.1f} s"]
    facts += [f"{sum(trace.ties or 0 for trace in traces) / max(1, tokens):.0%} ties"]
    if run.card.agreement is not None:
        cache = run.card.config["options"]["cache"]
        console.print(f"cache {cache}, {Agreement(**run.card.agreement)}", soft_wrap=True)
    console.print(f"{'; '.join(facts)}; in {run.folder}", markup=False, soft_wrap=True)
