"""duo from the command line: flags, what is refused, filling, watching, measuring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.trace import Run

SMALL = "--steps 2 --warmup 1 --batch 4 --threads 1 --validate-every 0 --net.width 32"
SMALL += " --net.heads 2 --net.layers 1 --net.mlp-width 24"
STORIES = ("--task", "stories", "--limit", "2")
GAP = "Ana has some peaches. How many does she have now?\ndef solve(<fill:4>):\n    return total\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("duo") / "m")
    assert main(["train", "tiny/duo", *SMALL.split(), "--out", folder]) == 0
    return folder


def sample(model: str, words: str, out: Path, what: tuple[str, ...] = STORIES) -> Run:
    assert main(["sample", model, *what, "--out", str(out), *words.split()]) == 0
    return Run.open(out)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--steps 3", {"steps": 3, "tail": "ancestral", "temperature": 1.0, "eos": "plain"}),
        ("--steps 2 --tail greedy --temperature 0.7", {"tail": "greedy", "temperature": 0.7}),
        ("--steps 2 --top-p 0.9 --top-k 5 --eos fill", {"top_p": 0.9, "top_k": 5, "eos": "fill"}),
        ("--steps 1 --tail greedy", {"steps": 1, "tail": "greedy"}),
        ("--steps 2 --temperature 0", {"temperature": 0.0}),
    ],
)
def test_every_flag_reaches_the_decoder(
    model: str, words: str, options: dict[str, object], tmp_path: Path
) -> None:
    run = sample(model, words, tmp_path / "run")
    found = run.card.config["options"]
    assert options.items() <= found.items()
    for trace in run.traces():
        assert (trace.family, trace.policy) == ("duo", "ancestral")
        assert trace.forwards == trace.steps == found["steps"]
        assert trace.replay(trace.steps).ids(-1).tolist() == trace.token_ids.tolist()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--policy confidence", "duo does not use policy"),
        ("--eos last", "duo ranks nothing"),
        ("--steps 1 --tail greedy --top-p 0.9", "no effect on a single greedy step"),
        ("--temperature 0 --top-k 3", "change nothing"),
        ("--tail stop", "tail='stop' does not fit"),
    ],
)
def test_what_is_refused(
    model: str, words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", model, *STORIES, "--out", str(tmp_path / "r"), *words.split()]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_gap_is_filled_and_nothing_else_changes(model: str, tmp_path: Path) -> None:
    (trace,) = sample(model, "--steps 3", tmp_path / "r", ("--prompt", GAP)).traces()
    before, after = GAP.split("<fill:4>")
    assert trace.prompt == before
    assert trace.text.endswith(after)
    assert (trace.reveal_step > 0).sum() == 4


def test_watching_changes_nothing(model: str, tmp_path: Path) -> None:
    plain = list(sample(model, "--steps 3", tmp_path / "a").traces())
    watched = list(sample(model, "--steps 3 --batch 1 --watch", tmp_path / "b").traces())
    for one, other in zip(plain, watched, strict=True):
        assert one.text == other.text
        assert one.reveal_step.tolist() == other.reveal_step.tolist()


@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_a_run_is_measured_in_both_modes(
    model: str, mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample(model, "--steps 3", tmp_path / "r")
    capsys.readouterr()
    assert main(["measure", str(tmp_path / "r"), "--mode", mode, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
