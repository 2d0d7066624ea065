"""Training on trails from a recipe's fields, and the task that follows from the model's card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyorder
from anyorder import Run, Trace
from anyorder.apps.corpus import open_corpus
from anyorder.apps.jobs import SampleJob
from anyorder.apps.sample import sample_to_run
from anyorder.bench.tasks import find_task
from anyorder.cli import main
from anyorder.data.corpora.trails import TrailsConfig, TrailsDials, problem, sizes, trails_vocab
from anyorder.data.segments import SegmentConfig
from anyorder.recipes import DataConfig
from anyorder.trace import RunCard

TRAILS = {"source": "trails", "vocab": "trails"}
SEGMENTS = SegmentConfig(slots=6, segment_length=8)


def test_the_data_is_the_corpus_and_its_held_out_split() -> None:
    corpus = open_corpus(DataConfig(**TRAILS, seed=5), trails=TrailsDials(layout=1.0))
    assert corpus.vocab.digest() == trails_vocab().digest()
    for source, split in ((corpus.train, "train"), (corpus.validation, "heldout")):
        found = problem(TrailsConfig(layout=1.0, seed=5, split=split), 3)
        assert source[3] == (found.prompt, found.program)
    other = open_corpus(DataConfig(**TRAILS, seed=5), trails=TrailsDials())
    assert corpus.digest != other.digest


WRONG: list[tuple[dict[str, Any], TrailsDials | None, SegmentConfig | None, str]] = [
    ({"canvas": 33}, None, None, "data.canvas=33: these trails need at least 34"),
    ({"max_length": 60}, None, None, "data.max_length=60"),
    ({}, None, SegmentConfig(slots=5, segment_length=8), "segments.slots=5"),
    ({}, None, SegmentConfig(slots=6, segment_length=6), "segments.segment_length=6"),
    ({}, None, SegmentConfig(by="fixed", slots=9, segment_length=8), "give line"),
    ({"layout": 1.0}, None, None, "data.layout has no effect"),
    ({"documents": "line"}, None, None, "data.documents has no effect"),
    ({"source": "missing.txt"}, TrailsDials(arms=3), None, "trails has no effect"),
]


@pytest.mark.parametrize(("fields", "dials", "segments", "named"), WRONG)
def test_what_does_not_fit_is_refused(
    fields: dict[str, Any], dials: TrailsDials | None, segments: SegmentConfig | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        open_corpus(DataConfig(**TRAILS | fields), segments=segments, trails=dials)


def test_lines_fit_into_their_segments() -> None:
    largest = sizes(TrailsConfig())
    assert (largest.lines, largest.line) == (6, 7)
    assert open_corpus(DataConfig(**TRAILS), segments=SEGMENTS)


@pytest.mark.parametrize("family", ["ar", "mdm", "latentmdm", "flexmdm", "duo", "sflm", "block"])
def test_a_model_of_a_mixture_is_asked_about_each_condition(tmp_path: Path, family: str) -> None:
    own = {"segments.slots": 6, "segments.segment_length": 12} if family == "latentmdm" else {}
    model = anyorder.train(
        f"tiny/{family}",
        out=tmp_path / "model",
        progress=False,
        steps=2,
        warmup=1,
        batch=4,
        optimiser="muon",
        validate_batches=1,
        **{"net.prompt": "sentences", "net.layers": 1, "data.source": "trails"},
        **{"data.vocab": "trails", "trails.layout": 1.0, "trails.mixture": True, **own},
    )
    again = anyorder.load(tmp_path / "model")
    task = find_task("trails:strict", again.trained_on)
    assert task.problems(1)[0].prompt.startswith("Strict. ")
    assert find_task("trails", again.trained_on).problems(1)[0].prompt.startswith("Free. ")
    prompt = task.problems(1)[0].prompt
    assert model.sample(prompt)[0].token_ids.tolist() == again.sample(prompt)[0].token_ids.tolist()
    folder = tmp_path / "run"
    job = SampleJob(model=str(tmp_path / "model"), task="trails:stated", limit=1, out=folder)
    run = sample_to_run(job, {}, command="anyorder sample", progress=False)
    assert run.card.config["trained_on"]["trails"]["mixture"] is True
    assert next(iter(run.traces())).prompt.startswith("Stated. ")
    asked = problem(TrailsConfig(split="heldout", layout=1.0, state_layout=True), 0).core
    assert Run.open(folder).card.facts == {
        "trails:stated/0": {
            "anchor": asked.anchor,
            "anchor_name": asked.chains[0][asked.place],
            "language": "python",
        }
    }


def trailed(folder: Path, task: str, outwards: bool) -> Run:
    """A run of right programs, each line written at once: outwards from the anchor, or inwards."""
    problems = find_task(task, {}).problems(9)
    card = RunCard(
        "test",
        {"task": task, "limit": 9},
        facts={each.task_id: dict(each.facts) for each in problems},
    )
    traces = []
    for asked in problems:
        assert asked.solution is not None
        lines = asked.solution.splitlines(keepends=True)
        name = str(asked.facts["anchor_name"])
        named = [number for number, line in enumerate(lines) if name in re.findall(r"\w+", line)]
        far = [min(abs(place - number) for number in named) for place in range(len(lines))]
        steps = [1 + (each if outwards else max(far) - each) for each in far]
        traces.append(
            Trace(
                task_id=asked.task_id,
                sample=0,
                prompt=asked.prompt,
                text=asked.solution,
                entry_point="solve",
                char_end=np.cumsum([len(line) for line in lines]),
                insert_step=[0] * len(lines),
                reveal_step=steps,
                steps=max(steps),
                seconds=0.1,
            )
        )
    run = Run.create(folder, card)
    run.append(0, traces)
    run.finish()
    return run


@pytest.mark.parametrize("outwards", [True, False])
def test_measure_and_grade_tell_anchors_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outwards: bool
) -> None:
    folder = trailed(tmp_path / "run", "trails", outwards).folder
    assert main(["measure", str(folder), "--only", "order"]) == 0
    assert "By anchor: run" in capsys.readouterr().out
    sign = 1 if outwards else -1
    found = Run.open(folder).measures()["order"]["exact"]["anchors"]["line"]
    assert list(found) == ["start", "middle", "goal", "all"]
    assert all(cell["outwards"]["tau"]["estimate"] == sign for cell in found.values())
    assert found["start"]["order"]["tau"]["estimate"] == sign
    assert (found["goal"]["order"]["tau"]["estimate"] < 0) == outwards
    counts = {name: cell["order"]["samples"] for name, cell in found.items()}
    weak = ["--allow-weak-isolation"]
    assert main(["grade", str(folder), "--json", *weak]) == 0
    graded = json.loads(capsys.readouterr().out)
    assert {name: rates[0]["tasks"] for name, rates in graded["anchors"].items()} == {
        name: count for name, count in counts.items() if name != "all"
    }
    assert all(rates[0]["estimate"] == 1 for rates in graded["anchors"].values())
    assert main(["grade", str(folder), *weak]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"function goal {counts['goal']} pass@1 100.0 %" in shown


def test_a_run_of_an_older_version_has_no_anchors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trailed(tmp_path / "run", "trails", True).folder
    card = json.loads((folder / "run.json").read_text())
    del card["facts"]
    (folder / "run.json").write_text(json.dumps(card))
    assert main(["measure", str(folder), "--only", "order"]) == 0
    assert "anchor" not in capsys.readouterr().out.lower()
    assert "anchors" not in Run.open(folder).measures()["order"]["exact"]
