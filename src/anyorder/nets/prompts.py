"""A form of the prompt in which every sentence is one column of the network.

    x_i, ..., x_j  ->  x_i + ... + x_j        tokens i to j: one sentence

A fact of three tokens is then one vector, and to find it by one of its names is a single look-up.
Without this a network must first learn to bind the tokens of a sentence (docs/trails.md). The sum
has no parameters, and it makes rows shorter. Only prompts change: after the prompt every token has
a column of its own. Callers see none of this: they give tokens and get a state for each of them,
which in the prompt is the state of its sentence.

A prompt ends with the first newline of its row. A row without one in its prompt is refused
(`check_prompt`): the sum would reach into the answer and show what is to be predicted.

Letters: B rows, L tokens, M columns, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.vocab import Vocab


def sentence_ends(vocab: Vocab) -> tuple[int, ...]:
    """The ids that end a sentence, by spelling, and last the newline, which ends a prompt."""
    texts = [vocab.decode([id], begun=True).rstrip(" ") for id in range(vocab.size)]
    if "\n" not in texts:
        raise ValueError(
            "net.prompt=sentences: the vocabulary has no token for a newline, which ends prompts: "
            "give net.prompt=tokens"
        )
    ends = (id for id, text in enumerate(texts) if text.endswith((".", "?", "!")))
    return (*ends, texts.index("\n"))


def check_prompt(ids: Sequence[int], ends: Sequence[int]) -> None:
    """Refuse a prompt that has no end, if sentences are pooled."""
    if ends and ends[-1] not in ids:
        raise ValueError(
            "this network reads prompts sentence by sentence (net.prompt=sentences), and a prompt "
            "has no newline at its end: end it with one, or train with net.prompt=tokens"
        )


def check_prompts(ids: Tensor, prompt_length: Tensor, ends: Sequence[int]) -> None:
    """The same for rows of prompts and answers: ids B L, prompt_length B."""
    for row, length in zip(ids.tolist(), prompt_length.tolist(), strict=True):
        check_prompt(row[:length], ends)


@dataclass(frozen=True)
class ReadColumns:
    """What the layers read of rows of tokens."""

    x: Tensor  # B M D
    mask: Tensor | None  # B M, True = a real column; None: all are
    of_token: Tensor | None = None
    """The column that each token is part of; None: each token is one.  # B L"""

    @property
    def real(self) -> Tensor:
        """Which columns are real.  # B M"""
        if self.mask is not None:
            return self.mask
        return torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device)

    def states_of_tokens(self, states: Tensor) -> Tensor:
        """For each token the state of its column.  # B M D -> B L D"""
        if self.of_token is None:
            return states
        return states.gather(1, self.of_token[..., None].expand(-1, -1, states.shape[-1]))

    def places(self, tokens: Tensor) -> Tensor:
        """The columns of tokens, by their places in the rows.  # B A -> B A"""
        return tokens if self.of_token is None else self.of_token.gather(1, tokens)


def pool_sentences(
    x: Tensor, ids: Tensor, ends: Sequence[int], mask: Tensor | None = None
) -> ReadColumns:
    """Sum the vectors x (B L D) of tokens `ids` (B L) by sentence, up to the end of the prompt.

    ends: the ids that end a sentence; the last of them ends the prompt. Without any, each token is
    a column. mask B L: True = a real token, padding is on the right (None: there is none).
    """
    if not ends:
        return ReadColumns(x, mask)
    prompt_end = ids == ends[-1]
    after = (prompt_end.cumsum(1) - prompt_end.long()) > 0  # B L: behind the prompt
    final = torch.ones_like(after) if mask is None else mask
    final = final & ~F.pad(final[:, 1:], (0, 1))  # the last token of a row ends its sentence, too
    last = after | final | torch.isin(ids, torch.tensor(ends, device=ids.device))  # B L
    of_token = last.cumsum(1) - last.long()  # B L: how many columns end before it
    count = (last if mask is None else last & mask).sum(1)  # B
    shortest, longest = torch.stack(count.aminmax()).tolist()
    # What belongs to no column, which is padding, goes to one more, and that one is dropped.
    into = of_token.clamp(max=longest)[..., None].expand_as(x)
    summed = x.new_zeros(len(x), longest + 1, x.shape[-1]).scatter_add(1, into, x)[:, :longest]
    real = None
    if shortest < longest:
        real = torch.arange(longest, device=ids.device) < count[:, None]  # B M
    return ReadColumns(summed, real, of_token.clamp(max=longest - 1))
