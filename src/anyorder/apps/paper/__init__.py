"""`anyorder paper`: the protocols of the paper, run on a published checkpoint."""

from __future__ import annotations
