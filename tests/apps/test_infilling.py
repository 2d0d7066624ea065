"""Gaps as a task: what each family is told, what becomes of the answer, and the rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import made_checkpoints as made
import numpy as np
import pytest

from anyorder.apps.infilling import MIDDLE_TOKENS, gap_prompts
from anyorder.apps.train import network_config
from anyorder.bench.tasks import Problem, find_task
from anyorder.cli import main
from anyorder.families.family import FAMILIES
from anyorder.model import Card, Model, build
from anyorder.recipes import find_recipe, override
from anyorder.trace import Run, RunCard, Trace
from anyorder.vocab import Vocab

SMALL: dict[str, Any] = {
    "net.width": 16,
    "net.layers": 1,
    "net.heads": 2,
    "net.mlp_width": 32,
}
SEGMENTS = {"segments.slots": 8, "segments.segment_length": 24}
TOLD = {
    "mdm": "tokens", "duo": "tokens", "sflm": "tokens", "flexmdm": "nothing",
    "latentmdm": "nothing", "flexlatent": "nothing", "block": "tokens",
}  # fmt: skip
LINES = ("latentmdm", "flexlatent")

HEAD = 'def f(x):\n    """ Twice. """\n'
TEST = "def check(candidate):\n    assert candidate(2) == 4\n"
MIDDLES = ("    y = 2 * x\n", "    z = y\n")


def row(problem: int, gap: int, **change: str) -> dict[str, str]:
    """A program of two lines and a `return`, without one of the lines."""
    return {
        "task_id": f"SingleLineInfilling/HumanEval/{problem}/L{gap}",
        "entry_point": "f",
        "prompt": HEAD + "".join(MIDDLES[:gap]),
        "canonical_solution": MIDDLES[gap],
        "suffix": "".join(MIDDLES[gap + 1 :]) + "\n    return z\n",
        "test": TEST,
    } | change


ROWS = [row(0, 0), row(0, 1), row(1, 0)]
SPAN = row(
    0, 0, task_id="RandomSpanInfilling/HumanEval/0/1", prompt=f"{HEAD}    y", suffix=" * x\n"
)
SPAN |= {"canonical_solution": " = 2", "suffix": f" * x\n{MIDDLES[1]}    return z\n"}


def model_of(family: str, vocab: Vocab) -> Model:
    recipe = override(find_recipe(f"tiny/{family}"), SMALL | (SEGMENTS if family in LINES else {}))
    net = asdict(network_config(recipe, vocab.size))
    card = Card(family, net, max_new_tokens=16, max_length=200, recipe=recipe.as_json())
    return build(card, vocab, name=family)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for each family, of bytes and with random weights."""
    folder = tmp_path_factory.mktemp("models")
    for family in ("ar", *TOLD):
        model_of(family, Vocab.bytes()).save(folder / family)
    return folder


def file_of(folder: Path, rows: Sequence[dict[str, str]] = ROWS) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def sampled(model: Path, folder: Path, *words: str) -> Run:
    given = ["sample", str(model), "--task", "humaneval-infilling", "--data"]
    given += [str(file_of(folder)), "--out", str(folder / "run"), *words]
    assert main(given) == 0
    return Run.open(folder / "run")


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) in (1, 2)
    output = capsys.readouterr()
    assert output.out == "" and len(output.err.strip().splitlines()) == 1
    return output.err


@pytest.mark.parametrize("family", TOLD)
def test_every_any_order_family_fills_the_gap_and_nothing_else(
    family: str, models: Path, tmp_path: Path
) -> None:
    assert set(FAMILIES) <= {*TOLD, "ar", "planner"}
    run = sampled(models / family, tmp_path, "--samples", "2")
    assert run.card.config["gaps"] == TOLD[family]
    traces = list(run.traces())
    assert [trace.task_id for trace in traces] == [each["task_id"] for each in ROWS for _ in "ab"]
    for trace, given in zip(traces, [each for each in ROWS for _ in "ab"], strict=True):
        assert trace.prompt == given["prompt"]
        assert trace.text == trace.filled + given["suffix"]
        assert trace.program == given["prompt"] + trace.filled + given["suffix"]
        assert trace.reveal_step is not None
        if TOLD[family] == "tokens":
            assert np.count_nonzero(trace.reveal_step) == len(given["canonical_solution"])


def test_a_number_of_slots_for_all_gaps(models: Path, tmp_path: Path) -> None:
    run = sampled(models / "mdm", tmp_path, "--max-new-tokens", "5")
    assert run.card.config["gaps"] == "nothing"
    for trace in run.traces():
        assert trace.reveal_step is not None and np.count_nonzero(trace.reveal_step) == 5


def test_a_gap_with_an_end_in_it_is_cut_there(models: Path, tmp_path: Path) -> None:
    """With EOS allowed, random weights write some: the text ends there, the program does not."""
    flags = ("--max-new-tokens", "60", "--eos", "plain", "--temperature", "3")
    run = sampled(models / "mdm", tmp_path, *flags, "--samples", "20")
    ends = Vocab.bytes().end_ids
    cut = 0
    for trace in run.traces():
        given = next(each for each in ROWS if each["task_id"] == trace.task_id)
        assert trace.program == given["prompt"] + trace.filled + given["suffix"]
        assert trace.token_ids is not None and trace.reveal_step is not None
        decoded = trace.token_ids[trace.reveal_step > 0]
        ended = bool(np.isin(decoded, ends).any())
        cut += ended
        assert trace.text == trace.filled + ("" if ended else given["suffix"])
    assert cut


def test_a_gap_inside_a_line_is_not_for_models_of_lines(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(file_of(tmp_path, [SPAN]))
    words = ["--task", "humaneval-infilling", "--data", data, "--out", str(tmp_path / "run")]
    for family in LINES:
        said = refused(["sample", str(models / family), *words], capsys)
        assert f"{family} fills whole lines" in said and "HumanEval/0/1" in said
    assert main(["sample", str(models / "flexmdm"), *words]) == 0


def test_an_ar_model_without_the_tokens_is_refused_by_name(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--task", "humaneval-infilling", "--data", str(file_of(tmp_path))]
    said = refused(["sample", str(models / "ar"), *data], capsys)
    assert "writes left to right" in said and "no prefix-suffix-middle tokens" in said
    assert str(models / "ar") in said or "ar " in said


def fim_vocab(folder: Path, tokens: Sequence[str], special: bool) -> Vocab:
    """A tokenizer that lists these tokens, flagged as special or as text."""
    made.write_tokenizer(folder)
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text())
    for id, name in enumerate(tokens, start=max(made.ADDED.values()) + 1):
        entry = {"id": id, "content": name, "special": special, **made.FLAGS}
        spec["added_tokens"].append(entry)
    path.write_text(json.dumps(spec))
    names = {"mask": "<|mask|>", "pad": "<|endoftext|>", "eos": "<|endoftext|>"}
    return Vocab.from_tokenizer_json(path, **names, pad_is_eos=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("tokens", MIDDLE_TOKENS)
def test_an_ar_model_with_the_tokens_reads_prefix_suffix_middle(
    tokens: tuple[str, str, str], special: bool, tmp_path: Path
) -> None:
    vocab = fim_vocab(tmp_path / "tokenizer", tokens, special)
    model_of("ar", vocab).save(tmp_path / "ar")
    run = sampled(tmp_path / "ar", tmp_path, "--temperature", "1")
    assert run.card.config["gaps"] == "prefix-suffix-middle"
    first, second, third = (vocab.id_of(name) for name in tokens)
    for trace, given in zip(run.traces(), ROWS, strict=True):
        before, after = vocab.encode(given["prompt"]), vocab.encode(given["suffix"])
        assert trace.prompt_ids is not None
        assert trace.prompt_ids.tolist() == [first, *before, second, *after, third]
        assert trace.program is not None and trace.program.startswith(given["prompt"])
        assert trace.program.endswith(given["suffix"]) and trace.filled == trace.text
    problems = find_task("humaneval-infilling", {}, data=tmp_path / "rows.jsonl").problems(None)
    model = model_of("ar", vocab)
    with pytest.raises(ValueError, match="no effect on a left-to-right model"):
        gap_prompts(model, problems, slots=None, template="boundary")


def test_a_marker_ends_the_middle() -> None:
    problem = Problem("x", "", prefix="a\n", suffix="c\n", middle="b\n")
    for marker in ("<|fim_pad|>", "<|file_sep|>", "<fim_suffix>", MIDDLE_TOKENS[2][1]):
        assert problem.program(f"b\n{marker}more", "infill") == "a\nb\nc\n"
    assert problem.program("x < fim_y > z\n", "infill") == "a\nx < fim_y > z\nc\n"


def test_chats_have_no_gaps(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--task", "humaneval-infilling", "--data", str(file_of(tmp_path))]
    assert "no turn of a chat" in refused(
        ["sample", str(models / "mdm"), *data, "--chat", "on"], capsys
    )


def filled_run(folder: Path, middles: dict[str, str], rows: Sequence[dict[str, str]]) -> Path:
    """A run whose gaps hold these middles, as a model with a canvas leaves it."""
    data = file_of(folder, rows)
    config = {"task": "humaneval-infilling", "data": str(data), "samples": 1, "options": {}}
    run = Run.create(folder / "made", RunCard("made", config | {"family": "mdm"}))
    vocab = Vocab.bytes()
    traces = []
    for given in rows:
        middle, after = (vocab.encode(t) for t in (middles[given["task_id"]], given["suffix"]))
        steps = [*range(1, len(middle) + 1), *[0] * len(after)]
        traces.append(
            Trace.from_tokens(
                vocab,
                [*middle, *after],
                prompt_ids=vocab.encode(given["prompt"]),
                insert_step=[0] * len(steps),
                reveal_step=steps,
                task_id=given["task_id"],
                seconds=0.1,
            )
        )
    run.append(0, traces)
    run.finish()
    return folder / "made"


def test_grading_puts_the_middle_between_the_given_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three gaps of two problems: the mean is over gaps, the interval over problems."""
    middles = {each["task_id"]: each["canonical_solution"] for each in ROWS}
    middles[ROWS[1]["task_id"]] = "    z = 0\n"
    run = filled_run(tmp_path, middles, ROWS)
    capsys.readouterr()
    assert main(["grade", str(run), "--json", "--workers", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["verdict"] for each in found["samples"]] == ["passed", "wrong", "passed"]
    [rate] = found["rates"]
    assert rate["estimate"] == pytest.approx(2 / 3) and rate["tasks"] == 2
    assert (rate["low"], rate["high"]) == (0.5, 1.0)  # both draws of one problem
    assert found["task"] == "humaneval-infilling:single-line"
    assert {each["source"] for each in found["published"]} == {"Open-dLLM", "FlexMDM"}
    assert main(["grade", str(run), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "2 problems, 3 gaps, 3 samples" in shown and "mean over gaps" in shown
    assert "FlexMDM from LLaDA-8B" in shown and "65.0 %" in shown
    said = refused(["grade", str(run), "--extraction", "plain"], capsys)
    assert "fills gaps, and --extraction has no effect" in said


def test_a_text_without_tokens_is_the_middle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = file_of(tmp_path)
    config = {"task": "humaneval-infilling", "data": str(data), "samples": 1, "options": {}}
    run = Run.create(tmp_path / "made", RunCard("made", config | {"family": "ar"}))
    run.append(
        0,
        [
            Trace(task_id=each["task_id"], sample=0, prompt="", text=each["canonical_solution"])
            for each in ROWS
        ],
    )
    run.finish()
    capsys.readouterr()
    assert main(["grade", str(tmp_path / "made"), "--json", "--workers", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == {"passed": 3}


def test_races_make_their_own_gaps(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["race", str(models / "mdm"), "--task", "humaneval-infilling"]
    words += ["--data", str(file_of(tmp_path)), "--limit", "2", "--out", str(tmp_path / "race")]
    assert "has gaps, and a race makes its own" in refused(words, capsys)
