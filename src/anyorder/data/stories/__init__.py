"""The built-in corpus `stories`: generated word problems with short executable programs.

Two dials make positional uncertainty an experiment: `layout` (where things go becomes uncertain,
what they are does not) and `wording` (the reverse). See docs/stories.md.
"""

from __future__ import annotations

from anyorder.data.stories.layout import MAX_PROGRAM_TOKENS, MAX_PROMPT_TOKENS
from anyorder.data.stories.operations import BEGINNINGS, OPERATIONS
from anyorder.data.stories.pieces import PIECES, stories_vocab
from anyorder.data.stories.problem import (
    Core,
    Problem,
    StoriesConfig,
    core,
    freedom,
    problem,
    render,
    stories_digest,
)
from anyorder.data.stories.structures import HELD_OUT, Structure, structures
from anyorder.data.stories.values import Case

__all__ = [
    "BEGINNINGS",
    "HELD_OUT",
    "MAX_PROGRAM_TOKENS",
    "MAX_PROMPT_TOKENS",
    "OPERATIONS",
    "PIECES",
    "Case",
    "Core",
    "Problem",
    "StoriesConfig",
    "Structure",
    "core",
    "freedom",
    "problem",
    "render",
    "stories_digest",
    "stories_vocab",
    "structures",
]
