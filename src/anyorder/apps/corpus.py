"""From a recipe's data fields to what training reads: vocabulary, examples, held-out examples.

stories is validated on its held-out compositions. A file is divided: one example in
`HELD_OUT_SHARE`, chosen by key, is never trained on. Examples that do not fit the recipe's lengths
are left out of files, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anyorder.data.batches import Example, tokenise
from anyorder.data.order import Permutation
from anyorder.data.sources import (
    DatasetSource,
    JsonlSource,
    Source,
    StoriesSource,
    TextSource,
)
from anyorder.data.stories import (
    MAX_PROGRAM_TOKENS,
    MAX_PROMPT_TOKENS,
    StoriesConfig,
    stories_digest,
    stories_vocab,
)
from anyorder.files import sha256_of
from anyorder.recipes import DataConfig
from anyorder.vocab import Vocab

HELD_OUT_SHARE = 20
STORIES_ONLY = ("layout", "wording", "state_layout")


@dataclass(frozen=True)
class Corpus:
    """What a model is trained and validated on."""

    vocab: Vocab
    train: Source
    validation: Source
    digest: str
    left_out: int = 0
    """Examples too long for the recipe."""


class Chosen:
    """Some examples of a source."""

    def __init__(self, source: Source, indices: list[int]) -> None:
        self._source, self._indices = source, indices

    @property
    def size(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self._source[self._indices[index]]


def open_corpus(config: DataConfig, around: Callable[[Vocab], int] = lambda vocab: 1) -> Corpus:
    """Read what the data fields name; `around` counts a row's tokens besides prompt and answer."""
    vocab = _open_vocab(config.vocab)
    if config.source == "stories":
        _refuse_unused(config, ("split", "documents", "prompt_field", "answer_field"))
        return _stories(config, vocab, around(vocab))
    _refuse_unused(config, STORIES_ONLY)
    if config.source.startswith("hf:"):
        _refuse_unused(config, ("documents",))
        source = DatasetSource.load(
            config.source.removeprefix("hf:"),
            split=config.split,
            prompt=config.prompt_field or None,
            answer=config.answer_field,
        )
        return _divided(config, vocab, source, source.fingerprint, around(vocab))
    _refuse_unused(config, ("split",))
    path = Path(config.source)
    return _divided(config, vocab, _open_file(path, config), sha256_of(path), around(vocab))


def _refuse_unused(config: DataConfig, names: Sequence[str]) -> None:
    defaults = DataConfig()
    for name in names:
        if getattr(config, name) != getattr(defaults, name):
            raise ValueError(f"data.{name} has no effect on {config.source}: leave it out")


def _open_vocab(name: str) -> Vocab:
    if name == "stories":
        return stories_vocab()
    if name == "bytes":
        return Vocab.bytes()
    if not Path(name).is_dir():
        raise ValueError(
            f"data.vocab={name!r}: give stories, bytes, or a folder with a vocabulary, such as "
            "Vocab.from_tokenizer_json(...).save(folder) writes"
        )
    return Vocab.load(Path(name))


def _stories(config: DataConfig, vocab: Vocab, around: int) -> Corpus:
    dials = {name: getattr(config, name) for name in STORIES_ONLY}
    train = StoriesConfig(seed=config.seed, **dials)
    longest = MAX_PROMPT_TOKENS + config.canvas + around - 1
    if config.canvas <= MAX_PROGRAM_TOKENS:
        least = MAX_PROGRAM_TOKENS + 1
        raise ValueError(f"data.canvas={config.canvas}: stories needs at least {least}, raise it")
    if config.max_length < longest:
        raise ValueError(
            f"data.max_length={config.max_length}: stories with data.canvas={config.canvas} needs "
            f"at least {longest}, raise it"
        )
    return Corpus(
        vocab=vocab,
        train=StoriesSource(train),
        validation=StoriesSource(replace(train, split="heldout")),
        digest=stories_digest(train),
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
        f"data.source={config.source!r}: give stories, a .jsonl or .txt file (.gz too), or hf:NAME"
    )


def _divided(config: DataConfig, vocab: Vocab, source: Source, digest: str, around: int) -> Corpus:
    """What fits, divided into examples to train on and examples to validate on."""
    assert source.size is not None
    try:
        fitting = [
            index
            for index in range(source.size)
            if _fits(tokenise(*source[index], index, vocab), config, around)
        ]
    except ValueError as error:
        hint = ": for text of your own use data.vocab=bytes" if config.vocab == "stories" else ""
        raise ValueError(f"{config.source}: {error}{hint}") from None
    if len(fitting) < 2:
        raise ValueError(
            f"{len(fitting)} of the {source.size} examples in {config.source} fit in data.canvas="
            f"{config.canvas} and data.max_length={config.max_length}: raise them, give more data, "
            "or (.txt) end documents elsewhere with data.documents"
        )
    shuffled = Permutation(len(fitting), "held out", config.seed)
    held_out = {shuffled(i) for i in range(max(1, len(fitting) // HELD_OUT_SHARE))}
    return Corpus(
        vocab=vocab,
        train=Chosen(source, [fitting[i] for i in range(len(fitting)) if i not in held_out]),
        validation=Chosen(source, [fitting[i] for i in sorted(held_out)]),
        digest=digest,
        left_out=source.size - len(fitting),
    )


def _fits(example: Example, config: DataConfig, around: int) -> bool:
    whole = len(example.prompt) + len(example.answer) + around
    return len(example.answer) < config.canvas and whole <= config.max_length
