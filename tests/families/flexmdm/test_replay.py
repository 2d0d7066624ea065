"""Replayed posteriors of flexmdm: asked at the sampler's times, against a direct computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flex_mocks import INFILL, VOCAB, Mock, prompt, ragged
from numpy.typing import NDArray
from replay_support import placed_by, traced, whole
from torch import Tensor

from anyorder.decode.canvas import GrowingCanvas
from anyorder.decode.replay import Moment, Replay
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexConfig, FlexOptions
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.replay import flex_reader
from anyorder.nets.denoiser import Look
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import key_of
from anyorder.trace import Ghost

SPECIAL = [VOCAB.mask_id, VOCAB.pad_id, VOCAB.eos_id, VOCAB.bos_id]


def logits_at(place: Tensor, time: Tensor) -> Tensor:
    """Beliefs that depend on where and when: (...) -> (..., V)."""
    tokens = torch.arange(VOCAB.size)
    favoured = (place[..., None].long() % 3 == tokens) * (1 + place[..., None] / 8)
    return favoured + 3 * time[..., None] * torch.cos(tokens + place[..., None])


def believed(moment: Moment, barred: Sequence[int | None]) -> NDArray[np.float64]:
    """The posterior of every slot that is read.  # N V"""
    assert moment.time is not None
    place = torch.from_numpy(moment.places).double()
    table = logits_at(place, torch.full_like(place, moment.time)).exp().numpy()
    table[:, [token for token in barred if token is not None]] = 0
    return np.asarray(table / table.sum(axis=1, keepdims=True))


class Told(Mock):
    """Six tokens expected in all; a state is (its place, the time told)."""

    def __init__(self, coordinate: str = "progress") -> None:
        spread = lambda ids, mask, left: 6 * left / mask.sum(dim=1, keepdim=True)  # noqa: E731
        super().__init__(spread, coordinate=coordinate)
        self.dtypes: list[torch.dtype] = []

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        states, gaps = super().look(ids, mask=mask, time=time)
        self.dtypes.append(time.dtype)
        told = time.float()[:, None].expand(ids.shape)
        return Look(torch.stack([states[..., 0], told], dim=-1), gaps)

    def head(self, states: Tensor) -> Tensor:
        return logits_at(states[..., 0], states[..., 1])


def flex_traces(net: Any, canvases: Sequence[GrowingCanvas], **options: Any) -> list[Replay]:
    """Decoded with the flex mocks' vocabulary, ready to be replayed at every step."""
    keys = [key_of(0, number) for number in range(len(canvases))]
    rows = flexmdm.decode(net, VOCAB, canvases, keys, FlexOptions(**options))
    return [
        whole(traced(VOCAB, canvas, row, sample=number), canvas=canvas, key=key)
        for number, (canvas, row, key) in enumerate(zip(canvases, rows, keys, strict=True))
    ]


CLOCKS: list[dict[str, Any]] = [
    {"steps": 12},
    {"steps": 7, "insertion_schedule": 1.7, "quota": "poisson", "hazard": "left"},
    {"clock": "events"},
    {"clock": "events", "insertion_temperature": 0.6, "unmasking_schedule": 1.0},
    {"steps": 9, "mode": "compat"},
]


@pytest.mark.parametrize("coordinate", ["progress", "raw"])
@pytest.mark.parametrize("options", CLOCKS, ids=str)
def test_the_network_is_asked_when_the_sampler_asked_it(
    options: dict[str, Any], coordinate: str
) -> None:
    """One row at a time, so that call n of the sampler is the one on the canvas after n - 1."""
    for canvas in [prompt(0, 1, room=9), prompt(2), prompt(room=30)]:
        net = Told(coordinate)
        (replay,) = flex_traces(net, [canvas], **options)
        asked = [time for (time,) in net.times]
        reader = flex_reader(net, VOCAB, FlexOptions(**options))
        (moments,) = reader.moments([replay])
        assert [moment.time for moment in moments] == asked[: len(moments)]
        assert len(moments) == replay.trace.steps == len(asked)
        # The sampler recorded the same times, which make options, noise and calls unnecessary.
        (row,) = flexmdm.decode(net, VOCAB, [canvas], [replay.key or 0], FlexOptions(**options))
        assert row.times == asked
        timed = whole(traced(VOCAB, canvas, row, times=row.times))
        calls = len(net.times)
        (again,) = reader.moments([timed])
        assert [moment.time for moment in again] == asked and len(net.times) == calls
        placed_by(reader, [replay])
        assert len(set(net.dtypes)) == 1


@pytest.mark.parametrize("options", CLOCKS, ids=str)
def test_flexmdm_equals_a_direct_computation(options: dict[str, Any]) -> None:
    net, compat = Told(), "mode" in options
    canvases = [prompt(0, 1, room=9), prompt(2, room=10)] if compat else ragged()
    replays = flex_traces(net, canvases, **options)
    results = placed_by(flex_reader(net, VOCAB, FlexOptions(**options)), replays)
    assert len(results) > 10
    committed = 0
    for moment, found in results:
        table = believed(moment, barred=[] if compat else SPECIAL)
        masses = table.sum(axis=0)
        assert set(found.tokens.tolist()) == set(np.flatnonzero(masses).tolist())
        assert (np.diff(masses[found.tokens]) <= 1e-6).all()
        for column, token in enumerate(found.tokens.tolist()):
            f = table[:, token]
            shares = f[f > 0] / f.sum()
            count = max(1, math.floor(f.sum() + 0.5))
            assert found.measures.mass[column] == pytest.approx(f.sum(), abs=1e-6)
            assert found.measures.loc[column] == pytest.approx(shares.max(), abs=1e-6)
            entropy = -(shares * np.log(shares)).sum()
            assert found.measures.entropy[column] == pytest.approx(entropy, abs=1e-6)
            best = np.sort(shares)[-count:].sum()
            assert found.measures.k_loc[column] == pytest.approx(best, abs=1e-6)
        for commit, share, log_prob in zip(
            found.commits, found.localisation, moment.log_prob, strict=True
        ):
            f = table[:, commit.token]
            at = moment.slots.tolist().index(commit.position)
            assert share == pytest.approx(f[at] / f.sum(), abs=1e-6)
            assert log_prob == pytest.approx(math.log(f[at]), abs=1e-5)
            committed += 1
    drawn = sum(int((each.trace.timing()[1] > 0).sum()) for each in replays)
    assert committed == drawn  # at stride 1 every reveal follows from the canvas before it


def test_insertions_move_slots_not_their_numbers() -> None:
    net = Told()
    (replay,) = flex_traces(net, [INFILL], steps=10)
    trace = replay.trace
    (moments,) = flex_reader(net, VOCAB, FlexOptions(steps=10)).moments([replay])
    insert, reveal = trace.timing()
    assert trace.prompt_ids is not None
    for moment in moments:
        there = np.flatnonzero(insert <= moment.step)
        assert moment.slots.tolist() == [s for s in there.tolist() if reveal[s] > moment.step]
        on_canvas = [there.tolist()[p - len(trace.prompt_ids)] for p in moment.places.tolist()]
        assert on_canvas == moment.slots.tolist()
        assert (moment.ids[moment.places] == VOCAB.mask_id).all()
        assert moment.committed.tolist() == np.flatnonzero(reveal == moment.step + 1).tolist()


def flex_net() -> FlexNet:
    shape = TransformerConfig(
        vocab_size=VOCAB.size, width=16, layers=2, heads=2, kv_heads=2, head_width=8,
        mlp_width=32, time_modulated=True,
    )  # fmt: skip
    net = FlexNet(FlexConfig(shape), seed=1).eval()
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):  # time must matter
            parameter.add_(0.2 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(number)
            ))  # fmt: skip
        net.gap.outer.bias.fill_(1.0)
    return net


@pytest.mark.parametrize("options", CLOCKS, ids=str)
def test_a_real_network_says_the_same_again(options: dict[str, Any]) -> None:
    """Batches of other shapes: to the last digits of float32."""
    net = flex_net()
    compat = "mode" in options
    canvases = [prompt(0, 1, room=20), prompt(2, room=21)] if compat else ragged()
    replays = flex_traces(net, canvases, temperature=1.0, **options)
    reader = flex_reader(net, VOCAB, FlexOptions(temperature=1.0, **options))
    seen = 0
    for moment, found in placed_by(reader, replays, batch=7):
        assert np.log(found.committed) == pytest.approx(moment.log_prob, abs=1e-4)
        seen += len(found.committed)
    assert seen > 15


def test_the_time_of_a_replay_matters() -> None:
    """The test above can fail: at other times the network says something else."""
    net = flex_net()
    replays = flex_traces(net, ragged(), temperature=1.0, steps=12)
    wrong = FlexOptions(temperature=1.0, steps=24)
    apart = [
        np.abs(np.log(found.committed) - moment.log_prob).max(initial=0)
        for moment, found in placed_by(flex_reader(net, VOCAB, wrong), replays)
    ]
    assert max(apart) > 1e-2


def test_event_times_need_their_noise_and_their_model() -> None:
    net = Told()
    (replay, other) = flex_traces(net, [prompt(0, 1), prompt(2)], clock="events")
    reader = flex_reader(net, VOCAB, FlexOptions(clock="events"))
    bare = Replay(replay.trace, [0], replay.inside)
    with pytest.raises(ValueError, match="noise key"):
        reader.moments([bare])
    swapped = Replay(replay.trace, replay.steps, replay.inside, replay.canvas, other.key)
    with pytest.raises(ValueError, match="give the model, and the options, that made it"):
        reader.moments([swapped])
    moved = Replay(replay.trace, replay.steps, replay.inside, other.canvas, replay.key)
    with pytest.raises(ValueError, match="did not begin with the canvas"):
        reader.moments([moved])
    assert reader.moments([Replay(replay.trace, [], replay.inside, replay.canvas, replay.key)])


def test_rows_of_a_batch_have_their_own_times() -> None:
    net, canvases = Told(), ragged()
    keys = [key_of(0, number) for number in range(len(canvases))]
    options = FlexOptions(clock="events")
    together = flexmdm.decode(net, VOCAB, canvases, keys, options)
    assert len({row.steps for row in together}) > 1  # rows leave at different steps
    for number, row in enumerate(together):
        alone = flexmdm.decode(net, VOCAB, canvases[number:][:1], keys[number:][:1], options)
        assert row.times == alone[0].times and len(row.times or ()) == row.steps


def test_traces_without_times_that_cannot_be_replayed() -> None:
    net = Told()
    (replay,) = flex_traces(net, [prompt(0, 1)], clock="events")
    reader = flex_reader(net, VOCAB, FlexOptions(clock="events"))
    steps = replay.trace.steps or 0
    ghost = Ghost(-1, 0, None, steps, None, None)
    corrected = replace(replay.trace, ghosts=(ghost,))
    with pytest.raises(ValueError, match=r"were deleted, and no times: .* sample it again"):
        reader.moments([replace(replay, trace=corrected)])
    times = np.linspace(0, 1, steps)
    timed = replace(replay, trace=replace(corrected, times=times))
    (moments,) = reader.moments([timed])
    assert [moment.time for moment in moments] == times.tolist()
    assert moments[0].open == 1 and not len(moments[0].slots)
    times[1] = np.nan
    with pytest.raises(ValueError, match="no time for step 2"):
        reader.moments([replace(replay, trace=replace(corrected, times=times))])


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="give their options"):
        flex_reader(Told(), VOCAB)
    (replay,) = flex_traces(Told(), [prompt(0)], steps=12)
    for mode in ("exact", "compat"):
        with pytest.raises(ValueError, match="at the most"):
            flex_reader(Told(), VOCAB, FlexOptions(steps=4, mode=mode)).moments([replay])
