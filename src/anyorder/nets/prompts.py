"""A form of the prompt in which a sentence is bound before the first layer.

    x_i  ->  x_{s(i)} + ... + x_i        s(i): the first token of the sentence of token i

So the last token of a sentence carries the sum of all its tokens: a fact of three tokens is one
vector, and to find it by one of its names is a single look-up. Without this a network must first
learn to bind the tokens of a sentence (docs/trails.md). The sum looks to the left only, so causal
networks may use it, too. It has no parameters and changes nothing outside of the prompt. Families
whose noise looks like tokens (duo, sflm) name the tokens that are given, and x are the vectors that
they read in any case; the others are masked or not there, and name none.

Letters: B rows, L positions, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyorder.vocab import Vocab


def sentence_ends(vocab: Vocab) -> tuple[int, ...]:
    """The ids that end a sentence, by spelling, and last the newline, which ends a prompt."""
    texts = [vocab.decode([id]).rstrip(" ") for id in range(vocab.size)]
    if "\n" not in texts:
        raise ValueError(
            "net.prompt=sentences: the vocabulary has no token for a newline, which ends prompts: "
            "give net.prompt=tokens"
        )
    ends = (id for id, text in enumerate(texts) if text.endswith((".", "?", "!")))
    return (*ends, texts.index("\n"))


def sum_sentences(
    x: Tensor, ids: Tensor, ends: Sequence[int], given: Tensor | None = None
) -> Tensor:
    """The vectors of `ids`, in prompts summed by sentence.  # x B L D, ids B L -> B L D

    `ends` are the ids that end a sentence. The last of them also ends the prompt: what follows its
    first occurrence in a row stays as it is. given (B L): the others are noise. They stay as they
    are, end nothing and count in no sum; None: all are given.
    """
    prompt_end = ids == ends[-1] if given is None else (ids == ends[-1]) & given
    inside = (prompt_end.cumsum(1) - prompt_end.long()) == 0  # B L: up to its end, which counts
    if given is not None:
        inside &= given
    end = torch.isin(ids, torch.tensor(ends, device=ids.device)) & inside
    total = (x * inside[..., None]).cumsum(1)  # B L D
    # The last end before each token; -1: none, the first sentence.
    place = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    last = torch.where(end, place, -1).cummax(1).values
    before = torch.cat([last.new_full((len(ids), 1), -1), last[:, :-1]], dim=1)  # B L
    base = total.gather(1, before.clamp(min=0)[..., None].expand_as(total))
    summed = total - base * (before >= 0)[..., None]
    return torch.where(inside[..., None], summed, x)
