"""The descriptions of all families, by name: what the rest of the library may know of a family.

Reports, races and cost estimates never compare family names. They ask a description: does the
family choose an order, does its canvas grow, does it write segments? Each family describes itself
in its `config.py`, an installed package likewise (plugins.py). A family that a program registers
gives its description to `register_description`; every other name gets a neutral one.

Never torch, so that reports stay light. What binds network, losses and decoder is family.py.
"""

from __future__ import annotations

import warnings

from anyorder.families.ar import config as ar
from anyorder.families.block import config as block
from anyorder.families.config import Description
from anyorder.families.duo import config as duo
from anyorder.families.flexlatent import config as flexlatent
from anyorder.families.flexmdm import config as flexmdm
from anyorder.families.latentmdm import config as latentmdm
from anyorder.families.mdm import config as mdm
from anyorder.families.sflm import config as sflm
from anyorder.plugins import entries, family_part

DESCRIPTIONS: dict[str, Description] = {
    each.DESCRIPTION.name: each.DESCRIPTION
    for each in (ar, mdm, flexmdm, latentmdm, flexlatent, duo, sflm, block)
}
"""By name, in the order of reports. Few race points each: all shipped models race in minutes."""

BASELINE = ar.DESCRIPTION.name
"""The family whose colour stands for every family without one."""
WRAPPED = mdm.DESCRIPTION.name
"""The family that a foreign network is taken for, unless its owner says otherwise."""


def describe(name: str) -> Description:
    """The description of a family; a neutral one for a name that is not known."""
    return DESCRIPTIONS.get(name) or Description(name, title=name or "unknown model")


def register_description(description: Description) -> None:
    """Add the description of your own family."""
    if description.name in DESCRIPTIONS:
        raise ValueError(f"{description.name!r} is described already: choose another name")
    DESCRIPTIONS[description.name] = description


def _describe_installed() -> None:
    """Add the families of installed packages. A broken one is named, and the others work."""
    for name in entries("families"):
        try:
            register_description(family_part(name, "config").DESCRIPTION)
        except ValueError as error:
            warnings.warn(str(error), stacklevel=2)


_describe_installed()
