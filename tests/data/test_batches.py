"""Batches: where everything stands, and that they are a function of (seed, step)."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder.data import (
    Batch,
    BatchConfig,
    Batches,
    Example,
    StoriesConfig,
    StoriesSource,
    collate,
    problem,
    stories_vocab,
    tokenise,
)
from anyorder.data.segments import CannotCut, DoesNotFit, SegmentConfig
from anyorder.families.latentmdm.loss import Segments
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcdefgh"))
MASK, PAD, EOS = VOCAB.mask_id, VOCAB.pad_id, VOCAB.eos_id
TOKENS = st.lists(st.integers(0, 7), max_size=6)
EXAMPLES = st.lists(st.builds(Example, TOKENS, TOKENS, st.integers(0, 99)), min_size=1, max_size=5)


class Letters:
    """A finite source with examples of many lengths, each unlike all others."""

    def __init__(self, size: int) -> None:
        self.size: int | None = size

    def __getitem__(self, index: int) -> tuple[str, str]:
        digits = "".join("abcdefgh"[int(digit)] for digit in oct(index)[2:])
        return digits, "a" * (index * 7 % 11)


def test_rows_without_a_canvas() -> None:
    examples = [Example([0, 1], [2], 5), Example([3], [4, 5, 6], 9)]
    batch = collate(examples, VOCAB, BatchConfig())
    assert batch.ids.tolist() == [[0, 1, 2, EOS, PAD], [3, 4, 5, 6, EOS]]
    assert batch.prompt_length.tolist() == [2, 1]
    assert batch.length.tolist() == [4, 5]
    assert batch.index.tolist() == [5, 9]
    assert batch.answer.tolist() == [[False, False, True, True, False], [False] + [True] * 4]
    assert batch.real.tolist() == [[True] * 4 + [False], [True] * 5]
    assert all(t.dtype == torch.long for t in (batch.ids, batch.length, batch.index))


def test_rows_on_a_canvas() -> None:
    examples = [Example([0, 1], [2], 5), Example([3], [4, 5], 9)]
    left = collate(examples, VOCAB, BatchConfig(canvas=4))
    assert left.ids.tolist() == [[0, 1, 2, EOS, EOS, EOS], [3, 4, 5, EOS, EOS, PAD]]
    assert left.length.tolist() == [6, 5]
    right = collate(examples, VOCAB, BatchConfig(canvas=4, align="right"))
    assert right.ids.tolist() == [[0, 1, PAD, PAD, 2, EOS], [3, PAD, 4, 5, EOS, PAD]]
    assert right.length.tolist() == [6, 5]
    assert right.answer.sum(1).tolist() == [4, 4]


@given(examples=EXAMPLES, canvas=st.none() | st.integers(7, 12), right=st.booleans())
def test_what_went_in_comes_out(examples: list[Example], canvas: int | None, right: bool) -> None:
    align = "right" if right and canvas is not None else "left"
    batch = collate(examples, VOCAB, BatchConfig(canvas=canvas, align=align))  # type: ignore[arg-type]
    assert batch.ids.shape[1] == int(batch.length.max())
    for row, example in enumerate(examples):
        ids, length = batch.ids[row].tolist(), int(batch.length[row])
        prompt = int(batch.prompt_length[row])
        assert ids[:prompt] == example.prompt
        assert set(ids[length:]) <= {PAD}
        answer = batch.ids[row][batch.answer[row]].tolist()
        assert answer == ids[prompt:length]
        assert [token for token in answer if token not in (EOS, PAD)] == example.answer
        assert answer[-1] == EOS
        room = len(example.answer) + 1 if canvas is None else canvas
        assert len(answer) == room
        if align == "right":
            assert answer.count(EOS) == 1
        else:
            assert PAD not in answer
    assert MASK not in batch.ids


def test_an_answer_may_fill_the_canvas_but_not_overflow_it() -> None:
    full = Example([0], [1, 2, 3], 17)
    assert collate([full], VOCAB, BatchConfig(canvas=3)).ids.tolist() == [[0, 1, 2, 3]]
    for canvas, align in ((2, "left"), (3, "right")):
        with pytest.raises(
            ValueError, match=rf"example 17 needs . tokens and the canvas has {canvas}"
        ):
            collate([full], VOCAB, BatchConfig(canvas=canvas, align=align))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canvas": None, "align": "right"}, "needs a canvas"),
        ({"canvas": 5, "align": "middle"}, "give left or right"),
        ({"canvas": 0}, "canvas is 0"),
    ],
)
def test_bad_canvases_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collate([Example([0], [1], 0)], VOCAB, BatchConfig(**options))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        BatchConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"size": 0}, {"bucket": 0}, {"seed": "x"}, {"size": 2.0}])
def test_bad_settings_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="give a"):
        BatchConfig(**options)  # type: ignore[arg-type]


def test_empty_things_are_refused() -> None:
    with pytest.raises(ValueError, match="no examples"):
        collate([], VOCAB, BatchConfig(canvas=None))
    with pytest.raises(ValueError, match="source is empty"):
        Batches(Letters(0), VOCAB, BatchConfig())
    with pytest.raises(ValueError, match="before the first"):
        Batches(Letters(5), VOCAB, BatchConfig())(-1)


def read(batches: Batches, first: int, last: int) -> list[int]:
    return [example.index for step in range(first, last) for example in batches.examples(step)]


@settings(max_examples=40, deadline=None)
@given(
    examples=st.integers(1, 60),
    size=st.integers(1, 7),
    bucket=st.integers(2, 5),
    seed=st.integers(0, 1000),
)
def test_bucketing_reads_the_same_examples(
    examples: int, size: int, bucket: int, seed: int
) -> None:
    """In every group of `bucket` batches, hence in every epoch up to the group it ends in."""
    source = Letters(examples)
    plain = Batches(source, VOCAB, BatchConfig(size, seed, 1))
    sorted_by_length = Batches(source, VOCAB, BatchConfig(size, seed, bucket))
    for group in range(3):
        first, last = group * bucket, (group + 1) * bucket
        assert Counter(read(sorted_by_length, first, last)) == Counter(read(plain, first, last))
    epochs = size  # that many steps times that many rows
    assert set(Counter(read(plain, 0, examples)).values()) == {epochs}


@settings(max_examples=25, deadline=None)
@given(steps=st.permutations(range(12)), bucket=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_batch_depends_on_seed_and_step_alone(steps: list[int], bucket: int, seed: int) -> None:
    config = BatchConfig(4, seed, bucket, canvas=12)
    one = Batches(Letters(37), VOCAB, config)
    in_turn = [one(step) for step in range(12)]
    two = Batches(Letters(37), VOCAB, config)
    for step in steps:
        batch = two(step)
        assert torch.equal(batch.ids, in_turn[step].ids)
        assert torch.equal(batch.index, in_turn[step].index)
    other = Batches(Letters(37), VOCAB, BatchConfig(4, seed + 1, bucket, canvas=12))
    assert read(other, 0, 9) != read(one, 0, 9)


def test_bucketing_saves_padding_and_deals_lengths_in_no_order() -> None:
    source = StoriesSource(StoriesConfig())

    def padding(bucket: int) -> float:
        batches = Batches(source, stories_vocab(), BatchConfig(16, 0, bucket))
        found = [batches(step) for step in range(32)]
        return sum(int((~b.real).sum()) for b in found) / sum(b.ids.numel() for b in found)

    assert padding(8) < 0.5 * padding(1)
    batches = Batches(source, stories_vocab(), BatchConfig(16, 0, 8))
    widths = [batches(step).ids.shape[1] for step in range(32)]
    groups = [widths[start : start + 8] for start in range(0, 32, 8)]
    assert any(group != sorted(group) for group in groups)
    assert len({tuple(sorted(range(8), key=group.__getitem__)) for group in groups}) > 1


def test_stories_stand_on_the_side_that_was_asked_for() -> None:
    source, vocab = StoriesSource(StoriesConfig(layout=1.0)), stories_vocab()
    for align in ("left", "right"):
        batch = Batches(source, vocab, BatchConfig(8, canvas=64, align=align))(0)
        assert batch.answer.sum(1).tolist() == [64] * 8
        for row, index in enumerate(batch.index.tolist()):
            told = batch.ids[row, : int(batch.prompt_length[row])].tolist()
            answer = batch.ids[row][batch.answer[row]].tolist()
            expected = problem(source.config, index)
            assert vocab.decode(told) == expected.prompt
            assert vocab.decode(answer) == expected.program
            body = vocab.encode(expected.program)
            where = slice(0, len(body)) if align == "left" else slice(-len(body) - 1, -1)
            assert answer[where] == body


def test_an_empty_prompt_becomes_bos() -> None:
    assert tokenise("", "ab", 3, VOCAB) == Example([VOCAB.bos_id], [0, 1], 3)  # type: ignore[list-item]
    assert tokenise("h", "", 3, VOCAB) == Example([7], [], 3)


def test_text_that_cannot_be_tokenised_is_named() -> None:
    with pytest.raises(ValueError, match=r"example 4 of the source.*'x'"):
        tokenise("abx", "c", 4, VOCAB)


def test_batches_move_between_devices_whole() -> None:
    batch = collate([Example([0], [1], 2)], VOCAB, BatchConfig(canvas=3)).to("meta")
    assert isinstance(batch, Batch)
    assert {t.device.type for t in (batch.ids, batch.prompt_length, batch.length, batch.index)} == {
        "meta"
    }


# Segments

SEGMENTS = SegmentConfig(slots=5, segment_length=7)
FIXED = BatchConfig(ending="none", segments=SEGMENTS, pad_slots=True)
OPEN = BatchConfig(ending="none", segments=SEGMENTS)
CUT = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=7), max_size=5)
CUT_ROWS = st.lists(st.tuples(TOKENS, CUT), min_size=1, max_size=4)


def cut_examples(rows: list[tuple[list[int], list[list[int]]]]) -> list[Example]:
    return [
        Example(prompt, list(chain.from_iterable(cut)), index, tuple(map(len, cut)))
        for index, (prompt, cut) in enumerate(rows)
    ]


def test_rows_of_segments() -> None:
    examples = cut_examples([([0, 1], [[2], [3, 4]]), ([5], [])])
    batch = collate(examples, VOCAB, FIXED)
    assert batch.ids.tolist() == [[0, 1, 2, 3, 4], [5, PAD, PAD, PAD, PAD]]
    assert batch.prompt_length.tolist() == [2, 1] and batch.length.tolist() == [5, 1]
    assert batch.segment_length is not None and batch.segment_count is not None
    assert batch.segment_length.tolist() == [[1, 2, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert batch.segment_count.tolist() == [2, 0]
    assert batch.segment_length.dtype == batch.segment_count.dtype == torch.int64
    opened = collate(examples, VOCAB, OPEN)
    assert opened.segment_length is not None
    assert opened.segment_length.tolist() == [[1, 2], [0, 0]]
    assert torch.equal(opened.ids, batch.ids)
    assert {t.device.type for t in vars(batch.to("meta")).values()} == {"meta"}
    uncut = collate([Example([0], [1], 2)], VOCAB, BatchConfig())
    assert uncut.segment_length is uncut.segment_count is uncut.to("cpu").segment_length is None


@given(rows=CUT_ROWS, padded=st.booleans())
def test_segments_come_out_of_a_batch_as_they_went_in(
    rows: list[tuple[list[int], list[list[int]]]], padded: bool
) -> None:
    batch = collate(cut_examples(rows), VOCAB, FIXED if padded else OPEN)
    assert batch.segment_length is not None
    most = max(len(cut) for _, cut in rows)
    assert batch.segment_length.shape == (len(rows), SEGMENTS.slots if padded else most)
    content = Segments.of(batch, VOCAB)
    assert content.tokens.dtype == content.length.dtype == torch.int64
    slots = batch.segment_length.shape[1]
    expected = [[*cut, *[[]] * (slots - len(cut))] for _, cut in rows]
    assert segment_ids(content, VOCAB) == expected
    assert content.length.tolist() == [[len(segment) for segment in row] for row in expected]
    longest = max((len(segment) for row in expected for segment in row), default=0)
    assert content.tokens.shape[2] == longest + 1


def segment_ids(found: Segments, vocab: Vocab) -> list[list[list[int]]]:
    """The tokens of each segment of each row; what is behind its end must be EOS."""
    real = torch.arange(found.tokens.shape[2]) < found.length[:, :, None]
    assert bool((found.tokens[~real] == vocab.eos_id).all())
    return [
        [ids[:size] for ids, size in zip(*pair, strict=True)]
        for pair in zip(found.tokens.tolist(), found.length.tolist(), strict=True)
    ]


def test_answers_without_segments() -> None:
    for config, slots in ((FIXED, 5), (OPEN, 0)):
        batch = collate([tokenise("ab", "", 0, VOCAB, segments=SEGMENTS)], VOCAB, config)
        assert batch.segment_length is not None and batch.segment_length.shape == (1, slots)
        assert batch.ids.tolist() == [[0, 1]]
        every = Segments.of(batch, VOCAB)
        assert every.tokens.shape == (1, slots, 1) and every.length.tolist() == [[0] * slots]


LINES = Vocab.words([*"abcdefgh", "\n"])


def test_answers_are_cut_when_they_are_tokenised() -> None:
    example = tokenise("a", "ab\n\nc", 3, LINES, segments=SEGMENTS)
    assert example == Example([0], [0, 1, 8, 8, 2], 3, (3, 1, 1))
    long = tokenise("a", "abcdefg\n" + 5 * "a\n", 4, LINES, segments=SEGMENTS)
    assert long == Example([0], [0, 1, 2, 3, 4, 5] + 4 * [0, 8], 4, (6, 2, 2, 2, 2), truncated=True)
    full = tokenise("a", "abcdef\n", 5, LINES, segments=SEGMENTS)
    assert full.segments == (7,) and not full.truncated


def test_what_is_to_be_left_out_says_so() -> None:
    drop = SegmentConfig(slots=2, segment_length=4, overflow="drop")
    for answer in ("a\na\na", "abcd", "abc\n"):
        with pytest.raises(DoesNotFit, match=r"example 7 of the source.*do not fit in 2 of 4"):
            tokenise("a", answer, 7, LINES, segments=drop)
    assert tokenise("a", "ab\nabc", 7, LINES, segments=drop).segments == (3, 3)
    with pytest.raises(CannotCut, match="example 8 of the source: not a Python program"):
        tokenise("a", "a b", 8, LINES, segments=SegmentConfig(by="statement"))
    with pytest.raises(ValueError, match=r"example 9 of the source.*'x'") as caught:
        tokenise("a", "x", 9, LINES, segments=drop)
    assert type(caught.value) is ValueError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad_slots": True}, "pad_slots has no effect"),
        ({"segments": SEGMENTS}, "ending='none'"),
        ({"segments": SEGMENTS, "canvas": 5}, "leave canvas out"),
    ],
)
def test_settings_that_do_not_go_with_segments_are_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        BatchConfig(**options)  # type: ignore[arg-type]


def test_examples_that_were_cut_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match="example 4 is not cut: tokenise it with segments="):
        collate([Example([0], [1], 4)], VOCAB, FIXED)
    for lengths in ((8,), (1,) * 6):
        with pytest.raises(ValueError, match=r"example 4 has . segments of up to . tokens"):
            collate([Example([0], [1] * sum(lengths), 4, lengths)], VOCAB, OPEN)


@settings(max_examples=25)
@given(steps=st.permutations(range(8)), by=st.sampled_from(["line", "statement", "fixed"]))
def test_segments_change_neither_order_nor_tokens(steps: list[int], by: str) -> None:
    source, vocab = StoriesSource(StoriesConfig(layout=1.0)), stories_vocab()
    segments = SegmentConfig(by, 12, 16)  # type: ignore[arg-type]
    plain = Batches(source, vocab, BatchConfig(3, 5, 4, ending="none"))
    cut = Batches(source, vocab, BatchConfig(3, 5, 4, ending="none", segments=segments))
    for step in steps[:3]:
        one, two = plain(step), cut(step)
        for name in ("ids", "prompt_length", "length", "index"):
            assert torch.equal(getattr(one, name), getattr(two, name))
        assert two.segment_length is not None
        assert torch.equal(two.segment_length.sum(1), two.length - two.prompt_length)


def test_lines_of_stories_are_read_back_from_a_batch() -> None:
    source, vocab = StoriesSource(StoriesConfig(layout=1.0)), stories_vocab()
    config = BatchConfig(
        8, ending="none", segments=SegmentConfig(slots=12, segment_length=12), pad_slots=True
    )
    batch = Batches(source, vocab, config)(0)
    found = segment_ids(Segments.of(batch, vocab), vocab)
    for row, index in enumerate(batch.index.tolist()):
        lines = [vocab.decode(ids) for ids in found[row] if ids]
        assert lines == problem(source.config, index).program.splitlines(keepends=True)
