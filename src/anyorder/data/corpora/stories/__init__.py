"""The built-in corpus `stories`: generated word problems with short executable programs.

Two dials make positional uncertainty an experiment: `layout` (where things go becomes uncertain,
what they are does not) and `wording` (the reverse). See docs/stories.md.
"""

from __future__ import annotations

from anyorder.data.corpora.stories.problem import (
    MAX_PROGRAM_TOKENS,
    MAX_PROMPT_TOKENS,
    Case,
    StoriesConfig,
    Story,
    UnwrittenProblem,
    core,
    freedom,
    problem,
    render,
    stories_digest,
)
from anyorder.data.corpora.stories.program import (
    BEGINNINGS,
    HELD_OUT,
    OPERATIONS,
    PIECES,
    Structure,
    stories_vocab,
    structures,
)

__all__ = [
    "BEGINNINGS",
    "HELD_OUT",
    "MAX_PROGRAM_TOKENS",
    "MAX_PROMPT_TOKENS",
    "OPERATIONS",
    "PIECES",
    "Case",
    "StoriesConfig",
    "Story",
    "Structure",
    "UnwrittenProblem",
    "core",
    "freedom",
    "problem",
    "render",
    "stories_digest",
    "stories_vocab",
    "structures",
]
