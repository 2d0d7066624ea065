"""Gaps in a text: what a model knows of a gap, and the prompt that says it.

The canvas of a family decides what the prompt must say about a gap:

    tokens    their number: a fixed canvas has no other way (mdm, duo, sflm)
    lines     their number (latentmdm, where a segment is a line)
    nothing   the gap finds its own length (flexmdm, flexlatent)

For a task of gaps, `gap_prompts` says as little as the canvas allows. A model of lines learns
nothing: it fills any number of its slots. A model with a fixed canvas learns the number of tokens,
unless the command gives one number of slots for all gaps, as published protocols do.

A left-to-right model reads the text behind a gap only if it was trained to see it first: prefix,
suffix, then the middle, each behind a token of its own (Bavarian et al. 2022). Which tokens these
are is read from its tokenizer; a model without them is refused.

Not here: the marks and canvases (decode/canvas.py), the tasks (bench/tasks), decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyorder.bench.tasks import Problem
from anyorder.bench.tasks.infilling import RAW
from anyorder.decode.canvas import MARK
from anyorder.model import Model
from anyorder.vocab import Vocab
from anyorder.vocab.chat import AnyPrompt, ChatPrompt

GAP_HINTS = {"canvas": "tokens", "bare": "nothing", "slots": "lines", "segments": "nothing"}
"""By `Family.answers` (families/family.py); families with other answers cannot fill."""
MIDDLE_LAST = "prefix-suffix-middle"
"""How a left-to-right model reads a text with a gap."""
MIDDLE_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
)
"""What stands before the prefix, before the suffix and before the middle: in Qwen2.5-Coder; in
StarCoder and Granite; in DeepSeek-Coder."""


@dataclass(frozen=True)
class GapPrompts:
    """The prompts of a task of gaps."""

    texts: Sequence[AnyPrompt]
    told: str
    """tokens, nothing or prefix-suffix-middle."""


def can_fill(model: Model) -> bool:
    """Whether the model's family can fill gaps."""
    return model.family.answers in GAP_HINTS


def told_of_gaps(model: Model) -> str:
    """The unit in which the model knows a gap's length: tokens, lines or nothing."""
    told = GAP_HINTS[model.family.answers]
    if told == "lines" and model.config.segment_by != "line":  # type: ignore[union-attr]
        return "nothing"  # the number of lines does not give that of statements or pieces
    return told


def mark_of(model: Model, hidden: str, after: str, told: str) -> str:
    """The mark of a gap that hides `hidden`, as the model reads it; `after` is behind the gap."""
    marks: dict[str, Callable[[], str]] = {
        "tokens": lambda: f"<fill:{len(model.vocab.encode(hidden, begun=True))}>",
        "lines": lambda: f"<fill:{len(hidden.splitlines())}>",
        "nothing": lambda: "<fill>",
    }
    # In a canvas of lines, a line end behind the mark belongs to the mark. An empty line behind the
    # gap is not meant to.
    return marks[told]() + ("\n" if after.startswith("\n") and _fills_lines(model) else "")


def _fills_lines(model: Model) -> bool:
    """Whether the model's items are whole lines or statements."""
    shape = getattr(model.config, "latent", model.config)
    return model.family.counts_segments and shape.segment_by != "fixed"  # type: ignore[union-attr]


def gap_prompts(
    model: Model, problems: Sequence[Problem], *, slots: int | None, template: str | None
) -> GapPrompts:
    """The prompts of problems with gaps; `slots`: for every gap, told by the command."""
    if not can_fill(model):
        if template not in (None, RAW):
            raise ValueError(
                f"--template {template} has no effect on a left-to-right model, which reads "
                "prefix, suffix and middle: leave it out"
            )
        tokens = _middle_tokens(model)
        texts = [_middle_last(problem, tokens, model.vocab) for problem in problems]
        return GapPrompts(texts, MIDDLE_LAST)
    if _fills_lines(model):
        _check_lines(model, problems)
    told = told_of_gaps(model)
    if told == "lines" or (told == "tokens" and slots is not None):
        told = "nothing"
    return GapPrompts([_marked(model, problem, told) for problem in problems], told)


def _marked(model: Model, problem: Problem, told: str) -> str:
    assert problem.middle is not None
    mark = mark_of(model, problem.middle, problem.suffix, told)
    return MARK.sub(lambda _: mark, problem.prompt, count=1)


def _check_lines(model: Model, problems: Sequence[Problem]) -> None:
    for problem in problems:
        assert problem.middle is not None
        if not (problem.prefix.endswith("\n") and problem.middle.endswith("\n")):
            raise ValueError(
                f"{model.family.name} fills whole lines, and the gap of {problem.task_id} begins "
                "or ends inside a line: choose gaps of whole lines, such as single-line"
            )


def _middle_tokens(model: Model) -> tuple[str, str, str]:
    """The prefix-suffix-middle tokens of the model's tokenizer."""
    known = model.vocab.added_names.union(model.vocab.special_names.values())
    for tokens in MIDDLE_TOKENS:
        if known.issuperset(tokens):
            return tokens
    raise ValueError(
        f"{model.name} writes left to right, and its tokenizer has no prefix-suffix-middle tokens "
        f"such as {MIDDLE_TOKENS[0][0]}: fill gaps with an any-order model, or with one that has "
        "such tokens"
    )


def _middle_last(problem: Problem, tokens: tuple[str, str, str], vocab: Vocab) -> ChatPrompt:
    """The gap's prefix and suffix, each behind its token, and the token of the middle."""
    prefix, suffix, middle = tokens
    ids = [
        *vocab.prefix_ids,
        vocab.id_of(prefix),
        *vocab.encode(problem.prefix, begun=True),
        vocab.id_of(suffix),
        *vocab.encode(problem.suffix, begun=True),
        vocab.id_of(middle),
    ]
    return ChatPrompt(f"{prefix}{problem.prefix}{suffix}{problem.suffix}{middle}", tuple(ids))
