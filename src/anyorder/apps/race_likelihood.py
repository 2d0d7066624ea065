"""How likely held-out texts are to a model, in nats per answer (train/likelihood.py).

The texts are the task's own problems with their solutions, the same for every entrant; those that
some entrant cannot hold are left out for all. Every text is evaluated with DRAWS stratified draws;
the interval is over texts, so it covers both the texts and the noise of the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyorder.bench.tasks import Problem
from anyorder.data.batches import BatchConfig, Example, collate, tokenise
from anyorder.data.segments import SegmentConfig
from anyorder.measure.intervals import Interval, mean_interval
from anyorder.model import Model
from anyorder.process.noise import Noise
from anyorder.train.likelihood import LIKELIHOODS, nats_per_answer

DRAWS = 16
"""For each text; an exact likelihood needs one."""
SEED = 0x11CE11
"""Of the draws: not the race's, so that races compare."""
NONE = "none: its loss bounds no likelihood"
NO_TEXT = "none: no held-out text that all can hold"
NO_CUT = "none: its config.json does not say how its answers were cut"


@dataclass(frozen=True)
class Nats:
    """What an entrant says of the texts."""

    name: str
    """What the number is: exact, or which bound."""
    exact: bool
    interval: Interval | None
    """Mean nats per answer, over texts; None: the family has no likelihood."""

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        mean = None if self.interval is None else self.interval.to_record()
        return {"name": self.name, "exact": self.exact, "nats_per_answer": mean}


def usable_texts(models: Sequence[Model], problems: Sequence[Problem]) -> list[Problem]:
    """The problems whose solution every model can hold, of which that can be told."""
    known = [model for model in models if _cuts(model)]
    return [
        problem
        for problem in problems
        if problem.solution is not None and all(_holds(model, problem) for model in known)
    ]


def nats_of(
    model: Model, problems: Sequence[Problem], advance: Callable[[int], None] = lambda count: None
) -> Nats:
    """Mean nats per answer of these problems' solutions."""
    likelihood = LIKELIHOODS.get(model.family.name)
    if likelihood is None or not _cuts(model):
        advance(len(problems))
        return Nats(NONE if likelihood is None else NO_CUT, False, None)
    draws = 1 if likelihood.exact else DRAWS
    config, found = batch_config(model), []
    for number, problem in enumerate(problems):
        example = _example(model, problem)
        rows = [replace(example, index=number * draws + draw) for draw in range(draws)]
        batch = collate(rows, model.vocab, config).to(model.device)
        noise = Noise(SEED, number)
        try:
            found.append(nats_per_answer(likelihood, model.net, model.vocab, batch, noise))
        except ValueError as error:  # not finite: said, since all that was timed shall not be lost
            advance(len(problems) - number)
            return Nats(f"none: {problem.task_id}: {error}", False, None)
        advance(1)
    return Nats(likelihood.name, likelihood.exact, mean_interval(found))


def batch_config(model: Model) -> BatchConfig:
    """How the model's training rows were made."""
    answers = model.family.answers
    before, after = model.family.frame(model.config, model.vocab)
    fills = answers == "canvas"
    return BatchConfig(
        canvas=model.card.max_new_tokens if fills else None,
        align=model.trained_on.get("align", "left") if fills else "left",
        ending="eos" if answers in ("eos", "canvas") else "none",
        before=before,
        after=after,
        segments=_segments(model),
        pad_slots=answers == "slots",
    )


def _cuts(model: Model) -> bool:
    """Whether it is known how the model's answers are made."""
    return not model.family.counts_segments or "segments" in model.card.recipe


def _segments(model: Model) -> SegmentConfig | None:
    if not model.family.counts_segments:
        return None
    return SegmentConfig(**model.card.recipe["segments"])


def _example(model: Model, problem: Problem) -> Example:
    assert problem.solution is not None
    begun = bool(model.family.frame(model.config, model.vocab)[0])
    return tokenise(
        problem.prompt, problem.solution, 0, model.vocab, begun=begun, segments=_segments(model)
    )


def _holds(model: Model, problem: Problem) -> bool:
    """Whether the text is one that the model could have been trained on."""
    try:
        example = _example(model, problem)
    except ValueError:  # what its vocabulary cannot spell, or its segments cannot hold
        return False
    length = len(example.prompt) + len(example.answer) + 1
    longest = model.card.max_length
    return (
        not example.truncated
        and len(example.answer) < model.card.max_new_tokens
        and (longest is None or length <= longest)
    )
