"""Which checkpoints want a chat: the table, names that say so, and the line for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyorder.hub.chats import TEMPLATES, check_spellings, choose_chat
from anyorder.vocab import Vocab
from anyorder.vocab.chat import ChatTemplate

OWN = ChatTemplate("own")


def chosen(wanted: str, model: str, own: ChatTemplate | None = OWN, **trained: str) -> str | None:
    found = choose_chat(wanted, model, own, trained)
    return None if found.template is None else found.template.source


@pytest.mark.parametrize(
    ("model", "source"),
    {
        "Dream-org/Dream-v0-Instruct-7B": "own",
        "Dream-org/Dream-v0-Base-7B": None,
        "models/Dream-Coder-v0-Instruct-7B": "own",
        "apple/DiffuCoder-7B-cpGRPO@main": TEMPLATES["diffucoder"],
        "apple/DiffuCoder-7B-Base": None,
        "GSAI-ML/LLaDA-8B-Base": None,
        "Qwen/Qwen2.5-Coder-0.5B-Instruct": "own",
        "Qwen/Qwen2.5-0.5B": None,
        "Qwen/Qwen3-0.6B": "own",
        "Qwen/Qwen3-0.6B-Base": None,
        "JetLM/SDAR-4B-Chat": "own",
        "JetLM/SDAR-4B-Base": None,
        "Efficient-Large-Model/Fast_dLLM_v2_7B": "own",
        "HuggingFaceTB/SmolLM2-135M": None,
        "HuggingFaceTB/SmolLM2-135M-Instruct": "own",
        "me/my-chat-model": "own",
        "me/constructed": None,
        "/x/me@host/Dream-v0-Base-7B": None,
        "/x/me@host/DiffuCoder-7B-Instruct": TEMPLATES["diffucoder"],
        "apple/DiffuCoder-7B-Instruct@refs/pr/1": TEMPLATES["diffucoder"],
    }.items(),
)
def test_auto_is_what_is_known(model: str, source: str | None) -> None:
    assert chosen("auto", model) == source
    assert chosen("off", model) is None
    assert chosen("on", model) is not None


def test_a_known_checkpoint_without_a_template_has_the_published_one() -> None:
    assert chosen("auto", "GSAI-ML/LLaDA-1.5", None) == TEMPLATES["llada"]
    assert chosen("auto", "JetLM/SDAR-1.7B-Chat-b16", None) == TEMPLATES["qwen3"]
    assert chosen("auto", "me/instruct", None) is None
    with pytest.raises(ValueError, match="has no chat template: give --chat FILE"):
        chosen("on", "me/instruct", None)


def test_an_unknown_checkpoint_is_raw_with_a_line() -> None:
    found = choose_chat("auto", "me/model", OWN, {})
    assert found.template is None and "--chat on" in found.remark
    assert not choose_chat("auto", "me/model", None, {}).remark
    assert not choose_chat("off", "me/model", OWN, {}).remark
    assert "has no chat template" in choose_chat("auto", "me/instruct", None, {}).remark
    assert not choose_chat("off", "me/instruct", None, {}).remark
    assert not choose_chat("auto", "Dream-v0-Base-7B", OWN, {}).remark
    assert chosen("auto", "me/model", messages_field="messages") == "own"


def test_a_file_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("mine")
    assert chosen(str(tmp_path / "mine.jinja"), "x") == "mine"
    assert chosen("llada", "x") == TEMPLATES["llada"]
    with pytest.raises(ValueError, match="no chat template 'llda'"):
        chosen("llda", "x")


def test_markup_that_is_no_token_of_the_vocabulary() -> None:
    vocab = Vocab.bytes()
    with pytest.raises(ValueError, match=r"<\|im_end\|>, <\|im_start\|>, which this"):
        check_spellings(ChatTemplate(TEMPLATES["dream"], "dream"), vocab)
    line = check_spellings(ChatTemplate("<|a|>{{ '<|b|>' }}<eos><|", "mine"), vocab)
    assert line.startswith("the chat template mine has <|a|>, <|b|>, which this vocabulary")
    assert not check_spellings(ChatTemplate("{{ eos_token }}<eos> a <| b |>"), vocab)
