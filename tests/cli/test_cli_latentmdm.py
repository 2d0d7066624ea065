"""latentmdm and flexlatent from the command line: flags, what is refused, filling, going on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.trace import Run, Trace

SMALL = "--steps 2 --warmup 1 --batch 4 --threads 1 --validate-every 0 --net.width 16"
SMALL += " --net.heads 2 --net.layers 1 --net.encoder-layers 1 --net.decoder-layers 1"
SMALL += " --net.mlp-width 24"
PROMPT = "Ana has some peaches. She buys some plums. How many does she have now?\n"
SLOTS = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained("latentmdm", tmp_path_factory)


@pytest.fixture(scope="module")
def flex(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained("flexlatent", tmp_path_factory)


@pytest.fixture(params=["model", "flex"])
def either(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def trained(family: str, folders: pytest.TempPathFactory) -> str:
    folder = folders.mktemp(family) / "m"
    assert main(["train", f"tiny/{family}", *SMALL.split(), "--out", str(folder)]) == 0
    return str(folder)


def sample(model: str, words: str, out: Path, what: tuple[str, ...] = ()) -> Run:
    task = what or ("--task", "stories", "--limit", "2")
    assert main(["sample", model, *task, "--out", str(out), *words.split()]) == 0
    return Run.open(out)


def only(run: Run) -> Trace:
    (trace,) = run.traces()
    return trace


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {"policy": "average", "k": 1, "tail": "stop", "ties": "random", "slots": None}),
        ("--tail first --tail-threshold 0.9", {"tail": "first", "tail_threshold": 0.9}),
        ("--policy minimum --k 2 --tail keep", {"policy": "minimum", "k": 2, "tail": "keep"}),
        ("--policy first --k 4 --slots 8", {"policy": "first", "k": 4, "slots": 8}),
        ("--policy left_to_right --slots 1", {"policy": "left_to_right", "slots": 1}),
        ("--policy random --temperature 0.7 --top-k 5", {"temperature": 0.7, "top_k": 5}),
        ("--slot-temperature 0.1", {"slot_temperature": 0.1}),
        ("--mode compat --temperature 1", {"mode": "compat", "tail": "erase", "ties": "leftmost"}),
        ("--mode compat --tail keep --k 99", {"mode": "compat", "tail": "keep", "k": 99}),
    ],
)
def test_every_flag_reaches_the_decoder(
    model: str, words: str, options: dict[str, object], tmp_path: Path
) -> None:
    run = sample(model, words, tmp_path / "run")
    found = run.card.config["options"]
    assert options.items() <= found.items()
    slots = found["slots"] or SLOTS
    for trace in run.traces():
        assert trace.family == "latentmdm" and trace.segment is not None
        assert set(trace.segment.tolist()) == set(range(slots))
        assert trace.forwards == trace.steps <= -(-slots // found["k"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--k 0", 1, "k must be at least 1"),
        ("--k two", 2, "--k takes a whole number, not 'two'"),
        ("--slots 0", 1, "slots must be at least 1"),
        ("--slots 13", 1, "give at most 12, as many as the model was trained with"),
        ("--slot-temperature -1", 1, "0 or positive"),
        ("--slot-temperature nan", 1, "0 or positive"),
        ("--slot-temperature 0.1 --policy random", 1, "no effect on the policy 'random'"),
        ("--slot-temperature 0.1 --ties leftmost", 1, "there are no ties: leave ties out"),
        ("--tail end", 1, "give 'stop' or 'first' or 'keep' or 'erase'"),
        ("--tail erase", 1, "choose first, stop or keep, or mode='compat'"),
        ("--tail stop --tail-threshold 0.9", 1, "no effect on the tail 'stop'"),
        ("--tail first --tail-threshold 98", 1, "give a probability between 0 and 1"),
        (
            "--policy confidence",
            1,
            "choose one of average, minimum, first, left_to_right, right_to_left, random",
        ),
        ("--temperature -1", 1, "temperature must be 0 or positive"),
        ("--top-p 0.5", 1, "set a temperature or drop them"),
        ("--steps 4", 1, "latentmdm does not use --steps"),
        ("--max-new-tokens 9", 1, "give slots instead"),
    ],
)
def test_what_is_refused_in_one_line(
    model: str,
    words: str,
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = ["--task", "stories", "--limit", "2", "--out", str(tmp_path / "run")]
    assert main(["sample", model, *task, *words.split()]) == code
    message = capsys.readouterr().err
    assert says in message and message.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_all_proposals_are_stored_and_those_of_the_first_sample_shown(
    either: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--candidates --slots 3" + (" --steps 4 --seed 1" if "flex" in either else "")
    run = sample(either, words, tmp_path / "run")
    shown = capsys.readouterr().out
    traces = list(run.traces())
    assert ("\nstep " in shown) == bool(traces[0].candidates)
    for trace in traces:
        assert trace.score is not None and trace.segment is not None
        assert bool(trace.candidates) == bool(len(trace.segment))
        if trace.candidates is None:
            continue
        taken = {each.segment: each for each in trace.candidates if each.taken}
        for token, segment, score in zip(
            trace.token_ids.tolist(), trace.segment.tolist(), trace.score.tolist(), strict=True
        ):
            chosen = taken.get(segment)
            if chosen is not None:
                assert score == pytest.approx(chosen.score, abs=1e-5)
                assert token in chosen.token_ids or not chosen.token_ids
    assert main(["reproduce", str(tmp_path / "run")]) == 0
    assert "2 of 2 samples are identical" in capsys.readouterr().out


def test_a_text_of_no_segments_has_no_proposals_to_show(
    flex: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for seed in range(10):  # whether anything is inserted is a matter of chance
        words = f"--candidates --steps 1 --seed {seed}"
        trace = only(sample(flex, words, tmp_path / str(seed), ("--prompt", PROMPT)))
        assert ("\nstep " in capsys.readouterr().out) == bool(trace.text) == bool(trace.candidates)
        texts.append(trace.text)
        if not trace.text:
            break
    assert "" in texts


def test_candidates_are_not_printed_into_json(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    sample(model, "--candidates --slots 2 --json", tmp_path / "run")
    assert json.loads(capsys.readouterr().out)["samples"] == 2


def test_whole_lines_are_filled_and_the_others_stay(either: str, tmp_path: Path) -> None:
    gap = "<fill>" if "flex" in either else "<fill:2>"
    text = f"{PROMPT}<answer>def solve(peaches, plums):\n{gap}\n    return total\n"
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    words = "--steps 4 --slots 4" if "flex" in either else ""
    trace = only(sample(either, words, tmp_path / "run", ("--fill", str(file))))
    assert trace.prompt == f"{PROMPT}def solve(peaches, plums):\n"
    assert trace.text.endswith("    return total\n")
    assert trace.segment is not None
    # The header is segment 0; two gaps are 1 and 2, and at most two lines were inserted.
    assert set(trace.segment.tolist()) <= {1, 2, 3}
    assert not trace.reveal_step[trace.segment == trace.segment.max()].any() or "flex" in either


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def solve(peaches):\n    total = <fill>\n    return total\n", "is inside the line"),
        ("<answer><fill:13>", "needs 13 segments, and there are 12 slots"),
        ("<answer><fill>\n    return total\n<fill>", "number the others"),
    ],
)
def test_gaps_that_cannot_be(
    model: str, text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", model, "--prompt", text, "--out", str(tmp_path / "run")]) == 1
    message = capsys.readouterr().err
    assert says in message and message.count("\n") == 1


def test_an_empty_prompt(either: str, tmp_path: Path) -> None:
    words = "--steps 4" if "flex" in either else "--k 4"
    assert only(sample(either, words, tmp_path / "run", ("--prompt", ""))).prompt == ""


def test_sampling_goes_on_where_it_stopped(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--batch 1 --temperature 1 --k 4"
    whole = sample(model, words, tmp_path / "whole")
    append, calls = Run.append, iter([True, False])

    def append_once(run: Run, *given: object) -> None:
        if not next(calls):
            raise KeyboardInterrupt
        append(run, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append", append_once)
        task = ["--task", "stories", "--limit", "2", "--out", str(tmp_path / "parts")]
        assert main(["sample", model, *task, *words.split()]) == 130
    parts = sample(model, words, tmp_path / "parts")
    assert "1 of 2 samples exist already" in capsys.readouterr().err
    for one, other in zip(whole.traces(), parts.traces(), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.reveal_step.tolist() == other.reveal_step.tolist()


def test_flexlatent_refuses_what_is_latentmdms(
    flex: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ("--k 2", "--tail stop", "--slot-temperature 0.1", "--mode compat"):
        capsys.readouterr()
        task = ["--task", "stories", "--limit", "1", "--out", str(tmp_path / "run")]
        assert main(["sample", flex, *task, *words.split()]) == 1
        assert "flexlatent does not use" in capsys.readouterr().err


def test_segments_and_scores_can_be_imported(tmp_path: Path) -> None:
    record = {
        "task_id": "a",
        "sample": 0,
        "prompt": "p\n",
        "tokens": ["x = 1\n", "y", " = 2\n"],
        "insert_step": [0, 0, 0],
        "reveal_step": [2, 1, 1],
        "segment": [0, 1, 1],
        "score": [-0.5, -0.25, -0.25],
        "candidates": [{"step": 1, "segment": 1, "text": "y = 2\n", "score": -0.25, "taken": True}],
    }
    (tmp_path / "theirs.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert main(["import", str(tmp_path / "theirs.jsonl"), "--out", str(tmp_path / "run")]) == 0
    trace = only(Run.open(tmp_path / "run"))
    assert trace.segment is not None and trace.score is not None and trace.candidates is not None
    assert trace.segment.tolist() == [0, 1, 1] and trace.score.tolist() == [-0.5, -0.25, -0.25]
    assert [each.piece for each in trace.candidates] == ["y = 2\n"]
