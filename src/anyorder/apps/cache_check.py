"""`anyorder sample --cache`: how far a cached decoder agrees with the exact one.

A cache (families/mdm/cache.py) is an approximation. A run that uses one therefore decodes some of
its samples, evenly spaced, again without it and from the same noise. It compares

    tokens    share of slots that hold the same token
    steps     share of slots that were revealed in the same step
    texts     share of samples with the same text

Slots count up to the later of the two ends, because equal padding behind both would flatter the
cache. The result is printed and stored in the run card. If a run is complete but its check was
interrupted, repeating the command does the check. Accuracy is not compared: see `anyorder grade`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from anyorder.apps.jobs import progress_bar
from anyorder.model import Model, Request
from anyorder.trace import Run, Trace
from anyorder.trace.run import CARD_FILE

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


def agreement(exact: Sequence[Trace], cached: Sequence[Trace], eos_id: int) -> Agreement:
    """Compare samples of the same requests, in the same order."""
    tokens, steps, slots = 0, 0, 0
    for one, other in zip(exact, cached, strict=True):
        assert one.token_ids is not None and other.token_ids is not None
        end = max(_length(one.token_ids, eos_id), _length(other.token_ids, eos_id))
        (revealed, others_step) = (trace.timing()[1][:end] for trace in (one, other))
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


def _length(token_ids: Any, eos_id: int) -> int:
    """The number of tokens up to and including the first end of sequence."""
    ends = np.flatnonzero(token_ids == eos_id)
    return int(ends[0]) + 1 if ends.size else len(token_ids)


def cache_agreement(
    model: Model, prompts: str | Sequence[str], *, seed: int = 0, **options: Any
) -> Agreement:
    """Sample prompts with `options`, then without their cache, and compare."""
    if options.get("cache") in (None, "none"):
        raise ValueError("there is nothing to compare without a cache: give cache='prefix'")
    without = {name: value for name, value in options.items() if not name.startswith("cache")}
    exact = model.sample(prompts, seed=seed, **without)
    return agreement(exact, model.sample(prompts, seed=seed, **options), model.vocab.eos_id)


def samples_to_check(asked: int | None, options: Any) -> int:
    """How many samples to decode twice. Asking for a check without a cache is an error."""
    if getattr(options, "cache", None) is None:
        if asked is not None:
            raise ValueError("--cache-check compares with a cache: give --cache, or leave it out")
        return 0
    return DEFAULT_SAMPLES if asked is None else asked


@dataclass(frozen=True)
class CacheCheck:
    """The requests of a run, and how many of them to check."""

    requests: Sequence[Request]
    """All requests of the run."""
    options: Any
    """Resolved."""
    seed: int
    batch: int
    samples: int
    """How many are decoded again without the cache."""


def record_agreement(run: Run, model: Model, check: CacheCheck, *, progress: bool = True) -> None:
    """Store the agreement of a complete run in its card, unless the card has it."""
    wanted, known = min(check.samples, len(check.requests)), run.card.agreement
    if not wanted or (known is not None and known["samples"] == wanted):
        return
    chosen = [check.requests[i * len(check.requests) // wanted] for i in range(wanted)]
    plain = replace(check.options, cache=None, cache_refresh=None)
    exact: list[Trace] = []
    with progress_bar("the exact decoder, to compare", wanted, shown=progress) as advance:
        for start in range(0, wanted, check.batch):
            part = chosen[start : start + check.batch]
            exact += model.decode(part, plain, check.seed)
            advance(len(part))
    keys = {(request.task_id, request.sample) for request in chosen}
    stored = {(t.task_id, t.sample): t for t in run.traces() if (t.task_id, t.sample) in keys}
    cached = [stored[trace.task_id, trace.sample] for trace in exact]
    found = agreement(exact, cached, model.vocab.eos_id)
    run.card = replace(run.card, agreement=asdict(found))
    run.card.write(run.folder / CARD_FILE)
