"""Recipes for a laptop: about 0.4 million parameters, the built-in corpus, minutes on two cores.

All share one corpus and one width. ar and mdm lack the parts that the others add, so that flexmdm
can start from that mdm; `--net.mlp-width 272` makes the parameters of all five equal within 1 %, as
in the shipped models (recipes/shipped_models.py in the repository).
"""

from __future__ import annotations

from anyorder.data.segments import SegmentConfig
from anyorder.families.block.config import BlockLossConfig
from anyorder.families.config import NetConfig
from anyorder.families.duo.config import UniformConfig
from anyorder.families.flexlatent.config import FlexLatentNetConfig, SegmentInsertionConfig
from anyorder.families.flexmdm.config import FlexNetConfig, InsertionConfig
from anyorder.families.latentmdm.config import LatentNetConfig, SegmentLossConfig
from anyorder.families.mdm.config import PlannedNetConfig
from anyorder.families.sflm.config import SphereLossConfig, SphereNetConfig
from anyorder.recipes.recipe import (
    BlockRecipe,
    DataConfig,
    DuoRecipe,
    FlexLatentRecipe,
    FlexRecipe,
    LatentRecipe,
    PlannerRecipe,
    Recipe,
    SphereRecipe,
    TuningRecipe,
)
from anyorder.training.config import TrainConfig


def ar() -> Recipe:
    """Learns the corpus within a few minutes."""
    return Recipe(family="ar", train=TrainConfig(steps=800, lr=3e-3, warmup=100))


def mdm() -> Recipe:
    """Any-order training is harder: more steps for the same corpus."""
    return Recipe(family="mdm", train=TrainConfig(steps=3000, lr=3e-3, warmup=100))


def planner() -> Recipe:
    """A planner for the shipped mdm: learns which slots its factor rule would reveal.

    The backbone is frozen, and the corpus is the one that it was trained on.
    """
    return PlannerRecipe(
        family="mdm",
        start="mdm",
        train=TrainConfig(steps=2000, lr=2e-3, warmup=100),
        net=PlannedNetConfig(mlp_width=272),
        data=DataConfig(layout=1.0),
    )


def duo() -> Recipe:
    """The network must also guess which tokens are noise: more steps again.

    Start from a trained mdm (`--start`): from scratch it takes far longer. The head is not tied, as
    published. A quarter of the examples are texts with one gap, because the input does not show
    which tokens around a gap are given.
    """
    return DuoRecipe(
        family="duo",
        train=TrainConfig(steps=8_000, lr=3e-3, warmup=100),
        net=NetConfig(tied=False),
        uniform=UniformConfig(infill=0.25),
    )


def planner_grpo() -> Recipe:
    """Tunes a planner by rewards: programs that pass, in few steps. Needs `--start`.

    It has no validation; benchmarks/planner.py compares before and after.
    """
    return TuningRecipe(
        family="mdm",
        train=TrainConfig(
            steps=150,
            batch=4,
            lr=1e-4,
            warmup=5,
            betas=(0.9, 0.99),
            ema=0.9,
            log_every=1,
            save_every=10,
            validate_every=0,
        ),
        net=PlannedNetConfig(mlp_width=272),
        data=DataConfig(layout=1.0),
    )


def flexmdm() -> Recipe:
    """Insertion is harder still: the network also learns what is missing, and where.

    Start from a trained mdm (`--start`), as the paper does: from scratch it takes far longer. The
    alignment is integrated out of the targets, which costs little here and removes noise. Masks
    are revealed later than published (1.7 instead of 2.89), so that insertion and unmasking have
    the same hazard. A quarter of the examples are texts with one gap, so that it learns to fill.
    """
    return FlexRecipe(
        family="flexmdm",
        train=TrainConfig(steps=8_000, lr=3e-3, warmup=100),
        net=FlexNetConfig(unmasking_exponent=1.7),
        insertion=InsertionConfig(normalise="items", targets="integrated", infill=0.25),
    )


STORY_SEGMENTS = SegmentConfig(slots=12, segment_length=12)
"""Room for every line of every story."""


def latentmdm() -> Recipe:
    """Any order over whole lines.

    The decoder also writes what is revealed (`segment_loss.reconstruct`), which teaches it sooner
    to carry names in one vector (docs/latentmdm.md).
    """
    return LatentRecipe(
        family="latentmdm",
        train=TrainConfig(steps=8_000, lr=3e-3, warmup=100),
        net=LatentNetConfig(mlp_width=182),
        segments=STORY_SEGMENTS,
        segment_loss=SegmentLossConfig(reconstruct=1.0),
    )


def flexlatent() -> Recipe:
    """Inserts whole lines where they are missing. Clocks and infilling as in flexmdm."""
    return FlexLatentRecipe(
        family="flexlatent",
        train=TrainConfig(steps=8_000, lr=3e-3, warmup=100),
        net=FlexLatentNetConfig(mlp_width=132, unmasking_exponent=1.7),
        segments=STORY_SEGMENTS,
        insertion=SegmentInsertionConfig(
            normalise="items", targets="integrated", infill=0.25, reconstruct=2.0
        ),
    )


def sflm() -> Recipe:
    """A flow on the sphere, all slots at once. Infilling as in flexmdm."""
    return SphereRecipe(
        family="sflm",
        train=TrainConfig(steps=8_000, lr=3e-3, warmup=100),
        net=SphereNetConfig(mlp_width=190),
        sphere=SphereLossConfig(infill=0.25),
    )


def block() -> Recipe:
    """Blocks left to right, any order inside one; each batch draws the size of its blocks.

    One network for all sizes, from left to right (1) to the whole canvas: `sample --block` chooses.
    """
    return BlockRecipe(
        family="block",
        train=TrainConfig(steps=3000, lr=3e-3, warmup=100),
        blocks=BlockLossConfig(sizes=(1, 4, 16, 64)),
    )
