"""The parts of duo: the backbone with a time, over a fixed canvas."""

from __future__ import annotations

from anyorder.decode.canvas import fixed_canvas
from anyorder.families.backbone import timed_network
from anyorder.families.duo.config import DESCRIPTION, DuoOptions
from anyorder.families.duo.decode import check, check_network, decode, resolve
from anyorder.families.duo.loss import uniform_bound
from anyorder.families.family import GRID, Family, no_frame

FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="canvas",
    network=timed_network(),
    frame=no_frame,
    canvas=fixed_canvas,
    options=DuoOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=None,
    losses={"bound": uniform_bound},
    levels=GRID,
    suits=check_network,
)
