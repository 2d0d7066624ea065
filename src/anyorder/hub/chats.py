"""Which checkpoints want their prompts as a chat, and the templates of published ones.

A folder's template says how a chat looks, not that the model wants one: base checkpoints carry
templates too. `choose_chat` decides:

    on          the folder's template, or the published one of a known checkpoint
    off         prompts are plain text
    FILE        this template; or a name of TEMPLATES
    auto        as the table of known checkpoints says. Unknown ones: a chat if the name says
                instruct or chat, or if the model was trained on messages; otherwise plain text

Some checkpoints ship no template, and DiffuCoder's authors write their prompts by hand: TEMPLATES
has these in our own words. Rendering is in vocab/chat.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.hub.files import ID
from anyorder.vocab import Vocab
from anyorder.vocab.chat import ChatTemplate, read_template

ASSISTANT = "You are a helpful assistant."
MODES = ("auto", "on", "off")
INSTRUCT_WORDS = {"instruct", "chat"}
"""Words of a name that say that a checkpoint answers chats."""
TRAINED_FIELD = "messages_field"
"""The field of a recipe's data that is not empty if a model was trained on messages."""
SPELLING = re.compile(r"<\|[^|<>\s]+\|>")
"""What looks like a special token in a template."""


def _chatml(system: str, after_user: str = "") -> str:
    """`<|im_start|>role\\ncontent<|im_end|>\\n` for each message, with a usual system message
    unless `system` is empty."""
    usual = (
        "{%- if messages[0].role != 'system' %}"
        f"{{{{- '<|im_start|>system\\n{system}<|im_end|>\\n' }}}}"
        "{%- endif %}"
    )
    return (
        f"{usual if system else ''}"
        "{%- for message in messages %}"
        f"{{%- set tail = '{after_user}' if message.role == 'user' else '' %}}"
        "{{- '<|im_start|>' + message.role + '\\n' + message.content + tail + '<|im_end|>\\n' }}"
        "{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    )


TEMPLATES: Mapping[str, str] = {
    "dream": _chatml(ASSISTANT),
    "diffucoder": _chatml(ASSISTANT, after_user="\\n"),
    "qwen2.5": _chatml(f"You are Qwen, created by Alibaba Cloud. {ASSISTANT}"),
    "qwen3": _chatml(""),
    "smollm2": _chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    "llada": (
        "{{- bos_token }}"
        "{%- for message in messages %}"
        "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
        "{{- message.content | trim + '<|eot_id|>' }}"
        "{%- endfor %}"
        "{%- if add_generation_prompt %}"
        "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
        "{%- endif %}"
    ),
}
"""Published templates by name. Tools and named roles are not among them."""


@dataclass(frozen=True)
class KnownChat:
    """What is known of published checkpoints whose name fits."""

    name: re.Pattern[str]
    chat: bool
    template: str | None = None
    """The name in TEMPLATES if the folder has none; None: it has its own."""
    by_hand: bool = False
    """Whether `template` is used even if the folder has one."""


def _known(name: str, chat: bool, template: str | None = None, by_hand: bool = False) -> KnownChat:
    return KnownChat(re.compile(name, re.IGNORECASE), chat, template, by_hand)


KNOWN = (
    _known(r"Dream(-Coder)?-v0-Instruct-7B", True, "dream"),
    _known(r"Dream(-Coder)?-v0-Base-7B", False),
    _known(r"DiffuCoder-7B-(Instruct|cpGRPO)", True, "diffucoder", by_hand=True),
    _known(r"DiffuCoder-7B-Base", False),
    _known(r"LLaDA-(8B-Instruct|1\.5)", True, "llada"),
    _known(r"LLaDA-8B-Base", False),
    _known(r"dUltra-.*", True, "llada"),
    _known(r"Qwen2\.5(-Coder)?-[\d.]+B-Instruct", True, "qwen2.5"),
    _known(r"Qwen2(\.5)?(-Coder)?-[\d.]+B", False),
    _known(r"Qwen3-[\d.]+B-Base", False),
    _known(r"Qwen3-[\d.]+B", True, "qwen3"),
    _known(r"SDAR-[\d.]+B-Chat.*", True, "qwen3"),
    _known(r"SDAR-[\d.]+B-Base.*", False),
    _known(r"Fast_dLLM_v2_[\d.]+B", True, "qwen2.5"),
    _known(r"SmolLM2-[\d.]+[MB]-Instruct", True, "smollm2"),
    _known(r"SmolLM2-[\d.]+[MB]", False),
)
"""Checkpoints by the last part of their hub id, which is the usual name of a copied folder."""


@dataclass(frozen=True)
class ChosenChat:
    """The template of a run's prompts."""

    template: ChatTemplate | None
    """None: prompts are plain text."""
    remark: str = ""
    """A line for the user, if the choice may surprise."""


def choose_chat(
    wanted: str, model: str, own: ChatTemplate | None, trained_on: Mapping[str, Any]
) -> ChosenChat:
    """The template for a model by its name; `own` is the template of its folder."""
    hub_id = ID.fullmatch(model)  # a local path may hold an @ anywhere
    name = Path(hub_id["repo"] if hub_id else model).name
    known = next((row for row in KNOWN if row.name.fullmatch(name)), None)
    if wanted not in MODES:
        return ChosenChat(named_template(wanted))
    if wanted == "off":
        return ChosenChat(None)
    template = _template(known, own)
    if wanted == "on":
        if template is None:
            raise ValueError(
                f"{model} has no chat template: give --chat FILE with one, or one of "
                f"{', '.join(TEMPLATES)}"
            )
        return ChosenChat(template)
    if known is not None:
        return ChosenChat(template if known.chat else None)
    declared = INSTRUCT_WORDS & set(re.split(r"[^a-z]+", name.lower()))
    if template is None and declared:
        return ChosenChat(
            None,
            f"{model} is called {min(declared)}, but has no chat template: prompts are plain text "
            "(--chat FILE gives it one, --chat off keeps plain text without this line)",
        )
    if template is None or declared or trained_on.get(TRAINED_FIELD):
        return ChosenChat(template)
    return ChosenChat(
        None,
        f"{model} has a chat template, but nothing says that it answers chats: prompts are plain "
        "text (--chat on uses the template, --chat off keeps plain text without this line)",
    )


def _template(known: KnownChat | None, own: ChatTemplate | None) -> ChatTemplate | None:
    if known is None or known.template is None or (own is not None and not known.by_hand):
        return own
    return named_template(known.template)


def named_template(name: str) -> ChatTemplate:
    """A published template by name, or the template in a file."""
    if name in TEMPLATES:
        return ChatTemplate(TEMPLATES[name], name)
    if not Path(name).is_file():
        raise ValueError(
            f"no chat template {name!r}: give {', '.join(MODES)}, a file with a template, or one "
            f"of {', '.join(TEMPLATES)}"
        )
    return read_template(Path(name))


def check_spellings(template: ChatTemplate, vocab: Vocab) -> str:
    """A line on markup that is no token of a vocabulary, or nothing; an error if it is one of ours.

    Other templates may hold markup that they do not write for every conversation.
    """
    known = {*vocab.special_names.values(), *vocab.added_names}
    missing = sorted(set(SPELLING.findall(template.source)) - known)
    if not missing:
        return ""
    line = (
        f"the chat template {template.origin} has {', '.join(missing)}, which this vocabulary does "
        "not have as special tokens: they are read as ordinary text"
    )
    if template.source in TEMPLATES.values():
        raise ValueError(f"{line}. Give the file of a template that fits the model")
    return line
