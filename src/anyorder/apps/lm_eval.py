"""Our models in lm-evaluation-harness: a model named `anyorder` that answers `generate_until`.

    python -m anyorder.apps.lm_eval run --model anyorder \\
        --model_args pretrained=runs/mdm,policy=confidence --tasks gsm8k --batch_size 8 --device cpu

runs the harness's command line with our class registered. In Python, `register()` registers it, and
`AnyorderLM(model)` wraps a loaded model. `model_args` name the model and its decoding options
(policy, steps, ...). The task's generation_kwargs, which `--gen_kwargs` changes, say how tokens are
drawn (do_sample, temperature, top_p, top_k), where to stop (until) and how much to write
(max_gen_toks; unset: the length in training). As in the harness, do_sample=False is greedy at any
temperature. Log-likelihoods, chat templates, other keywords and long contexts are refused.

This needs the extra [lm-eval]; importing the file does not. The harness runs generated code without
a sandbox: for code use `anyorder grade`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from anyorder.apps.jobs import progress_bar
from anyorder.checks import whole
from anyorder.decode.canvas import LIKE_A_MARK, LIKE_ANSWER
from anyorder.model import Model, load

NAME = "anyorder"
LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
DRAWING = ("temperature", "top_p", "top_k")
KNOWN = {"until", "do_sample", "num_beams", *DRAWING, *LENGTH_NAMES}


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
        max_length: int | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        """`pretrained` is a model or what `anyorder.load` takes; `options` are the family's."""
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise ValueError(f"batch_size={batch_size!r}: give a number (auto is not supported)")
        if max_batch_size is not None:
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
        self.batch, self.seed, self.max_length = int(batch_size), seed, max_length
        self.options = options
        if set(options) - self.model.family.option_names():
            self.model.family.choose(options)  # raises an error that names the unknown options

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
        if found := LIKE_A_MARK.search(context) or LIKE_ANSWER.search(context):
            raise ValueError(
                f"a context has {found[0]!r} in it, which anyorder reads as a mark: reword the "
                "task's doc_to_text"
            )
        chosen = self.model.choose(self.options | dict(generation.drawing), [context])
        sizes = self.model.sizes(self._new_tokens(generation), self.max_length, chosen)
        self.model.family.check([self.model.canvas(context, sizes)], chosen)

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
            [context for context, _ in keys],
            samples=samples,
            seed=self.seed,
            batch=self.batch,
            max_new_tokens=self._new_tokens(generation),
            max_length=self.max_length,
            **options,
        )
        texts = [trace.text for trace in traces]
        return [texts[start : start + samples] for start in range(0, len(texts), samples)]

    def about(self) -> dict[str, Any]:
        """For the harness's results file."""
        return {
            "model_name": self.model.name,
            "model_digest": self.model.digest,
            "family": self.model.family.name,
            "decoding": self.options,
            "seed": self.seed,
        }


NO_LIKELIHOOD = (
    "anyorder models write text and give no log-likelihood here (of any-order models it has no "
    "closed form): choose tasks whose output_type is generate_until"
)
NO_CHAT = (
    "anyorder models have no chat template: leave --apply_chat_template out, or write the template "
    "into the task's doc_to_text"
)


@cache
def bridge_class() -> Any:
    """The class for the harness; made late, because its base class needs the extra."""
    if find_spec("lm_eval") is None:
        raise ValueError("lm-eval is not installed: pip install 'anyorder[lm-eval]'")
    from lm_eval.api.model import LM

    class AnyorderLM(Bridge, LM):
        """lm-eval's LM, answered by an anyorder model."""

        def __init__(self, pretrained: str | Model, **settings: Any) -> None:
            LM.__init__(self)
            Bridge.__init__(self, pretrained, **settings)

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            def remember(request: Any, text: str) -> None:
                self.cache_hook.add_partial("generate_until", request.args, text)

            return self.answer(requests, remember, progress=not disable_tqdm)

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            raise NotImplementedError(NO_LIKELIHOOD)

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise NotImplementedError(NO_LIKELIHOOD)

        def apply_chat_template(self, *messages: Any, **settings: Any) -> str:
            raise NotImplementedError(NO_CHAT)

        def chat_template(self, chat_template: bool | str = False) -> str | None:
            raise NotImplementedError(NO_CHAT)

        @property
        def tokenizer_name(self) -> str:
            raise NotImplementedError(NO_CHAT)

        def get_model_info(self) -> dict[str, Any]:
            return self.about()

    return AnyorderLM


@cache  # the harness refuses to register a name twice
def register() -> None:
    """Make `model="anyorder"` known to the harness; calling it again does nothing."""
    known = bridge_class()
    from lm_eval.api.registry import register_model

    register_model(NAME)(known)


def __getattr__(name: str) -> Any:
    if name == "AnyorderLM":
        return bridge_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the harness's command line with our model registered."""
    try:
        register()
    except ValueError as error:
        raise SystemExit(str(error)) from None
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
