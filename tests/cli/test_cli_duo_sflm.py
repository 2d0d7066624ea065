"""duo and sflm from the command line: flags, what is refused, filling, watching, going on, the DiT.

Both change all slots of a canvas at once and take no policy, so the same is asked of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.trace import Run

SMALL = "--steps 2 --warmup 1 --batch 4 --threads 1 --validate-every 0 --net.width 32"
SMALL += " --net.heads 2 --net.layers 1 --net.mlp-width 24"
STORIES = ("--task", "stories", "--limit", "2")
GAP = "Ana has some peaches. How many does she have now?\ndef solve(<fill:4>):\n    return total\n"
POLICY = {"duo": "ancestral", "sflm": "flow"}
FAMILIES = pytest.mark.parametrize("family", POLICY)


def trained(family: str, folder: Path, words: str = "") -> str:
    words = f"train tiny/{family} {SMALL} {words} --out {folder}"
    assert main(words.split()) == 0
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """`model(family)`: a barely trained one, made once."""
    return cache(lambda family: trained(family, tmp_path_factory.mktemp(family) / "m"))


def sample(model: str, words: str, out: Path, what: tuple[str, ...] = STORIES) -> Run:
    assert main(["sample", model, *what, "--out", str(out), *words.split()]) == 0
    return Run.open(out)


@pytest.mark.parametrize(
    ("family", "words", "options"),
    [
        ("duo", "--steps 3", {"steps": 3, "tail": "ancestral", "temperature": 1.0, "eos": "plain"}),
        ("duo", "--steps 2 --tail greedy --temperature 0.7", {"tail": "greedy"}),
        ("duo", "--steps 2 --top-p 0.9 --top-k 5 --eos fill", {"top_p": 0.9, "top_k": 5}),
        ("duo", "--steps 1 --tail greedy", {"steps": 1, "tail": "greedy"}),
        ("duo", "--steps 2 --temperature 0", {"temperature": 0.0}),
        ("sflm", "", {"velocity": "top1", "tail": "greedy", "steps": 16, "temperature": 1.0}),
        ("sflm", "--velocity exact --steps 3", {"velocity": "exact", "steps": 3}),
        ("sflm", "--velocity top_k:4 --steps 2 --eos fill", {"velocity": "top_k:4", "eos": "fill"}),
        (
            "sflm",
            "--velocity sampled --tail ancestral --temperature 0.7 --steps 2",
            {"tail": "ancestral", "temperature": 0.7},
        ),
        ("sflm", "--temperature 0 --steps 2", {"velocity": "top1", "temperature": 0.0}),
    ],
)
def test_every_flag_reaches_the_decoder(
    model: Callable[[str], str],
    family: str,
    words: str,
    options: dict[str, object],
    tmp_path: Path,
) -> None:
    run = sample(model(family), words, tmp_path / "run")
    found = run.card.config["options"]
    assert options.items() <= found.items()
    for trace in run.traces():
        assert (trace.family, trace.policy) == (family, POLICY[family])
        assert trace.forwards == trace.steps == found["steps"]
        assert trace.replay(trace.steps).ids(-1).tolist() == trace.token_ids.tolist()


@pytest.mark.parametrize(
    ("family", "words", "says"),
    [
        ("duo", "--policy confidence", "duo does not use --policy"),
        ("duo", "--eos last", "duo ranks nothing"),
        ("duo", "--steps 1 --tail greedy --top-p 0.9", "no effect on a single greedy step"),
        ("duo", "--temperature 0 --top-k 3", "change nothing"),
        ("duo", "--tail stop", "tail='stop' does not fit"),
        ("sflm", "--velocity fast", "unknown velocity 'fast'"),
        ("sflm", "--policy confidence", "sflm does not use --policy"),
        ("sflm", "--eos last", "sflm settles all slots together"),
        ("sflm", "--velocity top1 --temperature 0.5", "the same at every temperature"),
        ("sflm", "--velocity exact --steps 1", "velocity has no effect on a single step"),
    ],
)
def test_what_is_refused(
    model: Callable[[str], str],
    family: str,
    words: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["sample", model(family), *STORIES, "--out", str(tmp_path / "r"), *words.split()]
    assert main(command) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


@FAMILIES
def test_a_gap_is_filled_and_nothing_else_changes(
    model: Callable[[str], str], family: str, tmp_path: Path
) -> None:
    (trace,) = sample(model(family), "--steps 3", tmp_path / "r", ("--prompt", GAP)).traces()
    before, after = GAP.split("<fill:4>")
    assert trace.prompt == before
    assert trace.text.endswith(after)
    assert (trace.reveal_step > 0).sum() == 4


@FAMILIES
def test_watching_changes_nothing(model: Callable[[str], str], family: str, tmp_path: Path) -> None:
    plain = sample(model(family), "--steps 3", tmp_path / "a").traces()
    watched = sample(model(family), "--steps 3 --batch 1 --watch", tmp_path / "b").traces()
    for one, other in zip(plain, watched, strict=True):
        assert one.text == other.text
        assert one.reveal_step.tolist() == other.reveal_step.tolist()


@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_a_run_is_measured_in_both_modes(
    model: Callable[[str], str], mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample(model("duo"), "--steps 3", tmp_path / "r")
    capsys.readouterr()
    assert main(["measure", str(tmp_path / "r"), "--mode", mode, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_more_samples_go_on_where_it_stopped(model: Callable[[str], str], tmp_path: Path) -> None:
    sample(model("sflm"), "--steps 2", tmp_path / "r", ("--task", "stories", "--limit", "1"))
    whole = sample(model("sflm"), "--steps 2", tmp_path / "s")
    (one,) = Run.open(tmp_path / "r").traces()
    assert one.text == next(iter(whole.traces())).text


def test_the_dit_trains_and_samples(tmp_path: Path) -> None:
    folder = trained("sflm", tmp_path / "m", "--net.architecture dit --net.mlp-width 64")
    run = sample(folder, "--steps 2", tmp_path / "r")
    assert [trace.forwards for trace in run.traces()] == [2, 2]
