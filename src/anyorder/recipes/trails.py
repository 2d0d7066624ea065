"""Recipes on the corpus `trails`, under equal conditions (docs/trails.md).

All families see the same problems in the same number of steps, and their parameters are equal
within 1 %. Each network trains on a mixture of conditions, so that conditions are compared within
one network. Prompts are read sentence by sentence, and the optimiser is Muon: without both,
networks of this size do not learn to look facts up. flexmdm and flexlatent do not learn it from
scratch in these steps. The shipped ones begin with an mdm and a latentmdm, whose steps count as
theirs (recipes/shipped_models.py in the repository).
"""

from __future__ import annotations

from dataclasses import replace

from anyorder.data.corpora.trails import TrailsDials
from anyorder.data.segments import SegmentConfig
from anyorder.families.block.config import BlockLossConfig, BlockNetConfig
from anyorder.families.config import NetConfig
from anyorder.families.duo.config import UniformConfig
from anyorder.families.flexlatent.config import FlexLatentNetConfig, SegmentInsertionConfig
from anyorder.families.flexmdm.config import FlexNetConfig, InsertionConfig
from anyorder.families.latentmdm.config import LatentNetConfig, SegmentLossConfig
from anyorder.families.mdm.config import PlannedNetConfig
from anyorder.families.sflm.config import SphereNetConfig
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
)
from anyorder.training.config import TrainConfig

STEPS = 6_000
DIALS = TrailsDials(hops=(3, 3), arms=2, layout=1.0, mixture=True)
DATA = DataConfig(source="trails", vocab="trails", canvas=39, max_length=74)
"""Room for every problem of these dials."""
SEGMENTS = SegmentConfig(slots=5, segment_length=12)
TRAIN = TrainConfig(steps=STEPS, batch=64, optimiser="muon", ema=0.99, save_every=500)


def _net(mlp_width: int) -> NetConfig:
    return NetConfig(mlp_width=mlp_width, prompt="sentences")


def ar() -> Recipe:
    """Left to right: goal problems need the whole chain before the first line."""
    return Recipe(family="ar", train=TRAIN, net=_net(192), data=DATA, trails=DIALS)


def mdm() -> Recipe:
    """Any order over the tokens of a fixed canvas."""
    return Recipe(family="mdm", train=TRAIN, net=_net(192), data=DATA, trails=DIALS)


def planner() -> Recipe:
    """A planner for the shipped trails/mdm, whose weights are frozen."""
    return PlannerRecipe(
        family="mdm",
        start="trails/mdm",
        train=replace(TRAIN, steps=1_500),
        net=PlannedNetConfig(mlp_width=192, prompt="sentences"),
        data=DATA,
        trails=DIALS,
    )


def flexmdm() -> Recipe:
    """Inserts tokens where they are missing. Clocks as in tiny/flexmdm."""
    return FlexRecipe(
        family="flexmdm",
        train=TRAIN,
        net=FlexNetConfig(mlp_width=112, prompt="sentences", unmasking_exponent=1.7),
        insertion=InsertionConfig(normalise="items", targets="integrated"),
        data=DATA,
        trails=DIALS,
    )


def latentmdm() -> Recipe:
    """Any order over whole lines."""
    return LatentRecipe(
        family="latentmdm",
        train=TRAIN,
        net=LatentNetConfig(
            encoder_layers=1,
            decoder_layers=1,
            mlp_width=192,
            prompt="sentences",
        ),
        segments=SEGMENTS,
        segment_loss=SegmentLossConfig(reconstruct=1.0),
        data=DATA,
        trails=DIALS,
    )


def flexlatent() -> Recipe:
    """Inserts whole lines where they are missing. Clocks as in flexmdm."""
    return FlexLatentRecipe(
        family="flexlatent",
        train=TRAIN,
        net=FlexLatentNetConfig(
            encoder_layers=1,
            decoder_layers=1,
            mlp_width=126,
            prompt="sentences",
            unmasking_exponent=1.7,
        ),
        segments=SEGMENTS,
        insertion=SegmentInsertionConfig(normalise="items", targets="integrated", reconstruct=2.0),
        data=DATA,
        trails=DIALS,
    )


def duo() -> Recipe:
    """Every token may change in every step."""
    return DuoRecipe(
        family="duo",
        train=TRAIN,
        net=replace(_net(108), tied=False),
        uniform=UniformConfig(),
        data=DATA,
        trails=DIALS,
    )


def sflm() -> Recipe:
    """A flow on the sphere, all slots at once."""
    return SphereRecipe(
        family="sflm",
        train=TRAIN,
        net=SphereNetConfig(mlp_width=108, prompt="sentences"),
        data=DATA,
        trails=DIALS,
    )


def block() -> Recipe:
    """Blocks left to right, any order inside one: of 1, 4 or 16 tokens, or the whole canvas."""
    return BlockRecipe(
        family="block",
        train=TRAIN,
        net=BlockNetConfig(mlp_width=192, prompt="sentences"),
        blocks=BlockLossConfig(sizes=(1, 4, 16, DATA.canvas)),
        data=DATA,
        trails=DIALS,
    )
