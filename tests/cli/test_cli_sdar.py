"""SDAR from the command line, at the size of its real vocabulary: one command for each step.

Also the sizes of its recipe. The weights are random; the tokenizer's file is Qwen2.5's, with the
five tokens that SDAR has more.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest
import torch

import anyorder
from anyorder.cli import main
from anyorder.hub.chats import TEMPLATES
from anyorder.trace import Run

ROWS, MASK, END, TURN = 151_936, 151_669, 151_643, 151_645
MORE = {
    151_665: "<tool_response>",
    151_666: "</tool_response>",
    151_667: "<think>",
    151_668: "</think>",
    MASK: "<MASK>",
}


def write_sdar(folder: Path, data_file: Callable[[str], Path]) -> None:
    """Two layers in SDAR's format: config.json, weights, tokenizer with its chat template."""
    packed = data_file("tokenizer/qwen2.5_tokenizer.json.gz").read_bytes()
    settings = json.loads(data_file("tokenizer/qwen2.5_tokenizer_config.json").read_text())
    tensors = made.drawn(made.sdar_shapes(rows=ROWS), 13)
    ids = {"vocab_size": ROWS, "bos_token_id": END, "eos_token_id": END, "pad_token_id": END}
    config = made.sdar_config(**ids, mask_token_id=None, max_position_embeddings=32_768)
    made.write_folder(folder, config, tensors)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [TURN, END]}))
    (folder / "tokenizer.json").write_bytes(gzip.decompress(packed))
    flags = settings["added_tokens_decoder"][str(END)]
    for id, name in MORE.items():
        settings["added_tokens_decoder"][str(id)] = {**flags, "content": name}
    settings["chat_template"] = TEMPLATES["qwen3"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def folder(tmp_path: Path, data_file: Callable[[str], Path]) -> Path:
    write_sdar(tmp_path / "sdar", data_file)
    return tmp_path / "sdar"


def told(capsys: pytest.CaptureFixture[str], *words: Any) -> Any:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_special_ids_without_a_word_in_config_json(folder: Path) -> None:
    """The mask is that of the published models; the ends are of both lists."""
    vocab = anyorder.load(folder).vocab
    assert (vocab.mask_id, vocab.eos_id, vocab.pad_id) == (MASK, TURN, END)
    assert set(vocab.end_ids) == {TURN, END} and vocab.size == MASK + 1
    assert vocab.chat is not None
    (prompt,) = vocab.chat.prompts([[{"role": "user", "content": "hi"}]], vocab)
    assert prompt.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert [id for id in prompt.ids if id in vocab.special_ids][:2] == [TURN - 1, TURN]


@pytest.mark.long
def test_every_step_is_one_command(
    folder: Path,
    tmp_path: Path,
    data_file: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, again, out = tmp_path / "run", tmp_path / "again", tmp_path / "out"
    words: list[Any] = ["--task", "humaneval", "--limit", 3, "--samples", 2, "--chat", "on"]
    words += ["--data", data_file("benchmarks/HumanEval.jsonl.gz"), "--max-new-tokens", 24]
    words += ["--temperature", 1, "--quota", "threshold:0.9"]
    assert told(capsys, "sample", folder, *words, "--out", run)["samples"] == 6
    options = Run.open(run).card.config["options"]
    assert (options["block"], options["origin"]) == (4, "absolute")
    traces = list(Run.open(run).traces())
    for trace in traces:
        ids = trace.prompt_ids.tolist()
        assert ids[0] == TURN - 1 and ids[-2:] == [77_091, 198]  # assistant, newline
        assert (trace.token_ids <= MASK).all() and MASK not in trace.token_ids
    told(capsys, "grade", run)
    measures = told(capsys, "measure", run)
    assert "tau_in_blocks" in json.dumps(measures)
    told(capsys, "report", run, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").is_file()
    written = told(capsys, "export", folder, "--out", out)
    assert written["layout"] == "sdar"
    record = json.loads((out / "config.json").read_text())
    found = [record[name] for name in ("model_type", "block_size", "mask_token_id")]
    assert found == ["sdar", 4, MASK]
    told(capsys, "sample", out, *words, "--out", again)
    for one, other in zip(traces, Run.open(again).traces(), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.prompt_ids.tolist() == other.prompt_ids.tolist()
    one, other = anyorder.load(folder), anyorder.load(out)
    assert one.config == other.config and one.vocab.digest() == other.vocab.digest()
    ours, theirs = one.net.state_dict(), other.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_recipe_has_the_parameters_of_the_published_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = told(capsys, "train", "paper/block-sdar-4b", "--dry-run")
    assert (found["parameters"], found["tensors"]) == (4_411_424_256, 399)
