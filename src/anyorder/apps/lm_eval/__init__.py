"""Our models in lm-evaluation-harness: a model named `anyorder` that answers all its requests.

    python -m anyorder.apps.lm_eval run --model anyorder --tasks piqa --device cpu \\
        --model_args pretrained=runs/mdm,draws=64 --batch_size 32

runs the harness's command line with our class registered. In Python, `register()` registers it, and
`AnyorderLM(model)` wraps a loaded model.

`generate_until`: `model_args` name the model and its decoding options (policy, steps, ...). The
task's generation_kwargs, which `--gen_kwargs` changes, say how tokens are drawn (do_sample,
temperature, top_p, top_k), where to stop (until) and how much to write (max_gen_toks; unset: the
length in training). As in the harness, do_sample=False is greedy at any temperature.

`loglikelihood`, `loglikelihood_rolling`: exact for ar, bounds for the other families except sflm,
which has none (likelihood.py). `model_args` give the number of draws for each bound; the log and
the results file tell the standard error.

`--apply_chat_template` renders by the template of the model's folder, or the published one of a
known checkpoint; with a name, by that file (chat.py).

Other keywords and contexts that do not fit are refused. This needs the extra [lm-eval]; importing
the file does not. The harness runs generated code without a sandbox: for code use `anyorder grade`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from anyorder.apps.lm_eval.bridge import Bridge, Generation, LogLikelihood
from anyorder.model import Model

__all__ = ["NAME", "Bridge", "Generation", "bridge_class", "main", "register"]

NAME = "anyorder"


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
            return self.answer(requests, self._keep("generate_until"), not disable_tqdm)

        def loglikelihood(
            self, requests: list[Any], disable_tqdm: bool = False
        ) -> list[LogLikelihood]:
            return self.score(requests, self._keep("loglikelihood"), not disable_tqdm)

        def loglikelihood_rolling(
            self, requests: list[Any], disable_tqdm: bool = False
        ) -> list[float]:
            return self.roll(requests, self._keep("loglikelihood_rolling"), not disable_tqdm)

        def _keep(self, kind: str) -> Callable[[Any, Any], None]:
            """What puts an answer into the harness's cache."""
            return lambda request, answer: self.cache_hook.add_partial(kind, request.args, answer)

        def apply_chat_template(
            self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
        ) -> str:
            # The last turn says it too: without a generation prompt, it is the assistant's.
            return self.chats.render(chat_history)

        def chat_template(self, chat_template: bool | str = False) -> str | None:
            return self.chats.choose(chat_template).source if chat_template else None

        @property
        def tokenizer_name(self) -> str:
            return self.chats.name()

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
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    except (ValueError, NotImplementedError) as error:  # a refusal is a sentence, not a traceback
        raise SystemExit(str(error)) from None
