"""`anyorder measure`: tables with controls, one JSON document, and measures.json that grows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anyorder.apps import measure as measuring
from anyorder.cli import main
from anyorder.recipes.presets import find_preset
from anyorder.trace import Run, RunCard

PROGRAM = [
    "def",
    " f",
    "(",
    "a",
    ")",
    ":",
    "\n    ",
    "b",
    " = ",
    "a",
    "\n    ",
    "return",
    " b",
    "\n",
]


def line(task: str, sample: int, steps: list[int], policy: str, tokens: list[str] = PROGRAM) -> str:
    record = {"task_id": task, "sample": sample, "prompt": "", "tokens": tokens, "policy": policy}
    return json.dumps(record | {"insert_step": [0] * len(tokens), "reveal_step": steps})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The same programs, written from left to right and from right to left."""
    forwards = list(range(1, len(PROGRAM) + 1))
    orders = {"forwards": forwards, "backwards": forwards[::-1]}
    for name, steps in orders.items():
        lines = [line(f"t{task}", sample, steps, name) for task in range(3) for sample in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        words = ["import", str(tmp_path / f"{name}.jsonl"), "--out", str(tmp_path / name)]
        assert main(words) == 0
    return tmp_path


def document(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main(["measure", *words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out)["runs"])


def test_every_measure_that_the_runs_allow(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(runs / "backwards"), "--reference", str(runs / "forwards")]
    found = document(words, capsys)["backwards"]
    assert isinstance(found, dict)
    assert set(found) == {"run", "order", "arness", "diversity", "similarity"}
    cell = found["order"]["exact"]["aggregate"]["full_output"]["split_only"]["rub"]
    assert cell["mean"] == cell["controls"]["left_to_right"] == 0
    assert cell["controls"]["random"] > 0
    assert found["arness"]["aggregate"]["tau"]["mean"] == -1
    assert found["arness"]["aggregate"]["tau"]["mirrored"] == 1
    (row,) = [row for row in found["similarity"]["rows"] if not row["ceiling"]]
    assert {name: score["estimate"] for name, score in row["scores"].items()} == {
        "TSED": 1,
        "ASTD": 1,
        "Coarse": 1,
    }
    samples = found["order"]["exact"]["samples"]
    assert len(samples) == 6 and samples[0]["scopes"]["full_output"]["nodes"]


def test_results_are_kept_beside_those_of_before(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs / "forwards"
    assert main(["measure", str(folder), "--only", "order"]) == 0
    assert main(["measure", str(folder), "--only", "order,arness", "--mode", "compat"]) == 0
    kept = json.loads((folder / "measures.json").read_bytes())
    assert set(kept["order"]) == {"exact", "compat"} and "arness" in kept
    assert kept["traces"] == Run.open(folder).card.files["traces.parquet"]
    printed = capsys.readouterr().out
    assert "left to right" in printed and "random" in printed and "between" in printed


def test_entries_of_other_traces_are_not_kept(runs: Path) -> None:
    folder = runs / "forwards"
    assert main(["measure", str(folder), "--only", "arness"]) == 0
    record = json.loads((folder / "measures.json").read_bytes())
    (folder / "measures.json").write_text(json.dumps(record | {"traces": "0" * 64}))
    assert main(["measure", str(folder), "--only", "order"]) == 0
    assert "arness" not in json.loads((folder / "measures.json").read_bytes())


def test_every_metric_is_measured_without_an_extra(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", str(runs / "forwards"), "--only", "diversity"]) == 0
    output = capsys.readouterr()
    assert "left out" not in output.err and "pip install" not in output.err
    assert all(f"nearest {metric}" in output.out for metric in ("TSED", "ASTD", "Coarse"))


def test_runs_of_one_name_are_told_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = runs / "other" / "forwards"
    assert main(["import", str(runs / "backwards.jsonl"), "--out", str(inner)]) == 0
    found = document([str(runs / "forwards"), str(inner), "--only", "arness"], capsys)
    assert set(found) == {f"{runs.name}/forwards", "other/forwards"}


def test_options_of_trees(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(runs / "forwards"), "--only", "diversity", "--tree.placeholders", "single"]
    found = document(words, capsys)["forwards"]
    assert isinstance(found, dict)
    assert "single" in json.dumps(found["diversity"]["settings"])


def sampled_by(preset: str, family: str, task: str, policy: str, **changed: object) -> RunCard:
    """The card of a run that followed a preset, but for what was changed."""
    job, options = find_preset(preset).settings(family, task, policy)
    config = {"task": task, "preset": preset, "family": family, **job}
    return RunCard("anyorder sample", config | {"options": {**options, **changed}})


def copied(traces: Path, out: Path, card: RunCard) -> str:
    run = Run.create(out, card)
    run.append(0, list(Run.open(traces).traces()))
    run.finish()
    return str(out)


def test_the_paper_stands_beside_a_run_of_its_protocol(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = sampled_by("flexmdm-passk", "flexmdm", "humaneval", "sampled")
    words = [copied(runs / "forwards", runs / "published", card), "--only", "order"]
    assert main(["measure", *words]) == 0
    printed = capsys.readouterr().out
    assert printed.count("paper, FlexMDM") == 4
    assert "0.706" in printed  # split-only CBC, full_output
    assert "--mode compat" in printed
    card = sampled_by("flexmdm-passk", "flexmdm", "humaneval", "sampled", temperature=1.0)
    words = [copied(runs / "forwards", runs / "changed", card), "--only", "order"]
    assert main(["measure", *words]) == 0
    assert "paper, FlexMDM" not in capsys.readouterr().out
    for task, policy, model in (
        ("mbpp", "entropy", "Dream-base"),
        ("mbpp", "sampled", "Dream-base"),
        ("livecodebench:v5", "margin", "Dream-Coder-instruct"),
    ):
        card = sampled_by("similarity", "mdm", task, policy)
        out = copied(runs / "forwards", runs / f"{task[:4]}-{policy}", card)
        words = [out, "--reference", str(runs / "forwards"), "--only", "similarity"]
        assert main(["measure", *words]) == 0
        assert f"paper, {model}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "taste"], "choose from order"),
        (["--only", "similarity"], "needs --reference"),
        (["--only", "order", "--placement", "m"], "has no effect without placement"),
        (["--mode", "fast"], "exact or compat"),
        (["--seeds", "0"], "at least 1"),
        (["--tree.placeholders", "many"], "indexed"),
        (["--placement", "nowhere"], "no model 'nowhere'"),
        (["--reference", "nowhere"], "nowhere is not a folder"),
        (["--stride", "8"], "--stride has no effect here: it is for placement"),
        (["--any-model"], "--any-model has no effect here"),
        (["--only", "arness", "--mode", "compat"], "--mode has no effect here: it is for order"),
        (["--only", "order", "--tree.contexts"], "--tree has no effect here"),
    ],
)
def test_bad_wishes(
    runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", str(runs / "forwards"), *words]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error and error.startswith("anyorder: error: ")
    assert not (runs / "forwards" / "measures.json").exists()


def test_what_was_measured_before_an_error_is_kept(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model made the first run and not the second."""

    def refuse(run: Run, *_: object) -> None:
        if run.folder.name == "backwards":
            raise ValueError("another model: give the one that made it")

    monkeypatch.setattr(measuring, "_placement", refuse)
    monkeypatch.setattr(measuring.Measured, "of_run", lambda *_, **__: {"arness": {}})
    words = ["measure", str(runs / "forwards"), str(runs / "backwards"), "--placement", "m"]
    assert main(words) == 1
    assert "another model" in capsys.readouterr().err
    assert (runs / "forwards" / "measures.json").exists()
    assert not (runs / "backwards" / "measures.json").exists()


def test_without_placement_torch_is_not_loaded(runs: Path) -> None:
    script = (
        "import sys; from anyorder.cli import main; "
        "code = main(['measure', sys.argv[1], '--only', 'order,arness']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(runs / "forwards")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_damaged_results_are_not_overwritten(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "forwards" / "measures.json").write_text("{")
    assert main(["measure", str(runs / "forwards"), "--only", "arness"]) == 1
    assert "delete it" in capsys.readouterr().err
