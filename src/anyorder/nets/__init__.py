"""Networks: ids (and time) -> hidden states -> logits. No losses, no sampling."""

from __future__ import annotations
