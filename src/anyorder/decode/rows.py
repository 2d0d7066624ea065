"""Rows of a batch that are decoded together, and leave it when they are complete.

The state of a batch is a dataclass of tensors; each has one entry per row (B), or one line of slots
per row (B L). Not here: who is complete, and what is kept beside such a dataclass.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torch import Tensor


def keep_rows(batch: Any, rows: Tensor, lengths: str) -> None:
    """Drop the other rows, and the columns that only they needed.

    `lengths` names the field that says how long rows are: in slots (B), or by which are real (B L).
    """
    for each in fields(batch):
        setattr(batch, each.name, getattr(batch, each.name)[rows])
    said = getattr(batch, lengths)
    if not len(said):
        return
    longest = int((said.sum(dim=1) if said.dim() == 2 else said).max())
    for each in fields(batch):
        value = getattr(batch, each.name)
        if value.dim() == 2:
            setattr(batch, each.name, value[:, :longest])
