"""From a recipe's data fields to what training reads: vocabulary, examples, held-out examples.

    stories      validated on its held-out compositions
    file, hf:    one example in HELD_OUT_SHARE, chosen by key, is held out
    shards       divided and tokenised by `anyorder data`; checked here for vocabulary and segments
    messages     a file or hf: of conversations; each turn of the assistant is an example

Examples that do not fit the recipe's lengths, or that cannot be cut into its segments, are left out
of files and shards, and counted. Stories that may not fit are refused instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.data.batches import read_example
from anyorder.data.corpora.stories import (
    MAX_PROGRAM_TOKENS,
    MAX_PROMPT_TOKENS,
    StoriesConfig,
    stories_digest,
    stories_vocab,
)
from anyorder.data.corpora.stories.problem import MAX_LINES
from anyorder.data.corpora.stories.program import MAX_LINE_TOKENS, REMARK
from anyorder.data.corpora.trails import (
    TrailsConfig,
    TrailsDials,
    TrailsSource,
    sizes,
    trails_digest,
    trails_vocab,
)
from anyorder.data.keyed import Permutation
from anyorder.data.messages import MessagesSource
from anyorder.data.segments import CannotCut, DoesNotFit, SegmentConfig
from anyorder.data.sources import (
    MANIFEST,
    Array,
    DatasetSource,
    JsonlSource,
    Shard,
    ShardSource,
    Source,
    Split,
    StoriesSource,
    TextSource,
    hub_dataset,
    jsonl_records,
    read_manifest,
)
from anyorder.files import sha256_of
from anyorder.loading import find_vocab
from anyorder.recipes import DataConfig
from anyorder.vocab import Vocab


def is_shard_folder(source: str) -> bool:
    """Whether a data source names a folder of shards, which may not be made yet."""
    return Path(source).is_dir() or _is_published(Path(source).name)


def _is_published(name: str) -> bool:
    """Whether `anyorder data` has a recipe of this name."""
    from anyorder.data.published import (
        CORPORA,  # here: its filters are compiled, `stories` has none
    )

    return name in CORPORA


@dataclass(frozen=True)
class _Limits:
    """The limits of an example, in tokens, and their names for messages."""

    config: DataConfig
    vocab: Vocab
    around: int
    segments: SegmentConfig | None

    def holds(self, prompt: Any, answer: Any) -> Any:
        """Whether an example fits, by the lengths of its prompt and answer (numbers or arrays)."""
        whole = prompt + answer + self.around
        return (answer < self.config.canvas) & (whole <= self.config.max_length)

    def __str__(self) -> str:
        names = {"data.canvas": self.config.canvas, "data.max_length": self.config.max_length}
        if self.segments is not None and self.segments.overflow == "drop":
            names["segments.slots"] = self.segments.slots
            names["segments.segment_length"] = self.segments.segment_length
        *first, last = (f"{name}={value}" for name, value in names.items())
        return f"{', '.join(first)} and {last}"


def manifest_digest(folder: Path) -> str:
    """A digest of the content of a folder of shards."""
    if not (folder / MANIFEST).is_file():
        name = folder.name
        advice = f"make it with: anyorder data {name if _is_published(name) else 'RECIPE'}"
        if (folder / "work").is_dir():
            advice = "it is not finished, repeat the command that makes it"
        raise ValueError(f"data.source={str(folder)!r} holds no shards: {advice} --out {folder}")
    manifest = read_manifest(folder)
    held = [manifest["identity"], *(shard["sha256"] for shard in manifest["shards"])]
    return hashlib.sha256("\n".join(held).encode()).hexdigest()


def _fitting_rows(folder: Path, split: Split, limits: _Limits) -> tuple[ShardSource, int, int]:
    """The rows of a split that are not too long; how many are left out; how many truncated."""
    source = ShardSource(folder, split, limits.vocab)
    if limits.segments is not None and limits.segments.by != source.cut:
        raise ValueError(
            f"{folder} is cut by {source.cut}, not by {limits.segments.by}: give --segments.by "
            f"{source.cut}"
            if source.cut
            else f"{folder} is not cut into segments: tinygsm and gsm8k-programs are, by line"
        )
    chosen, left_out, truncated, before = [], 0, 0, 0
    for shard in source.shards:
        fits, shortened = _fitting(shard, limits)
        left_out += int((~fits).sum()) * shard.repeat
        truncated += int((fits & shortened).sum()) * shard.repeat
        rows = np.flatnonzero(np.tile(fits, shard.repeat)) + before
        chosen.append(rows)
        before += shard.rows * shard.repeat
    if left_out:
        source = source.chosen(np.concatenate(chosen))
    if not source.size:
        raise ValueError(
            f"no row of {folder}/{split} fits in {limits}: raise them, or make shards with more "
            "rows (anyorder data --validation sets the share that is held out)"
        )
    return source, left_out, truncated


def _fitting(shard: Shard, limits: _Limits) -> tuple[Array, Array]:
    """Masks: the rows that fit, and those that truncation to segments shortens."""
    # From stored lengths, for a whole shard at a time: no tokens are read.
    answer, prompt = shard.answer_length, shard.prompt_length
    shortened = np.zeros(shard.rows, dtype=bool)
    fits = np.ones(shard.rows, dtype=bool)
    if (segments := limits.segments) is not None:
        kept, count, longest = _segments(shard, segments)
        if segments.overflow == "drop":
            fits = (count <= segments.slots) & (longest < segments.segment_length)
        else:
            shortened = kept < answer
            answer = kept
    return fits & limits.holds(prompt, answer), shortened


def _segments(shard: Shard, config: SegmentConfig) -> tuple[Array, Array, Array]:
    """For each row: tokens left after truncation, number of segments, longest segment."""
    lengths, start = shard.arrays["segment_length"], shard.arrays["segment_start"]
    count = np.diff(start)
    place = np.arange(len(lengths)) - np.repeat(start[:-1], count)
    room = config.segment_length
    # A truncated segment keeps one place for its EOS; segments past the last slot are dropped.
    held = np.where(lengths <= room, lengths, room - 1) * (place < config.slots)
    row = np.repeat(np.arange(shard.rows), count)
    kept = np.bincount(row, weights=held, minlength=shard.rows).astype(np.int64)
    longest = np.zeros(shard.rows, dtype=np.int64)
    np.maximum.at(longest, row, lengths)
    return kept, count, longest


HELD_OUT_SHARE = 20
STORIES_ONLY = ("layout", "wording", "state_layout")


@dataclass(frozen=True)
class Corpus:
    """The data that a model is trained and validated on."""

    vocab: Vocab
    train: Source
    validation: Source
    digest: str
    left_out: int = 0
    """Examples that do not fit the recipe, or cannot be cut into segments."""
    uncut: int = 0
    """The part of `left_out` that cannot be cut into segments."""
    truncated: int = 0
    """Examples in training that were shortened to fit into their segments."""
    chat_remark: str = ""
    """On the chat template of conversations."""

    def remarks(self) -> list[str]:
        """Remarks on the data for the user, one sentence each."""
        counts = {
            "are too long and left out": self.left_out - self.uncut,
            "cannot be cut into segments and are left out": self.uncut,
            "are truncated to fit into their segments": self.truncated,
        }
        found = [f"{count} examples {what}" for what, count in counts.items() if count]
        return found + ([self.chat_remark] if self.chat_remark else [])


class SelectedExamples:
    """Some examples of a source."""

    def __init__(self, source: Source, indices: list[int]) -> None:
        self._source, self._indices = source, indices

    @property
    def size(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self._source[self._indices[index]]


def open_corpus(
    config: DataConfig,
    around: Callable[[Vocab], int] = lambda vocab: 1,
    segments: SegmentConfig | None = None,
    trails: TrailsDials | None = None,
) -> Corpus:
    """Read what the data fields name.

    `around` counts a row's tokens besides prompt and answer; `segments` is how answers are cut;
    `trails` are the dials of that corpus.
    """
    vocab = open_vocab(config.vocab)
    limits = _Limits(config, vocab, around(vocab) + len(vocab.prefix_ids), segments)
    if config.messages_field:
        # A template writes what begins a text itself.
        return _conversations(replace(limits, around=around(vocab)))
    _refuse_unused(config, ("chat",))
    if config.source == "stories":
        _refuse_unused(config, ("split", "documents", "prompt_field", "answer_field"))
        return _stories(limits)
    _refuse_unused(config, STORIES_ONLY)
    if config.source == "trails":
        _refuse_unused(config, ("split", "documents", "prompt_field", "answer_field"))
        return _trails(limits, trails or TrailsDials())
    if trails not in (None, TrailsDials()):
        raise ValueError(f"trails has no effect on data.source={config.source}: leave it out")
    if config.source.startswith("hf:"):
        _refuse_unused(config, ("documents",))
        source = DatasetSource.load(
            config.source.removeprefix("hf:"),
            split=config.split,
            prompt=config.prompt_field or None,
            answer=config.answer_field,
        )
        return _divided(limits, source, source.fingerprint)
    _refuse_unused(config, ("split",))
    path = Path(config.source)
    if is_shard_folder(config.source):
        _refuse_unused(config, ("documents", "prompt_field", "answer_field"))
        return _shards(limits, path)
    return _divided(limits, _open_file(path, config), sha256_of(path))


def _conversations(limits: _Limits) -> Corpus:
    """The assistant's turns of a file or dataset of conversations."""
    # Here: most data has none.
    from anyorder.hub.chats import TEMPLATES, check_spellings, named_template

    config, vocab = limits.config, copy(limits.vocab)  # the built-in ones are shared
    limits = replace(limits, vocab=vocab)
    _refuse_unused(config, (*STORIES_ONLY, "documents", "prompt_field", "answer_field"))
    # The model folder keeps the template that it was trained with.
    vocab.chat = named_template(config.chat) if config.chat else vocab.chat
    if vocab.chat is None:
        raise ValueError(
            f"data.vocab={config.vocab} has no chat template: give data.chat a file with one, or "
            f"one of {', '.join(TEMPLATES)}"
        )
    remark = check_spellings(vocab.chat, vocab) if config.chat else ""
    name = config.source.removeprefix("hf:")
    if name != config.source:
        dataset = hub_dataset(name, split=config.split)
        digest = str(getattr(dataset, "_fingerprint", "unknown"))
        places = map("record {}".format, range(len(dataset)))
        records: Iterator[tuple[str, Any]] = zip(places, dataset, strict=True)
    else:
        _refuse_unused(config, ("split",))
        path = Path(config.source)
        if ".jsonl" not in path.suffixes:
            raise ValueError(
                f"data.source={config.source}: messages are in .jsonl files or hf:NAME"
            )
        records, digest = jsonl_records(path), sha256_of(path) if path.is_file() else ""
    rows = ((where, _messages(record, config.messages_field, where)) for where, record in records)
    source = MessagesSource(rows, vocab.chat, vocab)
    both = hashlib.sha256(f"{digest} {vocab.chat.digest}".encode()).hexdigest()
    return replace(_divided(limits, source, both), chat_remark=remark)


def _messages(record: Any, name: str, where: str) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise ValueError(f"{where}: no field {name!r}: name it with data.messages_field")
    return record[name]


def _refuse_unused(config: DataConfig, names: Sequence[str]) -> None:
    defaults = DataConfig()
    for name in names:
        if getattr(config, name) != getattr(defaults, name):
            raise ValueError(f"data.{name} has no effect on {config.source}: leave it out")


def open_vocab(name: str) -> Vocab:
    if name == "stories":
        return stories_vocab()
    if name == "trails":
        return trails_vocab()
    if name == "bytes":
        return Vocab.bytes()
    try:
        return find_vocab(name)
    except ValueError as error:
        raise ValueError(
            f"data.vocab={name!r}: give stories, trails, bytes, a model, or a folder with a "
            f"tokenizer or a vocabulary ({error})"
        ) from None


def _stories(limits: _Limits) -> Corpus:
    config = limits.config
    dials = {name: getattr(config, name) for name in STORIES_ONLY}
    train = StoriesConfig(seed=config.seed, **dials)
    longest = MAX_PROMPT_TOKENS + config.canvas + limits.around - 1
    if config.canvas <= MAX_PROGRAM_TOKENS:
        least = MAX_PROGRAM_TOKENS + 1
        raise ValueError(f"data.canvas={config.canvas}: stories needs at least {least}, raise it")
    if config.max_length < longest:
        raise ValueError(
            f"data.max_length={config.max_length}: stories with data.canvas={config.canvas} needs "
            f"at least {longest}, raise it"
        )
    if limits.segments is not None:
        _check_story_segments(limits.segments, limits.vocab)
    return Corpus(
        vocab=limits.vocab,
        train=StoriesSource(train),
        validation=StoriesSource(replace(train, split="heldout")),
        digest=stories_digest(train),
    )


STORY_SEGMENTS: dict[str, Callable[[int], tuple[int, int]]] = {
    "line": lambda length: (MAX_LINES, MAX_LINE_TOKENS),
    # A statement may have a remark above it, on a line with its indentation and its end.
    "statement": lambda length: (MAX_LINES, MAX_LINE_TOKENS + len(REMARK) + 2),
    "fixed": lambda length: (ceil(MAX_PROGRAM_TOKENS / (length - 1)), length - 1),
}
"""By segmenter: segment_length -> the most segments of a story, and the longest one's tokens."""


def _check_story_segments(segments: SegmentConfig, vocab: Vocab) -> None:
    """Refuse segments that a story may overflow: the corpus is endless and cannot be scanned."""
    if vocab.digest() != stories_vocab().digest():
        if segments.overflow == "truncate":
            raise ValueError(
                "segments.overflow=truncate: how long stories are is only known in data.vocab="
                "stories; with another vocabulary give segments.overflow=drop"
            )
        return
    slots, longest = STORY_SEGMENTS[segments.by](segments.segment_length)
    length = longest + (segments.overflow == "drop")  # drop needs room for an EOS
    for name, least in (("slots", slots), ("segment_length", length)):
        if (given := getattr(segments, name)) < least:
            raise ValueError(
                f"segments.{name}={given}: stories cut by {segments.by} needs at least {least}, "
                "raise it"
            )


def _trails(limits: _Limits, dials: TrailsDials) -> Corpus:
    config = limits.config
    train = TrailsConfig(seed=config.seed, **vars(dials))
    largest = sizes(train)
    needed = {
        "data.canvas": (config.canvas, largest.program + 1),
        "data.max_length": (
            config.max_length,
            largest.prompt + config.canvas + limits.around - 1,
        ),
    }
    if (segments := limits.segments) is not None:
        if segments.by != "line":
            raise ValueError(f"segments.by={segments.by}: trails is cut by line, give line")
        needed["segments.slots"] = (segments.slots, largest.lines)
        length = largest.line + (segments.overflow == "drop")  # drop needs room for an EOS
        needed["segments.segment_length"] = (segments.segment_length, length)
    for name, (given, least) in needed.items():
        if given < least:
            raise ValueError(f"{name}={given}: these trails need at least {least}, raise it")
    return Corpus(
        vocab=limits.vocab,
        train=TrailsSource(train),
        validation=TrailsSource(replace(train, split="heldout")),
        digest=trails_digest(train),
    )


def _shards(limits: _Limits, folder: Path) -> Corpus:
    digest = manifest_digest(folder)
    train, train_out, train_cut = _fitting_rows(folder, "train", limits)
    validation, validation_out, validation_cut = _fitting_rows(folder, "validation", limits)
    return Corpus(
        vocab=limits.vocab,
        train=train,
        validation=validation,
        digest=digest,
        left_out=train_out + validation_out,
        truncated=train_cut + validation_cut,
    )


def _open_file(path: Path, config: DataConfig) -> Source:
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind == ".jsonl":
        _refuse_unused(config, ("documents",))
        return JsonlSource(path, prompt=config.prompt_field or None, answer=config.answer_field)
    if kind == ".txt":
        _refuse_unused(config, ("prompt_field", "answer_field"))
        return TextSource([path], split=config.documents)
    raise ValueError(
        f"data.source={config.source!r}: give stories, a .jsonl or .txt file (.gz too), hf:NAME, "
        "or a folder that anyorder data made"
    )


def _divided(limits: _Limits, source: Source, digest: str) -> Corpus:
    """The examples that fit, divided into training and validation."""
    assert source.size is not None
    config = limits.config
    try:
        chosen = _choose(limits, source)
    except ValueError as error:
        hint = ": for text of your own use data.vocab=bytes" if config.vocab == "stories" else ""
        raise ValueError(f"{config.source}: {error}{hint}") from None
    fitting = chosen.fitting
    if len(fitting) < 2:
        raise ValueError(
            f"{len(fitting)} of the {source.size} examples in {config.source} fit in {limits}: "
            "raise them, give more data, or (.txt) end documents elsewhere with data.documents"
            + chosen.hint()
        )
    shuffled = Permutation(len(fitting), "held out", config.seed)
    held_out = {shuffled(i) for i in range(max(1, len(fitting) // HELD_OUT_SHARE))}
    choose = source.chosen if isinstance(source, MessagesSource) else _selected(source)
    return Corpus(
        vocab=limits.vocab,
        train=choose([fitting[i] for i in range(len(fitting)) if i not in held_out]),
        validation=choose([fitting[i] for i in sorted(held_out)]),
        digest=digest,
        left_out=source.size - len(fitting),
        uncut=chosen.uncut,
        truncated=chosen.truncated,
    )


def _selected(source: Source) -> Callable[[list[int]], Source]:
    return lambda indices: SelectedExamples(source, indices)


@dataclass
class _CorpusChoice:
    """The examples of a source that fit, and counts of the others."""

    fitting: list[int] = field(default_factory=list)
    truncated: int = 0
    uncut: int = 0
    why_uncut: str = ""
    """The error of the first example that cannot be cut."""

    def hint(self) -> str:
        return f" ({self.uncut} cannot be cut; {self.why_uncut})" if self.uncut else ""


def _choose(limits: _Limits, source: Source) -> _CorpusChoice:
    assert source.size is not None
    choice = _CorpusChoice()
    for index in range(source.size):
        try:
            example = read_example(
                source, index, limits.vocab, begun=False, segments=limits.segments
            )
        except CannotCut as error:
            choice.uncut += 1
            choice.why_uncut = choice.why_uncut or str(error)
        except DoesNotFit:
            continue
        else:
            if limits.holds(len(example.prompt), len(example.answer)):
                choice.fitting.append(index)
                choice.truncated += example.truncated
    return choice
