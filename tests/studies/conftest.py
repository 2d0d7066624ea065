"""Shared by the tests of the study: support modules beside them, by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
