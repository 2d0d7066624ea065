"""Chats from end to end: sampled, recorded, reproduced, trained on, exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest

import anyorder
from anyorder.apps.export import export
from anyorder.cli import main
from anyorder.families.family import FAMILIES
from anyorder.hub.chats import TEMPLATES
from anyorder.trace import Run


def byte_ids(text: str) -> list[int]:
    """The ids of a text whose letters form no merged pair."""
    vocab = {character: id for character, id in made.pieces().items() if len(character) == 1}
    from anyorder.vocab.codecs import BYTE_OF

    of_byte = {BYTE_OF[character]: id for character, id in vocab.items()}
    return [of_byte[byte] for byte in text.encode()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Dream-shaped checkpoint with a chat template, whose name says nothing."""
    made.dream(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATES["dream"])
    return tmp_path / "model"


def sample(folder: Path, *words: str) -> tuple[int, Path]:
    out = folder.parent / "run"
    given = ["sample", str(folder), "--prompt", "hi", "--max-new-tokens", "4", "--steps", "2"]
    return main([*given, *words, "--out", str(out)]), out


def test_a_prompt_as_a_turn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = sample(folder, "--chat", "on", "--system", "S <|im_end|>", "--prefill", "so")
    assert code == 0, capsys.readouterr().err
    run = Run.open(out)
    (trace,) = run.traces()
    assert trace.prompt == (
        "<|im_start|>system\nS <|im_end|><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\nso"
    )
    assert trace.prompt_ids is not None
    wanted = [made.START, *byte_ids("system\nS <|im_end|>"), made.CLOSE, *byte_ids("\n")]
    wanted += [made.START, *byte_ids("user\nhi"), made.CLOSE, *byte_ids("\n")]
    wanted += [made.START, *byte_ids("assistant\nso")]
    assert trace.prompt_ids.tolist() == wanted
    chat = run.card.config["chat"]
    assert chat["system"] == "S <|im_end|>" and chat["prefill"] == "so" and chat["mode"] == "on"
    vocab = anyorder.load(folder).vocab
    assert vocab.chat is not None and chat["template_digest"] == vocab.chat.digest
    assert str(folder) not in json.dumps(chat)  # the same run wherever the model lies
    assert main(["reproduce", str(out)]) == 0, capsys.readouterr().out


def test_unknown_checkpoints_are_raw_with_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = sample(folder)
    assert code == 0 and "--chat on uses the template" in capsys.readouterr().err
    run = Run.open(out)
    (trace,) = run.traces()
    assert trace.prompt == "hi"
    assert not {"chat", "system", "prefill"} & run.card.config.keys()
    # The same run, so the same folder: how it was asked for does not count.
    assert sample(folder, "--chat", "off")[0] == 0
    assert "--chat" not in capsys.readouterr().err


def test_markup_of_a_file_that_is_no_token(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "mine.jinja").write_text("<|user|>{{ messages[0].content }}<|im_end|>")
    assert sample(folder, "--chat", str(folder.parent / "mine.jinja"))[0] == 0
    assert "mine.jinja has <|user|>, which this vocabulary" in capsys.readouterr().err


def test_a_template_of_a_file_is_its_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = folder.parent / "one.jinja", folder.parent / "other.jinja"
    one.write_text("{{ messages[0].content }}<|im_end|>\n\n")
    code, out = sample(folder, "--chat", str(one))
    assert code == 0, capsys.readouterr().err
    chat = Run.open(out).card.config["chat"]
    assert chat["template"] == one.read_text() and str(one) not in json.dumps(chat)
    one.rename(other)
    assert sample(folder, "--chat", str(other))[0] == 0  # the same run in the same folder
    other.unlink()
    assert main(["reproduce", str(out)]) == 0, capsys.readouterr().out
    other.write_text("{{ messages[0].content }}")
    assert sample(folder, "--chat", str(other))[0] == 1
    assert "chat.template" in capsys.readouterr().err


def test_a_name_that_says_instruct(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = folder.rename(folder.with_name("my-Instruct"))
    code, out = sample(named)
    assert code == 0, capsys.readouterr().err
    (trace,) = Run.open(out).traces()
    assert trace.prompt.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--system", "S"], "--system belongs to a chat: give --chat on"),
        (["--prefill", "S"], "--prefill belongs to a chat: give --chat on"),
        (["--chat", "nowhere.jinja"], "no chat template 'nowhere.jinja'"),
        (["--chat", "llada"], "<|start_header_id|>, which this vocabulary does not have"),
        (["--chat", "on", "--prompt", "a<fill:2>b"], "a text with <fill> marks is no turn"),
    ],
)
def test_what_is_no_chat(
    folder: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = sample(folder, *words)
    assert code == 1 and reason in capsys.readouterr().err and not out.exists()


HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def g(x):\n    """Go."""\n',
    "entry_point": "g",
    "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
}


def test_published_instruct_prompts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder.parent / "HumanEval.jsonl"
    data.write_text(json.dumps(HUMANEVAL) + "\n")
    words = ["sample", str(folder), "--task", "humaneval", "--data", str(data), "--steps", "2"]
    words += ["--max-new-tokens", "4", "--max-length", "600", "--template", "dream"]
    assert main([*words, "--out", str(folder.parent / "raw")]) == 1
    assert "--template dream is worded for a chat" in capsys.readouterr().err
    assert main([*words, "--chat", "on", "--out", str(folder.parent / "run")]) == 0
    run = Run.open(folder.parent / "run")
    (trace,) = run.traces()
    head = HUMANEVAL["prompt"]
    assert trace.prompt.endswith(
        "<|im_start|>user\nWrite a solution to the following problem and make sure that it passes "
        f"the tests:\n```{head}<|im_end|>\n<|im_start|>assistant\n"
        f"Here is the completed function:\n```python\n{head}\n"
    )


def test_a_template_with_special_spellings_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, template = folder.parent / "HumanEval.jsonl", folder.parent / "mine.txt"
    data.write_text(json.dumps(HUMANEVAL) + "\n")
    template.write_text("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n")
    words = ["sample", str(folder), "--task", "humaneval", "--data", str(data)]
    assert main([*words, "--template", str(template), "--out", str(folder.parent / "run")]) == 1
    said = capsys.readouterr().err
    assert "spells the special token '<|im_start|>'" in said and "--chat FILE" in said


def conversations(path: Path) -> Path:
    """24 short conversations; the letters of an answer are those of its question."""
    rows = []
    for number in range(24):
        letters = "ghijkl"[number % 6] * (1 + number % 3)
        chat = [{"role": "user", "content": letters}, {"role": "assistant", "content": letters}]
        rows.append(json.dumps({"messages": chat}))
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_trains_on_messages_and_answers_chats(
    folder: Path, family: str, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "steps": 2,
        "warmup": 0,
        "batch": 4,
        "validate_batches": 1,
        "data.vocab": str(folder),
        "data.source": str(conversations(tmp_path / "rows.jsonl")),
        "data.messages_field": "messages",
        "data.canvas": 12,
        "data.max_length": 128,
        "net.width": 16,
        "net.layers": 1,
        "net.heads": 2,
        "net.mlp_width": 32,
    }
    model = anyorder.train(f"tiny/{family}", out=tmp_path / "out", progress=False, **changes)
    assert model.vocab.chat is not None and model.vocab.chat.source == TEMPLATES["dream"]
    assert model.trained_on["messages_field"] == "messages"
    prompt = model.chat([{"role": "user", "content": "hi"}])
    sizes = {} if model.family.counts_segments else {"max_new_tokens": 4}
    (trace,) = model.sample(prompt, **sizes)
    assert trace.prompt == prompt.text and trace.prompt_ids is not None
    around = model.family.frame(model.config, model.vocab)
    assert trace.prompt_ids.tolist() == [*around[0], *prompt.ids, *around[1]]
    # A model that was trained on messages answers them without being asked to.
    words = ["sample", str(tmp_path / "out"), "--prompt", "hi", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    (told,) = Run.open(tmp_path / "run").traces()
    assert told.prompt == prompt.text


def test_messages_need_a_template(tmp_path: Path) -> None:
    changes = {"data.source": str(conversations(tmp_path / "rows.jsonl")), "data.vocab": "bytes"}
    changes |= {"data.messages_field": "messages"}
    with pytest.raises(
        ValueError, match=r"data\.vocab=bytes has no chat template: give data\.chat"
    ):
        anyorder.train("tiny/mdm", out=tmp_path / "out", **changes)
    with pytest.raises(ValueError, match="Give the file of a template that fits the model"):
        anyorder.train("tiny/mdm", out=tmp_path / "out", **changes | {"data.chat": "llada"})
    (tmp_path / "mine.jinja").write_text("{{ messages[0].content }}")
    mine = {"data.chat": str(tmp_path / "mine.jinja")}
    wrong = changes | mine | {"data.messages_field": "turns"}
    with pytest.raises(ValueError, match="no field 'turns'"):
        anyorder.train("tiny/mdm", out=tmp_path / "out", **wrong)
    with pytest.raises(ValueError, match=r"data\.chat has no effect"):
        anyorder.train("tiny/mdm", out=tmp_path / "out", **{"data.chat": "llada"})


def test_export_keeps_the_template(folder: Path, tmp_path: Path) -> None:
    model = anyorder.load(folder)
    written = export(model, tmp_path / "out")
    assert "chat_template.jinja" in written["files"]
    again = anyorder.load(tmp_path / "out")
    assert model.vocab.chat is not None and again.vocab.chat is not None
    assert again.vocab.chat.digest == model.vocab.chat.digest
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    turn = [{"role": "user", "content": "abcd ef"}]
    ids = theirs.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
    assert list(ids) == list(again.chat(turn).ids)
