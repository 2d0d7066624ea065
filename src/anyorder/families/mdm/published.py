"""dUltra's checkpoints: LLaDA's tensors, and the 20 of the planner head."""

from __future__ import annotations

from typing import Any

from anyorder.families.mdm.config import PlannedConfig
from anyorder.hub.formats import (
    Folder,
    Layout,
    Published,
    TensorNames,
    backbone_names,
    fits_llada,
    head_name,
    layer_names,
    length_of,
    llada_record,
    register_layout,
    register_variant,
    with_biases,
)
from anyorder.nets.shapes import TransformerConfig

PLANNER_FEATURES = 256
"""dUltra's files do not store the number of the planner's features: it is this."""
PLANNER_BLOCK = "mask_head.0"
_PLANNER = {
    "planner.inner": "time_embedding.mlp.0",
    "planner.outer": "time_embedding.mlp.2",
    "planner.before": "norm_out_1.modulation",
    "planner.after": "norm_out_2.modulation",
    "planner.odds": "mask_linear",
}


def planner_tensors(config: PlannedConfig) -> TensorNames:
    """The tensors that dUltra stores beside its backbone."""
    found = layer_names("llada", config.backbone, "planner.layer.blocks.0", PLANNER_BLOCK)
    return found | with_biases(_PLANNER) | {"planner.mark.weight": "mask_embedding.weight"}


def _read(shape: TransformerConfig, folder: Folder) -> Published | None:
    if not any(name.startswith(f"{PLANNER_BLOCK}.") for name in folder.names):
        return None
    config = PlannedConfig(shape, shape.mlp_width, PLANNER_FEATURES)
    return Published("dultra", "mdm", config, length_of(folder, "max_sequence_length"))


def _fits(config: Any) -> bool:
    return (
        isinstance(config, PlannedConfig)
        and fits_llada(config.backbone)
        and config.planner_mlp_width == config.backbone.mlp_width
        and config.planner_features == PLANNER_FEATURES
    )


register_variant("llada", _read)
register_layout(
    Layout(
        name="dultra",
        title="LLaDA's names, with dUltra's planner head",
        names=lambda config: backbone_names("llada", config) | planner_tensors(config),
        head=head_name("llada"),
        fits=_fits,
        kind=lambda config: ("llada", "LLaDAModelLM"),
        record=llada_record,
    )
)
