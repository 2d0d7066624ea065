"""The built-in corpus `trails`: chains of facts, where the right order of writing is in the prompt.

See docs/trails.md.
"""

from __future__ import annotations

from anyorder.data.corpora.trails.problems import (
    ANCHORS,
    Trail,
    TrailsCase,
    TrailsConfig,
    TrailsDials,
    TrailsSizes,
    TrailsSource,
    UnwrittenTrail,
    core,
    problem,
    render,
    sizes,
    trails_digest,
    trails_vocab,
)

__all__ = [
    "ANCHORS",
    "Trail",
    "TrailsCase",
    "TrailsConfig",
    "TrailsDials",
    "TrailsSizes",
    "TrailsSource",
    "UnwrittenTrail",
    "core",
    "problem",
    "render",
    "sizes",
    "trails_digest",
    "trails_vocab",
]
