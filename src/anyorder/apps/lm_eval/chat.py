"""Chat templates under the harness: it asks for texts and hands them back as contexts.

The harness renders conversations through the model, keeps the text, and gives it back in a request,
without saying that it is a chat. So every rendered prompt is remembered by its text, with its ids:
what the template wrote may be special tokens, what messages say is text (vocab/chat.py). What the
harness puts behind a rendered prompt is text too. The harness may also give a context from its
cache, which was not rendered here. We cannot tell who wrote a special token's spelling in it, so a
context with one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyorder.hub.chats import check_spellings, choose_chat, named_template
from anyorder.model import Model
from anyorder.vocab.chat import AnyPrompt, ChatPrompt, ChatTemplate, TemplateChild

log = logging.getLogger("lm_eval.anyorder")  # below the harness's own, which shows it


class HarnessChats:
    """The template of a model, and the prompts that it has written."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.chosen: ChatTemplate | None = None
        """None: no chat has been asked for."""
        self._prompts: dict[str, ChatPrompt] = {}
        # The harness renders one conversation after another: they share a process.
        self._child = TemplateChild()

    def choose(self, name: bool | str = True) -> ChatTemplate:
        """The template in use; a name is a file, or a published template."""
        if isinstance(name, str):
            self.chosen = named_template(name)
            if line := check_spellings(self.chosen, self.model.vocab):
                log.warning(line)
        if self.chosen is None:
            try:
                model = self.model
                found = choose_chat("on", model.name, model.vocab.chat, model.trained_on)
            except ValueError:  # it would speak of flags that the harness does not have
                raise ValueError(
                    f"{self.model.name} has no chat template: leave --apply_chat_template out, or "
                    "give it a file: --apply_chat_template FILE"
                ) from None
            self.chosen = found.template
            assert self.chosen is not None
            check_spellings(self.chosen, self.model.vocab)
        return self.chosen

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text of a conversation; a last turn of the assistant is left open."""
        prompt = self.model.chat(messages, replace(self.choose(), child=self._child))
        self._prompts[prompt.text] = prompt
        return prompt.text

    def prompt(self, context: str) -> AnyPrompt:
        """What the model reads for a context."""
        if self.chosen is None or not context:
            return context
        if context in self._prompts:
            return self._prompts[context]
        vocab = self.model.vocab
        if begun := max(filter(context.startswith, self._prompts), key=len, default=""):
            added = vocab.encode(context[len(begun) :], begun=True)
            return ChatPrompt(context, (*self._prompts[begun].ids, *added))
        if spelled := [name for name in vocab.special_names.values() if name in context]:
            raise ValueError(
                f"a context with {spelled[0]!r} was not rendered in this run, so who wrote the "
                "special token is unknown: leave --cache_requests out, or refresh it "
                "(--cache_requests refresh)"
            )
        return ChatPrompt(context, tuple(vocab.encode(context)))

    def name(self) -> str:
        """For the harness's cache of requests: another template is another name."""
        return f"{self.model.vocab.digest()[:16]}-{self.choose().digest[:16]}"
