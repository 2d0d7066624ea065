"""Segments: nothing is lost, statements are Python's, limits the paper's and the release's."""

from __future__ import annotations

import ast
import gzip
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_programs import PROGRAMS, program
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from anyorder.data.corpora.stories import StoriesConfig, problem, stories_vocab
from anyorder.data.segments import (
    SEGMENTERS,
    CannotCut,
    DoesNotFit,
    SegmentConfig,
    cut,
    limit,
    lines,
    statements,
    statements_of_part,
)
from anyorder.vocab import SPECIALS, Vocab
from anyorder.vocab.codecs import QWEN2_SPLIT

BYTES = Vocab.bytes()
LINE_ENDS = st.text(alphabet="\n\r \t\f\v\x85\u2028aé;#\U0001f600", max_size=40)
TEXTS = LINE_ENDS | st.text(max_size=40)
EOS = BYTES.eos_id


def join(segments: list[list[int]], vocab: Vocab) -> str:
    """The text of segments. (A character may be made of two segments' bytes.)"""
    return vocab.decode([token for segment in segments for token in segment])


def flat(segments: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(segments))


@given(text=TEXTS)
def test_lines_end_with_newlines_and_nothing_else(text: str) -> None:
    found = lines(text)
    assert "".join(found) == text
    assert all(line.endswith("\n") for line in found[:-1])
    assert all(line and "\n" not in line[:-1] for line in found)
    assert len(found) == text.count("\n") + (not text.endswith("\n") and text != "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("\n", ["\n"]),
        ("a\nb", ["a\n", "b"]),
        ("a\nb\n", ["a\n", "b\n"]),
        ("\n\na\n  \n\n", ["\n", "\n", "a\n", "  \n", "\n"]),
        ("a\r\n\r\nb", ["a\r\n", "\r\n", "b"]),
        ("a\rb\x0cc\u2028d", ["a\rb\x0cc\u2028d"]),
        ("\tif x:\n\t\ty", ["\tif x:\n", "\t\ty"]),
    ],
)
def test_lines(text: str, found: list[str]) -> None:
    assert lines(text) == found


@given(text=TEXTS, length=st.integers(2, 6))
def test_cutting_any_text_loses_nothing(text: str, length: int) -> None:
    for by in ("line", "fixed"):
        found = cut(text, BYTES, by, length)
        assert join(found, BYTES) == text
        assert flat(found) == BYTES.encode(text) and all(found)
    assert all(len(segment) == length - 1 for segment in cut(text, BYTES, "fixed", length)[:-1])


@given(text=TEXTS)
def test_text_is_cut_by_statement_without_loss_or_refused(text: str) -> None:
    try:
        found = cut(text, BYTES, "statement", 2)
    except CannotCut:
        return
    assert join(found, BYTES) == text and all(found)


@given(pieces=program())
def test_programs_are_cut_into_the_statements_they_were_made_of(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert statements(text) == pieces
    assert join(cut(text, BYTES, "statement", 9), BYTES) == text


@given(pieces=program(), data=st.data())
def test_parts_of_programs_are_cut_alike(pieces: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(pieces)))
    last = data.draw(st.integers(first, len(pieces)))
    part = "".join(pieces[first:last])
    assert statements_of_part(part) == pieces[first:last]
    assert cut(part, BYTES, "statement", 9, part=True) == list(
        map(BYTES.encode, pieces[first:last])
    )
    for by in ("line", "fixed"):
        assert cut(part, BYTES, by, 9, part=True) == cut(part, BYTES, by, 9)


def test_a_part_begins_where_it_likes_but_not_inside_a_statement() -> None:
    part = ["        a = [\n1]\n", "    else:\n", "        b\n", "c\n", "if d:\n"]
    assert statements_of_part("".join(part)) == part
    assert statements_of_part("\t\tx\n\ty") == ["\t\tx\n", "\ty"]
    assert statements_of_part("  # only\n") == ["  # only\n"]
    for text in ("x = [1,\n", '"""\n'):
        with pytest.raises(CannotCut, match="not a run of whole Python statements"):
            statements_of_part(text)


@pytest.mark.parametrize("pieces", PROGRAMS.values(), ids=PROGRAMS)
def test_statements(pieces: list[str]) -> None:
    assert statements("".join(pieces)) == pieces
    assert statements_of_part("".join(pieces)) == pieces


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n",
        "    x = 1\n",
        "if x:\npass\n",
        "x = (1,\n",
        "x = 1\\",
        "x = '''",
        "x = 1\x00",
        "-" * 100_000 + "1",
        "caf\ud800 = 1",
        "if x:\n  y\n \\\n\nz\n",  # the parser takes it, the tokenizer does not
    ],
    ids=range(10),
)
def test_what_is_no_program_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(CannotCut, match=r"not a Python program .*: leave it out, or cut by line"):
        statements(text)


def test_odd_strings_are_cut_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert len(statements("x = '\\d'\nassert (x, 1)\ny = 1 is 1\n")) == 3
    assert not recwarn.list


def begins(source: str) -> Iterator[int]:
    """The line at which each statement begins that is the first one on its line."""
    text = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not text[node.lineno - 1][: node.col_offset].strip():
            yield min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def check_against_the_tree(source: str) -> None:
    """A segment holds the beginning of exactly one statement, or it is the header of a clause."""
    found = statements(source)
    assert "".join(found) == source
    owner = [number for number, piece in enumerate(found) for _ in range(piece.count("\n"))]
    owner.append(len(found) - 1)
    begun = [owner[line - 1] for line in sorted(set(begins(source)))]
    assert len(set(begun)) == len(begun)
    for number in set(range(len(found))) - set(begun):
        code = re.sub(r"^(\s*(#.*)?\n)*", "", found[number]).strip()
        assert re.match(r"(else|except|finally|case)\b", code) or not code, found[number]


def test_statements_are_those_of_the_tree() -> None:
    for module in (ast, inspect, json, gzip):
        check_against_the_tree(inspect.getsource(module))


@pytest.mark.long
def test_statements_are_those_of_the_tree_in_the_standard_library() -> None:
    files = sorted(Path(ast.__file__).parent.glob("*.py"))
    assert len(files) > 100
    for path in files:
        check_against_the_tree(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("by", SEGMENTERS)
def test_stories_have_the_same_tokens_cut_and_whole(by: str) -> None:
    vocab = stories_vocab()
    for index in range(200):
        text = problem(StoriesConfig(layout=1.0, wording=1.0), index).program
        found = cut(text, vocab, by, 12)
        assert flat(found) == vocab.encode(text) and join(found, vocab) == text
        assert max(map(len, found)) < 12 or by == "statement"


WORDS = Vocab.words(["a", "aa", "b", " ", "    ", "\n", "b\n", " \n", ":\n"])


@given(text=st.text(alphabet="ab \n", max_size=40))
def test_words_that_end_with_newlines_do_not_reach_over_a_cut(text: str) -> None:
    assert flat(cut(text, WORDS, "line", 9)) == WORDS.encode(text)


def test_words_that_begin_with_newlines_do() -> None:
    vocab = Vocab.words(["a", "\n", "    ", "\n    "])
    assert vocab.encode("a\n    a") == [0, 3, 0]
    assert cut("a\n    a", vocab, "line", 9) == [[0, 1], [2, 0]]
    assert join(cut("a\n    a", vocab, "line", 9), vocab) == "a\n    a"


TAUGHT = [
    "def f(x):\n    return x\n\n\nclass A:\n    def g(self):\n        return self.x\n\n" * 3,
    "if a == 1:\n    b = 2\nelse:\n    b = 3\n\n\n    c = 4\n",
]
SPLITS: dict[str, pre_tokenizers.PreTokenizer] = {
    "qwen2": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
}


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vocab]:
    """Small BPE vocabularies, by the tokenizer that they split text like."""
    folder, found = tmp_path_factory.mktemp("bpe"), {}
    for name, split in SPLITS.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<end>", "<mask>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(TAUGHT, trainer)
        tokenizer.save(str(folder / name))
        found[name] = Vocab.from_tokenizer_json(
            folder / name, mask="<mask>", pad="<end>", eos="<end>", pad_is_eos=True
        )
    return found


CODE_LIKE = st.lists(
    st.sampled_from(["def ", "x", "(", "):", "\n", "\n    ", "  ", "\t", "\r\n", "é1", "# ", "'s"]),
    max_size=20,
).map("".join)


@given(text=CODE_LIKE | TEXTS)
def test_bpe_cut_by_line_has_the_same_tokens_unless_a_blank_line_follows(
    text: str, bpe: dict[str, Vocab]
) -> None:
    vocab = bpe["qwen2"]
    found = cut(text, vocab, "line", 9)
    assert join(found, vocab) == text
    if not re.search(r"\n\s*[\r\n]", text):
        assert flat(found) == vocab.encode(text)


@given(text=CODE_LIKE | TEXTS)
def test_bpe_with_the_older_splitting_differs_at_indentation_as_well(
    text: str, bpe: dict[str, Vocab]
) -> None:
    vocab = bpe["gpt2"]
    found = cut(text, vocab, "line", 9)
    assert join(found, vocab) == text
    if not re.search(r"\n\s", text):
        assert flat(found) == vocab.encode(text)


@given(text=CODE_LIKE | TEXTS)
def test_bpe_cut_by_number_has_the_same_tokens(text: str, bpe: dict[str, Vocab]) -> None:
    for vocab in bpe.values():
        assert flat(cut(text, vocab, "fixed", 4)) == vocab.encode(text)


def test_where_bpe_differs(bpe: dict[str, Vocab]) -> None:
    def differs(name: str, text: str) -> bool:
        return flat(cut(text, bpe[name], "line", 9)) != bpe[name].encode(text)

    assert differs("qwen2", "x\n\n\nx") and not differs("qwen2", "x:\n    x")
    assert differs("gpt2", "x\n\n\nx") and differs("gpt2", "x:\n    x")


def test_qwen2_reads_programs_alike_in_lines(data_file: Callable[[str], Path]) -> None:
    """Solutions of HumanEval without blank lines, as the release cleans its data."""
    vocab = Vocab.from_tokenizer_json(
        data_file("tokenizer/qwen2.5_tokenizer.json.gz"), **SPECIALS["qwen2"]
    )
    with gzip.open(data_file("benchmarks/HumanEval.jsonl.gz"), "rt") as file:
        problems = [json.loads(line) for line in file]
    for each in problems:
        whole = each["prompt"] + each["canonical_solution"]
        text = "".join(line for line in lines(whole) if line.strip())
        for by in SEGMENTERS:
            assert flat(cut(text, vocab, by, 32)) == vocab.encode(text)
        assert join(cut(whole, vocab, "statement", 32), vocab) == whole


def test_what_the_tokenizer_makes_nothing_of_is_no_segment() -> None:
    class Blind(Vocab):
        def encode(self, text: str, *, specials: bool = False, begun: bool = False) -> list[int]:
            return [] if text.isspace() else super().encode(text)

    vocab = Blind.words(["a", "\n"])
    assert cut("a\n\na", vocab, "line", 9) == [[0, 1], [0]]


# Limits

SIZES = st.lists(st.integers(1, 7), max_size=6)
CONFIGS = st.builds(SegmentConfig, slots=st.integers(1, 5), segment_length=st.integers(2, 7))


def some_segments(sizes: list[int]) -> list[list[int]]:
    return [[10 * number + place for place in range(size)] for number, size in enumerate(sizes)]


def table_of(segments: list[list[int]], config: SegmentConfig) -> list[list[int]]:
    """L_s x L_seg tokens, everything padded with EOS."""
    short = config.slots - len(segments)
    length = config.segment_length
    return [[*segment, *[EOS] * (length - len(segment))] for segment in segments] + (
        [[EOS] * length] * short
    )


def papers_table(segments: list[list[int]], config: SegmentConfig) -> list[list[int]]:
    """Appendix E, word by word: truncate, pad, replace the final token of what exceeds."""
    table = []
    for number in range(config.slots):
        segment = segments[number] if number < len(segments) else []
        row = (segment + [EOS] * config.segment_length)[: config.segment_length]
        if len(segment) > config.segment_length:
            row[-1] = EOS
        table.append(row)
    return table


@given(sizes=SIZES, config=CONFIGS)
def test_truncating_is_the_papers(sizes: list[int], config: SegmentConfig) -> None:
    segments = some_segments(sizes)
    kept = limit(segments, config)
    assert table_of(kept, config) == papers_table(segments, config)
    assert all(kept) and len(kept) == min(len(segments), config.slots)
    again = limit(kept, config)
    assert again == kept


@given(sizes=SIZES, config=CONFIGS)
def test_dropping_is_the_releases(sizes: list[int], config: SegmentConfig) -> None:
    config = SegmentConfig("line", config.slots, config.segment_length, "drop")
    segments = some_segments(sizes)
    if len(sizes) > config.slots or any(size >= config.segment_length for size in sizes):
        with pytest.raises(DoesNotFit, match=r"do not fit in .*overflow=truncate"):
            limit(segments, config)
    else:
        assert limit(segments, config) == segments


@given(sizes=SIZES, config=CONFIGS)
def test_what_fits_stays_whole(sizes: list[int], config: SegmentConfig) -> None:
    assume(len(sizes) <= config.slots and max(sizes, default=0) <= config.segment_length)
    assert limit(some_segments(sizes), config) == some_segments(sizes)


@pytest.mark.parametrize(
    ("sizes", "truncated"),
    [([4], [4]), ([5], [3]), ([3, 9, 1], [3, 3]), ([], []), ([1, 1], [1, 1])],
)
def test_a_full_segment_stays_whole_and_a_longer_one_is_closed(
    sizes: list[int], truncated: list[int]
) -> None:
    kept = limit(some_segments(sizes), SegmentConfig(slots=2, segment_length=4))
    assert list(map(len, kept)) == truncated


@given(text=TEXTS, length=st.integers(2, 6))
def test_pieces_of_fixed_length_are_never_too_long(text: str, length: int) -> None:
    found = cut(text, BYTES, "fixed", length)
    for overflow in ("truncate", "drop"):
        config = SegmentConfig("fixed", max(1, len(found)), length, overflow)  # type: ignore[arg-type]
        assert limit(found, config) == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "word"}, "by is 'word': choose one of line, statement, fixed"),
        ({"overflow": "clip"}, "overflow is 'clip': choose one of truncate, drop"),
        ({"slots": 0}, "slots is 0: give a whole number from 1"),
        ({"segment_length": 1}, "segment_length is 1: give a whole number from 2"),
        ({"slots": 2.0}, "slots is 2.0: give a whole number"),
        ({"slots": True}, "slots is True: give a whole number"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentConfig(**options)  # type: ignore[arg-type]


def test_cutting_in_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of line"):
        cut("a", BYTES, "paragraph", 9)
    with pytest.raises(ValueError, match="from 2 on"):
        cut("a", BYTES, "fixed", 1)


def test_importing_segments_is_light() -> None:
    code = "import sys, anyorder.data.segments; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "False", done.stderr
