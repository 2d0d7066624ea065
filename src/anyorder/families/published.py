"""Makes the published formats of all families known to hub/: importing this is enough."""

from __future__ import annotations

from anyorder.families.flexmdm import published as flexmdm
from anyorder.families.mdm import published as mdm

__all__ = ["flexmdm", "mdm"]
