"""Segments stay in their place while they are watched, emptied ones too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from play_support import STORY

from anyorder.apps.play.work import InPlace
from anyorder.decode.canvas import Decoded
from anyorder.model import load
from anyorder.report.traces import LiveSteps
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
MASK, EOS = VOCAB.mask_id, VOCAB.eos_id


def seen(step: int, ids: list[int], segment: list[int] | None, insert: int = 0) -> Decoded:
    reveal = [0 if token == MASK else step for token in ids]
    nans = [math.nan] * len(ids)
    return Decoded(ids, [insert] * len(ids), reveal, nans, step, step, 0, segment)


def test_an_empty_segment_stays_where_it_was() -> None:
    """The decoder lists it behind the others, as a trace does."""
    in_place = InPlace(EOS)
    first = in_place(seen(1, [MASK, MASK, 0, 1], [0, 1, 2, 2]))
    assert (first.token_ids, first.segment) == ([MASK, MASK, 0, 1], [0, 1, 2, 2])
    second = in_place(seen(2, [MASK, 0, 1, EOS], [0, 2, 2, 1]))
    assert (second.token_ids, second.segment) == ([MASK, EOS, 0, 1], [0, 1, 2, 2])
    assert second.reveal_step == [0, 2, 2, 2] and second.step == 2


def test_a_segment_that_is_erased_keeps_its_width() -> None:
    in_place, live = InPlace(EOS), LiveSteps(VOCAB)
    live.messages(in_place(seen(1, [MASK, 0, 1, 2], [0, 1, 1, 1])))
    erased = in_place(seen(2, [EOS, EOS], [0, 1]))
    assert erased.token_ids == [EOS] * 4 and erased.segment == [0, 1, 1, 1]
    (message,) = live.messages(erased)
    assert [[at, piece] for at, piece, _ in message["show"]] == [[at, ""] for at in range(4)]


def test_growing_canvases_and_tokens_are_left_alone() -> None:
    in_place = InPlace(EOS)
    tokens = seen(1, [EOS, MASK, 0], None)
    assert in_place(tokens) is tokens
    nothing = seen(1, [], [])
    assert in_place(nothing) is nothing
    grown = seen(2, [MASK, 0, MASK], [3, 1, 2], insert=1)
    assert in_place(grown).segment == [3, 1, 2], (
        "numbers of inserted segments say nothing of places"
    )


def test_the_player_can_follow_a_decoder_of_segments(small_models: object) -> None:
    model = load(f"{small_models}/latentmdm")
    with torch.no_grad():  # so that some segments come out empty
        model.net.embed.weight[model.vocab.eos_id] *= 6
    emptied = 0
    for seed in range(8):
        live, in_place = LiveSteps(model.vocab), InPlace(model.vocab.eos_id)

        def watch(
            rows: Sequence[Decoded], live: LiveSteps = live, in_place: InPlace = in_place
        ) -> None:
            live.messages(in_place(rows[0]))

        (trace,) = model.sample(STORY, seed=seed, policy="random", temperature=1.0, watch=watch)
        emptied += int((trace.token_ids == model.vocab.eos_id).sum())
    assert emptied > 0
