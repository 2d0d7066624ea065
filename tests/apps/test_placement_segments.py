"""Placement of runs of segments: every drawn token is found again, at every step, from the run."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anyorder.apps.jobs import SampleJob
from anyorder.apps.placement import placement
from anyorder.apps.sample import sample_to_run
from anyorder.apps.show import segment_frames
from anyorder.cli import main
from anyorder.families.flexlatent.config import FlexLatentConfig
from anyorder.families.latentmdm.config import LatentConfig
from anyorder.model import Card, Model, build, load
from anyorder.nets.shapes import TransformerConfig
from anyorder.trace import Run, RunCard
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "=", "1", " ", "\n"])
LATENT = LatentConfig(
    TransformerConfig(
        vocab_size=VOCAB.size, width=16, layers=2, heads=2, kv_heads=2, head_width=8, mlp_width=32
    ),
    encoder_layers=1,
    decoder_layers=1,
    slots=5,
    segment_length=6,
)
FLEX = FlexLatentConfig(
    replace(LATENT, backbone=replace(LATENT.backbone, time_modulated=True), empty="none")
)


def saved(folder: Path, family: str, config: Any) -> Path:
    """A model with weights that are not all alike."""
    model = build(Card(family, asdict(config), 30, 64, {}), VOCAB, name=family, seed=2)
    with torch.no_grad():
        for number, parameter in enumerate(model.net.parameters()):
            noise = torch.Generator().manual_seed(number)
            scale = 1.2 / parameter.shape[-1] ** 0.5
            parameter.add_(scale * torch.randn(parameter.shape, generator=noise))
        if family == "flexlatent":
            model.net.gap.outer.bias.fill_(1.0)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "latentmdm": saved(root / "latent", "latentmdm", LATENT),
        "flexlatent": saved(root / "flex", "flexlatent", FLEX),
    }


def sampled(model: Path, folder: Path, text: str, samples: int = 4, **options: Any) -> Run:
    job = SampleJob(str(model), samples=samples, prompt=text, out=folder)
    return sample_to_run(job, options, command="test", progress=False)


FILL = "a b\n<answer>a=1\n<fill>b=1\n<fill:1>\n"
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("latentmdm", "a b\n", {"temperature": 1.0}),
    ("latentmdm", "a b\n", {"policy": "random", "k": 2, "slots": 3, "candidates": True}),
    ("latentmdm", FILL, {"temperature": 1.0, "tail": "keep"}),
    ("flexlatent", "a b\n", {"temperature": 1.0, "steps": 9}),
    ("flexlatent", "a b\n", {"temperature": 1.0, "clock": "events"}),
    ("flexlatent", FILL.replace(":1", ""), {"temperature": 1.0, "clock": "events"}),
    ("flexlatent", FILL.replace(":1", ""), {"policy": "left_to_right", "steps": 9}),
]


@pytest.mark.parametrize(("family", "text", "options"), CASES)
def test_runs_of_anyorder_sample(
    family: str, text: str, options: dict[str, Any], folders: dict[str, Path], tmp_path: Path
) -> None:
    """All that is needed is in the run: what was asked for, the noise, the schedules."""
    run = sampled(folders[family], tmp_path / "run", text, **options)
    traces = list(run.traces())
    table = placement(run, folders[family], region="all", progress=False)
    record = table.to_record()
    drawn = sum(int((~np.isnan(trace.log_prob)).sum()) for trace in traces)  # type: ignore[arg-type]
    assert record["agreement"]["compared"] == drawn > 5
    assert record["agreement"]["largest_log_prob_difference"] < 1e-4
    assert table.about["stride"] == 1
    assert [row["step"] for row in table.rows()] == [
        step for trace in traces for step in range(trace.steps or 0)
    ]
    for row in table.rows():
        assert bool(row["open"]) == bool(row["masked"])
        assert row["masked"] <= 6 * row["open"]
        assert row["mass"][:1].sum() <= row["masked"]
        assert len(row["committed_position"]) == len(set(row["committed_position"].tolist()))


@pytest.mark.parametrize("family", ["latentmdm", "flexlatent"])
def test_a_sampled_trace_holds_what_the_generation_figure_needs(
    family: str, folders: dict[str, Path]
) -> None:
    model = load(folders[family])
    for trace in model.sample("a b\n", samples=4, candidates=True, temperature=1.0):
        assert trace.segment is not None and trace.score is not None
        taken = [each for each in trace.candidates or () if each.taken]
        texts: dict[int, str] = {}
        for segment, piece in zip(trace.segment.tolist(), trace.pieces, strict=True):
            texts[segment] = texts.get(segment, "") + piece
        reveal = dict(zip(trace.segment.tolist(), trace.timing()[1].tolist(), strict=True))
        score = dict(zip(trace.segment.tolist(), trace.score.tolist(), strict=True))
        assert taken
        for each in taken:
            assert (reveal[each.segment], texts[each.segment]) == (each.step, each.piece)
            assert score[each.segment] == pytest.approx(each.score)
        lines = [line.plain for _, rows in segment_frames(trace) for line in rows]
        assert sum(line.startswith(">") for line in lines) == len(taken)


def test_the_code_is_the_segments_that_end_up_in_it(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    model = load(folders["latentmdm"])
    run = sampled(folders["latentmdm"], tmp_path / "run", "a b\n", temperature=1.0, tail="keep")
    code, everything = (
        list(placement(run, model, region=region, progress=False).rows())
        for region in ("code", "all")
    )
    traces = {trace.sample: trace for trace in run.traces()}
    fewer = 0
    for inside, whole in zip(code, everything, strict=True):
        trace = traces[inside["sample"]]
        assert trace.segment is not None and trace.token_ids is not None
        content = set(trace.segment[trace.token_ids != VOCAB.eos_id].tolist())
        committed = {int(at) // 6 for at in inside["committed_position"]}
        assert committed <= content
        assert inside["open"] == whole["open"]
        fewer += inside["masked"] < whole["masked"]
        reveal = dict(zip(trace.segment.tolist(), trace.timing()[1].tolist(), strict=True))
        waiting = [each for each in content if reveal[each] > inside["step"]]
        assert bool(waiting) == bool(inside["masked"])
    assert fewer  # the empty segments' candidates
    spans = placement(run, model, progress=False).to_record()["spans"]
    assert spans == {"text": 4}


def test_a_program_that_is_part_of_the_text(folders: dict[str, Path], tmp_path: Path) -> None:
    """Only the lines of the program are looked at, each as a whole."""
    model = load(folders["latentmdm"])
    run = sampled(folders["latentmdm"], tmp_path / "run", "a b\n", 6, temperature=1.0, tail="keep")
    traces = []
    for trace in run.traces():
        assert trace.segment is not None
        middle = np.flatnonzero(trace.segment == trace.segment[len(trace.segment) // 2])
        text = "".join(trace.pieces[at] for at in middle.tolist()[:1])
        traces.append(replace(trace, program=text if text.strip() else None))
    kept = Run.create(tmp_path / "kept", replace(run.card, status="running", parts=(), files={}))
    kept.append(0, traces)
    kept.finish()
    table = placement(kept, model, progress=False)
    spans = table.to_record()["spans"]
    assert spans["exact"]
    for row in table.rows():
        if row["span"] == "none":
            assert not row["masked"]
        else:
            assert len({int(at) // 6 for at in row["committed_position"]}) <= 1


def test_imported_runs_need_a_canvas_only_for_segments_frozen_in_front(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    model = load(folders["latentmdm"])
    for name, text in (("plain", "a b\n"), ("frozen", FILL)):
        ours = sampled(folders["latentmdm"], tmp_path / name, text, temperature=1.0)
        theirs = Run.create(tmp_path / f"their-{name}", RunCard("import", {"import": "x"}))
        theirs.append(0, list(ours.traces()))
        theirs.finish()
        if name == "plain":
            found = placement(theirs, model, any_model=True, progress=False)
            assert found.table().equals(placement(ours, model, progress=False).table())
        else:
            with pytest.raises(ValueError, match="begins with segment 1, so some were given"):
                placement(theirs, model, any_model=True, progress=False)


def test_the_command(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sampled(folders["latentmdm"], tmp_path / "run", "a b\n", temperature=1.0)
    command = ["measure", str(run.folder), "--placement", str(folders["latentmdm"])]
    assert main([*command, "--only", "placement", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"].values()
    assert found["placement"]["about"]["stride"] == 1
    assert found["placement"]["agreement"]["largest_log_prob_difference"] < 1e-4
    assert main([*command, "--only", "placement"]) == 0
    assert "top_k_loc" in capsys.readouterr().out


def test_another_model_shows_in_the_agreement(folders: dict[str, Path], tmp_path: Path) -> None:
    run = sampled(folders["latentmdm"], tmp_path / "run", "a b\n", temperature=1.0)
    fresh = build(Card("latentmdm", asdict(LATENT), 30, 64, {}), VOCAB, name="fresh", seed=7)
    assert isinstance(fresh, Model)
    fresh.net.eval()
    record = placement(run, fresh, any_model=True, progress=False).to_record()
    assert record["agreement"]["largest_log_prob_difference"] > 0.1
