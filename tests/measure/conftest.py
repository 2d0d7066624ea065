"""Shared by the measures' tests: support modules beside them may be imported by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden_order_metrics(data_file: Callable[[str], Path]) -> Path:
    """Traces with known metrics, in a folder beside the data."""
    return data_file("../golden/order_metrics.jsonl")
