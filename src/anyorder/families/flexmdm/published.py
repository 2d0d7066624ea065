"""The release of FlexMDM: Dream's files, and the 66 tensors (at 28 layers) in a file beside them.

Settings that the release does not store (time scale, schedules, conventions) are constants here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anyorder.families.flexmdm.config import FlexConfig
from anyorder.hub.formats import (
    Folder,
    Layout,
    Published,
    TensorNames,
    backbone_names,
    fits_qwen,
    head_name,
    qwen_record,
    register_layout,
    register_variant,
    with_biases,
)
from anyorder.nets.shapes import TransformerConfig

EXTRAS_FILE = "flexmdm_extras.pt"
RELEASE_LENGTH = 768
"""The release was trained on rows of this length."""
RELEASE: dict[str, Any] = {
    "convention": "release",
    "coordinate": "raw",
    "insertion_exponent": 1.7,
    "unmasking_exponent": 2.89,
    "gap_offset": False,
    "gap_reads": "left",
}
"""Settings that the release does not store; the exponents are a and a b with a = b = 1.7."""
_FLEX = {
    "gap.norm": "insertion_head.norm",
    "gap.inner": "insertion_head.proj1",
    "gap.outer": "insertion_head.proj2",
    "backbone.time.inner": "time_mlp.0",
    "backbone.time.outer": "time_mlp.2",
}


def extra_names(config: FlexConfig) -> TensorNames:
    """The tensors that the release stores beside its backbone."""
    found = with_biases(_FLEX)
    for layer in range(config.backbone.layers):
        ours = f"backbone.blocks.{layer}.modulation.project"
        found |= with_biases({ours: f"temb_mods.{layer}"})
    return found


def _read(shape: TransformerConfig, folder: Folder) -> Published | None:
    if not (folder.path / EXTRAS_FILE).is_file():
        return None
    config = FlexConfig(replace(shape, time_modulated=True), **RELEASE)
    return Published("flexmdm", "flexmdm", config, RELEASE_LENGTH, RELEASE_LENGTH)


def _fits(config: Any) -> bool:
    if not isinstance(config, FlexConfig) or not fits_qwen(config.backbone):
        return False
    return all(getattr(config, name) == value for name, value in RELEASE.items())


register_variant("dream", _read)
register_layout(
    Layout(
        name="flexmdm",
        title="the FlexMDM release: a Dream backbone, and flexmdm_extras.pt beside it",
        names=lambda config: backbone_names("qwen2", config) | extra_names(config),
        head=head_name("qwen2"),
        fits=_fits,
        kind=lambda config: ("Dream", "DreamModel"),
        record=qwen_record,
        apart=extra_names,
        apart_file=EXTRAS_FILE,
    )
)
