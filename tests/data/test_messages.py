"""Conversations as examples: one for each turn of the assistant, its text alone is the answer."""

from __future__ import annotations

from pathlib import Path

import made_checkpoints as made
import pytest

from anyorder.data.batches import BatchConfig, Batches
from anyorder.data.messages import MessagesSource
from anyorder.data.segments import SegmentConfig
from anyorder.hub.chats import TEMPLATES
from anyorder.hub.vocab import open_vocab
from anyorder.vocab import Vocab
from anyorder.vocab.chat import ChatTemplate

TEMPLATE = ChatTemplate(TEMPLATES["dream"])
ROWS = [
    (
        "row 1",
        [
            {"role": "user", "content": "ab"},
            {"role": "assistant", "content": "cd\nef"},
            {"role": "user", "content": "abcd"},
            {"role": "assistant", "content": "<|im_end|>"},
        ],
    ),
    ("row 2", [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]),
]
ANSWERS = ["cd\nef", "<|im_end|>", "y"]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    folder = tmp_path_factory.mktemp("dream")
    made.dream(folder)
    return open_vocab(folder)


def source(vocab: Vocab) -> MessagesSource:
    return MessagesSource(ROWS, TEMPLATE, vocab)


ENDINGS = {
    "eos": (BatchConfig(size=1, bucket=1), [made.END]),
    "canvas": (BatchConfig(size=1, bucket=1, canvas=16), None),
    "none": (BatchConfig(size=1, bucket=1, ending="none"), []),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_only_the_turn_is_the_answer(vocab: Vocab, ending: str) -> None:
    config, tail = ENDINGS[ending]
    batches = Batches(source(vocab), vocab, config)
    seen = []
    for step in range(3):
        batch = batches(step)
        index = int(batch.index[0])
        seen.append(index)
        answer = vocab.encode(ANSWERS[index])
        assert made.CLOSE not in answer
        turns = [list(message) for _, message in ROWS]
        conversation = [turns[0][:1], turns[0][:3], turns[1][:1]][index]
        prompt = TEMPLATE.prompts([conversation], vocab)[0].ids
        length = int(batch.prompt_length[0])
        assert batch.ids[0, :length].tolist() == list(prompt)
        wanted = [*answer, *([made.END] * (16 - len(answer)) if tail is None else tail)]
        assert batch.ids[0][batch.answer[0]].tolist() == wanted
    assert sorted(seen) == [0, 1, 2]


def test_segments_are_cut_from_the_turn(vocab: Vocab) -> None:
    segments = SegmentConfig(by="line", slots=4, segment_length=16)
    found = source(vocab).example(0, vocab, begun=False, segments=segments)
    assert found.segments == (len(vocab.encode("cd\n")), len(vocab.encode("ef")))
    assert vocab.decode(found.answer) == "cd\nef"


def test_some_of_the_examples(vocab: Vocab) -> None:
    chosen = source(vocab).chosen([2, 0])
    assert chosen.size == 2 and [chosen[0][1], chosen[1][1]] == ["y", "cd\nef"]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "user", "content": "a"}], "row 7: no turn of the assistant"),
        ([{"role": "bot", "content": "a"}], "row 7: message 1 has the role 'bot'"),
        ("text", "row 7: a conversation is a list"),
        ([{"role": "assistant", "content": "a"}], "row 7: the assistant begins"),
    ],
)
def test_a_wrong_row_is_named(vocab: Vocab, messages: object, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        MessagesSource([("row 7", messages)], TEMPLATE, vocab)


def test_the_one_wrong_row_is_named(vocab: Vocab) -> None:
    wrong = ("row 3", [{"role": "assistant", "content": "a"}])
    with pytest.raises(ValueError, match=r"^row 3: the assistant begins"):
        MessagesSource([*ROWS, wrong, *ROWS], TEMPLATE, vocab)


def test_empty_answers_and_calls_of_tools(vocab: Vocab) -> None:
    """An empty answer under a template that trims is one; a turn without a text is none."""
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
        {"role": "tool", "content": "1"},
        {"role": "assistant", "content": ""},
    ]
    found = MessagesSource([("row 1", chat)], ChatTemplate(TEMPLATES["llada"]), vocab)
    assert found.size == 1 and found[0][1] == ""
    assert found[0][0].endswith("1<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
    with pytest.raises(ValueError, match="row 1: no turn of the assistant"):
        MessagesSource([("row 1", chat[:3])], TEMPLATE, vocab)
    with pytest.raises(ValueError, match="message 2 is no object with a text"):
        MessagesSource(
            [("row 1", [chat[0], {"role": "assistant", "content": None}])], TEMPLATE, vocab
        )
