"""Training on trails from a recipe's fields, and the task that follows from the model's card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anyorder
from anyorder.apps.corpus import open_corpus
from anyorder.apps.jobs import SampleJob
from anyorder.apps.sample import sample_to_run
from anyorder.bench.tasks import find_task
from anyorder.data.corpora.trails import TrailsConfig, TrailsDials, problem, sizes, trails_vocab
from anyorder.data.segments import SegmentConfig
from anyorder.recipes import DataConfig

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


@pytest.mark.parametrize("family", ["ar", "mdm", "latentmdm", "flexmdm", "duo", "sflm"])
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
