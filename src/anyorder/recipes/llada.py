"""Recipes that begin with LLaDA-8B: its planner, and training it on.

Sizes and starting as for the paper's other models (paper.py).
"""

from __future__ import annotations

from typing import Any

from anyorder.recipes.paper import GPU
from anyorder.recipes.recipe import (
    DataConfig,
    NetConfig,
    PlannedNetConfig,
    PlannerRecipe,
    Recipe,
)
from anyorder.train.config import TrainConfig
from anyorder.train.planner_config import ImitationConfig

LLADA: dict[str, Any] = {
    "width": 4096,
    "layers": 32,
    "heads": 32,
    "mlp_width": 12_288,
    "rope_theta": 5e5,
    "norm_eps": 1e-5,
    "qkv_bias": False,
    "tied": False,
    "vocab_size": 126_464,
}
"""The shape of LLaDA-8B: 291 tensors, no biases."""


def _instructions(vocab: str) -> DataConfig:
    """512 tokens, of which 256 are the answer's canvas, as the planner is later used."""
    return DataConfig(
        source="hf:nvidia/OpenCodeInstruct",
        prompt_field="input",
        answer_field="output",
        vocab=vocab,
        canvas=256,
        max_length=512,
    )


def planner_llada_8b() -> Recipe:
    """dUltra's planner on a LLaDA of 8B parameters, by imitation: only the head's 303M learn.

    As published: the base, 64 examples a step, AdamW with weight decay on everything, cosine to a
    hundredth of the rate, 100,000 steps at the most, blocks of 32 slots or more. Otherwise: the
    instructions of flexmdm's largest corpus in place of chats about mathematics and code, prompts
    without a chat template. `start` and `data.vocab` name folders or hub ids.
    """
    base = "Zigeng/dParallel-LLaDA-8B-instruct"
    return PlannerRecipe(
        family="mdm",
        start=base,
        train=TrainConfig(
            steps=100_000,
            batch=64,
            accumulate=16,
            lr=1e-5,
            warmup=0,
            final_lr_fraction=0.01,
            weight_decay=0.01,
            decay="everything",
            clip=1.0,
            ema=0.0,
            validate_every=1_000,
            save_every=1_000,
            **GPU,
        ),
        net=PlannedNetConfig(**LLADA, planner_mlp_width=12_288, planner_features=256),
        imitation=ImitationConfig(least_block=32),
        data=_instructions(base),
    )


def mdm_llada_8b() -> Recipe:
    """LLaDA-8B trained on with the bound that it was trained with: fine-tuning on one's own data.

    Not in the paper, which uses LLaDA as it is: the rate is that of its authors' fine-tuning, the
    rest is ours.
    """
    base = "GSAI-ML/LLaDA-8B-Base"
    return Recipe(
        family="mdm",
        loss="bound",
        start=base,
        train=TrainConfig(
            steps=10_000,
            batch=256,
            accumulate=64,
            lr=2.5e-5,
            warmup=50,
            final_lr_fraction=0.1,
            weight_decay=0.1,
            clip=1.0,
            ema=0.0,
            validate_every=500,
            save_every=500,
            reduce="micro",
            **GPU,
        ),
        net=NetConfig(**LLADA),
        data=_instructions(base),
    )
