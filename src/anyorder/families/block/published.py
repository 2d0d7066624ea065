"""Block models that others published: SDAR (Qwen3's backbone) and Fast-dLLM v2 (Qwen2.5's).

    SDAR            model_type sdar: blocks of 4, token i predicted at i
    Fast-dLLM v2    model_type Fast_dLLM_Qwen: blocks of 32, token i predicted at i - 1

Both count blocks from the row's start, prompt included. Not here: SDAR's mixtures of experts, which
are refused by their model_type, and the sub-blocks of Fast-dLLM v2, a way to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anyorder.families.block.config import BlockConfig, Origin
from anyorder.hub.formats import (
    Folder,
    Layout,
    Published,
    backbone_names,
    fits_qwen,
    fits_qwen3,
    head_name,
    length_of,
    qwen3_record,
    qwen3_shape,
    qwen_record,
    qwen_shape,
    register_layout,
    register_reader,
)

ORIGIN: Origin = "absolute"


@dataclass(frozen=True)
class BlockFormat:
    """How a published format speaks of blocks."""

    layout: str
    key: str
    """The entry of config.json with the size of a block."""
    usual: int
    """The size if there is no such entry."""
    shift: bool

    def read(self, folder: Folder) -> Published:
        shape = qwen_shape(folder, qkv_bias=True) if self.shift else qwen3_shape(folder)
        config = BlockConfig(shape, folder.get(self.key, self.usual), ORIGIN, self.shift)
        return Published(self.layout, "block", config, length_of(folder))

    def fits(self, config: Any) -> bool:
        if not isinstance(config, BlockConfig):
            return False
        known = fits_qwen if self.shift else fits_qwen3
        return (config.shift, config.origin) == (self.shift, ORIGIN) and known(config.backbone)

    def more(self, config: BlockConfig) -> dict[str, Any]:
        return {self.key: config.block_size}


SDAR = BlockFormat("sdar", "block_size", 4, shift=False)
FAST_DLLM = BlockFormat("fast_dllm", "bd_size", 32, shift=True)

register_reader("sdar", SDAR.read)
register_reader("fast_dllm_qwen", FAST_DLLM.read)
register_layout(
    Layout(
        name=SDAR.layout,
        title="SDAR: Qwen3's names, decoded in blocks",
        names=lambda config: backbone_names("qwen2", config),
        head=head_name("qwen2"),
        fits=SDAR.fits,
        kind=lambda config: ("sdar", "SDARForCausalLM"),
        record=qwen3_record,
        more=SDAR.more,
    )
)
register_layout(
    Layout(
        name=FAST_DLLM.layout,
        title="Fast-dLLM v2: Qwen2's names, decoded in blocks",
        names=lambda config: backbone_names("qwen2", config),
        head=head_name("qwen2"),
        fits=FAST_DLLM.fits,
        kind=lambda config: ("Fast_dLLM_Qwen", "Fast_dLLM_QwenForCausalLM"),
        record=qwen_record,
        more=FAST_DLLM.more,
    )
)
