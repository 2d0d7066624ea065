"""The decoding options of the built-in families by name, without torch: the command line's flags.

The table of families itself (family.py) builds networks and needs torch. A family that a program
registers is only there.
"""

from __future__ import annotations

from anyorder.families.ar.config import ArOptions
from anyorder.families.duo.config import DuoOptions
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.sflm.config import SflmOptions

OPTIONS: dict[str, type] = {
    "ar": ArOptions,
    "mdm": MdmOptions,
    "flexmdm": FlexOptions,
    "latentmdm": LatentOptions,
    "flexlatent": FlexLatentOptions,
    "duo": DuoOptions,
    "sflm": SflmOptions,
}
