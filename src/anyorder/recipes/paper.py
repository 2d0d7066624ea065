"""The paper's models, with the settings of its appendices and release; LLaDA-8B and SDAR-4B.

They need more than a laptop: `anyorder train paper/... --dry-run` tells how much, and docs/scale.md
how to start them. All compute in bfloat16 on a GPU, with float32 weights, moments and averages.
Their micro batches divide among 1, 2, 4, 8 or 16 GPUs and fit on one of 80 GB.

"Otherwise:" in a docstring lists where a recipe departs from what was published.
"""

from __future__ import annotations

from typing import Any

from anyorder.data.segments import SegmentConfig
from anyorder.families.block.config import BlockLossConfig, BlockNetConfig
from anyorder.families.config import NetConfig
from anyorder.families.flexmdm.config import FlexNetConfig, InsertionConfig
from anyorder.families.latentmdm.config import LatentNetConfig
from anyorder.families.mdm.config import ImitationConfig, PlannedNetConfig
from anyorder.families.sflm.config import SphereNetConfig
from anyorder.recipes.recipe import (
    BlockRecipe,
    DataConfig,
    DuoRecipe,
    FlexRecipe,
    LatentRecipe,
    PlannerRecipe,
    Recipe,
    SphereRecipe,
)
from anyorder.training.config import TrainConfig

ADDITIONS = ("gap", "backbone.time", "backbone.blocks.*.modulation")
"""The parts that flexmdm adds to a pretrained masked model; their learning rate is doubled."""


def _training(*, every: int, **settings: Any) -> TrainConfig:
    """Training in bfloat16 on GPUs; `every`: steps between validations, and between checkpoints."""
    gpu: dict[str, Any] = {"device": "cuda", "dtype": "bfloat16"}
    return TrainConfig(clip=1.0, validate_every=every, save_every=every, **gpu, **settings)


def flexmdm_dreamcoder_7b() -> Recipe:
    """FlexMDM from Dream-Coder 7B (appendix D): 16 GPUs for three days.

    As released: raw time, weights with 1e-3 in the denominators, everything decays, loss divided
    by 768. The cosine's horizon is 75,000 steps; the published checkpoint is its step 49,500.
    Otherwise: float32 weights and moments (the release kept them in bfloat16, where most updates
    round to nothing); time in float32, stratified over a micro batch instead of the whole one;
    a first step of lr / 7,500 instead of 0; additions that start normal instead of uniform; PAD's
    embedding learns. The data are the five corpora as `anyorder data code-mixture` makes them:
    parsed, without duplicates and benchmark problems (`--mode compat` makes the released ones).
    """
    return FlexRecipe(
        family="flexmdm",
        start="Dream-org/Dream-Coder-v0-Base-7B",
        train=_training(
            steps=75_000,
            batch=576,
            accumulate=96,
            lr=1e-5,
            multipliers=dict.fromkeys(ADDITIONS, 2.0),
            warmup=7_500,
            betas=(0.9, 0.95),
            weight_decay=0.01,
            decay="everything",
            ema=0.0,
            seed=1,
            every=1_500,
            reduce="micro",  # as released: whole gradients would need 32 GiB more on every rank
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
            source="data/code-mixture",
            vocab="Dream-org/Dream-Coder-v0-Base-7B",
            canvas=767,
            max_length=768,
        ),
    )


QWEN_ROWS = 151_645
"""The embedding's rows: Qwen2's tokenizer up to the id that the release uses as the mask."""


def _tinygsm_training() -> TrainConfig:
    """Appendix E. The release's cosine spans 20 epochs, 907,000 steps, and stops at 500,000."""
    return _training(
        steps=907_000,
        batch=256,
        accumulate=16,
        lr=3e-4,
        warmup=1_000,
        weight_decay=0.01,
        decay="everything",
        ema=0.9999,
        seed=2026,
        every=5_000,
    )


def _tinygsm(canvas: int) -> DataConfig:
    """TinyGSM as `anyorder data tinygsm` makes it: no docstrings or blank lines, a newline after
    the question, and nothing of GSM8K's test."""
    return DataConfig(
        source="data/tinygsm",
        vocab="Qwen/Qwen2-0.5B",
        canvas=canvas,
        max_length=512,
    )


def _backbone(layers: int) -> dict[str, Any]:
    return {
        "width": 512,
        "layers": layers,
        "heads": 8,
        "mlp_width": 1536,
        "o_bias": True,
        "vocab_size": QWEN_ROWS,
    }


def ar_125m() -> Recipe:
    """The autoregressive baseline of appendix E (averaged weights too, as the paper says; the
    release averages all models but this one)."""
    return Recipe(
        family="ar",
        train=_tinygsm_training(),
        net=NetConfig(**_backbone(14)),
        data=_tinygsm(512),
    )


def mdm_125m() -> Recipe:
    """The token-level masked baseline of appendix E."""
    return Recipe(
        family="mdm",
        train=_tinygsm_training(),
        net=NetConfig(**_backbone(14)),
        data=_tinygsm(450),
    )


def _flow_training() -> TrainConfig:
    """For models without masks: the paper's steps and batch, the rest from their authors."""
    return _training(
        steps=500_000,
        batch=256,
        accumulate=16,
        lr=3e-4,
        warmup=2_500,
        final_lr_fraction=1.0,
        weight_decay=0.0,
        ema=0.9999,
        every=5_000,
    )


def duo_125m() -> Recipe:
    """DUO on TinyGSM as in the code that the paper follows: the plain bound, no curriculum.

    The paper says "125M scale" and no more. Width, depth and table are those of its mdm. The time
    input is our backbone's; the feed-forward maps are smaller by its size. Steps and batch are the
    paper's; learning rate, warm-up and averaging are those of the code. Otherwise: no dropout
    (published: 0.1), one table for input and output, padding is not attended to, and the network
    reads alpha, not -ln alpha.
    """
    return DuoRecipe(
        family="duo",
        train=_flow_training(),
        net=NetConfig(**_backbone(14) | {"mlp_width": 1104}),
        data=_tinygsm(450),
    )


def latentmdm_125m() -> Recipe:
    """LatentMDM on TinyGSM (appendix E): four GPUs for three days.

    As the paper says: 16 segments of 32 tokens, longer ones truncated, the mean over masked
    segments. Empty segments are the embedding of EOS, as released; no final norms, which is how
    its parameters add up to 125,395,968. Otherwise: weights start so that the first loss is ln V,
    rotary positions are rotations, padding is not attended to.
    """
    return LatentRecipe(
        family="latentmdm",
        train=_tinygsm_training(),
        net=LatentNetConfig(
            **_backbone(10),
            empty="eos",
            encoder_norm=False,
            latent_norm=False,
            decoder_norm=False,
        ),
        segments=SegmentConfig(slots=16, segment_length=32),
        data=_tinygsm(512),
    )


def sflm_125m() -> Recipe:
    """S-FLM on TinyGSM at the size of the paper's other models: our backbone over unit vectors.

    The paper says "125M scale" and no more, and that is only reached with one table for token
    vectors and head; S-FLM as published has two (`paper/sflm-205m`). Width, depth and feed-forward
    maps are those of `paper/duo-125m`, steps and batch the paper's, learning rate, warm-up and
    averaging those of S-FLM's authors. Otherwise as there.
    """
    return SphereRecipe(
        family="sflm",
        train=_flow_training(),
        net=SphereNetConfig(**_backbone(14) | {"mlp_width": 1104}, tied=True),
        data=_tinygsm(450),
    )


def sflm_205m() -> Recipe:
    """S-FLM on TinyGSM, by the recipe of its authors at the paper's width, depth and batches.

    The body is the published DiT, and table and head are two matrices, as published: 155M of 205M
    parameters. Otherwise: no dropout (published: 0.1), padding is not attended to, and the schedule
    is the truncated one throughout.
    """
    return SphereRecipe(
        family="sflm",
        train=_flow_training(),
        net=SphereNetConfig(
            architecture="dit",
            width=512,
            layers=14,
            heads=8,
            mlp_width=2048,
            vocab_size=QWEN_ROWS,
        ),
        data=_tinygsm(450),
    )


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
    """512 tokens, of which 256 are the answer's canvas, as in later use of the planner."""
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
        train=_training(
            steps=100_000,
            batch=64,
            accumulate=16,
            lr=1e-5,
            warmup=0,
            final_lr_fraction=0.01,
            weight_decay=0.01,
            decay="everything",
            ema=0.0,
            every=1_000,
        ),
        net=PlannedNetConfig(**LLADA, planner_mlp_width=12_288, planner_features=256),
        imitation=ImitationConfig(least_block=32),
        data=_instructions(base),
    )


def mdm_llada_8b() -> Recipe:
    """Fine-tuning of LLaDA-8B on your own data, with the bound that it was trained with.

    Not in the paper, which uses LLaDA as published. The learning rate is that of its authors'
    fine-tuning, the rest is ours.
    """
    base = "GSAI-ML/LLaDA-8B-Base"
    return Recipe(
        family="mdm",
        loss="bound",
        start=base,
        train=_training(
            steps=10_000,
            batch=256,
            accumulate=64,
            lr=2.5e-5,
            warmup=50,
            final_lr_fraction=0.1,
            weight_decay=0.1,
            ema=0.0,
            every=500,
            reduce="micro",
        ),
        net=NetConfig(**LLADA),
        data=_instructions(base),
    )


def block_sdar_4b() -> Recipe:
    """SDAR-4B from Qwen3-4B: a left-to-right model fine-tuned to blocks of 4 (not in the paper).

    As published: the shape, with a head of its own that begins as the table; blocks counted from
    the row's start, token i predicted at i, one time for a whole sequence, weights 1/t, a constant
    learning rate after 3 % of warm-up. The rest is ours. Otherwise: no continued pre-training on
    50B tokens before; the instructions of flexmdm's largest corpus, not packed; times from 0.001
    on (published: 0.999 t + 0.001), which a mask is not forced into.
    """
    base = "Qwen/Qwen3-4B-Base"
    return BlockRecipe(
        family="block",
        loss="bound",
        start=base,
        train=_training(
            steps=10_000,
            batch=256,
            accumulate=64,
            lr=1e-5,
            warmup=300,
            final_lr_fraction=1.0,
            weight_decay=0.1,
            ema=0.0,
            every=500,
            reduce="micro",
        ),
        net=BlockNetConfig(
            width=2560,
            layers=36,
            heads=32,
            kv_heads=8,
            head_width=128,
            mlp_width=9_728,
            rope_theta=1e6,
            qkv_bias=False,
            qk_norm=True,
            tied=False,
            vocab_size=151_936,
            shift=False,
            block_size=4,
            origin="absolute",
        ),
        blocks=BlockLossConfig(sizes=(4,), time="sequence", times=(0.001, 1.0)),
        data=_instructions(base),
    )
