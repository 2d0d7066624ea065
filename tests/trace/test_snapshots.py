"""Snapshots of other libraries: simulated generations must come back exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.trace import Trace, active_masks
from anyorder.vocab import Vocab

MASK, PAD = 256, 257
PROMPT = [7, 8, PAD]  # ends with the pad id, as a separator


@dataclass
class Recorded:
    """What a library that stores canvases would have stored."""

    snapshots: list[list[int]] = field(default_factory=list)
    created: list[list[bool]] = field(default_factory=list)

    def padded(self, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = len(self.snapshots)
        ids = np.full((count, width), PAD)
        used, new = np.zeros((2, count, width), dtype=bool)
        for step, (row, marks) in enumerate(zip(self.snapshots, self.created, strict=True)):
            ids[step, : len(row)], new[step, : len(row)] = row, marks
            used[step, : len(row)] = True
        return ids, used, new


@st.composite
def generations(draw: st.DrawFn, inserting: bool, remasking: bool) -> Recorded:
    """Slots are inserted anywhere, revealed, replaced and masked again, at random."""
    coin = st.integers(0, 2).map(lambda value: value == 0)
    token = st.integers(1, 255)
    canvas = draw(st.lists(st.just(MASK) | token, max_size=5))
    recorded = Recorded([PROMPT + canvas], [[False] * (len(PROMPT) + len(canvas))])
    for _ in range(draw(st.integers(0, 7))):
        following, marks = [], []
        for value in [*canvas, None]:
            for _ in range(draw(st.integers(0, 2)) if inserting and draw(coin) else 0):
                following.append(MASK if draw(coin) else draw(token))
                marks.append(True)
            if value is None:
                continue
            if draw(coin) and (value == MASK or remasking):
                value = MASK if value != MASK and draw(coin) else draw(token)
            following.append(value)
            marks.append(False)
        canvas = following
        recorded.snapshots.append(PROMPT + canvas)
        recorded.created.append([False] * len(PROMPT) + marks)
    return recorded


def assert_replays(trace: Trace, snapshots: list[list[int]]) -> None:
    assert trace.steps == len(snapshots) - 1
    for step, snapshot in enumerate(snapshots):
        assert trace.replay(step).ids(MASK, prompt=True).tolist() == snapshot


@given(generations(inserting=False, remasking=False))
def test_a_fixed_canvas_comes_back(recorded: Recorded) -> None:
    trace = Trace.from_snapshots(recorded.snapshots, MASK, prompt_length=len(PROMPT))
    assert_replays(trace, recorded.snapshots)
    assert trace.events is None
    assert trace.insert_step is not None
    assert not trace.insert_step.any()


@given(generations(inserting=True, remasking=False))
def test_a_growing_canvas_comes_back(recorded: Recorded) -> None:
    trace = Trace.from_snapshots(
        recorded.snapshots, MASK, prompt_length=len(PROMPT), insertion_masks=recorded.created
    )
    assert_replays(trace, recorded.snapshots)
    assert trace.events is None


@given(generations(inserting=True, remasking=True))
def test_a_canvas_with_second_thoughts_comes_back_from_padded_arrays(recorded: Recorded) -> None:
    ids, used, new = recorded.padded(len(recorded.snapshots[-1]) + 2)
    trace = Trace.from_snapshots(
        ids,
        MASK,
        vocab=Vocab.bytes(),
        prompt_length=len(PROMPT),
        insertion_masks=new,
        attention_masks=used,
    )
    assert_replays(trace, recorded.snapshots)
    found = active_masks(ids, PAD, prompt_length=len(PROMPT))
    assert np.array_equal(np.array(found), used)


@given(generations(inserting=True, remasking=True))
def test_an_insertion_is_told_from_its_neighbour(recorded: Recorded) -> None:
    """The step of a final slot is that of the mark it came from, also among equal masks."""
    trace = Trace.from_snapshots(
        recorded.snapshots, MASK, prompt_length=len(PROMPT), insertion_masks=recorded.created
    )
    born: list[int] = [0] * len(recorded.created[0])
    for step, marks in list(enumerate(recorded.created))[1:]:
        old = iter(born)
        born = [step if mark else next(old) for mark in marks]
    assert trace.insert_step is not None
    assert trace.insert_step.tolist() == born[len(PROMPT) :]


def test_a_slot_masked_again_has_its_last_reveal_and_events() -> None:
    rows = [[MASK, 1], [65, 1], [MASK, 1], [66, 1], [66, 1]]
    trace = Trace.from_snapshots(rows, MASK, vocab=Vocab.bytes(), task_id="again", sample=2)
    assert trace.reveal_step is not None
    assert trace.reveal_step.tolist() == [3, 0]
    assert trace.events == ((1, 0, 65, "A"), (2, 0, None, None))
    assert [str(trace.replay(s))[0] for s in range(5)] == ["▁", "A", "▁", "B", "B"]
    assert (trace.task_id, trace.sample) == ("again", 2)


@pytest.mark.parametrize("vocab", [None, Vocab.bytes()])
def test_a_slot_still_masked_at_the_end_is_never_revealed(vocab: Vocab | None) -> None:
    rows = [[MASK, MASK, MASK], [65, MASK, 65], [MASK, MASK, 65]]
    trace = Trace.from_snapshots(rows, MASK, vocab=vocab)
    assert trace.steps == 2 and trace.timing()[1].tolist() == [3, 3, 1]
    assert trace.pieces[:2] == ("", "") and trace.order().tolist() == [2]
    for step, row in enumerate(rows):
        assert trace.replay(step).ids(MASK).tolist() == row
    kinds = [(change.step, change.slot, change.kind) for change in trace.changes()]
    assert kinds == [(1, 0, "reveal"), (1, 2, "reveal"), (2, 0, "mask")]
    assert trace.first_reveal_step.tolist() == [1, 3, 1]
    assert Trace.from_jsonl(trace.to_jsonl()).timing()[1].tolist() == [3, 3, 1]


def test_the_prompt_is_decoded_unless_told() -> None:
    rows = [[72, 105, MASK], [72, 105, 33]]
    made = Trace.from_snapshots(rows, MASK, vocab=Vocab.bytes(), prompt_length=2)
    assert (made.prompt, made.text) == ("Hi", "!")
    told = Trace.from_snapshots(rows, MASK, prompt_length=2, prompt="Hello")
    assert (told.prompt, told.text) == ("Hello", "<33>")


@pytest.mark.parametrize(
    ("snapshots", "options", "message"),
    [
        ([], {}, "snapshots is empty"),
        ([[1, MASK], [1, MASK, 2]], {}, "Pass insertion_masks"),
        ([[[1, MASK]], [[1, 2]]], {}, r"snapshot 0 has shape \(1, 2\).*one trace per row"),
        ([[1.5, 2.0]], {}, "snapshot 0: whole numbers"),
        (
            [[1], [1, 2]],
            {"insertion_masks": [[0], [0, 0]]},
            "snapshot 1 keeps 2 positions of the 1",
        ),
        ([[1, 2], [1]], {"insertion_masks": [[0, 0], [0]]}, "slots cannot vanish"),
        ([[1], [1]], {"insertion_masks": [[0]]}, "insertion_masks has 1 rows for 2 snapshots"),
        ([[1], [1]], {"insertion_masks": [[0], [0, 0]]}, r"insertion_masks\[1\] has shape"),
        ([[1], [1]], {"insertion_masks": [[0], [2]]}, "other than true and false"),
        (
            [[1, 2], [1, 2]],
            {"insertion_masks": [[0, 0], [0, 1]], "attention_masks": [[1, 0], [1, 0]]},
            r"insertion_masks\[1\] marks position 1, which attention_masks\[1\] leaves out",
        ),
        ([[1, MASK], [1, 2]], {"prompt_length": 3}, "prompt_length = 3 is more than"),
        ([[1, MASK], [1, 2]], {"prompt_length": 2}, "snapshot 0 .* position 1 of the prompt"),
        ([[1, 2], [1, 3]], {"prompt_length": 2}, "snapshot 0 .* position 1 of the prompt"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    snapshots: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Trace.from_snapshots(snapshots, MASK, **options)


def test_golden_generations_come_back(golden_order_metrics: Path) -> None:
    lines = golden_order_metrics.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 40
    for line in lines:
        golden = json.loads(line)
        prompt = list(golden["prompt"].encode())
        ids, ins, rev = list(golden["text"].encode("latin-1")), golden["ins"], golden["rev"]
        rows, created = [], []
        for step in range(golden["steps"] + 1):
            here = [slot for slot in range(len(ids)) if ins[slot] <= step]
            rows.append(prompt + [ids[slot] if rev[slot] <= step else MASK for slot in here])
            new = [step > 0 and ins[slot] == step for slot in here]
            created.append([False] * len(prompt) + new)
        trace = Trace.from_snapshots(
            rows,
            MASK,
            vocab=Vocab.bytes(),
            prompt_length=len(prompt),
            insertion_masks=created,
            entry_point=golden["entry"],
        )
        assert (trace.prompt, trace.text) == (golden["prompt"], golden["text"])
        assert trace.insert_step is not None
        assert trace.reveal_step is not None
        assert trace.insert_step.tolist() == ins
        assert trace.reveal_step.tolist() == rev
        assert_replays(trace, rows)
