"""-log p of target tokens under a linear head, without all logits at once.

    nats_m = log sum over v of e^(s_m . E_v)  -  s_m . E_{y_m}
    d nats_m / d s_m = sum over v of (p_mv - [v = y_m]) E_v,    d / d E_v alike

With M = 470 targets and V = 151,645 words the logits are 285 MB, their softmax and both gradients
as much again. Here they exist in parts: the forward pass keeps one number for each target, the
backward pass makes each part anew and adds its share to one gradient of the table. That is a
quarter more arithmetic in the head, so few logits are made at once, as usual.

In half precision the products are made in it, and everything after them in float32.

Not here: which states and targets, and how nats are weighed.
Letters: M targets, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

LOGITS = 2**25
"""Logits that may exist at once: 128 MB."""


def linear_nats(states: Tensor, table: Tensor, targets: Tensor, most: int = LOGITS) -> Tensor:
    """-log softmax(table @ states_m) at the targets, with at most `most` logits at once.

    states M D, table V D, targets M -> M
    """
    if len(states) * len(table) <= most:
        return functional.cross_entropy(functional.linear(states, table), targets, reduction="none")
    nats: Tensor = _InParts.apply(states, table, targets, max(1, most // len(table)))
    return nats


def _parts(states: Tensor, table: Tensor, at_once: int) -> Iterator[tuple[slice, Tensor]]:
    """Places of `at_once` states at a time, and their logits, all in the same memory."""
    kind = torch.promote_types(states.dtype, torch.float32)
    memory = states.new_empty(min(at_once, len(states)), len(table), dtype=kind)
    for start in range(0, len(states), at_once):
        here = slice(start, min(start + at_once, len(states)))
        logits = memory[: here.stop - here.start]
        if kind == states.dtype:
            torch.mm(states[here], table.T, out=logits)
        else:
            logits.copy_(states[here] @ table.T)
        yield here, logits


class _InParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, targets: Tensor, at_once: int) -> Tensor:
        ctx.kinds = states.dtype, table.dtype
        if torch.is_autocast_enabled(states.device.type):
            half = torch.get_autocast_dtype(states.device.type)
            states, table = states.to(half), table.to(half)
        kind = torch.promote_types(states.dtype, torch.float32)
        total, chosen = (states.new_empty(len(states), dtype=kind) for _ in range(2))
        for here, logits in _parts(states, table, at_once):
            chosen[here] = logits.gather(1, targets[here, None])[:, 0]
            largest = logits.amax(dim=1)
            total[here] = logits.sub_(largest[:, None]).exp_().sum(dim=1).log_() + largest
        ctx.save_for_backward(states, table, targets, total)
        ctx.at_once = at_once
        return total - chosen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, table, targets, total = ctx.saved_tensors
        for_states, for_table = torch.empty_like(states), torch.zeros_like(table, dtype=total.dtype)
        for here, logits in _parts(states, table, ctx.at_once):
            share = logits.sub_(total[here, None]).exp_()  # p, then p - [v = y], weighed
            row = torch.arange(len(share), device=share.device)
            share[row, targets[here]] -= 1
            share.mul_(weight[here, None])
            share = share.to(states.dtype)
            torch.mm(share, table, out=for_states[here])
            if for_table.dtype == share.dtype:
                for_table.addmm_(share.T, states[here])
            else:
                for_table += share.T @ states[here]
        return for_states.to(ctx.kinds[0]), for_table.to(ctx.kinds[1]), None, None
