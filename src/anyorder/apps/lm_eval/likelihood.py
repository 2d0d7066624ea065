"""Log-likelihoods for the harness: texts -> rows of ids -> estimates (families/estimate.py).

What is scored of a request (context, continuation), by `Family.answers`:

    eos         the continuation's tokens, one after another; no EOS: it may go on     exact
    canvas      a canvas of exactly the continuation's tokens behind the context       a bound
    bare        the continuation as the whole answer: insertion says where it ends     a bound
    slots, segments      the same, cut into segments as in training                    a bound

With ending=eos the continuation is the whole answer for the first two as well: its end is scored
too, as in training (ar: EOS; a fixed canvas: the EOS that fill it). A model that was trained on one
canvas size knows short canvases badly. Families without a likelihood are refused. A bound is an
upper bound of -log p, so the harness gets a lower bound of log p.

Tokens. As in the harness, blanks at the end of the context move to the continuation, both are
encoded as one text, and the continuation's tokens are those behind the context's own. Where the
network separates prompt and answer (a frame, segments, prompts of sentences), each is encoded
alone, and so is what follows a chat: its prompt stays whole. A context begins as every prompt does
(`Vocab.begin`): with the vocabulary's prefix, or BOS if it is empty; ar without BOS takes EOS, as
the harness does. A wrapped network sees its suffix, such as [SEP], after the continuation.

`is_greedy`: whether the model writes the continuation at temperature 0. ar tells it from one look;
the others decode, on a canvas of the continuation's length if the family has a fixed one.

A long text (`loglikelihood_rolling`) is cut into windows. Each token is scored once, given as many
tokens before it as fit: with a fixed canvas or a growing one, windows have the length of an answer
in training, and ar's are as long as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from statistics import median
from typing import Any

from anyorder.apps.train import batch_config
from anyorder.data.batches import BatchConfig, Ending, Example
from anyorder.data.segments import SegmentConfig, cut
from anyorder.decode.canvas import LIKE_A_MARK, LIKE_ANSWER, Canvas, prefix_of
from anyorder.families.estimate import Estimate, Scorer
from anyorder.families.likelihood import Likelihood, likelihood_of
from anyorder.model import Model, Request
from anyorder.nets.denoiser import Suffixed
from anyorder.nets.shapes import ends_of
from anyorder.trace import Trace
from anyorder.vocab.chat import AnyPrompt, ChatPrompt

DRAWS = 128
"""As in the published evaluations of LLaDA and Dream."""
SLICE = 256
"""Requests that are sorted by length together; after each slice its numbers are told."""
NEAR = 2.0
"""Standard errors within which the best two continuations count as level."""


def find_likelihood(model: Model) -> Likelihood:
    """The likelihood of a model's family, or the reason why there is none."""
    found = likelihood_of(model.family.name)
    if found is None:
        raise ValueError(
            f"{model.family.name} gives no log-likelihood: its training loss bounds none, so there "
            "is nothing to compare choices or texts by. Choose tasks whose output_type is "
            "generate_until, or a model of another family"
        )
    return found


@dataclass(frozen=True)
class Scored:
    """The answer to one request."""

    estimate: Estimate
    greedy: bool


@dataclass(frozen=True)
class TextReader:
    """How texts become rows of a model."""

    model: Model
    max_length: int | None = None
    """Tokens of a whole row; None: as in training."""
    ending: Ending = "none"
    """Whether a continuation may go on, or ends as in training."""

    @property
    def segments(self) -> SegmentConfig | None:
        if not self.model.family.counts_segments:
            return None
        config: Any = self.model.config
        shape = getattr(config, "latent", config)
        return SegmentConfig(shape.segment_by, shape.slots, shape.segment_length)

    @property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.model.family.frame(self.model.config, self.model.vocab)

    @property
    def rows(self) -> BatchConfig:
        """How rows are framed and ended."""
        model, canvas = self.model, self.model.card.max_new_tokens
        align = model.trained_on.get("align", "left")
        ended = batch_config(model.family, self.frame, canvas, align, segments=self.segments)
        if self.ending == "eos":
            return ended
        return replace(ended, ending="none", canvas=None, align="left")

    def pair(self, context: AnyPrompt, continuation: str) -> Example:
        """A request as an example; refused if it does not fit."""
        encode = self.model.vocab.encode
        if isinstance(context, ChatPrompt):  # the template has written what begins a text
            return self.example(list(context.ids), self._units(continuation, begun=True))
        if self.segments or self.frame[1] or ends_of(self.model.config):
            units = self._units(continuation, begun=bool(context))
            return self.example(self._begun(encode(context)), units)
        kept = context.rstrip()
        prompt = encode(kept)
        whole = encode(context + continuation)
        return self.example(self._begun(prompt), [[token] for token in whole[len(prompt) :]])

    def windows(self, text: str) -> Iterator[Example]:
        """A text in parts, each with the tokens before it as its prompt."""
        units, size, room = self._units(text, begun=False), *self._window()
        before: list[int] = []
        for start in range(0, len(units), size):
            part = units[start : start + size]
            taken = 0 if self.segments else len(part)
            prompt = before if room is None else before[-(room - taken) :]
            yield replace(self.example(self._begun(prompt), part), index=start)
            before = [*before, *chain.from_iterable(part)]

    def _units(self, text: str, *, begun: bool) -> list[list[int]]:
        """What an answer consists of: segments or tokens. `begun`: a prompt stands before it."""
        vocab, shape = self.model.vocab, self.segments
        if shape is None:
            return [[token] for token in vocab.encode(text, begun=begun)]
        return cut(text, vocab, shape.by, shape.segment_length, part=True)

    def _window(self) -> tuple[int, int | None]:
        """The units of a window, and the tokens of its row (of its prompt, for segments)."""
        longest, vocab = self._longest(), self.model.vocab
        around = (*self.frame, vocab.prefix_ids, self.model.suffix)
        room = None if longest is None else longest - sum(map(len, around))
        if self.segments:
            return self.segments.slots, room
        sizes = [] if room is None else [max(1, room - 1)]
        if not self.model.family.causal:
            sizes.append(self.model.card.max_new_tokens)
        return min(sizes, default=1 << 62), room

    def _longest(self) -> int | None:
        return self.model.card.max_length if self.max_length is None else self.max_length

    def example(self, prompt: list[int], units: list[list[int]]) -> Example:
        """A prompt and an answer of these units, which must fit."""
        answer = list(chain.from_iterable(units))
        lengths = tuple(map(len, units)) if self.segments else None
        found = Example(prompt, answer, 0, lengths)
        self._check(found)
        return found

    def _begun(self, prompt: list[int]) -> list[int]:
        """The prompt with what begins a text, as in training."""
        if self.frame[0]:
            return prompt
        vocab = self.model.vocab
        return vocab.begin(prompt) or ([vocab.eos_id] if self.model.family.causal else [])

    def _check(self, example: Example) -> None:
        before, after = self.frame
        prompt, answer = len(before) + len(example.prompt) + len(after), len(example.answer)
        longest, shape = self._longest(), self.segments
        prompt += len(self.model.suffix)
        if self.ending == "eos":
            answer = max(answer + 1, self.rows.canvas or 0)
            if self.rows.canvas and answer > self.rows.canvas:
                raise ValueError(
                    f"a continuation of {len(example.answer)} tokens and its end do not fit on a "
                    f"canvas of {self.rows.canvas}: give shorter choices, or ending=none"
                )
        if longest is not None and prompt + (0 if shape else answer) > longest:
            behind = "" if shape else f" and a continuation of {answer}"
            raise ValueError(
                f"a context of {prompt} tokens{behind} does not fit: the model reads at most "
                f"{longest}. Give fewer shots or shorter texts, or raise max_length"
            )
        lengths = example.segments or ()
        if shape and len(lengths) > shape.slots:
            raise ValueError(
                f"a text of {len(lengths)} segments does not fit: the model has {shape.slots}. "
                "Give shorter texts"
            )
        if shape and max(lengths, default=0) > shape.segment_length:
            raise ValueError(
                f"a segment of {max(lengths)} tokens does not fit: the model's segments have at "
                f"most {shape.segment_length}. Give texts with shorter sentences or lines"
            )


@dataclass(frozen=True)
class TextScorer:
    """A model that scores texts."""

    reader: TextReader
    scorer: Scorer
    options: Mapping[str, Any]
    """The family's decoding options, for `is_greedy`."""

    @classmethod
    def of(
        cls,
        model: Model,
        options: Mapping[str, Any],
        *,
        draws: int = DRAWS,
        batch: int = 1,
        seed: int = 0,
        max_length: int | None = None,
        ending: Ending = "none",
    ) -> TextScorer:
        reader = TextReader(model, max_length, ending)
        likelihood = find_likelihood(model)
        net = Suffixed(model.net, model.suffix) if model.suffix else model.net
        rows = (net, model.vocab, reader.rows, model.device)
        return cls(reader, Scorer(likelihood, *rows, draws, batch, seed), options)

    def pairs(
        self,
        requests: Sequence[tuple[AnyPrompt, str]],
        told: Callable[[int, Scored], None] = lambda number, scored: None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> list[Scored]:
        """The scores of (context, continuation), in their order.

        `told` hears each request's number and score, `advance` how many are done.
        """
        examples = [self.reader.pair(*request) for request in requests]  # refusals come first
        found: list[Scored] = []
        for start in range(0, len(requests), SLICE):
            here = slice(start, start + SLICE)
            greedy = self._greedy([context for context, _ in requests[here]], examples[here])
            estimates = self.scorer.estimates(examples[here], advance)
            for pair in zip(estimates, greedy, strict=True):
                found.append(Scored(*pair))
                told(len(found) - 1, found[-1])
        return found

    def texts(
        self,
        texts: Sequence[str],
        told: Callable[[int, Estimate], None] = lambda number, estimate: None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> list[Estimate]:
        """The scores of whole texts; the errors of their windows are independent."""
        reader = replace(self.reader, ending="none")  # a text goes on behind a window
        scorer = replace(self.scorer, config=reader.rows)
        windows = [list(reader.windows(text)) for text in texts]
        found: list[Estimate] = []
        for number, parts in enumerate(windows):
            estimates = scorer.estimates(parts)
            nats = math.fsum(each.nats for each in estimates)
            error = math.sqrt(math.fsum(each.error**2 for each in estimates))
            found.append(Estimate(nats, error))
            told(number, found[-1])
            advance(1)
        return found

    def _greedy(self, contexts: Sequence[AnyPrompt], examples: Sequence[Example]) -> list[bool]:
        """Whether the model writes each answer at temperature 0."""
        if self.scorer.likelihood.greedy is not None:
            return self.scorer.greedy(examples)
        keys = [
            (self._canvas(context, example), context)
            for context, example in zip(contexts, examples, strict=True)
        ]
        # Choices share what is decoded: it depends on the context, and perhaps on their length.
        groups: dict[Any, list[Any]] = {}
        for key in dict.fromkeys(keys):
            groups.setdefault(self._chosen(*key), []).append(key)
        written: dict[Any, list[int]] = {}
        for chosen, group in groups.items():
            for start in range(0, len(group), self.scorer.batch):
                part = group[start : start + self.scorer.batch]
                written |= zip(part, self._decoded(part, chosen), strict=True)
        return [written[key] == example.answer for key, example in zip(keys, examples, strict=True)]

    def _canvas(self, context: AnyPrompt, example: Example) -> Any:
        """What is decoded: the example's prompt, and room for an answer; None: no room."""
        model = self.reader.model
        if model.family.answers != "canvas":
            sizes = model.sizes(None, self.reader.max_length)
            return model.canvas(refuse_marks(context), sizes)
        before, after = self.reader.frame
        prompt = [*before, *example.prompt, *after]
        slots = self.scorer.config.canvas or len(example.answer)
        return Canvas.of([prompt, slots, model.suffix], model.vocab) if slots else None

    def _chosen(self, canvas: Any, context: AnyPrompt) -> Any:
        """The decoding options; a canvas too short for the given steps has one for each slot."""
        model = self.reader.model
        chosen = model.choose(self.options, [""])
        try:
            model.family.check([] if canvas is None else [canvas], chosen)
        except ValueError:
            fewer = {name: value for name, value in self.options.items() if name != "steps"}
            chosen = model.choose(fewer, [""])
            model.family.check([canvas], chosen)
        return chosen

    def _decoded(self, keys: Sequence[tuple[Any, AnyPrompt]], chosen: Any) -> list[list[int]]:
        """The tokens that the model writes on each canvas."""
        requests = [
            Request("", 0, "", canvas, noise=prefix_of(context))
            for canvas, context in keys
            if canvas
        ]
        traces = iter(self.reader.model.decode(requests, chosen, self.scorer.seed))
        return [self._tokens(next(traces)) if canvas else [] for canvas, _ in keys]

    def _tokens(self, trace: Trace) -> list[int]:
        """Without the EOS that end a text or a segment."""
        assert trace.token_ids is not None
        special = self.reader.model.vocab.special_ids
        return [int(token) for token in trace.token_ids if int(token) not in special]


def refuse_marks(context: AnyPrompt) -> AnyPrompt:
    """The context, unless it is a text with a mark in it."""
    if isinstance(context, ChatPrompt):
        return context
    if found := LIKE_A_MARK.search(context) or LIKE_ANSWER.search(context):
        raise ValueError(
            f"a context has {found[0]!r} in it, which anyorder reads as a mark: reword the "
            "task's doc_to_text"
        )
    return context


@dataclass(frozen=True)
class Noisiness:
    """How far the numbers of some requests can be trusted."""

    kind: str
    draws: int
    errors: tuple[float, ...]
    near: int = 0
    """Contexts whose best two continuations are within NEAR standard errors."""
    contexts: int = 0
    """Contexts with several continuations."""

    @classmethod
    def of(
        cls, scorer: Scorer, contexts: Sequence[str], estimates: Sequence[Estimate]
    ) -> Noisiness:
        """Neighbouring requests with one context are choices."""
        near = several = 0
        pairs = zip(contexts, estimates, strict=True)
        for _, group in groupby(pairs, key=lambda pair: pair[0]):
            best = sorted((each for _, each in group), key=lambda each: each.nats)[:2]
            if len(best) == 2:
                several += 1
                error = math.hypot(best[0].error, best[1].error)
                near += error > 0 and best[1].nats - best[0].nats < NEAR * error
        errors = tuple(each.error for each in estimates)
        return cls(scorer.likelihood.name, scorer.draws, errors, near, several)

    @property
    def noisy(self) -> tuple[float, ...]:
        """The errors of what was drawn; short answers are enumerated."""
        return tuple(error for error in self.errors if error > 0)

    def lines(self) -> Iterator[str]:
        """For the log."""
        if not self.noisy:
            yield f"{len(self.errors)} log-likelihoods: {self.kind}, without noise"
            return
        yield (
            f"{len(self.errors)} log-likelihoods: {self.kind}, {len(self.noisy)} of them estimated "
            f"with {self.draws} draws; standard error: median {median(self.noisy):.3g}, largest "
            f"{max(self.noisy):.3g} nats"
        )
        if self.near:
            yield (
                f"in {self.near} of {self.contexts} contexts the best continuation leads by less "
                f"than {NEAR:g} standard errors: more draws (model_args draws=) may change it"
            )

    def to_record(self) -> dict[str, Any]:
        """For the harness's results file."""
        return {
            "kind": self.kind,
            "draws": self.draws if self.noisy else None,
            "standard_error": {
                "median": median(self.noisy or (0.0,)),
                "largest": max(self.noisy, default=0.0),
            },
            "near": self.near,
            "contexts": self.contexts,
        }
