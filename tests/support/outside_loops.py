"""Loops as other libraries write them around a network, with the hooks that they offer.

Each reveals the position that is surest, one a step, the leftmost among equals. Only the calls
matter: when a hook is called, with what, and which tensors are edited in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import anyorder


class OutsideModel(torch.nn.Module):
    """Our network as `transformers` would call it: input_ids -> an object with logits."""

    def __init__(self, model: anyorder.Model) -> None:
        super().__init__()
        self.net, self.mask_id = model.net, model.vocab.mask_id
        self.dtype, self.device = torch.float32, torch.device("cpu")

    @torch.no_grad()
    def forward(self, input_ids: Tensor, **ignored: Any) -> SimpleNamespace:
        logits = self.net.head(self.net.hidden(input_ids))
        logits[..., self.mask_id] = -torch.inf
        return SimpleNamespace(logits=logits)


def reveal_surest(ids: Tensor, logits: Tensor, mask_id: int) -> None:
    """Write the surest token of each row, in place."""
    sure, token = logits.double().softmax(-1).max(-1)
    place = sure.masked_fill(ids != mask_id, -1).argmax(-1, keepdim=True)
    ids.scatter_(1, place, token.gather(1, place))


def reveals(model: OutsideModel, canvas: Tensor) -> Iterator[Tensor]:
    """A loop of one's own: the canvas after each step."""
    ids = canvas.clone()
    while bool((ids == model.mask_id).any()):
        reveal_surest(ids, model(ids).logits, model.mask_id)
        yield ids


def dream_generate(
    model: OutsideModel, canvas: Tensor, generation_tokens_hook_func: Callable[..., Tensor]
) -> Tensor:
    """Dream's order of calls: the hook sees the canvas with step None, then after each step."""
    ids = generation_tokens_hook_func(None, canvas.clone(), None)
    for step in range(int((canvas[0] == model.mask_id).sum())):
        logits = model(ids).logits
        reveal_surest(ids, logits, model.mask_id)
        ids = generation_tokens_hook_func(step, ids, logits)
    return ids


def llada_generate(model: OutsideModel, canvas: Tensor, *, guided: bool = False) -> Tensor:
    """LLaDA's loop offers no hook. `guided`: the network is asked twice in every step."""
    ids = canvas.clone()
    prompt = ids != model.mask_id
    while bool((ids == model.mask_id).any()):
        logits = model(torch.cat([ids, ids.masked_fill(prompt, 0)]) if guided else ids).logits
        if guided:
            model(ids.masked_fill(prompt, 0))
        reveal_surest(ids, logits[:1], model.mask_id)
    return ids


def pipeline_generate(
    model: OutsideModel, canvas: Tensor, callback_on_step_end: Callable[..., dict[str, Any]]
) -> Tensor:
    """A text pipeline of `diffusers`: the callback sees a view of the canvas after each step."""
    ids = canvas.clone()
    for step in range(int((canvas[0] == model.mask_id).sum())):
        reveal_surest(ids, model(ids, attention_mask=None).logits, model.mask_id)
        found = callback_on_step_end(None, step, step, {"block_x": ids[:]})
        ids = found.pop("block_x", ids)
    return ids
