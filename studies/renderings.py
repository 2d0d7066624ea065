"""Exact posteriors in place of a network, counted from the renderings of a problem.

The corpus `stories` can write one problem in many ways (`layout`, `wording`). Take the n renderings
x of a prompt, each once. The posterior of slot i on a canvas z is

    p(x_i = v | z) = #{x that agree with z and have x_i = v} / #{x that agree with z}

So the behaviour of a decoder on it is a property of the texts and of the policy, not of a network.
With one slot per step some rendering always agrees, because a token is taken only if a rendering
has it.

The same formula for data given as a list is in nets/oracles.py. Here every prompt has its own data,
and only renderings that agree with the canvas count. Decoding is the mdm loop as it is.
Letters: B rows, L positions, C slots of a canvas, S different renderings, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder import Vocab
from anyorder.data.corpora.stories import StoriesConfig, UnwrittenProblem, stories_vocab
from anyorder.data.corpora.stories.problem import choose_layout, choose_words
from anyorder.data.corpora.stories.program import program

ALIGNMENTS = ("left", "right")

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Renderings:
    """The different renderings of one problem, each as a whole canvas."""

    rows: IntArray  # S C
    counts: IntArray  # S
    """How often each was drawn."""

    def agreeing(self, canvas: IntArray, mask_id: int) -> NDArray[np.bool_]:
        """Which of them have every token that the canvas shows.  # S"""
        shown = np.flatnonzero(canvas != mask_id)
        return np.asarray((self.rows[:, shown] == canvas[shown]).all(axis=1))

    def posterior(self, canvas: IntArray, mask_id: int, vocab_size: int) -> NDArray[np.float64]:
        """p(x_i = v | canvas) of every slot.  # C V"""
        agrees = self.agreeing(canvas, mask_id)
        rows, counts = self.rows[agrees], self.counts[agrees]
        if not len(rows):
            raise ValueError(
                "no rendering agrees with the canvas: reveal one slot a step, or draw more of them"
            )
        slots = rows.shape[1]
        where = rows + np.arange(slots) * vocab_size
        weights = np.repeat(counts, slots)
        table = np.bincount(where.ravel(), weights=weights, minlength=slots * vocab_size)
        return np.asarray(table.reshape(slots, vocab_size) / counts.sum())


def renderings_of(
    core: UnwrittenProblem, config: StoriesConfig, draws: int, canvas: int, align: str = "left"
) -> Renderings:
    """Draw the layout and the words of a problem `draws` times, and count equal renderings."""
    if align not in ALIGNMENTS:
        raise ValueError(f"align is {align!r}: give left or right")
    if draws < 1:
        raise ValueError(f"{draws} renderings: draw at least one")
    statements = core.structure.statements
    drawn = Counter(
        (
            choose_layout(statements, config.layout, core.draws("layout", number)),
            choose_words(statements, config.wording, core.draws("wording", number)),
        )
        for number in range(draws)
    )
    vocab = stories_vocab()
    rows = [
        _on_canvas(_ids(program(statements, core.names, *chosen), vocab), canvas, align, vocab)
        for chosen in drawn
    ]
    return Renderings(np.array(rows), np.array(list(drawn.values())))


def _ids(lines: Sequence[Sequence[str]], vocab: Vocab) -> list[int]:
    return [token for line in lines for piece in line for token in vocab.encode(piece)]


def _on_canvas(answer: list[int], canvas: int, align: str, vocab: Vocab) -> list[int]:
    """As in training (data/batches.py): fill behind the answer, or in front of it."""
    if align == "left":
        return [*answer, *[vocab.eos_id] * (canvas - len(answer))]
    return [*[vocab.pad_id] * (canvas - len(answer) - 1), *answer, vocab.eos_id]


class Rendered:
    """A `Denoiser` of problems whose renderings are known; hidden states are log-posteriors."""

    def __init__(self, problems: Mapping[tuple[int, ...], Renderings], vocab: Vocab) -> None:
        if len({known.rows.shape[1] for known in problems.values()}) != 1:
            raise ValueError("the problems' canvases must all have one length")
        self.problems, self.vocab = dict(problems), vocab
        self.canvas = next(iter(self.problems.values())).rows.shape[1]

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """Log-posteriors of every slot after the prompt; the prompt has none.  # B L V"""
        found = np.zeros((*ids.shape, self.vocab.size))
        rows = ids.numpy()
        lengths = np.full(len(rows), rows.shape[1]) if mask is None else mask.sum(dim=1).numpy()
        for number, (row, length) in enumerate(zip(rows, lengths.tolist(), strict=True)):
            start = length - self.canvas
            known = self._of_prompt(tuple(row[:start].tolist()))
            found[number, start:length] = known.posterior(
                row[start:length], self.vocab.mask_id, self.vocab.size
            )
        return torch.from_numpy(found).log()

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    def _of_prompt(self, prompt: tuple[int, ...]) -> Renderings:
        if prompt not in self.problems:
            raise ValueError("the renderings of this prompt are not known: give its problem")
        return self.problems[prompt]
