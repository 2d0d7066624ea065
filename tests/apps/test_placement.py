"""Placement of run folders: the right numbers, for the right model, resumed when killed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import anyorder
from anyorder.apps import placement as app
from anyorder.apps.imports import import_traces
from anyorder.apps.jobs import SampleJob
from anyorder.apps.placement import placement
from anyorder.apps.sample import sample_to_run
from anyorder.families.family import find_family
from anyorder.families.flexmdm.config import FlexConfig
from anyorder.measure.placement_table import PlacementTable
from anyorder.model import Card, Model, Request, build
from anyorder.nets.denoiser import Look
from anyorder.nets.shapes import TransformerConfig
from anyorder.trace import Run, RunCard, Trace
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c", " "])
SHAPE = TransformerConfig(
    vocab_size=VOCAB.size, width=16, layers=1, heads=2, kv_heads=2, head_width=8, mlp_width=32
)
FLEX = FlexConfig(TransformerConfig(**asdict(SHAPE) | {"time_modulated": True}))
PROMPTS = ["a b", "c", "b b a"]


def logits_of(place: Any, time: Any, seen: Any, maths: Any) -> Any:
    """Hand-set beliefs: (...) -> (..., V), by numpy or by torch."""
    tokens = maths.arange(VOCAB.size)
    sure = (place[..., None] % 4 == tokens) * 2
    return sure + maths.sin(tokens * (1 + place[..., None]) + seen[..., None] + 3 * time)


class Mask:
    """An mdm network that believes `logits_of`; `seen` is how many tokens are revealed."""

    def __init__(self) -> None:
        self.rows = 0

    def hidden(self, ids: Tensor, *, mask: Tensor | None = None, **_: Any) -> Tensor:
        assert mask is not None
        self.rows += len(ids)
        seen = ((ids != VOCAB.mask_id) & mask).sum(dim=1, keepdim=True).expand(ids.shape)
        return torch.stack([torch.arange(ids.shape[1]).expand(ids.shape), seen], dim=-1).double()

    def head(self, states: Tensor) -> Tensor:
        return logits_of(states[..., 0], 0.0, states[..., 1], torch)


class Flex(Mask):
    """A flexmdm network: the same, and about five tokens are missing at first."""

    coordinate, insertion_exponent, unmasking_exponent = "progress", 1.7, 2.89

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        assert mask is not None
        states = self.hidden(ids, mask=mask)
        told = time.double()[:, None, None].expand(*ids.shape, 1)
        left = 5 * (1 - time)[:, None] / mask.sum(dim=1, keepdim=True)
        return Look(torch.cat([states, told], dim=-1), left.expand(ids.shape).log())

    def head(self, states: Tensor) -> Tensor:
        return logits_of(states[..., 0], states[..., 2:], states[..., 1], torch)


def mock(family: str, digest: str = "a" * 64) -> Model:
    net, config = {"mdm": (Mask(), SHAPE), "flexmdm": (Flex(), FLEX)}[family]
    card = Card(family, asdict(config), 10, 40, {})
    return Model(find_family(family), net, VOCAB, card, name="mock", digest=digest)


def sampled(model: Model, folder: Path, samples: int = 2, **options: Any) -> Run:
    """A run folder as `anyorder sample --task` writes it."""
    chosen = model.choose(options, PROMPTS)
    sizes = model.sizes(None, None, chosen)
    requests = [
        Request(f"t/{n}", sample, text, model.canvas(text, sizes), noise=f"t/{n}")
        for n, text in enumerate(PROMPTS)
        for sample in range(samples)
    ]
    config = {
        "task": "toy",
        "family": model.family.name,
        "options": asdict(chosen),
        "max_new_tokens": sizes.new_tokens,
        "max_length": sizes.length,
        "only_length_told": sizes.only_length_told,
    }
    card = RunCard(
        "test", config, model_digest=model.digest, vocab_digest=model.vocab.digest(), seeds=(5,)
    )
    run = Run.create(folder, card)
    run.append(0, list(model.decode(requests, chosen, 5)))
    run.finish()
    return run


def posterior(
    model: Model, trace: Trace, row: dict[str, Any], block: int | None = None
) -> NDArray[np.float64]:
    """The whole posterior of a canvas, from the trace and the formula alone.  # N V

    block: of the first block of so many slots that has an open one.
    """
    insert, reveal = trace.timing()
    assert trace.prompt_ids is not None and trace.token_ids is not None
    there = np.flatnonzero(insert <= row["step"])
    ended = np.flatnonzero(trace.token_ids == VOCAB.eos_id)
    code = ended[0] if len(ended) else len(trace.token_ids)
    masked = [n for n, slot in enumerate(there) if reveal[slot] > row["step"]]
    if block is not None:
        masked = [n for n in masked if n // block == masked[0] // block]
    masked = [n for n in masked if there[n] < code]
    places = len(trace.prompt_ids) + np.asarray(masked, dtype=float)
    shown = len(trace.prompt_ids) + int((reveal[there] <= row["step"]).sum())
    time = 0.0 if row["time"] is None else row["time"]
    table = np.exp(logits_of(places, time, np.full(len(places), float(shown)), np))
    special = [VOCAB.mask_id, VOCAB.pad_id, VOCAB.eos_id, VOCAB.bos_id]
    table[:, special if model.family.name == "flexmdm" else [VOCAB.mask_id]] = 0
    return np.asarray(table / table.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("mdm", {"temperature": 1.0}),
        ("mdm", {"temperature": 1.0, "policy": "entropy", "steps": 5, "eos": "last"}),
        ("mdm", {"temperature": 1.0, "policy": "random", "block": 4}),
        ("flexmdm", {"temperature": 1.0, "steps": 12}),
        ("flexmdm", {"temperature": 1.0, "clock": "events"}),
    ],
)
def test_a_run_equals_a_direct_computation(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model = mock(family)
    run = sampled(model, tmp_path / "run", samples=4, **options)
    table = placement(run, model, stride=2, progress=False)
    traces = {(trace.task_id, trace.sample): trace for trace in run.traces()}
    points = 0
    for row in table.rows():
        trace = traces[row["task_id"], row["sample"]]
        full = posterior(model, trace, row, options.get("block"))
        assert row["masked"] == len(full)
        for column, token in enumerate(row["token_ids"]):
            f = full[:, token]
            shares, mass = f[f > 0] / f.sum(), f.sum()
            k = max(1, math.floor(mass + 0.5))
            assert row["mass"][column] == pytest.approx(mass, abs=1e-6)
            assert row["loc"][column] == pytest.approx(shares.max(), abs=1e-6)
            assert row["k_loc"][column] == pytest.approx(np.sort(shares)[-k:].sum(), abs=1e-6)
            entropy = math.log(mass) - (f[f > 0] * np.log(f[f > 0])).sum() / mass
            assert row["entropy"][column] == pytest.approx(entropy, abs=1e-6)
            points += 1
        if len(full):
            best = np.sort(full.sum(axis=0))[::-1][:2]
            assert row["mass"][:2] == pytest.approx(best, abs=1e-6)
    assert points > 25
    record = table.to_record()
    assert record["agreement"]["compared"] > 5
    assert record["agreement"]["largest_log_prob_difference"] < 1e-5
    assert record["spans"] == {"text": 12}


def test_blocks_have_their_floor_and_their_open_slots(tmp_path: Path) -> None:
    model = mock("mdm")
    run = sampled(model, tmp_path / "run", temperature=1.0, block=4)
    table = placement(run, model, stride=1, region="all", progress=False)
    assert table.about["block_slots"] == 4
    rows = list(table.rows())
    # Ten slots, one a step: blocks of 4, 4 and 2.
    assert [row["open"] for row in rows[:10]] == [4, 3, 2, 1, 4, 3, 2, 1, 2, 1]
    assert all(row["masked"] == row["open"] for row in rows)
    assert all((row["loc"] >= 1 / row["masked"] - 1e-9).all() for row in rows)
    *steps, overall = table.summary()
    for step, found in enumerate(steps):
        even = 1 / rows[step]["masked"]
        above = found.values["top_loc_above_even"].estimate
        if even == 1:
            assert math.isnan(above)
        else:
            loc = found.values["top_loc"].estimate
            assert above == pytest.approx((loc - even) / (1 - even))
    assert overall.values["open"].estimate == pytest.approx(2.3)
    for options in ({}, {"block": 10}):
        other = sampled(model, tmp_path / f"run{len(options)}", temperature=1.0, **options)
        plain = placement(other, model, progress=False)
        assert "block_slots" not in plain.about and "open" not in plain.summary()[-1].values


def test_strides_steps_and_samples(tmp_path: Path) -> None:
    model = mock("mdm")
    run = sampled(model, tmp_path / "run", temperature=1.0)
    for stride, expected in ((16, [0]), (4, [0, 4, 8]), (3, [0, 3, 6, 9])):
        rows = list(placement(run, model, stride=stride, progress=False).rows())
        assert [row["step"] for row in rows] == expected * 6
        assert {row["steps"] for row in rows} == {10}
        keys = [(row["task_id"], row["sample"]) for row in rows]
        assert keys == [(f"t/{n}", s) for n in range(3) for s in range(2) for _ in expected]


def test_the_region(tmp_path: Path) -> None:
    model = mock("mdm")
    run = sampled(model, tmp_path / "run", temperature=1.0)
    code, everything = (
        list(placement(run, model, stride=5, region=region, progress=False).rows())
        for region in ("code", "all")
    )
    assert all(row["masked"] == row["open"] for row in everything)
    assert all(row["masked"] <= row["open"] for row in code)
    assert sum(row["masked"] for row in code) < sum(row["masked"] for row in everything)


def test_batched_equals_alone(tmp_path: Path) -> None:
    model = mock("flexmdm")
    run = sampled(model, tmp_path / "run", temperature=1.0, steps=12)
    wide = list(placement(run, model, stride=2, batch=32, progress=False).rows())
    (run.folder / app.PLACEMENT_FILE).unlink()
    narrow = list(placement(run, model, stride=2, batch=1, progress=False).rows())
    for left, right in zip(wide, narrow, strict=True):
        assert left["token_ids"].tolist() == right["token_ids"].tolist()
        for name in ("mass", "loc", "k_loc", "entropy", "committed_localisation"):
            assert left[name] == pytest.approx(right[name], abs=1e-9)


def test_measured_once_and_anew_for_other_settings(tmp_path: Path) -> None:
    model = mock("mdm")
    run = sampled(model, tmp_path / "run")
    first = placement(run.folder, model, stride=4, progress=False)
    calls = model.net.rows
    again = placement(run.folder, model, stride=4, batch=3, progress=False)
    assert model.net.rows == calls and again.to_record() == first.to_record()
    other = placement(run.folder, model, stride=5, progress=False)
    assert model.net.rows > calls and other.about["stride"] == 5
    left = {path.name for path in run.folder.iterdir()}
    assert left == {"run.json", "traces.parquet", "placement.parquet"}


def test_a_killed_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mock("mdm")
    whole = placement(sampled(model, tmp_path / "whole"), model, stride=2, progress=False)
    run = sampled(model, tmp_path / "run")
    monkeypatch.setattr(app, "PART", 2)
    measure, done = app._RunAndModel.rows, []

    def until_killed(work: Any, traces: Any) -> Any:
        done.append(len(traces))
        if len(done) == 3:
            raise KeyboardInterrupt
        return measure(work, traces)

    monkeypatch.setattr(app._RunAndModel, "rows", until_killed)
    with pytest.raises(KeyboardInterrupt):
        placement(run, model, stride=2, progress=False)
    assert not (run.folder / app.PLACEMENT_FILE).exists()
    assert len(list((run.folder / app.PARTS_FOLDER).iterdir())) == 2
    table = placement(run, model, stride=2, progress=False)
    assert done == [2, 2, 2, 2]  # the third part twice, the others once
    assert table.table().equals(whole.table())
    assert not (run.folder / app.PARTS_FOLDER).exists()


def test_parts_of_other_settings_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mock("mdm")
    run = sampled(model, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(app, "write_file", _fails_at(app.write_file, app.PLACEMENT_FILE))
        with pytest.raises(OSError, match="full"):
            placement(run, model, stride=2, progress=False)
    assert list((run.folder / app.PARTS_FOLDER).iterdir())
    steps = [row["step"] for row in placement(run, model, stride=5, progress=False).rows()]
    assert steps == [0, 5] * 6


def _fails_at(write: Callable[..., None], name: str) -> Callable[..., None]:
    def writing(path: Path, *rest: Any) -> None:
        if path.name == name:
            raise OSError("disk full")
        write(path, *rest)

    return writing


def test_another_model_is_refused(tmp_path: Path) -> None:
    run = sampled(mock("mdm"), tmp_path / "run", temperature=1.0)
    with pytest.raises(ValueError, match=r"another model \(aaaaaaaa, not bbbbbbbb\)"):
        placement(run, mock("mdm", "b" * 64), progress=False)
    words = mock("mdm")
    words.vocab = Vocab.words(["a", "b", "d", " "])
    with pytest.raises(ValueError, match="another vocabulary"):
        placement(run, words, progress=False)
    with pytest.raises(ValueError, match="'mdm', not 'flexmdm'"):
        placement(run, mock("flexmdm"), any_model=True, progress=False)
    few = mock("mdm")
    few.vocab = Vocab.words(["a"])
    with pytest.raises(ValueError, match="beyond the model's vocabulary"):
        placement(run, few, any_model=True, progress=False)
    assert placement(run, mock("mdm", "b" * 64), any_model=True, progress=False).about
    assert {path.name for path in run.folder.iterdir()} == {
        "run.json",
        "traces.parquet",
        "placement.parquet",
    }


def test_causal_models_are_refused(tmp_path: Path) -> None:
    shape = asdict(TransformerConfig(**asdict(SHAPE) | {"causal": True}))
    model = build(Card("ar", shape, 6, 16, {}), VOCAB, name="ar")
    run = sampled(mock("mdm"), tmp_path / "run")
    with pytest.raises(ValueError, match=r"ar has no masked positions .* mdm or flexmdm"):
        placement(run, model, progress=False)


def test_settings_that_are_refused(tmp_path: Path) -> None:
    model = mock("mdm")
    run = sampled(model, tmp_path / "run")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"strides": 4}, "no setting 'strides'"),
        ({"stride": 0}, "stride=.*: give a whole number"),
        ({"batch": 1.5}, "batch=.*: give a whole number"),
        ({"region": "tests"}, "choose 'code' or 'all'"),
        ({"tokens": 1}, "at least the 2"),
        ({"options": {}}, "leave options out"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            placement(run, model, progress=False, **settings)


class Logits(nn.Module):
    """Somebody else's network: `Mask`, its predictions one place to the left."""

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        net = Mask()
        logits = net.head(net.hidden(ids, mask=attention_mask.bool())).float()
        return torch.cat([logits[:, 1:], logits[:, :1]], dim=1)


def test_wrapped_models_and_imported_ids(tmp_path: Path) -> None:
    """A run of another library, with ids: it does not say what made it."""
    ours = sampled(mock("mdm"), tmp_path / "ours", temperature=1.0)
    theirs = Run.create(tmp_path / "theirs", RunCard("import", {"import": "x.pt"}))
    theirs.append(0, list(ours.traces()))
    theirs.finish()
    model = anyorder.wrap(Logits(), VOCAB, shift=True)
    with pytest.raises(ValueError, match=r"does not say which model .* any_model"):
        placement(theirs, model, progress=False)
    with pytest.raises(ValueError, match="Logits cannot show which model"):
        placement(ours, model, progress=False)
    table = placement(theirs, model, stride=3, any_model=True, progress=False)
    expected = placement(ours, mock("mdm"), stride=3, progress=False)
    for left, right in zip(table.rows(), expected.rows(), strict=True):
        assert left["mass"] == pytest.approx(right["mass"], abs=1e-6)
        assert left["committed_localisation"] == pytest.approx(
            right["committed_localisation"], abs=1e-6
        )
    assert table.to_record()["agreement"]["largest_log_prob_difference"] < 1e-5
    # Nobody knows whether a network without a digest is still the same: it is measured again.
    (theirs.folder / app.PLACEMENT_FILE).write_bytes(b"old")
    placement(theirs, model, stride=3, any_model=True, progress=False)
    assert PlacementTable.read(theirs.folder / app.PLACEMENT_FILE).about["stride"] == 3


def test_an_imported_flexmdm_run_needs_its_options(tmp_path: Path) -> None:
    model = mock("flexmdm")
    ours = sampled(model, tmp_path / "ours", temperature=1.0, steps=12)
    theirs = Run.create(tmp_path / "theirs", RunCard("import", {"import": "x.pt"}))
    theirs.append(0, [replace(trace, times=None) for trace in ours.traces()])
    theirs.finish()
    with pytest.raises(ValueError, match="give their options"):
        placement(theirs, model, any_model=True, progress=False)
    told = {"steps": 12}
    table = placement(theirs, model, stride=4, any_model=True, options=told, progress=False)
    expected = placement(ours, model, stride=4, progress=False)
    assert table.table().equals(expected.table())
    told = {"clock": "events"}
    with pytest.raises(ValueError, match="which this run does not have"):
        placement(theirs, model, any_model=True, options=told, progress=False)
    with pytest.raises(ValueError, match="flexmdm does not use block"):
        placement(theirs, model, any_model=True, options={"block": 3}, progress=False)


def test_strings_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    line = {
        "task_id": "x",
        "sample": 0,
        "prompt": "a",
        "tokens": ["b", "c"],
        "insert_step": [0, 0],
        "reveal_step": [1, 2],
    }
    (tmp_path / "theirs.jsonl").write_text(json.dumps(line) + "\n")
    run, _ = import_traces(tmp_path / "theirs.jsonl", tmp_path / "run", command="import")
    before = {path.name for path in run.folder.iterdir()}
    with pytest.raises(ValueError, match="'x' sample 0 holds strings, not token ids"):
        placement(run, mock("mdm"), any_model=True, progress=False)
    assert {path.name for path in run.folder.iterdir()} == before


@pytest.fixture(scope="module")
def flex_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "flex"
    model = build(Card("flexmdm", asdict(FLEX), 12, 40, {}), VOCAB, name="flex", seed=2)
    with torch.no_grad():
        for number, parameter in enumerate(model.net.parameters()):
            noise = torch.Generator().manual_seed(number)
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=noise))
        model.net.gap.outer.bias.fill_(1.5)
    model.save(folder)
    return folder


EVENTS, STEPS, COMPAT = {"clock": "events"}, {"steps": 8}, {"steps": 8, "mode": "compat"}


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("prompt", EVENTS),
        ("prompt", STEPS),
        ("prompt", COMPAT),
        ("prompt with gaps", EVENTS),
        ("fill", EVENTS),
        ("fill", STEPS),
    ],
)
def test_runs_of_anyorder_sample(
    given: str, options: dict[str, Any], flex_folder: Path, tmp_path: Path
) -> None:
    """All that is needed is in the run card: what was asked for, the noise, the schedules."""
    text = "a b" if given == "prompt" else "a<fill>b c<fill>"
    asked: dict[str, Any] = {"prompt": text}
    if given == "fill":
        asked = {"fill": tmp_path / "gaps.txt"}
        asked["fill"].write_text(text)
    job = SampleJob(str(flex_folder), samples=4, out=tmp_path / "run", **asked)
    run = sample_to_run(job, {"temperature": 1.0, **options}, command="test", progress=False)
    table = placement(run, flex_folder, stride=1, region="all", progress=False)
    agreement = table.to_record()["agreement"]
    drawn = sum(int((trace.timing()[1] > 0).sum()) for trace in run.traces())
    assert agreement["compared"] == drawn > 0
    assert agreement["largest_log_prob_difference"] < 1e-4
    old = Run.create(tmp_path / "old", replace(run.card, status="running", parts=(), files={}))
    old.append(0, [replace(trace, times=None) for trace in run.traces()])
    old.finish()
    again = placement(old, flex_folder, stride=1, region="all", progress=False)
    times = [[row["time"] for row in each.rows()] for each in (table, again)]
    assert times[0] == pytest.approx(times[1], abs=1e-12)
    if given == "fill" and "clock" in options:  # only old traces need it again
        asked["fill"].write_text(text + "a")
        for each in (run, old):
            (each.folder / app.PLACEMENT_FILE).unlink()
        placement(run, flex_folder, stride=1, progress=False)
        with pytest.raises(ValueError, match="has changed since"):
            placement(old, flex_folder, stride=1, progress=False)


def test_a_program_that_was_looked_for(tmp_path: Path) -> None:
    """Samples in which no program was found do not count, and are counted."""
    model = mock("mdm")
    ours = sampled(model, tmp_path / "ours", eos="forbid", temperature=1.0)
    traces = [
        replace(trace, program=trace.text[2:6] if trace.sample else None) for trace in ours.traces()
    ]
    card = replace(ours.card, status="running", parts=(), files={})
    run = Run.create(tmp_path / "run", card)
    run.append(0, traces)
    run.finish()
    table = placement(run, model, progress=False)
    assert table.to_record()["spans"] == {"exact": 3, "none": 3}
    assert [row["masked"] for row in table.rows()] == [0, 4] * 3
    (first, _) = table.summary()
    assert first.canvases == 3 and first.values["masked"].estimate == 4
