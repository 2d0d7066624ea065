"""sflm from the command line: flags, what is refused, filling, watching, going on, the DiT."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.trace import Run

SMALL = "--steps 2 --warmup 1 --batch 4 --threads 1 --validate-every 0 --net.width 32"
SMALL += " --net.heads 2 --net.layers 1 --net.mlp-width 24"
STORIES = ("--task", "stories", "--limit", "2")
GAP = "Ana has some peaches. How many does she have now?\ndef solve(<fill:4>):\n    return total\n"


def trained(folder: Path, words: str = "") -> str:
    assert main(["train", "tiny/sflm", *SMALL.split(), *words.split(), "--out", str(folder)]) == 0
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("sflm") / "m")


def sample(model: str, words: str, out: Path, what: tuple[str, ...] = STORIES) -> Run:
    assert main(["sample", model, *what, "--out", str(out), *words.split()]) == 0
    return Run.open(out)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {"velocity": "top1", "tail": "greedy", "steps": 16, "temperature": 1.0}),
        ("--velocity exact --steps 3", {"velocity": "exact", "steps": 3}),
        ("--velocity top_k:4 --steps 2 --eos fill", {"velocity": "top_k:4", "eos": "fill"}),
        ("--velocity sampled --tail ancestral --temperature 0.7 --steps 2", {"tail": "ancestral"}),
        ("--temperature 0 --steps 2", {"velocity": "top1", "temperature": 0.0}),
    ],
)
def test_every_flag_reaches_the_decoder(
    model: str, words: str, options: dict[str, object], tmp_path: Path
) -> None:
    run = sample(model, words, tmp_path / "run")
    found = run.card.config["options"]
    assert options.items() <= found.items()
    for trace in run.traces():
        assert (trace.family, trace.policy) == ("sflm", "flow")
        assert trace.forwards == trace.steps == found["steps"]
        assert trace.replay(trace.steps).ids(-1).tolist() == trace.token_ids.tolist()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--velocity fast", "unknown velocity 'fast'"),
        ("--policy confidence", "sflm does not use policy"),
        ("--eos last", "sflm settles all slots together"),
        ("--velocity top1 --temperature 0.5", "the same at every temperature"),
        ("--velocity exact --steps 1", "velocity has no effect on a single step"),
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
    plain = sample(model, "--steps 3", tmp_path / "a")
    watched = sample(model, "--steps 3 --batch 1 --watch", tmp_path / "b")
    assert [t.text for t in plain.traces()] == [t.text for t in watched.traces()]
    first, second = (list(run.traces()) for run in (plain, watched))
    for one, other in zip(first, second, strict=True):
        assert one.reveal_step.tolist() == other.reveal_step.tolist()


def test_more_samples_go_on_where_it_stopped(model: str, tmp_path: Path) -> None:
    sample(model, "--steps 2", tmp_path / "r", ("--task", "stories", "--limit", "1"))
    whole = sample(model, "--steps 2", tmp_path / "s")
    (one,) = Run.open(tmp_path / "r").traces()
    assert one.text == next(iter(whole.traces())).text


def test_the_dit_trains_and_samples(tmp_path: Path) -> None:
    folder = trained(tmp_path / "m", "--net.architecture dit --net.mlp-width 64")
    run = sample(folder, "--steps 2", tmp_path / "r")
    assert [trace.forwards for trace in run.traces()] == [2, 2]
