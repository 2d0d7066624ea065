"""Text -> batches: sources, their order, batches, and the built-in corpus `stories`.

Names are imported on first use, so that the corpus works without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder.data.batches import Batch, BatchConfig, Batches, Example, collate, tokenise
    from anyorder.data.corpora.stories import StoriesConfig, Story, problem, stories_vocab
    from anyorder.data.sources import (
        DatasetSource,
        JsonlSource,
        ShardSource,
        Source,
        StoriesSource,
        TextSource,
    )

_PUBLIC = {
    "Batch": "batches",
    "BatchConfig": "batches",
    "Batches": "batches",
    "DatasetSource": "sources",
    "Example": "batches",
    "JsonlSource": "sources",
    "Story": "corpora.stories",
    "ShardSource": "sources",
    "Source": "sources",
    "StoriesConfig": "corpora.stories",
    "StoriesSource": "sources",
    "TextSource": "sources",
    "collate": "batches",
    "problem": "corpora.stories",
    "stories_vocab": "corpora.stories",
    "tokenise": "batches",
}

__all__ = [
    "Batch",
    "BatchConfig",
    "Batches",
    "DatasetSource",
    "Example",
    "JsonlSource",
    "ShardSource",
    "Source",
    "StoriesConfig",
    "StoriesSource",
    "Story",
    "TextSource",
    "collate",
    "problem",
    "stories_vocab",
    "tokenise",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
