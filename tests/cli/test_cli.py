"""The command line as a user meets it: help, JSON, exit codes, errors, nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anyorder.cli import main

QUICK = [
    "--steps",
    "6",
    "--warmup",
    "1",
    "--batch",
    "4",
    "--net.width",
    "16",
    "--net.layers",
    "1",
    "--net.heads",
    "2",
    "--net.mlp-width",
    "32",
    "--validate-every",
    "0",
]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from anyorder.cli import main; sys.exit(main())",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A barely trained model of each family."""
    folder = tmp_path_factory.mktemp("models")
    for family in ("ar", "mdm"):
        assert main(["train", f"tiny/{family}", *QUICK, "--out", str(folder / family)]) == 0
    return folder


def failing(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the error message, which must be one line and the only output."""
    capsys.readouterr()
    code = main(words)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("anyorder: error: ")
    assert len(output.err.strip().splitlines()) == 1
    return code, output.err


def test_help_needs_no_torch() -> None:
    """How long it takes: `tests/test_wheel.py`."""
    script = (
        "import sys; from anyorder.cli import main; main(['--help']); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'pyarrow', 'transformers')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "a heavy library was imported"
    assert "usage: anyorder" in done.stdout and "sample" in done.stdout


@pytest.mark.parametrize("verb", ["demo", "train", "sample", "import", "doctor"])
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert f"anyorder {verb}" in done.stdout.split("\n", 1)[1]


def test_recipe_help_lists_its_fields() -> None:
    done = run("train", "tiny/mdm", "--help")
    assert done.returncode == 0
    for flag in ("--steps", "--net.width", "--data.layout", "--out", "--dry-run"):
        assert flag in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dance"],
        ["train"],
        ["train", "tiny/gpt"],
        ["train", "tiny/mdm", "--stepz", "3"],
        ["train", "tiny/mdm", "--steps", "many"],
        ["sample"],
        ["import"],
    ],
)
def test_bad_usage_exits_with_two(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert list(tmp_path.iterdir()) == []


def test_train_then_sample_then_read(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    command = [
        "sample",
        str(models / "mdm"),
        "--task",
        "stories",
        "--limit",
        "3",
        "--samples",
        "2",
        "--steps",
        "8",
        "--out",
        str(out),
        "--json",
    ]
    capsys.readouterr()
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["samples"] == 6 and report["run"] == str(out)
    import pandas

    table = pandas.read_parquet(out / "traces.parquet")
    assert table["task_id"].tolist() == ["stories/0"] * 2 + ["stories/1"] * 2 + ["stories/2"] * 2
    assert set(table["family"]) == {"mdm"} and set(table["steps"]) == {8}
    card = json.loads((out / "run.json").read_text())
    assert card["config"]["options"]["policy"] == "confidence"
    assert card["config"]["options"]["quota"] == "even"
    before = (out / "traces.parquet").stat().st_mtime_ns
    assert main(command) == 0, "a complete run is left as it is"
    assert (out / "traces.parquet").stat().st_mtime_ns == before


def test_prompt_and_fill_file(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = tmp_path / "program.txt"
    gaps.write_text("def solve(<fill:3>):\n")
    out = tmp_path / "filled"
    assert (
        main(["sample", str(models / "mdm"), "--fill", str(gaps), "--out", str(out), "--json"]) == 0
    )
    text = json.loads(capsys.readouterr().out.splitlines()[-1])["texts"][0]["text"]
    assert text.endswith("):\n")
    assert (
        main(
            [
                "sample",
                str(models / "ar"),
                "--prompt",
                "def solve(",
                "--max-new-tokens",
                "5",
                "--out",
                str(tmp_path / "prompted"),
            ]
        )
        == 0
    )
    assert "1 sample; left_to_right; 5 forwards" in capsys.readouterr().out


def test_an_edited_fill_file_is_another_run(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = tmp_path / "program.txt"
    words = ["sample", str(models / "mdm"), "--fill", str(gaps), "--out", str(tmp_path / "r")]
    gaps.write_text("def solve(<fill:3>):\n")
    assert main(words) == 0
    gaps.write_text("def solve(<fill:2>):\n")
    code, message = failing(words, capsys)
    assert code == 1 and "data_digest" in message


def test_runs_without_a_folder_do_not_collide(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for prompt in ("def solve(", "def solve():"):
        words = ["sample", str(models / "ar"), "--prompt", prompt, "--max-new-tokens", "3"]
        assert main(words) == 0
        assert main(words) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--prompt", "def solve(" * 60], "do not fit on a canvas"),
        (["--prompt", "def solve(<mask>"], "no piece of this vocabulary"),
        (["--task", "humaneval?"], "no task"),
        (["--task", "stories", "--policy", "l2r"], "unknown policy"),
        (["--task", "stories", "--prompt", "x"], "one of --task, --prompt and --fill"),
        ([], "one of --task, --prompt and --fill"),
        (["--task", "stories", "--eos", "never"], "unknown eos"),
        (["--task", "stories", "--shard", "4/4"], "i/n"),
        (["--task", "stories", "--limit", "0"], "at least 1"),
        (["--task", "stories", "--seed", "99999999999999999999"], "--seed must be"),
        (["--prompt", "def solve(<fill:x>):"], "no fill mark"),
        (["--prompt", "def solve(<fill:3>):", "--max-new-tokens", "5"], "its own length"),
        (["--task", "stories", "--top-p", "0.9"], "temperature"),
        (["--fill", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--task", "stories", "--block", "5", "--steps", "7"], "multiple of 13"),
        (["--task", "stories", "--device", "cuda:99"], "cuda:99"),
    ],
)
def test_sample_errors(
    words: list[str],
    says: str,
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, message = failing(["sample", str(models / "mdm"), *words], capsys)
    assert code in (1, 2) and says in message
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


def test_unused_flag_of_a_family(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sample",
        str(models / "ar"),
        "--task",
        "stories",
        "--policy",
        "random",
        "--out",
        str(tmp_path / "x"),
    ]
    code, message = failing(words, capsys)
    assert code == 1 and "ar does not use --policy" in message and not (tmp_path / "x").exists()


def test_a_broken_model_leaves_no_run_behind(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    import anyorder

    model = anyorder.load(models / "mdm")
    with torch.no_grad():
        model.net.norm.weight.fill_(torch.nan)
    model.save(tmp_path / "broken")
    words = ["--task", "stories", "--limit", "2", "--out", str(tmp_path / "run")]
    code, message = failing(["sample", str(tmp_path / "broken"), *words], capsys)
    assert code == 1 and "not finite" in message and not (tmp_path / "run").exists()
    assert main(["sample", str(models / "mdm"), *words]) == 0


def test_two_samplers_do_not_share_a_folder(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from anyorder.files import alone_in

    words = ["sample", str(models / "mdm"), "--task", "stories", "--out", str(tmp_path / "run")]
    with alone_in(tmp_path / "run"):
        code, message = failing(words, capsys)
    assert code == 1 and "another process" in message


def test_missing_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, message = failing(["sample", "runs/nowhere", "--task", "stories"], capsys)
    assert code == 1 and "anyorder train" in message


def test_another_run_in_the_folder_is_not_overwritten(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [
        "sample",
        str(models / "mdm"),
        "--task",
        "stories",
        "--limit",
        "1",
        "--steps",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(base) == 0
    before = (tmp_path / "run" / "traces.parquet").read_bytes()
    code, message = failing([*base, "--seed", "5"], capsys)
    assert code == 1 and "seed" in message and "--out" in message
    assert (tmp_path / "run" / "traces.parquet").read_bytes() == before


def test_training_with_other_settings_in_the_same_folder(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "tiny/mdm", *QUICK, "--lr", "0.5", "--out", str(models / "mdm")]
    code, message = failing(words, capsys)
    assert code == 1 and "lr" in message


def test_wrong_values_in_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (["--net.width", "30"], "multiple"),
        (["--loss", "magic"], "no loss"),
        (["--data.source", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--data.layout", "3"], "layout"),
        (["--data.canvas", "20"], "stories needs at least 64"),
        (["--data.max-length", "80"], "needs at least 112"),
        (["--dry-run", "--loss", "magic"], "no loss"),
        (["--logger", "wandbee"], "did you mean wandb?"),
        (["--logger", "tensorboard", "--logger-arg", "project=x"], "no setting 'project'"),
        (["--logger", "tensorboard", "--logger-arg", "folder"], "give KEY=VALUE"),
        (["--logger-arg", "folder=x"], "--logger-arg belongs to --logger"),
        (["--dry-run", "--logger", "tensorboard"], "leave --logger out"),
    ):
        code, message = failing(["train", "tiny/mdm", *words, "--out", str(tmp_path / "m")], capsys)
        assert code in (1, 2) and says in message
        assert not (tmp_path / "m").exists()


def test_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["train", "tiny/mdm", "--dry-run", "--json"]) == 0
    sizes = json.loads(capsys.readouterr().out)
    assert sum(sizes["by_module"].values()) == sizes["parameters"]


def test_import_round_trip(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import anyorder

    traces = anyorder.load(models / "mdm").sample(
        ["def solve("], samples=3, temperature=0.9, steps=5
    )
    theirs = tmp_path / "theirs.jsonl"
    theirs.write_text("".join(trace.to_jsonl() + "\n" for trace in traces))
    capsys.readouterr()
    assert main(["import", str(theirs), "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 3
    for ours, read in zip(traces, anyorder.Run.open(tmp_path / "run").traces(), strict=True):
        assert read.text == ours.text and read.reveal_step.tolist() == ours.reveal_step.tolist()
        assert read.replay(2).text() == ours.replay(2).text()


def test_import_of_a_broken_file_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs.jsonl"
    theirs.write_text('{"task_id": "a", "sample": 0, "prompt": "", "text": "x"}\n{"task_id": 3}\n')
    code, message = failing(["import", str(theirs), "--out", str(tmp_path / "run")], capsys)
    assert code == 1 and "theirs.jsonl:2" in message and not (tmp_path / "run").exists()


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"][0] == "cpu" and "hf" in found["extras"]
    assert main(["doctor"]) == 0
    assert "torch" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("anyorder ")


def test_no_network_variables_are_needed() -> None:
    """The quick verbs work with an empty environment."""
    done = subprocess.run(
        [sys.executable, "-c", "from anyorder.cli import main; main(['doctor', '--json'])"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert json.loads(done.stdout)["python"]
