"""The prompt of a story: English sentences that name the quantities.

The prompt determines the structure and the names, and thereby, at layout 0 and wording 0, the
program to the last token.

What this file does not do: state the layout (layout.py says how).
"""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.data.stories.pieces import WOMEN
from anyorder.data.stories.structures import Structure

QUESTION = "How many does {she} have now?"


def tell(structure: Structure, names: Sequence[str], person: str, phrasing: Sequence[int]) -> str:
    """The story about `person`; `phrasing` says which sentence tells each step."""
    pronoun = "she" if person in WOMEN else "he"
    sentences = []
    used = 0
    for step, choice in zip(structure.steps, phrasing, strict=True):
        own = names[used : used + len(step.roles)]
        used += len(own)
        text = step.sentences[choice]
        sentences.append(text.format(*own, she=pronoun, She=pronoun.capitalize()))
    question = QUESTION.format(she=pronoun)
    return f"{person} {' '.join(sentences)} {question}\n"
