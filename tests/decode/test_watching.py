"""Watching: what was seen after each step is what the finished trace replays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import flex_mocks
import pytest
import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded, Watcher
from anyorder.decode.loop import TimedWatcher, counted_from
from anyorder.families.ar import decode as ar
from anyorder.families.ar.decode import ArOptions
from anyorder.families.block import decode as block
from anyorder.families.block.config import BlockConfig, BlockOptions
from anyorder.families.block.net import BlockNet
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.trace import Trace

VOCAB = flex_mocks.VOCAB


def transformer(*, causal: bool) -> Transformer:
    torch.manual_seed(1)
    shape = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_width": 8, "mlp_width": 64}
    net = Transformer(TransformerConfig(vocab_size=VOCAB.size, causal=causal, **shape)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5)
    return net


def fixed() -> list[Canvas]:
    return [
        Canvas.of([ids, slots], VOCAB)
        for ids, slots in zip(([0, 1, 2], [2], [0, 0, 1, 2, 1], [1, 1]), (9, 14, 5, 1), strict=True)
    ]


def with_gaps() -> list[Canvas]:
    return [Canvas.of([[0, 1], 5, [2, 2], 3, [1]], VOCAB), *fixed()]


def same_size() -> list[Any]:
    return [flex_mocks.prompt(*ids, room=20 - len(ids)) for ids in ([0, 1], [2], [1, 0, 2])]


class Stubborn(flex_mocks.Mock):
    """A network that compat can read everywhere, and that often draws the mask itself."""

    def __init__(self) -> None:
        super().__init__(lambda ids, mask, left: 9 * left / mask.sum(dim=1, keepdim=True))

    def head(self, states: Tensor) -> Tensor:
        logits = torch.zeros(*states.shape[:-1], VOCAB.size)
        logits[..., VOCAB.mask_id] = 5.0
        logits[..., 0] = states[..., 0] % 3
        return logits


@dataclass
class Case:
    """One way to decode: a network, canvases, options."""

    decode: Callable[..., list[Decoded]]
    net: Callable[[], Any]
    canvases: Callable[[], list[Any]]
    options: Any

    def run(self, watch: Watcher | None, only: int | None = None) -> list[Decoded]:
        canvases = self.canvases()
        keys = [key_of(0, i) for i in range(len(canvases))]
        if only is not None:
            canvases, keys = [canvases[only]], [keys[only]]
        return self.decode(self.net(), VOCAB, canvases, keys, self.options, "cpu", watch)


def causal() -> Transformer:
    return transformer(causal=True)


def masked() -> Transformer:
    return transformer(causal=False)


def in_blocks() -> BlockNet:
    net = BlockNet(BlockConfig(masked().config, 3))
    net.start_from(masked())
    return net.eval()


CASES = {
    "block": Case(block.decode, in_blocks, with_gaps, BlockOptions(temperature=0.7, eos="forbid")),
    "block ends": Case(block.decode, in_blocks, fixed, BlockOptions(temperature=1.5)),
    "ar": Case(ar.decode, causal, fixed, ArOptions(temperature=1.2)),
    "mdm": Case(mdm.decode, masked, with_gaps, MdmOptions(temperature=0.7)),
    "mdm fills": Case(mdm.decode, masked, fixed, MdmOptions(temperature=1.5, eos="fill")),
    "mdm idle steps": Case(mdm.decode, masked, fixed, MdmOptions(quota="dream", steps=24)),
    "mdm blocks": Case(mdm.decode, masked, with_gaps, MdmOptions(policy="random", block=3)),
    "flexmdm": Case(
        flexmdm.decode,
        lambda: flex_mocks.about(11),
        flex_mocks.ragged,
        FlexOptions(steps=24, temperature=1.0),
    ),
    "flexmdm events": Case(
        flexmdm.decode, lambda: flex_mocks.about(7), flex_mocks.ragged, FlexOptions(clock="events")
    ),
    "flexmdm compat": Case(
        flexmdm.decode,
        Stubborn,
        same_size,
        FlexOptions(mode="compat", steps=24, temperature=1.0),
    ),
}
anyhow = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@dataclass
class Notes:
    """A watcher that keeps everything."""

    calls: list[list[Decoded]] = field(default_factory=list)

    def __call__(self, rows: Sequence[Decoded]) -> None:
        self.calls.append(list(rows))

    def of(self, row: int) -> list[Decoded]:
        return [seen for call in self.calls for seen in call if seen.row == row]


def trace_of(canvas: Any, row: Decoded) -> Trace:
    return Trace.from_tokens(
        VOCAB,
        row.token_ids,
        prompt_ids=canvas.ids[: canvas.prompt_length],
        insert_step=row.insert_step,
        reveal_step=row.reveal_step,
        steps=row.steps,
    )


@anyhow
def test_each_step_is_seen_as_the_trace_replays_it(case: Case) -> None:
    notes = Notes()
    rows = case.run(notes)
    for number, (canvas, row) in enumerate(zip(case.canvases(), rows, strict=True)):
        trace, story = trace_of(canvas, row), notes.of(number)
        assert [seen.step for seen in story] == list(range(1, row.steps + 1))
        for seen in story:
            snapshot = trace.replay(seen.step)
            last = seen.step == row.steps
            assert seen.token_ids == snapshot.ids(VOCAB.mask_id).tolist()
            assert seen.insert_step == [row.insert_step[slot] for slot in snapshot.slots]
            open_now = [not shown for shown in snapshot.revealed.tolist()]
            for slot, is_open, reveal, log_prob in zip(
                snapshot.slots, open_now, seen.reveal_step, seen.log_prob, strict=True
            ):
                assert reveal == (0 if is_open else row.reveal_step[slot])
                expected = math.nan if is_open else row.log_prob[slot]
                assert log_prob == pytest.approx(expected, nan_ok=True)
            assert not (last and any(open_now))


@anyhow
def test_watching_changes_nothing(case: Case) -> None:
    for watched, alone in zip(case.run(Notes()), case.run(None), strict=True):
        assert watched.token_ids == alone.token_ids
        assert (watched.insert_step, watched.reveal_step) == (alone.insert_step, alone.reveal_step)
        assert watched.log_prob == pytest.approx(alone.log_prob, nan_ok=True)
        assert (watched.forwards, watched.ties) == (alone.forwards, alone.ties)


def test_the_cases_meet_what_they_are_there_for() -> None:
    """A step that reveals nothing, a mask that was drawn, rows of different length."""
    notes = Notes()
    CASES["mdm idle steps"].run(notes)
    story = notes.of(0)
    assert any(a.token_ids == b.token_ids for a, b in pairwise(story))
    rows = CASES["flexmdm compat"].run(None)
    assert any(VOCAB.mask_id in row.token_ids for row in rows)
    for name in ("ar", "mdm", "flexmdm events"):
        assert len({row.steps for row in CASES[name].run(None)}) > 1


class Enough(Exception):
    """What a watcher raises."""


@anyhow
def test_raising_ends_the_work_at_once(case: Case) -> None:
    notes = Notes()

    def watch(rows: Sequence[Decoded]) -> None:
        notes(rows)
        if len(notes.calls) == 3:
            raise Enough

    with pytest.raises(Enough):
        case.run(watch)
    assert len(notes.calls) == 3


def test_what_is_seen_stays_as_it_was() -> None:
    """A watcher may keep the lists: later steps do not write into them."""
    for case in CASES.values():
        notes, copies = Notes(), []

        def watch(
            rows: Sequence[Decoded], notes: Notes = notes, copies: list[list[int]] = copies
        ) -> None:
            notes(rows)
            copies.extend(list(seen.token_ids) for seen in rows)

        case.run(watch)
        assert [seen.token_ids for call in notes.calls for seen in call] == copies


def test_rows_are_counted_from_the_first_of_the_batch() -> None:
    notes = Notes()
    assert counted_from(4, None) is None
    watch = counted_from(4, notes)
    assert watch is not None
    watch([Decoded([], [], [], [], 1, 1, 0, row=number) for number in (0, 2)])
    assert [seen.row for seen in notes.calls[0]] == [4, 6]


def test_a_timed_watcher_counts_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.5, 20.0, 20.25])
    monkeypatch.setattr("anyorder.decode.loop.time.perf_counter", lambda: next(clock))
    timed = TimedWatcher(lambda rows: None)
    timed([])
    timed([])
    assert timed.seconds == 0.75
