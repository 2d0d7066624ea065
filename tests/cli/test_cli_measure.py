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
    record |= {"entry_point": "f"} if tokens is PROGRAM else {}
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


def test_the_order_between_blocks_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Imported traces with a column of blocks: each block of three from right to left."""
    count = len(PROGRAM)
    block = [place // 3 for place in range(count)]
    steps = [3 * b + 3 - place % 3 for place, b in enumerate(block)]
    records = [json.loads(line(f"t{task}", 0, steps, "blocks")) for task in range(3)]
    text = "\n".join(json.dumps(record | {"block": block}) for record in records)
    (tmp_path / "blocks.jsonl").write_text(text)
    folder = str(tmp_path / "run")
    assert main(["import", str(tmp_path / "blocks.jsonl"), "--out", folder]) == 0
    found = document([folder, "--only", "order,arness"], capsys)["run"]
    assert isinstance(found, dict)
    taus = {name: found["arness"]["aggregate"][name] for name in ("tau", "tau_in_blocks")}
    assert taus["tau"]["mean"] > 0.5 and taus["tau_in_blocks"]["mean"] == -1
    assert taus["tau"]["random_in_blocks"] > 0.7
    for entry in (found["arness"], found["order"]["exact"]):
        assert entry["blocks"]["slots"] == 3 and entry["blocks"]["order_between"] == "given"
    assert main(["measure", folder, "--only", "order,arness"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("left to right in blocks", "random in blocks", "l. to r. in blocks"):
        assert words in printed
    given = "blocks of at most 3 slots from left to right, so the order between blocks is given"
    assert printed.count(given) == 2


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
        (["--language", "java"], "--language 'java': only python has statement trees here"),
        (["--only", "arness", "--language", "python"], "--language has no effect here"),
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


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "arness,order"],
        ["--only", "arness", "--only", "order"],
        ["--only=order", "--seeds", "2", "--only", "arness"],
    ],
)
def test_measures_are_named_with_commas_or_one_by_one(runs: Path, words: list[str]) -> None:
    assert main(["measure", str(runs / "forwards"), *words]) == 0
    stored = json.loads((runs / "forwards" / "measures.json").read_text())
    assert {"arness", "order"} <= stored.keys() and "diversity" not in stored


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


MOLECULE = ["C", "C", "(", "=O", ")", "N", "C", "1", "CC", "1"]


@pytest.fixture
def molecules(runs: Path) -> Path:
    """Texts that are no programs, written two tokens a step."""
    steps = [5, 4, 3, 2, 1, 1, 2, 3, 4, 5]
    lines = [line(f"m{task}", 0, steps, "outwards", MOLECULE) for task in range(3)]
    (runs / "molecules.jsonl").write_text("\n".join(lines) + "\n")
    words = ["import", str(runs / "molecules.jsonl"), "--out", str(runs / "molecules")]
    assert main(words) == 0
    return runs / "molecules"


def test_texts_that_are_no_programs_have_no_trees(
    molecules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["measure", str(molecules), str(molecules.parent / "forwards")]) == 0
    shown = capsys.readouterr().out
    (said,) = [each for each in shown.splitlines() if "left out, since" in each]
    assert said == (
        "molecules: order, diversity left out, since nothing says that its texts are programs; "
        "if they are, add --language python"
    )
    assert "AR-ness: molecules" in shown and "Order, exact: forwards" in shown
    assert "Order, exact: molecules" not in shown and "nan" not in shown
    stored = Run.open(molecules).measures()
    assert set(stored) == {"arness"}
    assert set(Run.open(molecules.parent / "forwards").measures()) == {
        *("arness", "order", "diversity"),
    }
    assert main(["measure", str(molecules), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["left_out"] == {"molecules": ["order", "diversity"]}


@pytest.mark.parametrize("words", [["--only", "order"], ["--reference", "forwards"]])
def test_trees_of_texts_that_were_asked_for_are_refused(
    molecules: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(molecules.parent / word) if word == "forwards" else word for word in words]
    assert main(["measure", str(molecules), *words]) == 1
    error = capsys.readouterr().err
    assert "molecules: nothing says that the texts are programs" in error
    assert "add --language python" in error and not (molecules / "measures.json").exists()
    assert main(["measure", str(molecules), *words, "--language", "python"]) == 0
    assert set(Run.open(molecules).measures()) >= {"order"}


def test_a_run_without_samples_that_can_be_scored_shows_no_nan(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "short.jsonl").write_text(line("s", 0, [1], "one", ["x"]) + "\n")
    assert main(["import", str(runs / "short.jsonl"), "--out", str(runs / "short")]) == 0
    capsys.readouterr()
    assert main(["measure", str(runs / "short")]) == 0
    shown = capsys.readouterr().out
    assert "1 too_short" in shown and "nan" not in shown
