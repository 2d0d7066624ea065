"""Counted posteriors: against enumeration, on both canvases, and the switch they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from anyorder.data.corpora.stories import StoriesConfig, core, render, stories_vocab
from anyorder.measure.arness_scores import arness
from anyorder.nets.oracles import Oracle
from studies.free_setting import CANVAS, FreeSetting
from studies.model_free import free_model, sample_free
from studies.renderings import Rendered, Renderings, renderings_of

VOCAB = stories_vocab()
FREE = StoriesConfig(split="heldout", layout=1.0)


def test_renderings_are_what_the_corpus_writes() -> None:
    found = renderings_of(core(FREE, 3), FREE, 64, CANVAS)
    written = {render(core(FREE, 3), FREE, draw).program for draw in range(64)}
    ours = [VOCAB.decode([t for t in row if t != VOCAB.eos_id]) for row in found.rows.tolist()]
    assert set(ours) == written and len(ours) == len(written)
    assert found.counts.sum() == 64


def test_alignment_moves_the_fill() -> None:
    left, right = (
        renderings_of(core(FREE, 3), FREE, 16, CANVAS, each) for each in ("left", "right")
    )
    for first, second in zip(left.rows, right.rows, strict=True):
        length = int((first != VOCAB.eos_id).sum())
        assert second[-1] == VOCAB.eos_id
        assert np.array_equal(second[-1 - length : -1], first[:length])
        assert (second[: -1 - length] == VOCAB.pad_id).all()


def test_posteriors_are_those_of_enumeration() -> None:
    known = renderings_of(core(FREE, 5), FREE, 200, CANVAS)
    data = dict(zip(map(tuple, known.rows.tolist()), known.counts.tolist(), strict=True))
    oracle = Oracle(data, VOCAB.mask_id, VOCAB.size)
    canvas = known.rows[0].copy()
    for hidden in (np.arange(CANVAS), np.arange(20, CANVAS), np.arange(0, 40)):
        z = canvas.copy()
        z[hidden] = VOCAB.mask_id
        ours = known.posterior(z, VOCAB.mask_id, VOCAB.size)
        theirs = oracle.hidden(torch.from_numpy(z)[None])[0].exp().numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_a_row_is_read_by_its_prompt_and_length() -> None:
    known = {
        (1, 2): Renderings(np.array([[5, 6]]), np.array([1])),
        (1,): Renderings(np.array([[7, 8]]), np.array([1])),
    }
    net = Rendered(known, VOCAB)
    mask = VOCAB.mask_id
    ids = torch.tensor([[1, 2, mask, mask], [1, mask, mask, 0]])
    real = torch.tensor([[True] * 4, [True, True, True, False]])
    found = net.hidden(ids, mask=real).exp()
    assert found[0, 2, 5] == 1 and found[0, 3, 6] == 1
    assert found[1, 1, 7] == 1 and found[1, 2, 8] == 1
    with pytest.raises(ValueError, match="prompt"):
        net.hidden(torch.tensor([[9, mask, mask]]))


def test_what_is_refused() -> None:
    known = renderings_of(core(FREE, 3), FREE, 4, CANVAS)
    strange = np.full(CANVAS, VOCAB.mask_id)
    strange[0] = VOCAB.pad_id
    with pytest.raises(ValueError, match="no rendering agrees"):
        known.posterior(strange, VOCAB.mask_id, VOCAB.size)
    with pytest.raises(ValueError, match="left or right"):
        renderings_of(core(FREE, 3), FREE, 4, CANVAS, "middle")
    with pytest.raises(ValueError, match="at least one"):
        renderings_of(core(FREE, 3), FREE, 0, CANVAS)


def _tau(folder: Path, **setting: object) -> float:
    run = sample_free(FreeSetting(draws=256, problems=8, **setting), folder)  # type: ignore[arg-type]
    return arness(run).cells["tau"].mean


def test_the_collapse_needs_no_network_and_follows_the_anchored_side(tmp_path: Path) -> None:
    assert abs(_tau(tmp_path / "none")) < 0.3
    assert _tau(tmp_path / "left", layout=0.5) > 0.6
    assert _tau(tmp_path / "right", layout=0.5, align="right") < -0.4
    assert abs(_tau(tmp_path / "words", wording=1.0)) < 0.4
    assert _tau(tmp_path / "tied", ties="leftmost") == 1


def test_a_run_writes_programs_of_the_corpus_and_goes_on(tmp_path: Path) -> None:
    setting = FreeSetting(layout=1.0, draws=64, problems=3)
    run = sample_free(setting, tmp_path / "run")
    model = free_model(setting)
    for trace in run.traces():
        known = model.net.problems[tuple(trace.prompt_ids.tolist())]  # type: ignore[union-attr]
        assert any(np.array_equal(row, trace.token_ids) for row in known.rows)
        assert trace.program
    again = sample_free(setting, tmp_path / "run")
    assert [each.text for each in again.traces()] == [each.text for each in run.traces()]
