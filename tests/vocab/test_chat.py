"""Chat templates: published goldens, bounds of the child, ids, open turns, turns to train on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest

from anyorder.decode.canvas import Canvas, Sizes
from anyorder.hub.chats import TEMPLATES
from anyorder.hub.vocab import open_vocab
from anyorder.vocab import SPECIALS, Vocab, chat_child
from anyorder.vocab.chat import (
    MORE_SECONDS,
    ChatTemplate,
    RenderLimits,
    TemplateChild,
    find_template,
)

HI = [{"role": "user", "content": "Say hi."}]
DREAM = [
    *(151644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151645, 198),
    *(151644, 872, 198, 45764, 15588, 13, 151645, 198, 151644, 77091, 198),
]
QWEN = [
    *(151644, 8948, 198, 2610, 525, 1207, 16948, 11, 3465, 553, 54364, 14817, 13, 1446, 525, 264),
    *(10950, 17847, 13, 151645, 198, 151644, 872, 198, 45764, 15588, 13, 151645, 198),
    *(151644, 77091, 198),
]
SHORT = RenderLimits(seconds=1)


@pytest.fixture(scope="session")
def dream(data_file: Callable[[str], Path]) -> Vocab:
    files = data_file("tokenizer/vocab.json.gz"), data_file("tokenizer/merges.txt.gz")
    return Vocab.from_vocab_merges(*files, **SPECIALS["dream"])


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    """Bytes, four merges, and the special tokens of ChatML."""
    folder = tmp_path_factory.mktemp("dream")
    made.dream(folder)
    return open_vocab(folder)


def published(data_file: Callable[[str], Path]) -> str:
    """The real template of Qwen2.5."""
    settings = json.loads(data_file("tokenizer/qwen2.5_tokenizer_config.json").read_text())
    return str(settings["chat_template"])


def text_of(source: str, messages: Any, vocab: Vocab, **values: Any) -> str:
    return ChatTemplate(source, limits=SHORT).prompts([messages], vocab, **values)[0].text


def test_published_ids(dream: Vocab, data_file: Callable[[str], Path]) -> None:
    wanted = {"dream": DREAM, "qwen2.5": QWEN}
    wanted["diffucoder"] = [624 if id == 13 and at > 10 else id for at, id in enumerate(DREAM)]
    sources = {name: TEMPLATES[name] for name in wanted} | {"theirs": published(data_file)}
    for name, source in sources.items():
        found = ChatTemplate(source).prompts([HI], dream)[0]
        assert list(found.ids) == wanted.get(name, QWEN), name


def test_the_end_of_a_turn_ends_a_text(dream: Vocab) -> None:
    assert dream.end_ids == (151643, 151645)
    assert dream.end_of([45764, 151645, 13]) == dream.end_of([45764, 151643]) == 1


def test_published_texts(small: Vocab) -> None:
    assert text_of(TEMPLATES["smollm2"], HI, small) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    )
    own = [{"role": "system", "content": "S"}, *HI]
    assert text_of(TEMPLATES["smollm2"], own, small).startswith("<|im_start|>system\nS<|im_end|>\n")
    blanks = [{"role": "user", "content": "  Say hi. \n"}]
    assert text_of(TEMPLATES["llada"], blanks, small) == (
        "<|beginoftext|><|start_header_id|>user<|end_header_id|>\n\nSay hi.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_as_transformers_renders(small: Vocab, data_file: Callable[[str], Path]) -> None:
    pytest.importorskip("transformers")
    from transformers.utils.chat_template_utils import render_jinja_template

    conversation = [
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": "  x < y & {{ z }}"},
        {"role": "assistant", "content": "é 漢"},
        {"role": "user", "content": ""},
    ]
    odd = "{% generation %}{{ messages | tojson(indent=1) }}{% endgeneration %}\n"
    odd += "{% for m in messages %}\n  {% if loop.index > 2 %}{% break %}{% endif %}\n{{ m.role }}"
    odd += "{% endfor %}{{ nothing }}{{ add_generation_prompt }}\n"
    for source in (published(data_file), *TEMPLATES.values(), odd):
        tokens = {"bos_token": "<|beginoftext|>", "eos_token": "<|endoftext|>"}
        theirs = render_jinja_template(
            conversations=[conversation], chat_template=source, add_generation_prompt=True, **tokens
        )[0][0]
        assert text_of(source, conversation, small) == theirs


@pytest.mark.parametrize(
    ("source", "reason"),
    {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "1 s of",
        "{{ 'a' * 10**9 }}": "memory",
        "{{ '%1000000000d' % 1 }}": "memory",
        "{{ '{:>1000000000}'.format(1) }}": "memory",
        "{{ 'a'.center(2000000) }}": "longer than 1,000,000",
        "{% for a in range(99999) %}{{ 'aaaaaaaaaaaa' }}{% endfor %}": "longer than 1,000,000",
        "{{ ''.__class__.__mro__ }}": "__class__",
        "{{ messages.append(1) }}": "append",
        "{{ raise_exception.__globals__.os }}": "__globals__",
        "{{ cycler.__init__.__globals__ }}": "__init__",
        "{% include '/etc/passwd' %}": "loader",
        "{{ lipsum() }}": "lipsum",
        "{{ [1, 2] | random }}": "random",
        "{{ raise_exception('roles must alternate') }}": "roles must alternate",
        "{% if %}": "",
        "{{ nothing.at.all }}": "nothing",
    }.items(),
)
def test_a_hostile_or_broken_template_is_an_error(source: str, reason: str, small: Vocab) -> None:
    with pytest.raises(ValueError, match="the chat template cannot be rendered") as caught:
        text_of(source, HI, small)
    assert reason in str(caught.value)


def test_a_template_has_a_largest_size(small: Vocab) -> None:
    with pytest.raises(ValueError, match="at most 65,536 are rendered"):
        text_of("x" * 70_000, HI, small)


def test_the_child_has_no_secrets_and_a_fixed_date(
    small: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "1")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    assert text_of("{{ strftime_now('%d %b %Y') }}", HI, small) == "26 Jul 2024"


def test_what_a_message_spells_is_text(dream: Vocab, data_file: Callable[[str], Path]) -> None:
    """As transformers with `sanitize_control_tokens`: pieces at the spelling, ordinary ids."""
    content = "a <|im_end|> b"
    found = ChatTemplate(published(data_file)).prompts(
        [[{"role": "user", "content": content}]], dream
    )[0]
    before = dream.encode("user\na "), dream.encode("<|im_end|>"), dream.encode(" b")
    inner = [id for part in before for id in part]
    assert list(found.ids) == [*QWEN[:21], 151644, *inner, *QWEN[-5:]]
    assert found.text.count("<|im_end|>") == 3 and content in found.text
    assert list(found.ids).count(151645) == 2
    assert not any("\ue000" <= character <= "\uf8ff" for character in found.text)


def test_private_characters_of_a_message_survive(small: Vocab) -> None:
    content = "\ue000<|im_end|>\ue001\ue002"
    found = ChatTemplate(TEMPLATES["dream"]).prompts(
        [[{"role": "user", "content": content}]], small
    )
    assert content in found[0].text
    assert small.decode(found[0].ids).count(content) == 1  # decode skips special ids


def test_a_torn_spelling_is_an_error(small: Vocab) -> None:
    with pytest.raises(ValueError, match="cuts through a special token's spelling"):
        text_of(
            "{{ messages[0].content[:4] }}", [{"role": "user", "content": "a<|im_end|>"}], small
        )


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | tojson(ensure_ascii=True) }}",
        "{{ messages[0].content }}{{ messages[0].content | tojson(ensure_ascii=True) }}",
        "{{ messages[0].content | urlencode }}",
    ],
)
def test_a_lost_mark_is_an_error(source: str, small: Vocab) -> None:
    with pytest.raises(ValueError, match="changes a special token's spelling"):
        text_of(source, [{"role": "user", "content": "a<|im_end|>"}], small)
    spelled = [{"role": "user", "content": r"\ue000 \uE001"}]
    assert text_of("{{ messages[0].content }}", spelled, small) == spelled[0]["content"]


def test_a_message_may_be_left_out_with_its_spellings(small: Vocab) -> None:
    said = {"role": "user", "content": "hi"}
    thought = {**said, "thoughts": "<|im_end|>", "more": ["a <|im_end|> b"]}
    source = "{{ messages[-1].content }}{% if day %}!{% endif %}<|im_end|>"
    assert text_of(source, [thought], small) == "hi<|im_end|>"
    # One is written and another left out: the written one stays text.
    both = [{**said, "content": "x<|im_end|>"}, {**thought, "content": "y<|im_end|>"}]
    found = ChatTemplate(source).prompts([both], small)[0]
    assert found.text == "y<|im_end|><|im_end|>" and found.ids.count(made.CLOSE) == 1
    # Here the marks are left out, and the spelling is not.
    with pytest.raises(ValueError, match="changes a special token's spelling"):
        text_of("{{ messages[-1].content[1:-1] }}", [{**said, "content": "<|im_end|>"}], small)


def test_renderings_share_a_process_until_one_fails(
    small: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    begin = TemplateChild._begin
    monkeypatch.setattr(
        TemplateChild, "_begin", lambda self: begun.append(begin(self)) or begun[-1]
    )
    child = TemplateChild()
    kept = ChatTemplate("{{ messages[0].content * many }}", limits=SHORT, child=child)
    for many in range(1, 4):
        assert kept.prompts([HI], small, many=many)[0].text == "Say hi." * many
    assert len(begun) == 1 and begun[0].poll() is None
    with pytest.raises(ValueError, match="memory"):
        kept.prompts([HI], small, many=10**9)
    assert begun[0].poll() is not None
    assert kept.prompts([HI], small, many=1)[0].text == "Say hi." and len(begun) == 2
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ValueError, match=f"one conversation .*{MORE_SECONDS} allows more"):
        replace(kept, source=endless).prompts([HI], small)
    assert kept.prompts([HI], small, many=1)[0].text == "Say hi." and len(begun) == 3
    child.close()
    assert begun[2].poll() is not None
    del child, kept
    assert ChatTemplate("x", limits=SHORT).prompts([HI], small)[0].text == "x"
    assert len(begun) == 4 and begun[3].poll() is not None


def test_the_time_is_for_one_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(chat_child, "bound", lambda seconds, memory: bounds.append(seconds))
    request = {"template": "x", "tokens": {}, "date": "2024-07-26", "seconds": 2.5, "memory": 1}
    request |= {"longest": 9, "jobs": [{"messages": HI}] * 3}
    assert chat_child.render(request) == ["x"] * 3
    assert bounds == [2.5] * 4  # of the template itself too


def test_the_time_can_be_raised(small: Vocab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RenderLimits] = []

    def ask(self: TemplateChild, request: Any, limits: RenderLimits) -> dict[str, Any]:
        asked.append(limits)
        return {"texts": ["x"]}

    monkeypatch.setattr(TemplateChild, "ask", ask)
    ChatTemplate("x").prompts([HI], small)
    monkeypatch.setenv(MORE_SECONDS, "60.5")
    ChatTemplate("x").prompts([HI], small)
    ChatTemplate("x", limits=SHORT).prompts([HI], small)
    assert [limits.seconds for limits in asked] == [10, 60.5, 1]
    for wrong in ("long", "0", "-1", "inf", "nan"):
        monkeypatch.setenv(MORE_SECONDS, wrong)
        with pytest.raises(ValueError, match="give a number of seconds above 0"):
            ChatTemplate("x").prompts([HI], small)


def test_names_nested_roles_and_values_are_text(small: Vocab) -> None:
    odd = {"<|im_end|>": 1, "role": "<|im_end|>"}
    source = "{{ bos_token }}{{ messages | tojson }}{{ day }}"
    found = ChatTemplate(source).prompts([[{**HI[0], "call": odd}]], small, day="<|im_end|>")[0]
    assert found.text.count("<|im_end|>") == 3
    assert [id for id in found.ids if id in small.special_ids] == [made.BEGIN]


@pytest.mark.parametrize("reason", ["'x' * 10**7", "'a\x1b[31m\nb'"])
def test_an_error_is_a_short_printable_line(reason: str, small: Vocab) -> None:
    source = f"{{{{ raise_exception({reason}) }}}}"
    with pytest.raises(ValueError, match="cannot be rendered") as caught:
        text_of(source, HI, small)
    assert len(str(caught.value)) < 400 and str(caught.value).isprintable()


def test_ordinary_text_is_encoded_in_one_piece(dream: Vocab) -> None:
    """A prefill of blank lines joins the newline of the header to other ids than apart."""
    chat = [*HI, {"role": "assistant", "content": "\n\ndef f"}]
    found = ChatTemplate(TEMPLATES["dream"]).prompts([chat], dream)[0]
    assert found.ids[-4:] == (77091, 1406, 750, 282)


def test_a_turn_left_open(dream: Vocab) -> None:
    prefill = "Here is the completed function:\n```python\n"
    chat = [*HI, {"role": "assistant", "content": prefill}]
    found = ChatTemplate(TEMPLATES["dream"]).prompts([chat], dream)[0]
    tail = (8420, 374, 279, 8145, 729, 510, 73594, 12669, 198)
    assert found.ids == (*DREAM, *tail)
    assert found.text.endswith(f"assistant\n{prefill}")
    llada = text_of(TEMPLATES["llada"], chat, dream)
    assert llada.endswith("```python")  # it trims what an assistant says


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one message"),
        ("hi", "a list"),
        ([{"role": "user"}], "message 1 is no object with a text"),
        ([{"role": "user", "content": None}], "give it one, which may be empty; null is for turns"),
        ([*HI, {"role": "im_end|><|", "content": ""}], "message 2 has the role"),
        ([{"role": "user", "content": "a", "x": object()}], "texts, numbers"),
    ],
)
def test_only_conversations_are_rendered(messages: Any, reason: str, small: Vocab) -> None:
    with pytest.raises(ValueError, match=reason):
        text_of(TEMPLATES["dream"], messages, small)


def test_turns_to_train_on(small: Vocab) -> None:
    chat = [
        *HI,
        {"role": "assistant", "content": "Hi <|im_end|>!\n"},
        {"role": "user", "content": "More."},
        {"role": "assistant", "content": "No"},
    ]
    first, second = ChatTemplate(TEMPLATES["dream"]).turns(chat, small)
    assert first.answer == "Hi <|im_end|>!\n" and second.answer == "No"
    assert first.prompt == ChatTemplate(TEMPLATES["dream"]).prompts([HI], small)[0]
    assert second.prompt.ids[: len(first.prompt.ids)] == first.prompt.ids
    assert second.prompt.ids.count(made.CLOSE) == 4  # system, user, assistant, user
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}"
    plain += "{% if add_generation_prompt %}assistant: {% endif %}"
    turn = ChatTemplate(plain).turns(chat, small)[0]
    assert (turn.prompt.text, turn.answer) == ("user: Say hi.\nassistant: ", "Hi <|im_end|>!")


def test_a_template_without_turns_of_the_assistant(small: Vocab) -> None:
    source = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    chat = [*HI, {"role": "assistant", "content": "so"}]
    with pytest.raises(ValueError, match="does not write the last turn"):
        text_of(source, chat, small)
    with pytest.raises(ValueError, match="does not write the last turn"):
        ChatTemplate(source).turns(chat, small)


@pytest.mark.parametrize("how", ["", ".strip()", ".rstrip()", ".lstrip()"])
@pytest.mark.parametrize("tail", [" ", ""])
def test_an_answer_is_what_the_template_makes_of_it(how: str, tail: str, small: Vocab) -> None:
    """The header ends with blanks, and the turn with a blank of the template's own."""
    template = ChatTemplate(
        "{% for m in messages %}{{ m.role + ':\\n\\n' + m.content" + how + " }}" + tail
        + "{{ eos_token }}{% endfor %}{{ 'assistant:\\n\\n' if add_generation_prompt }}"
    )  # fmt: skip
    contents = ["", " \n", "a", " a \n", "a  b"]
    chats = [[*HI, {"role": "assistant", "content": content}] for content in contents]
    prompt = template.prompts([HI], small)[0]
    assert prompt.text.endswith("assistant:\n\n")
    for content, turns in zip(contents, template.all_turns(chats, small), strict=True):
        stripped = getattr(content, how[1:-2])() if how else content
        assert [(turn.prompt, turn.answer) for turn in turns] == [(prompt, stripped)]


def test_a_template_that_rewrites_its_prompt_has_no_turns(small: Vocab) -> None:
    source = "{{ messages | length }}{{ messages[-1].content }}"
    with pytest.raises(ValueError, match="no prompt of this answer exists"):
        ChatTemplate(source).turns([*HI, {"role": "assistant", "content": "a"}], small)


def test_where_templates_live(tmp_path: Path, small: Vocab) -> None:
    assert find_template(tmp_path) is None
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({"chat_template": "one"}))
    assert find_template(tmp_path).source == "one"  # type: ignore[union-attr]
    several = [{"name": "rag", "template": "two"}, {"name": "default", "template": "three"}]
    settings.write_text(json.dumps({"chat_template": several}))
    assert find_template(tmp_path).source == "three"  # type: ignore[union-attr]
    settings.write_text(json.dumps({"chat_template": [*several[:1], {**several[1], "name": "x"}]}))
    undecided = find_template(tmp_path)
    assert undecided is not None
    with pytest.raises(ValueError, match=r"has several chat templates \(rag, x\), none called"):
        undecided.prompts([HI], small)
    vocab = Vocab.bytes()
    vocab.chat = undecided
    vocab.save(tmp_path / "saved")
    assert Vocab.load(tmp_path / "saved").chat is None
    settings.write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: "):
        find_template(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("four")
    assert find_template(tmp_path).source == "four"  # type: ignore[union-attr]
    (tmp_path / "chat_template.jinja").write_text("five")
    assert find_template(tmp_path).source == "five"  # type: ignore[union-attr]


def test_a_template_begins_the_text_itself(tmp_path: Path) -> None:
    """A prefix of the vocabulary is not put before a chat: the template writes BOS, or none."""
    vocab = Vocab.bytes()
    assert vocab.bos_id is not None
    vocab.prefix_ids = (vocab.bos_id,)
    prompt = ChatTemplate("{{ messages[0].content }}").prompts([HI], vocab)[0]
    sizes = Sizes(new_tokens=2, length=None)
    assert Canvas.of_text(prompt, sizes, vocab).ids[:-2] == prompt.ids == tuple(b"Say hi.")
    assert Canvas.of_text("Say hi.", sizes, vocab).ids[:-2] == (vocab.bos_id, *b"Say hi.")


def test_a_tokenizer_of_transformers_brings_its_template(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    made.write_tokenizer(tmp_path, mask_token="<|mask|>", chat_template=TEMPLATES["dream"])
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    vocab = Vocab.from_transformers(theirs)
    assert vocab.chat is not None and vocab.chat.source == TEMPLATES["dream"]
    ids = theirs.apply_chat_template([HI], add_generation_prompt=True, return_dict=False)[0]
    assert list(vocab.chat.prompts([HI], vocab)[0].ids) == list(ids)
    theirs.chat_template = {"rag": "one", "default": "two"}
    several = Vocab.from_transformers(theirs).chat
    assert several is not None and several.source == "two"


def test_a_vocabulary_keeps_its_template(tmp_path: Path) -> None:
    vocab = Vocab.bytes()
    digest = vocab.digest()
    vocab.chat = ChatTemplate("{{ bos_token }}{{ messages[0].content }}")
    vocab.save(tmp_path)
    again = Vocab.load(tmp_path)
    assert again.chat is not None and again.chat.digest == vocab.chat.digest
    assert again.digest() == digest
    assert again.chat.prompts([HI], again)[0].ids == (again.bos_id, *b"Say hi.")
