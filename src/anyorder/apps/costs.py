"""What one micro batch costs: floating-point operations, and bytes kept for the backward pass.

A network is a list of passes: a module over rows of columns. With n = rows * columns, the forward
pass takes

    2 n (entries)                           matrices applied to every column
    2 rows (entries)                        matrices applied once per row (time, modulation)
    4 rows columns^2 (heads * head width)   attention, in each layer
    2 M V D                                 the vocabulary head, over M predicted positions

The backward pass takes twice as much where weights learn, once where only states need gradients
(under adapters), and nothing elsewhere. `tests/apps/test_costs.py` compares these counts with
torch's counter, and the kept bytes with the tensors that autograd saves.

`micro_batch` gives the shapes of a recipe's micro batch, mean and maximum. Lengths are the recipe's
limits unless a mean is given. The loss, or else the family's description, says which share of the
answer is predicted:

    all               all of it
    half              n ~ Unif{1..N}: half; levels are stratified over B rows: at most N (B + 1) / 2
                      (of segments: half of the slots are masked and written, the others encoded)
    between_clocks    masked at time t = 1 - u, for clocks 1 - u^a (insertion), 1 - u^c (unmasking):
                      a (u^a - u^c) / (c - a); its mean over u, and its largest value
    imitation         masked slots of a block: at most as many as `half` masks

If prompt and answer share `max_length` tokens, half of them count as answer, unless the answer
fills a canvas. Norms, rotary positions, softmax and the optimiser's arithmetic are small and not
counted. Weights and optimiser state are in dry_run.py.

Letters: B rows, L columns, D width, V vocabulary, M predicted positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from anyorder.families.block.net import BlockNet
from anyorder.families.config import Predicted
from anyorder.families.descriptions import describe
from anyorder.families.family import find_family
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.latentmdm.net import LatentNet
from anyorder.families.mdm.planner import PlannedNet, PlannerHead
from anyorder.families.sflm.net import DiT, DiTBlock, SphereNet, TimeCondition
from anyorder.nets.denoiser import ShiftedNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Modulation, Stack, TimeEmbedding, TransformerBlock
from anyorder.nets.transformer import Transformer
from anyorder.recipes import Recipe

CPU_NORM = 3
"""States that a norm keeps: its input, the normed one, its output. A fused norm on a GPU keeps
fewer."""


@dataclass(frozen=True)
class Shapes:
    """The sizes of one micro batch that its costs depend on; means may be fractions."""

    rows: float
    columns: float
    """Tokens of a row, prompt included."""
    predicted: float
    """M, over all rows."""
    prompt: float = 0.0
    """Tokens of a row's prompt, if the rest of the row is segments."""
    slots: float = 0.0
    """Segments of a row."""
    shown: float = 0.0
    """Segments that are encoded, over all rows."""
    written: float = 0.0
    """Segments that are decoded, over all rows."""
    segment: float = 0.0
    """Columns of a segment."""


@dataclass(frozen=True)
class Pass:
    """A module over rows of columns."""

    module: nn.Module
    rows: float
    columns: float
    answered: float | None = None
    """Columns whose output of the last layer is used; None: all."""


PASSES: dict[type[nn.Module], Callable[[Any, Shapes], list[Pass]]] = {
    Transformer: lambda net, s: [Pass(net, s.rows, s.columns)],
    ShiftedNet: lambda net, s: [Pass(net.backbone, s.rows, s.columns)],
    SphereNet: lambda net, s: [Pass(net.backbone, s.rows, s.columns)],
    BlockNet: lambda net, s: [Pass(net.backbone, s.rows, 2 * s.columns)],  # two streams
    FlexNet: lambda net, s: [
        Pass(net.backbone, s.rows, s.columns),
        Pass(net.gap, s.rows, s.columns),
    ],
    PlannedNet: lambda net, s: [
        Pass(net.backbone, s.rows, s.columns),
        Pass(net.planner, s.rows, s.columns),
    ],
    LatentNet: lambda net, s: [
        Pass(net.encoder, s.shown, s.segment),
        Pass(net.latent, s.rows, s.prompt + s.slots, answered=s.slots),
        Pass(net.decoder, s.written, s.segment),
    ],
    FlexLatentNet: lambda net, s: [
        Pass(net.backbone.encoder, s.shown, s.segment),
        Pass(net.backbone.latent, s.rows, s.prompt + s.slots, answered=s.slots + 1),
        Pass(net.backbone.decoder, s.written, s.segment),
        Pass(net.gap, s.rows, s.slots + 1),
    ],
}
"""The passes of one micro batch, by the network's class."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one micro batch."""

    forward: float
    backward: float
    layers: float
    """Forward operations of the layers that learn: what recomputing them adds."""

    @property
    def total(self) -> float:
        return self.forward + self.backward


def flops(net: nn.Module, shapes: Shapes, *, head_learns: float = 2.0) -> Flops:
    """Operations of one micro batch; `head_learns`: the head's backward cost in forward passes."""
    forward = backward = layers = 0.0
    for each in PASSES[type(net)](net, shapes):
        own = _pass_flops(each)
        learns = _learns(each.module)
        forward += own
        backward += learns * own
        layers += own if learns and isinstance(each.module, Stack | DiT) else 0.0
    table = vocabulary(net)
    head = 2.0 * shapes.predicted * table.numel()
    # States of a frozen network that learns nothing before its head need no gradient.
    return Flops(forward + head, backward + head_learns * head, layers)


def vocabulary(net: nn.Module) -> nn.Parameter:
    """The matrix of the vocabulary head."""
    named = dict(net.named_parameters())
    heads = [name for name in named if name.endswith("unembed.weight")]
    return named[next(iter(heads), "") or next(n for n in named if n.endswith("embed.weight"))]


def _learns(module: nn.Module) -> float:
    """The cost of the backward pass, in forward passes."""
    found = [parameter.requires_grad for parameter in module.parameters()]
    if all(found):
        return 2.0
    return 1.0 if any(found) else 0.0


def _pass_flops(each: Pass) -> float:
    columns = each.rows * each.columns
    found = 2.0 * columns * _entries(each.module, _column_maps)
    found += 2.0 * each.rows * _entries(each.module, _row_maps)
    blocks = list(_blocks(each.module))
    for _, shape in blocks:
        inner = shape.heads * shape.head_width
        found += 4.0 * columns * each.columns * inner
    if each.answered is not None and blocks:
        # The last layer needs keys and values of all columns, the rest only of answered ones.
        last, shape = blocks[-1]
        unanswered = each.columns - each.answered
        keys = last.attention.key.weight.numel() + last.attention.value.weight.numel()
        found -= 2.0 * each.rows * unanswered * (_entries(last, _column_maps) - keys)
        found -= 4.0 * each.rows * unanswered * each.columns * shape.heads * shape.head_width
    return found


def _blocks(module: nn.Module) -> Iterator[tuple[Any, TransformerConfig]]:
    """The layers of a module, each with its shape."""
    for inner in module.modules():
        if isinstance(inner, Stack | DiT):
            for block in inner.blocks:
                yield block, inner.config


def _entries(module: nn.Module, maps: Callable[[nn.Module], Iterator[nn.Linear]]) -> int:
    return sum(linear.weight.numel() for linear in maps(module))


def _row_maps(module: nn.Module) -> Iterator[nn.Linear]:
    """Maps that are applied once per row: time embeddings and modulation."""
    by_row = (TimeEmbedding, TimeCondition, Modulation)
    for inner in module.modules():
        if isinstance(inner, by_row):
            yield from (each for each in inner.modules() if isinstance(each, nn.Linear))
        elif isinstance(inner, DiTBlock | DiT):
            yield inner.modulation
        elif isinstance(inner, PlannerHead):
            yield from (inner.inner, inner.outer)


def _column_maps(module: nn.Module) -> Iterator[nn.Linear]:
    """All other maps, except the vocabulary head: it sees only predicted positions."""
    others = set(_row_maps(module))
    head = {getattr(inner, "unembed", None) for inner in module.modules()}
    for inner in module.modules():
        if isinstance(inner, nn.Linear) and inner not in others and inner not in head:
            yield inner


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes that one micro batch keeps until its backward pass."""

    layers: float
    """Kept by all layers, without recomputation."""
    inputs: float
    """Kept with recomputation: one state for each layer and column."""
    largest: float
    """Kept by the largest layer while it is recomputed."""
    around: float
    """Outside the layers: final norms, the gap head."""
    passing: float
    """Needed by the largest layer that runs without gradients."""


def activation_bytes(net: nn.Module, shapes: Shapes, *, wide: int, narrow: int) -> ActivationBytes:
    """The bytes that autograd saves for the backward pass.

    `wide` is the size of a number on the residual path (norms included), `narrow` of one inside
    attention and feed-forward maps.
    """
    layers = inputs = largest = around = passing = 0.0
    for each in PASSES[type(net)](net, shapes):
        columns = each.rows * each.columns
        learns = _learns(each.module)
        for block, shape in _blocks(each.module):
            own = columns * LAYERS[type(block)](shape, wide, narrow)
            if not learns:  # runs without gradients: one layer at a time, and nothing is kept
                passing = max(passing, own)
                continue
            layers += own
            inputs += columns * shape.width * wide
            largest = max(largest, own)
        if learns and isinstance(each.module, Stack | DiT):
            around += columns * CPU_NORM * each.module.config.width * wide
        elif learns:  # a head over states keeps the inputs of its maps
            maps = (inner for inner in each.module.modules() if isinstance(inner, nn.Linear))
            around += columns * wide * sum(linear.in_features for linear in maps)
    return ActivationBytes(layers, inputs, largest, around, passing)


def _plain_layer(shape: TransformerConfig, wide: int, narrow: int) -> float:
    """Two norms (and their modulated outputs); q, k, v, the mixture; gate, silu, up, product; with
    norms of q and k, what these keep."""
    norm = CPU_NORM * shape.width + (shape.width if shape.time_modulated else 0)
    heads, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    inside = 2 * heads + 2 * keys + 4 * shape.mlp_width
    if shape.qk_norm:
        inside += 2 * (heads + keys) + shape.heads + shape.kv_heads  # not their outputs
    return wide * (2 * norm + 2) + narrow * inside + 4 * shape.heads


def _dit_layer(shape: TransformerConfig, wide: int, narrow: int) -> float:
    """Two norms with their outputs and modulated outputs; q, k, v, turned q and k, the mixture;
    two gated results; the inner states of the map before and after GELU."""
    inner = shape.heads * shape.head_width
    inside = 3 * inner + 2 * inner + inner + 2 * shape.mlp_width
    return wide * (2 * (3 * shape.width + 2) + 2 * shape.width) + narrow * inside + 4 * shape.heads


LAYERS: dict[type[nn.Module], Callable[[TransformerConfig, int, int], float]] = {
    TransformerBlock: _plain_layer,
    DiTBlock: _dit_layer,
}
"""Bytes that a layer keeps for one column."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro batch: its average and its largest shapes."""

    mean: Shapes
    peak: Shapes


def micro_batch(recipe: Recipe, length: float | None = None) -> MicroBatch:
    """The micro batch of a recipe; `length`: the mean tokens of a row (None: rows are full)."""
    rows, data = recipe.train.micro_batch, recipe.data
    columns = float(min(length or data.max_length, data.max_length))
    fills = find_family(recipe.family).answers == "canvas"
    longest = float(min(data.canvas, data.max_length))
    answer = longest if fills else columns * min(0.5, longest / data.max_length)
    return MicroBatch(
        _shapes(recipe, rows, columns, answer, peak=False),
        _shapes(recipe, rows, float(data.max_length), longest, peak=True),
    )


def _shapes(recipe: Recipe, rows: int, columns: float, answer: float, *, peak: bool) -> Shapes:
    share = share_of(recipe)(recipe, rows)
    predicted = rows * answer * share[peak]
    segments = getattr(recipe, "segments", None)
    if segments is None:
        return Shapes(rows, columns, predicted)
    slots = float(segments.slots)
    segment = min(segments.segment_length, answer / slots + 1)
    masked = rows * slots * share[peak]
    shown = rows * slots * (1 - share[False])
    again = shown if (recipe.settings.reconstruct > 0) else 0.0
    return Shapes(
        rows,
        columns,
        predicted=(masked + again) * segment,
        prompt=columns if peak else columns - answer,
        slots=slots,
        shown=shown,
        written=masked + again,
        segment=segment,
    )


AnswerShare = Callable[[Any, int], tuple[float, float]]
"""(recipe, rows) -> the predicted share of the answers: its mean, and its largest value."""


def _all(recipe: Recipe, rows: int) -> tuple[float, float]:
    return 1.0, 1.0


def _half(recipe: Recipe, rows: int) -> tuple[float, float]:
    return 0.5, 0.5 + 0.5 / rows


def _block(recipe: Recipe, rows: int) -> tuple[float, float]:
    """A block has at least half of the canvas on average, and half of it is masked."""
    return 0.25 + 0.25 * recipe.settings.least_block / recipe.data.canvas, 0.5 + 0.5 / rows


def _half_of_blocks(recipe: Recipe, rows: int) -> tuple[float, float]:
    """A block of n tokens has from 1 to n masks, and on average half of them and a half."""
    shares = [0.5 + 0.5 / min(size, recipe.data.canvas) for size in recipe.settings.sizes]
    return sum(shares) / len(shares), max(shares)


def _between_clocks(recipe: Any, rows: int) -> tuple[float, float]:
    """The share of tokens that are inserted and not yet revealed."""
    a, c = recipe.net.insertion_exponent, recipe.net.unmasking_exponent
    if getattr(recipe.net, "coordinate", "progress") == "progress":
        a, c = 1.0, c / a  # u is then the share that is not inserted yet
    grid = [(number + 0.5) / 1024 for number in range(1024)]
    c = c if abs(c - a) > 1e-6 else a + 1e-6  # the formula divides by c - a
    found = [a * (u**a - u**c) / (c - a) for u in grid]
    return sum(found) / len(found), max(found)


SHARES: dict[Predicted, AnswerShare] = {
    "all": _all,
    "half": _half,
    "blocks": _half_of_blocks,
    "between_clocks": _between_clocks,
}
"""By the family's description."""
LOSS_SHARES: dict[str | None, AnswerShare] = {"imitation": _block, "grpo": _all}
"""By loss, for losses that differ from their family's rule."""


def share_of(recipe: Recipe) -> AnswerShare:
    """The rule of a recipe's loss, or else of its family."""
    return LOSS_SHARES.get(recipe.loss) or SHARES[describe(recipe.family).predicted]


def logit_bytes(recipe: Recipe) -> float:
    """Peak bytes for one logit: one predicted token and one entry of the vocabulary."""
    half = 2.0 if recipe.train.dtype == "bfloat16" else 0.0  # logits before they are widened
    return describe(recipe.family).logit_bytes + half
