"""The paper's own models, with the settings of its appendices and of its release.

They need more machine than a laptop; `anyorder train paper/... --dry-run` tells how much.
"""

from __future__ import annotations

from anyorder.recipes.recipe import DataConfig, FlexNetConfig, FlexRecipe, Recipe
from anyorder.train.config import TrainConfig
from anyorder.train.insertion_config import InsertionConfig

ADDITIONS = ("gap", "backbone.time", "backbone.blocks.*.modulation")
"""What flexmdm adds to a pretrained masked model: learns twice as fast as the backbone."""


def flexmdm_dreamcoder_7b() -> Recipe:
    """FlexMDM from Dream-Coder 7B (appendix D): 16 GPUs for three days.

    As released: raw time, weights with 1e-3 in the denominators, everything decays, loss divided
    by 768. The cosine's horizon is 75,000 steps; the published checkpoint is its step 49,500.
    Otherwise: float32 weights and moments (the release trained in bfloat16, where most updates
    round to nothing); time in float32, stratified over a micro batch instead of the whole one;
    a first step of lr / 7,500 instead of 0; additions that start normal instead of uniform; PAD's
    embedding learns; and of the five corpora the largest one, unfiltered.
    `start` and `data.vocab` name folders that must exist to train.
    """
    return FlexRecipe(
        family="flexmdm",
        start="Dream-org/Dream-Coder-v0-Base-7B",
        train=TrainConfig(
            steps=75_000,
            batch=576,
            accumulate=96,
            lr=1e-5,
            multipliers=dict.fromkeys(ADDITIONS, 2.0),
            warmup=7_500,
            betas=(0.9, 0.95),
            weight_decay=0.01,
            decay="everything",
            clip=1.0,
            ema=0.0,
            seed=1,
            validate_every=1_500,
            save_every=1_500,
        ),
        net=FlexNetConfig(
            width=3584,
            layers=28,
            heads=28,
            kv_heads=4,
            mlp_width=18_944,
            rope_theta=1e6,
            tied=False,
            vocab_size=152_064,
            convention="release",
            coordinate="raw",
            gap_offset=False,
            gap_reads="left",
        ),
        insertion=InsertionConfig(weighting="compat", normalise="max_length"),
        data=DataConfig(
            source="hf:nvidia/OpenCodeInstruct",
            prompt_field="input",
            answer_field="output",
            vocab="Dream-org/Dream-Coder-v0-Base-7B",
            canvas=767,
            max_length=768,
        ),
    )
