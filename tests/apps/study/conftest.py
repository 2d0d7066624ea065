"""Shared by the tests of the study: support modules beside them and at the top, by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2])]
