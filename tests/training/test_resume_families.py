"""The real thing in small: networks, corpus and objectives of every family, killed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from anyorder.data import BatchConfig, Batches, StoriesConfig, StoriesSource, stories_vocab
from anyorder.families.ar.loss import causal_mean
from anyorder.families.block.config import BlockConfig, BlockLossConfig
from anyorder.families.block.loss import counted_mean
from anyorder.families.block.net import BlockNet
from anyorder.families.duo.config import UniformConfig
from anyorder.families.duo.loss import uniform_bound
from anyorder.families.flexmdm.config import FlexConfig, InsertionConfig
from anyorder.families.flexmdm.loss import insertion_bound
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.mdm.loss import masked_bound, masked_mean
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.training.config import TrainConfig
from anyorder.training.loop import FitOptions, fit


class Killed(BaseException):
    """Stands for SIGKILL: nothing handles it."""


class Setting:
    """One family's parts, built anew as a new process would."""

    def __init__(self, family: str) -> None:
        self.vocab = stories_vocab()
        objectives = {
            "ar": causal_mean(self.vocab),
            "mdm": masked_mean(self.vocab),
            "bound": masked_bound(self.vocab),
            "flexmdm": insertion_bound(self.vocab, InsertionConfig(infill=0.5), 112),
            "duo": uniform_bound(self.vocab, UniformConfig(infill=0.5, curriculum=12), 112),
            "block": counted_mean(self.vocab, BlockLossConfig(sizes=(1, 4, 64))),
            "integrated": insertion_bound(self.vocab, InsertionConfig(targets="integrated"), 112),
        }
        self.objective = objectives[family]
        inserts = family in ("flexmdm", "integrated")
        config = TransformerConfig(
            vocab_size=self.vocab.size,
            width=16,
            layers=2,
            heads=2,
            kv_heads=1,
            head_width=8,
            mlp_width=32,
            causal=family == "ar",
            time_modulated=inserts or family == "duo",
        )
        self.net: nn.Module
        self.net = FlexNet(FlexConfig(config), seed=3) if inserts else Transformer(config, seed=3)
        if family == "block":
            self.net = BlockNet(BlockConfig(config, 4), seed=3)
        deal = BatchConfig(size=4, canvas=None if family == "ar" else 64)
        if inserts:
            deal = BatchConfig(size=4, ending="none", after=(self.vocab.eos_id,))
        self.batches = Batches(StoriesSource(StoriesConfig(layout=0.5)), self.vocab, deal)
        held_out = StoriesSource(StoriesConfig(layout=0.5, split="heldout"))
        self.validation = [Batches(held_out, self.vocab, deal)(0)]
        self.levels = (None,) if family == "ar" else (0.25, 0.75)

    def fit(self, out: Path, kill_at: int | None = None) -> Any:
        config = TrainConfig(
            steps=20,
            batch=8,
            accumulate=2,
            lr=3e-3,
            warmup=4,
            log_every=3,
            validate_every=6,
            validate_batches=1,
            save_every=5,
        )

        def batches(index: int) -> Any:
            if kill_at is not None and index == config.accumulate * kill_at:
                raise Killed
            return self.batches(index)

        options = FitOptions(levels=self.levels, progress=False)
        return fit(self.net, self.objective, batches, self.validation, config, out, options)


@pytest.mark.parametrize("family", ["ar", "mdm", "bound", "duo", "block", "flexmdm", "integrated"])
def test_resumed_equals_uninterrupted(family: str, tmp_path: Path, fingerprint: Any) -> None:
    whole = Setting(family)
    whole.fit(tmp_path / "whole")
    for at in (8, 17):
        with pytest.raises(Killed):
            Setting(family).fit(tmp_path / "halves", kill_at=at)
    resumed = Setting(family)
    result = resumed.fit(tmp_path / "halves")
    assert result.step == 20
    assert fingerprint(tmp_path / "halves") == fingerprint(tmp_path / "whole")
    for (name, first), second in zip(
        whole.net.named_parameters(), resumed.net.parameters(), strict=True
    ):
        assert torch.equal(first, second), name
