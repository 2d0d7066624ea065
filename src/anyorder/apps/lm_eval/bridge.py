"""The answers to the harness's requests, without the harness: keywords, texts, log-likelihoods.

`Bridge.answer` writes texts, `Bridge.score` and `Bridge.roll` give log-likelihoods (likelihood.py).
Everything that can be refused is refused before the first request is worked on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from anyorder.apps.jobs import progress_bar
from anyorder.apps.lm_eval.chat import HarnessChats
from anyorder.apps.lm_eval.likelihood import (
    DRAWS,
    Noisiness,
    Scored,
    TextScorer,
    find_likelihood,
    refuse_marks,
)
from anyorder.checks import whole
from anyorder.data.batches import Ending
from anyorder.families.estimate import Estimate
from anyorder.model import Model, load

LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
DRAWING = ("temperature", "top_p", "top_k")
KNOWN = {"until", "do_sample", "num_beams", *DRAWING, *LENGTH_NAMES}

log = logging.getLogger("lm_eval.anyorder")  # below the harness's own, which shows it


@dataclass(frozen=True)
class Generation:
    """One request's keywords, checked and in our words."""

    until: tuple[str, ...]
    max_new_tokens: int | None
    drawing: tuple[tuple[str, float], ...]
    """temperature, top_p and top_k, if they have an effect."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Generation:
        """Read the harness's keywords; unknown ones are an error."""
        unknown = sorted(set(given) - KNOWN)
        if unknown:
            raise ValueError(
                f"generation_kwargs {', '.join(unknown)}: choose from {', '.join(sorted(KNOWN))}; "
                "decoding options such as policy and steps are model_args"
            )
        if given.get("num_beams", 1) != 1:
            raise ValueError("anyorder has no beam search: set num_beams=1, or leave it out")
        lengths = {name: given[name] for name in LENGTH_NAMES if given.get(name) is not None}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{lengths} contradict each other: give max_gen_toks alone")
        return cls(
            _stops(given.get("until")),
            whole(*next(iter(lengths.items()))) if lengths else None,
            _drawing(given),
        )

    def cut(self, text: str) -> str:
        """The text up to the first stop."""
        ends = [place for stop in self.until if (place := text.find(stop)) >= 0]
        return text[: min(ends)] if ends else text


Prompt = tuple[str, Generation]
"""A context and its keywords."""
LogLikelihood = tuple[float, bool]
"""log p, and `is_greedy`."""


def _stops(until: Any) -> tuple[str, ...]:
    stops = [until] if isinstance(until, str) else list(until or ())
    if not all(isinstance(stop, str) for stop in stops):
        raise ValueError(f"until={until!r}: give a text or a list of texts")
    return tuple(stop for stop in stops if stop)


def _drawing(given: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Greedy by default, as in the harness; greedy drawing has no filters."""
    sample, temperature = given.get("do_sample"), given.get("temperature")
    if sample not in (None, True, False):
        raise ValueError(f"do_sample={sample!r}: give true or false")
    if sample is not None and not sample:
        return ()
    if sample and temperature is None:
        temperature = 1.0
    if sample and not temperature:
        raise ValueError("do_sample=True needs a temperature above 0, or leave it out")
    if not temperature:
        return ()
    filters = {name: given.get(name) for name in ("top_p", "top_k")}
    chosen = {"temperature": temperature} | {k: v for k, v in filters.items() if v is not None}
    return tuple(sorted(chosen.items()))


class Bridge:
    """The answers to the harness's requests, without its base class."""

    def __init__(
        self,
        pretrained: str | Model,
        *,
        batch_size: int | str = 1,
        device: str | None = None,
        seed: int = 0,
        draws: int | None = None,
        ending: Ending | None = None,
        max_length: int | None = None,
        **options: Any,
    ) -> None:
        """`pretrained` is a model or what `anyorder.load` takes; `options` are the family's.

        For log-likelihoods: `draws` of each bound, and the `ending` of continuations.
        """
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise ValueError(f"batch_size={batch_size!r}: give a number (auto is not supported)")
        if options.pop("max_batch_size", None) is not None:  # the harness gives it
            raise ValueError("max_batch_size belongs to batch_size=auto: give batch_size alone")
        misplaced = [name for name in (*DRAWING, *LENGTH_NAMES) if name in options]
        if misplaced:
            raise ValueError(
                f"{', '.join(misplaced)} in model_args: tasks decide these; change them with "
                "--gen_kwargs, such as --gen_kwargs do_sample=True,temperature=0.2,max_gen_toks=256"
            )
        if isinstance(pretrained, Model):
            self.model = pretrained if device is None else pretrained.to(device)
        else:
            self.model = load(pretrained, device=device or "cpu")
        self.chats = HarnessChats(self.model)
        self.batch, self.seed, self.max_length = int(batch_size), seed, max_length
        self.options = options
        if set(options) - self.model.family.option_names():
            self.model.family.choose(options)  # raises an error that names the unknown options
        if draws is not None and find_likelihood(self.model).exact:
            raise ValueError(
                f"{self.model.family.name} is exact and does not use draws: leave it out"
            )
        self.draws = DRAWS if draws is None else whole("draws", draws, least=2)
        if ending not in (None, *get_args(Ending)):
            raise ValueError(f"ending={ending!r}: give {' or '.join(get_args(Ending))}")
        if ending is not None and self.model.family.answers not in ("eos", "canvas"):
            raise ValueError(
                f"{self.model.family.name} does not use ending, its answers are always whole: "
                "leave it out"
            )
        if ending == "eos" and self.model.suffix:
            raise ValueError(
                "ending=eos: this model's texts end with the vocabulary's suffix, which is given "
                "and not predicted: leave ending out"
            )
        self.ending: Ending = ending or "none"
        self.noisiness: dict[str, Any] = {}
        """By kind of request, for the results file."""

    def answer(
        self, requests: Sequence[Any], done: Callable[[Any, str], None], progress: bool = True
    ) -> list[str]:
        """One text for each request, in their order; `done` is called with each text.

        A context that occurs n times (`repeats`) gets its samples 0 ... n-1.
        """
        waiting: dict[Prompt, list[int]] = {}
        for number, request in enumerate(requests):
            key = request.args[0], Generation.of(request.args[1])
            waiting.setdefault(key, []).append(number)
        for key in waiting:  # all before the first is sampled: a late error would cost hours
            self._check(*key)
        answers = [""] * len(requests)
        counts = {key: len(numbers) for key, numbers in waiting.items()}
        with progress_bar("sampling", len(requests), shown=progress) as advance:
            for keys, samples in self._chunks(counts):
                for key, texts in zip(keys, self._sample(keys, samples), strict=True):
                    for number, text in zip(waiting[key], texts, strict=True):
                        answers[number] = key[1].cut(text)
                        done(requests[number], answers[number])
                        advance(1)
        return answers

    def _check(self, context: str, generation: Generation) -> None:
        prompt = refuse_marks(self.chats.prompt(context))
        chosen = self.model.choose(self.options | dict(generation.drawing), [prompt])
        sizes = self.model.sizes(self._new_tokens(generation), self.max_length, chosen)
        self.model.family.check([self.model.canvas(prompt, sizes)], chosen)

    def _new_tokens(self, generation: Generation) -> int | None:
        """None for families that count segments: the harness counts tokens."""
        return None if self.model.family.counts_segments else generation.max_new_tokens

    def _chunks(self, counts: Mapping[Prompt, int]) -> Iterator[tuple[list[Prompt], int]]:
        """Batches of contexts with the same keywords and the same number of samples."""
        groups: dict[tuple[Generation, int], list[Prompt]] = {}
        for key, samples in counts.items():
            groups.setdefault((key[1], samples), []).append(key)
        for (_, samples), keys in groups.items():
            size = max(1, self.batch // samples)
            for start in range(0, len(keys), size):
                yield keys[start : start + size], samples

    def _sample(self, keys: Sequence[Prompt], samples: int) -> list[list[str]]:
        """The texts of the samples of each context."""
        generation = keys[0][1]
        options: dict[str, Any] = self.options | dict(generation.drawing)
        traces = self.model.sample(
            [self.chats.prompt(context) for context, _ in keys],
            samples=samples,
            seed=self.seed,
            batch=self.batch,
            max_new_tokens=self._new_tokens(generation),
            max_length=self.max_length,
            **options,
        )
        texts = [trace.text for trace in traces]
        return [texts[start : start + samples] for start in range(0, len(texts), samples)]

    @cached_property
    def scorer(self) -> TextScorer:
        """Made when the first log-likelihood is asked for: not every family has one."""
        return TextScorer.of(
            self.model,
            self.options,
            draws=self.draws,
            batch=self.batch,
            seed=self.seed,
            max_length=self.max_length,
            ending=self.ending,
        )

    def score(
        self,
        requests: Sequence[Any],
        done: Callable[[Any, LogLikelihood], None],
        progress: bool = True,
    ) -> list[LogLikelihood]:
        """(log p, whether greedy decoding writes it) of each (context, continuation)."""
        pairs = [(self.chats.prompt(request.args[0]), request.args[1]) for request in requests]
        with progress_bar("scoring", len(requests), shown=progress) as advance:
            found = self.scorer.pairs(
                pairs, lambda number, each: done(requests[number], _score(each)), advance
            )
        contexts = [request.args[0] for request in requests]
        self._tell("loglikelihood", contexts, [each.estimate for each in found])
        return [_score(each) for each in found]

    def roll(
        self, requests: Sequence[Any], done: Callable[[Any, float], None], progress: bool = True
    ) -> list[float]:
        """log p of each whole text."""
        texts = [request.args[0] for request in requests]
        with progress_bar("scoring", len(requests), shown=progress) as advance:
            found = self.scorer.texts(
                texts, lambda number, each: done(requests[number], -each.nats), advance
            )
        self._tell("loglikelihood_rolling", [""] * len(found), found)
        return [-each.nats for each in found]

    def _tell(self, kind: str, contexts: Sequence[str], found: Sequence[Estimate]) -> None:
        """Log how far the numbers can be trusted, and keep it."""
        if not found:
            return
        noisiness = Noisiness.of(self.scorer.scorer, contexts, found)
        for line in noisiness.lines():
            log.info(line)
        self.noisiness[kind] = noisiness.to_record()

    def about(self) -> dict[str, Any]:
        """For the harness's results file."""
        return {
            "model_name": self.model.name,
            "model_digest": self.model.digest,
            "family": self.model.family.name,
            "decoding": self.options,
            "seed": self.seed,
            **({"likelihood": self.noisiness} if self.noisiness else {}),
            **({"chat_template_digest": self.chats.chosen.digest} if self.chats.chosen else {}),
        }


def _score(scored: Scored) -> LogLikelihood:
    return -scored.estimate.nats, scored.greedy
