"""Shared by the tests of networks: support modules beside them may be imported by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
