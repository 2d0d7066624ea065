"""Replayed posteriors of mdm: against a direct computation, against the trace, in batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from replay_support import STRINGS, placed_by, traced, whole
from torch import Tensor, nn

from anyorder.decode.canvas import Canvas
from anyorder.decode.replay import Moment, Replay
from anyorder.families import replay as replayer
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.replay import masked_reader
from anyorder.measure.placement_scores import CanvasPlacement
from anyorder.nets.denoiser import as_denoiser
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.trace import Event, Ghost, Trace
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
MASK = VOCAB.mask_id


def believed(ids: Sequence[int], position: int) -> NDArray[np.float64]:
    """What the mock believes of a position, given a whole canvas: any numbers, all different."""
    seen = sum((token + 1) * (place + 2) for place, token in enumerate(ids))
    weight = np.sin(1.7 * seen + 0.9 * position + 2.3 * np.arange(VOCAB.size) ** 2)
    return np.asarray(np.exp(2 * weight))


class HandSet:
    """A denoiser whose posteriors are `believed`; it counts its calls and what its head sees."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.headed = self.most = 0

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        assert mask is not None and time is None
        self.calls.append(tuple(ids.shape))
        rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
        states = torch.zeros(*ids.shape, VOCAB.size)
        for number, row in enumerate(rows):
            for position in range(len(row)):
                states[number, position] = torch.from_numpy(np.log(believed(row, position)))
        return states

    def head(self, hidden: Tensor) -> Tensor:
        self.headed += len(hidden)
        self.most = max(self.most, len(hidden))
        return hidden


def mdm_traces(net: Any, lengths: Sequence[int] = (5, 7, 3), **options: Any) -> list[Trace]:
    canvases = [Canvas.of([[0, 1, 2][: n % 3 + 1], n], VOCAB) for n in lengths]
    keys = [key_of(3, number) for number in range(len(canvases))]
    rows = mdm.decode(net, VOCAB, canvases, keys, MdmOptions(**options))
    return [traced(VOCAB, *pair) for pair in zip(canvases, rows, strict=True)]


def check_against(table: NDArray[np.float64], moment: Moment, found: CanvasPlacement) -> None:
    """Against the whole posterior (slots read, vocabulary), computed in other ways."""
    assert found.tokens.tolist() == sorted(
        (token for token in range(table.shape[1]) if table[:, token].sum() > 0),
        key=lambda token: -table[:, token].sum(),
    )
    for column, token in enumerate(found.tokens.tolist()):
        f = table[:, token]
        mass = math.fsum(f)
        count = max(1, math.floor(mass + 0.5))
        expected = {
            "mass": mass,
            "loc": max(f) / mass,
            "entropy": math.log(mass) - math.fsum(p * math.log(p) for p in f if p > 0) / mass,
            "k_loc": math.fsum(sorted(f)[-count:]) / mass,
        }
        for name, value in expected.items():
            assert getattr(found.measures, name)[column] == pytest.approx(value, abs=1e-6)
    for commit, share in zip(found.commits, found.localisation, strict=True):
        f = table[:, commit.token]
        at = moment.slots.tolist().index(commit.position)
        assert share == pytest.approx(f[at] / math.fsum(f), abs=1e-6)


def test_mdm_equals_a_direct_computation() -> None:
    net = HandSet()
    traces = mdm_traces(net, policy="random", temperature=1.0)
    results = placed_by(masked_reader(net, VOCAB), [whole(trace) for trace in traces])
    assert len(results) == sum(trace.steps or 0 for trace in traces)
    for moment, found in results:
        rows = [believed(moment.ids.tolist(), place) for place in moment.places.tolist()]
        table = np.stack(rows)
        table[:, MASK] = 0  # a slot never holds the mask
        check_against(table / table.sum(axis=1, keepdims=True), moment, found)


def test_masks_that_were_never_revealed_stay_open() -> None:
    net = HandSet()
    rows = [[0, MASK, MASK], [0, 1, MASK], [0, 1, MASK]]
    trace = Trace.from_snapshots(rows, MASK, vocab=VOCAB, prompt_length=1)
    (first, _), (last, _) = placed_by(masked_reader(net, VOCAB), [whole(trace)])
    assert (first.open, first.committed.tolist()) == (2, [0])
    assert (last.open, last.slots.tolist(), last.committed.tolist()) == (1, [1], [])


def test_mdm_by_hand() -> None:
    """Two slots, three words, numbers that need no machine."""
    posterior = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4]])

    class Two(HandSet):
        def hidden(self, ids: Tensor, **_: Any) -> Tensor:
            states = torch.full((*ids.shape, VOCAB.size), -torch.inf)
            states[:, 1:, :3] = posterior.log()
            return states

    trace = Trace.from_tokens(
        VOCAB, [1, 1], prompt_ids=[0], insert_step=[0, 0], reveal_step=[2, 1], steps=2
    )
    (first, found), (second, _) = placed_by(masked_reader(Two(), VOCAB), [whole(trace)])
    assert found.tokens.tolist() == [0, 1, 2]
    assert found.measures.mass == pytest.approx([0.8, 0.7, 0.5], abs=1e-6)
    assert found.measures.loc == pytest.approx([0.875, 0.5 / 0.7, 0.8], abs=1e-6)
    assert (first.committed.tolist(), first.tokens.tolist()) == ([1], [1])
    assert found.localisation == pytest.approx([0.5 / 0.7], abs=1e-6)
    assert (second.ids.tolist(), second.slots.tolist()) == ([0, MASK, 1], [0])


@pytest.mark.parametrize("options", [{}, {"eos": "forbid"}, {"block": 2}, {"mode": "compat"}])
def test_committed_probabilities_are_those_of_the_trace(options: dict[str, Any]) -> None:
    net = HandSet()
    traces = mdm_traces(net, temperature=1.0, **options)
    reader = masked_reader(net, VOCAB, MdmOptions(temperature=1.0, **options))
    seen = 0
    for moment, found in placed_by(reader, [whole(trace) for trace in traces]):
        assert np.log(found.committed) == pytest.approx(moment.log_prob, abs=1e-5)
        seen += len(moment.committed)
    if "mode" not in options:  # there, steps without a reveal share the next one's
        assert seen == sum(len(trace.token_ids) for trace in traces if trace.token_ids is not None)


def test_batched_equals_alone_and_one_call_serves_many() -> None:
    net = HandSet()
    replays = [whole(trace, 2) for trace in mdm_traces(net, (6, 4, 9, 5))]
    reader = masked_reader(net, VOCAB)
    net.calls.clear()
    together = placed_by(reader, replays, batch=100)
    assert len(net.calls) == 1
    alone = placed_by(reader, replays, batch=1)
    assert len(net.calls) == 1 + len(together)
    for (_, left), (_, right) in zip(together, alone, strict=True):
        assert left.tokens.tolist() == right.tokens.tolist()
        assert left.measures.entropy == pytest.approx(right.measures.entropy, abs=1e-9)
        assert left.localisation == pytest.approx(right.localisation, abs=1e-9)


def test_large_vocabularies_pass_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    net = HandSet()
    replays = [whole(trace) for trace in mdm_traces(net)]
    reader = masked_reader(net, VOCAB)
    net.headed = 0
    at_once = placed_by(reader, replays)
    slots = sum(len(moment.slots) for moment, _ in at_once)
    assert net.headed == slots
    monkeypatch.setattr(replayer, "HEAD_BUDGET", 2 * VOCAB.size)
    for kept, passes in ((3 * VOCAB.size, 2), (100 * VOCAB.size, 1)):
        monkeypatch.setattr(replayer, "KEPT_BUDGET", kept)
        net.headed, net.most = 0, 0
        in_pieces = placed_by(reader, replays)
        large = sum(len(moment.slots) for moment, _ in in_pieces if len(moment.slots) > 3)
        assert net.headed == slots + (passes - 1) * large and net.most == 2
        for (_, left), (_, right) in zip(at_once, in_pieces, strict=True):
            assert left.measures.mass == pytest.approx(right.measures.mass, abs=1e-12)
            assert left.measures.k_loc == pytest.approx(right.measures.k_loc, abs=1e-12)


def test_only_slots_inside_are_read() -> None:
    net = HandSet()
    (trace,) = mdm_traces(net, (6,), policy="left_to_right")
    reader = masked_reader(net, VOCAB)
    inside = np.asarray([False, True, False, True, True, False])
    net.headed = 0
    results = placed_by(reader, [Replay(trace, [0, 2, 5], inside)])
    assert [moment.slots.tolist() for moment, _ in results] == [[1, 3, 4], [3, 4]]
    assert [moment.open for moment, _ in results] == [6, 4]
    assert [moment.committed.tolist() for moment, _ in results] == [[], []]
    assert net.headed == 5 and results[0][1].measures.mass.sum() == pytest.approx(3)


def test_only_the_block_that_is_being_filled_is_read() -> None:
    net = HandSet()
    (trace,) = mdm_traces(net, (6,), policy="right_to_left", block=2)
    assert trace.reveal_step is not None and trace.reveal_step.tolist() == [2, 1, 4, 3, 6, 5]
    blocks = np.asarray([0, 0, 1, 1, 2, 2])
    inside = np.asarray([True, True, True, True, False, True])
    replay = Replay(trace, range(6), inside, blocks=blocks)
    (moments,) = masked_reader(net, VOCAB).moments([replay])
    assert [each.slots.tolist() for each in moments] == [[0, 1], [0], [2, 3], [2], [5], []]
    assert [each.open for each in moments] == [2, 1, 2, 1, 2, 1]
    assert [each.committed.tolist() for each in moments] == [[1], [0], [3], [2], [5], []]
    (whole_canvas,) = masked_reader(net, VOCAB).moments([Replay(trace, range(6), inside)])
    assert [each.open for each in whole_canvas] == [6, 5, 4, 3, 2, 1]
    # The network reads the same canvas: blocks only narrow what is asked of it.
    for left, right in zip(moments, whole_canvas, strict=True):
        assert left.ids.tolist() == right.ids.tolist()


def test_deleted_slots_are_in_no_block() -> None:
    trace = Trace.from_tokens(
        VOCAB,
        [0, 1],
        prompt_ids=[],
        insert_step=[0, 0],
        reveal_step=[1, 3],
        steps=3,
        ghosts=[Ghost(-1, 0, None, 2, None, None)],
    )
    replay = Replay(trace, range(3), np.ones(2, dtype=bool), blocks=np.asarray([0, 1]))
    (moments,) = masked_reader(HandSet(), VOCAB).moments([replay])
    assert [each.slots.tolist() for each in moments] == [[0], [1], [1]]
    assert [each.open for each in moments] == [1, 1, 1]


def test_quiet_steps_and_tokens_that_were_not_drawn() -> None:
    trace = Trace.from_tokens(
        VOCAB,
        [0, 1, 2, 0],
        prompt_ids=[0],
        insert_step=[0] * 4,
        reveal_step=[5, 5, 5, 8],
        steps=8,
        log_prob=np.log([0.5, 0.25, np.nan, 0.5]),
    )
    (moments,) = masked_reader(HandSet(), VOCAB).moments([whole(trace, 2)])
    # Nothing happens before step 5: all earlier canvases are the one on which it was decided.
    assert [moment.committed.tolist() for moment in moments] == [[0, 1]] * 3 + [[3]]
    assert moments[0].log_prob == pytest.approx(np.log([0.5, 0.25]))


def test_slots_that_are_masked_again() -> None:
    """A token counts as committed when it is shown, also if it is taken back later."""
    trace = Trace.from_tokens(
        VOCAB,
        [0, 1],
        prompt_ids=[2],
        insert_step=[0, 0],
        reveal_step=[4, 2],
        steps=4,
        events=[Event(1, 0, 2, "c"), Event(3, 0, None, None)],
    )
    (moments,) = masked_reader(HandSet(), VOCAB).moments([whole(trace)])
    assert [moment.ids.tolist() for moment in moments] == [
        [2, MASK, MASK],
        [2, 2, MASK],
        [2, 2, 1],
        [2, MASK, 1],
    ]
    commits = [(moment.committed.tolist(), moment.tokens.tolist()) for moment in moments]
    assert commits == [([0], [2]), ([1], [1]), ([], []), ([0], [0])]


def test_slots_that_are_deleted() -> None:
    """They are on the canvas until they go, and nothing is read from them."""
    trace = Trace.from_tokens(
        VOCAB,
        [0, 1],
        prompt_ids=[2],
        insert_step=[0, 0],
        reveal_step=[4, 2],
        steps=5,
        ghosts=[Ghost(-1, 1, 2, 3, 2, "c"), Ghost(0, 0, None, 5, None, None)],
    )
    (moments,) = masked_reader(HandSet(), VOCAB).moments([whole(trace)])
    assert [moment.ids.tolist() for moment in moments] == [
        [2, MASK, MASK, MASK],
        [2, MASK, MASK, MASK, MASK],
        [2, 2, MASK, MASK, 1],
        [2, MASK, MASK, 1],
        [2, 0, MASK, 1],
    ]
    assert [moment.slots.tolist() for moment in moments] == [[0, 1], [0, 1], [0], [0], []]
    assert [moment.places.tolist() for moment in moments] == [[1, 3], [2, 4], [2], [1], []]
    # Canvas 2 is decided anew before step 4, since step 3 deletes a slot.
    commits = [(moment.committed.tolist(), moment.tokens.tolist()) for moment in moments]
    assert commits == [([], []), ([1], [1]), ([], []), ([0], [0]), ([], [])]


class Logits(nn.Module):
    """A network of another library: logits for all positions, one place to the left if asked."""

    def __init__(self, shift: bool) -> None:
        super().__init__()
        self.shift, self.shapes = shift, list[tuple[int, ...]]()

    def forward(self, ids: Tensor) -> Tensor:
        self.shapes.append(tuple(ids.shape))
        logits = HandSet().hidden(ids, mask=torch.ones_like(ids, dtype=torch.bool))
        return torch.cat([logits[:, 1:], logits[:, :1]], dim=1) if self.shift else logits


@pytest.mark.parametrize("shift", [False, True])
def test_wrapped_networks(shift: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = HandSet()
    replays = [whole(trace) for trace in mdm_traces(ours, (5, 4, 5))]
    expected = placed_by(masked_reader(ours, VOCAB), replays)
    module = Logits(shift).eval()
    reader = masked_reader(as_denoiser(module, shift=shift), VOCAB)
    found = placed_by(reader, replays, batch=3)
    for (_, left), (_, right) in zip(expected, found, strict=True):
        assert left.tokens.tolist() == right.tokens.tolist()
        assert left.measures.loc == pytest.approx(right.measures.loc, abs=1e-6)
    # It takes no attention mask: rows of one length only, and at most three of them.
    assert all(rows <= 3 for rows, _ in module.shapes)
    monkeypatch.setattr(replayer, "LOGITS_BUDGET", 2 * 8 * VOCAB.size)
    module.shapes.clear()
    placed_by(reader, replays)
    assert all(rows * length <= 16 or rows == 1 for rows, length in module.shapes)


def test_mdm_with_a_real_network() -> None:
    config = TransformerConfig(
        vocab_size=VOCAB.size, width=16, layers=2, heads=2, kv_heads=2, head_width=8, mlp_width=32
    )
    net = Transformer(config, seed=3).eval()
    replays = [whole(trace) for trace in mdm_traces(net, (9, 12, 4), temperature=1.0)]
    together, alone = (placed_by(masked_reader(net, VOCAB), replays, n) for n in (32, 1))
    for (moment, left), (_, right) in zip(together, alone, strict=True):
        assert np.log(left.committed) == pytest.approx(moment.log_prob, abs=1e-4)
        assert left.measures.mass == pytest.approx(right.measures.mass, abs=1e-4)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="holds strings, not token ids"):
        masked_reader(HandSet(), VOCAB).moments([Replay(STRINGS, [0], np.ones(2, dtype=bool))])


def test_logits_that_are_not_numbers() -> None:
    class Broken(HandSet):
        def head(self, hidden: Tensor) -> Tensor:
            return hidden * torch.nan

    (trace,) = mdm_traces(HandSet(), (3,))
    with pytest.raises(ValueError, match="not finite"):
        placed_by(masked_reader(Broken(), VOCAB), [whole(trace)])
