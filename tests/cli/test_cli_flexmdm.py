"""flexmdm from the command line: train, sample with its flags, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.trace import Run

SMALL = "--steps 2 --warmup 1 --batch 4 --threads 1 --validate-every 0 --net.width 16"
SMALL += " --net.heads 2 --net.layers 1 --net.mlp-width 24"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("flexmdm") / "m"
    assert main(["train", "tiny/flexmdm", *SMALL.split(), "--out", str(folder)]) == 0
    return str(folder)


def sample(model: str, words: str, out: Path) -> Run:
    task = ["--task", "stories", "--limit", "2", "--out", str(out)]
    assert main(["sample", model, *task, *words.split()]) == 0
    return Run.open(out)


@pytest.mark.parametrize(
    "words",
    [
        "--steps 4 --insertion-temperature 0.6 --insertion-schedule 1.7",
        "--steps 4 --unmasking-schedule carried --quota poisson --counts poisson --hazard left",
        "--steps 4 --unmasking-schedule 0.5 --counts floor_bernoulli --temperature 0.7 --top-p 0.9",
        "--clock events --policy entropy",
        "--steps 4 --mode compat --temperature 0.1",
        "--steps 4 --force-unmask --policy random",
    ],
)
def test_every_flag_reaches_the_decoder(model: str, words: str, tmp_path: Path) -> None:
    run = sample(model, words, tmp_path / "run")
    options = run.card.config["options"]
    given = words.replace("--", "").replace("-", "_").split()
    for name, value in zip(given, [*given[1:], ""], strict=True):
        if name in options and value not in options:
            assert str(options[name]) in (value, str(value) + ".0")
    assert options["force_unmask"] == ("force" in words)
    for trace in run.traces():
        assert trace.family == "flexmdm" and trace.forwards == trace.steps


def test_a_length_told_alone_is_another_job(model: str, tmp_path: Path) -> None:
    wide = sample(model, "--steps 4 --max-length 100", tmp_path / "wide")
    both = sample(model, "--steps 4 --max-length 100 --max-new-tokens 64", tmp_path / "both")
    assert wide.card.identity() != both.card.identity()


def test_the_published_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "paper/flexmdm-dreamcoder-7b", "--dry-run", "--json"]) == 0
    sizes = json.loads(capsys.readouterr().out)
    assert sizes["backbone_parameters"] == 7_615_616_512
    assert (sizes["added_parameters"], sizes["added_tensors"]) == (835_161_601, 66)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--eos plain", "does not use --eos"),
        ("--clock events --steps 4", "steps has no effect"),
        ("--unmasking-schedule early", "choose 'kept', 'carried' or an exponent"),
        ("--insertion-temperature 0", "give a positive number"),
        ("--insertion-schedule -1", "give a positive exponent"),
        ("--mode compat --policy confidence", "choose 'sampled'"),
        ("--mode compat --max-new-tokens 5", "leave max_new_tokens out"),
        ("--quota even", "quota"),
        ("--max-length 5", "leave no room"),
    ],
)
def test_what_is_refused_in_one_line(
    model: str, words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["--task", "stories", "--limit", "2", "--out", str(tmp_path / "run")]
    assert main(["sample", model, *task, *words.split()]) in (1, 2)
    message = capsys.readouterr().err
    assert says in message and message.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_gaps_open_as_needed_and_the_text_around_them_stays(model: str, tmp_path: Path) -> None:
    prompt = "Ana has some peaches. She buys some plums. How many does she have now?\n"
    text = f"{prompt}<answer>def solve(peaches, plums):<fill>    return total\n"
    words = ["--prompt", text, "--steps", "8", "--out", str(tmp_path / "run")]
    assert main(["sample", model, *words]) == 0
    trace = next(iter(Run.open(tmp_path / "run").traces()))
    assert trace.prompt == f"{prompt}def solve(peaches, plums):"
    assert trace.text.endswith("    return total\n")
    assert main(["sample", model, "--prompt", "a <fill:12>", "--out", str(tmp_path / "x")]) == 1
