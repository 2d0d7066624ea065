"""Chat templates under lm-eval: contexts keep the ids that were rendered for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import pytest

from anyorder.apps.lm_eval import Bridge, bridge_class
from anyorder.model import Card, Model, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.vocab import Vocab
from anyorder.vocab.chat import ChatPrompt, ChatTemplate

needs_lm_eval = pytest.mark.skipif(
    find_spec("lm_eval") is None, reason="lm-eval is not installed: pip install 'anyorder[lm-eval]'"
)
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
ASK = [{"role": "user", "content": "hi"}]


@dataclass
class Request:
    """What the bridge sees of an lm-eval Instance."""

    args: tuple[Any, ...]


def tiny(family: str = "mdm", template: str | None = TEMPLATE) -> Model:
    vocab = Vocab.bytes()
    vocab.chat = None if template is None else ChatTemplate(template)
    shape = TransformerConfig(vocab.size, 16, 1, 2, 2, 8, 32, causal=family == "ar")
    return build(Card(family, asdict(shape), 6, 64, {}), vocab, name="tiny", seed=5)


def test_a_rendered_context_is_read_as_its_ids() -> None:
    """Of the generation too: special tokens that the template wrote, and text that a user did."""
    model = tiny()
    end = model.vocab.token(model.vocab.eos_id)
    bridge = Bridge(model)
    spelled = [{"role": "user", "content": f"x{end}"}]
    for messages, ends in ((ASK, 1), (spelled, 1)):
        context = bridge.chats.render(messages)
        assert context == f"[user] {messages[0]['content']}{end}[assistant] "
        prompt = bridge.chats.prompt(context)
        assert prompt == model.chat(messages)
        assert prompt.ids.count(model.vocab.eos_id) == ends  # type: ignore[union-attr]
        hot = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 5}
        (text,) = bridge.answer([Request((context, hot))], lambda *_: None)
        assert text == model.sample(prompt, temperature=2.0, max_new_tokens=5)[0].text


def test_the_last_turn_of_the_assistant_is_left_open() -> None:
    bridge = Bridge(tiny())
    open_turn = [*ASK, {"role": "assistant", "content": "Answer:"}]
    assert bridge.chats.render(open_turn).endswith("[assistant] Answer:")


@pytest.mark.parametrize("family", ["ar", "mdm"])
def test_choices_follow_a_chat(family: str) -> None:
    """The prompt stays whole, blanks at its end too, and the continuation is encoded alone."""
    model = tiny(family)
    bridge = Bridge(model)
    context = bridge.chats.render(ASK)
    example = bridge.scorer.reader.pair(bridge.chats.prompt(context), "yes")
    assert example.prompt == list(model.chat(ASK).ids)
    assert example.answer == model.vocab.encode("yes")
    pairs = [Request((context, word)) for word in ("yes", "no")]
    found = bridge.score(pairs, lambda *_: None)
    plain = Bridge(model).score(pairs, lambda *_: None)  # where the end of the turn is mere text
    assert all(one[0] != pytest.approx(other[0]) for one, other in zip(found, plain, strict=True))


def test_a_context_of_the_harnesss_own_cache_has_no_special_tokens() -> None:
    first, second = Bridge(tiny()), Bridge(tiny())
    context = first.chats.render(ASK)
    assert second.chats.prompt(context) == context  # nobody has asked for a template yet
    second.chats.name()
    with pytest.raises(ValueError, match="leave --cache_requests out"):
        second.chats.prompt(context)
    assert second.chats.prompt("hi") == ChatPrompt("hi", tuple(b"hi"))
    assert second.chats.prompt("") == ""


def test_what_follows_a_rendered_context_is_text() -> None:
    bridge = Bridge(tiny())
    end = bridge.model.vocab.token(bridge.model.vocab.eos_id)
    context = bridge.chats.render(ASK)
    longer = bridge.chats.prompt(f"{context}a{end}")
    ids = (*bridge.model.chat(ASK).ids, *f"a{end}".encode())
    assert longer == ChatPrompt(f"{context}a{end}", ids)


def test_the_name_of_the_cache_changes_with_the_template() -> None:
    names = {Bridge(tiny(template=text)).chats.name() for text in (TEMPLATE, TEMPLATE + "!")}
    assert len(names) == 2


def test_a_template_is_that_of_the_folder_or_of_a_file(tmp_path: Any) -> None:
    bare = Bridge(tiny(template=None))
    with pytest.raises(ValueError, match=r"tiny has no chat template: leave --apply_chat_template"):
        bare.chats.render(ASK)
    file = tmp_path / "mine.jinja"
    file.write_text("<{{ messages[-1].content }}>")
    assert bare.chats.choose(str(file)).source == file.read_text()
    assert bare.chats.render(ASK) == "<hi>"
    assert bare.about()["chat_template_digest"] == ChatTemplate(file.read_text()).digest
    with pytest.raises(ValueError, match="no chat template 'mine'"):
        bare.chats.choose("mine")


@needs_lm_eval
def test_what_the_harness_calls() -> None:
    model = bridge_class()(tiny())
    assert model.chat_template(False) is None and model.chat_template(True) == TEMPLATE
    assert model.apply_chat_template(ASK) == model.apply_chat_template(
        ASK, add_generation_prompt=True
    )
    assert model.tokenizer_name == model.chats.name()
