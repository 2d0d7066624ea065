"""The layers of the one backbone: a pre-norm stack of the Qwen and Llama shape, vectors to states.

    x <- x + Attention(norm(x)),    x <- x + W_down(silu(W_gate y) * W_up y),  y = norm(x)
    states = norm(x)                (or x itself, without a final norm)

norm is RMSNorm with float32 statistics. With `qk_norm` (Qwen3) every head of queries and keys has
one as well, of one gain for all heads, before positions.

Positions are rotary (RoPE), in the rotate-half layout of Qwen2 and Llama: position p turns the pair
(x_j, x_{j + W/2}) of every query and key by the angle p * theta^(-2j/W). A turn keeps norms, and
the product of a turned query and a turned key depends on the difference of their positions alone.

Time, with `time_modulated`, is one embedding per row, and one scale and shift per layer:

    s(t)  = [cos(1000 t f) | sin(1000 t f)],   f_j = 10000^(-j / half),   half = D / 2
    c     = W2 silu(W1 s(t)),                  W1: D -> 4D, W2: 4D -> D
    (scale, shift) = split(W_layer c),         y = (1 + scale) * norm(x) + shift

The same scale and shift follow both norms of a layer, the scale is the first half, and the final
norm is not modulated. W_layer starts at zero, so a net given time conditioning computes exactly
what it computed before. A process decides what "time" means.

Two savings change no number. `skip`: if only the last columns are needed, the last layer computes
queries and feed-forward maps for these alone. `remember`: columns that do not see later ones are
read once, and later calls attend to their keys and values (`Memory`).

`Cache` holds the keys and values of a causal net, with a separate length for every row. A ragged
batch of prompts, padded on the right, is prefilled in one call; every later call writes its tokens
at each row's own length, so rows stay packed and padding costs one overwritten slot. Token t of a
call gets position lengths + t and sees the keys 0 .. lengths + t of its row. The host knows the
shortest and the longest length too, so attention runs over the filled part only and a step does
not synchronise with the device. Only a call with a mask, `cut` and `select` read the lengths back.

Not here: token tables and vocabulary heads (transformer.py, families/latentmdm/net.py), losses,
sampling, dropout, learnt positions, frequency scaling for contexts longer than those trained on;
beams, paging, eviction and gradients of a cache.
Letters: B rows, L columns (T tokens) of this call, S keys attended to, C capacity, H query heads,
G key/value heads, W head width, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.shapes import TransformerConfig


@dataclass(frozen=True)
class CacheShape:
    """The size of a cache."""

    layers: int
    rows: int
    capacity: int
    """Tokens a row can hold."""
    kv_heads: int
    head_width: int


@dataclass(frozen=True)
class CacheStep:
    """One call's plan: where its tokens go and which keys they see. Shared by all layers."""

    positions: Tensor
    """B T: the position of each token in its row, also its rotary position."""
    slots: Tensor
    """B*T: the same places in the storage seen as one list of B*C slots."""
    span: int
    """S: keys attended to, the longest row included."""
    visible: Tensor | None
    """B 1 T S: keys each token may see; None when `causal` alone, or nothing, restricts them."""
    causal: bool
    """The cache was empty: the plain causal rule over T by T."""
    lengths: Tensor
    """B: the row lengths after this call."""
    shortest: int
    longest: int


class Cache:
    """Keys and values of every layer. `lengths` (B) counts the tokens held for each row."""

    def __init__(self, shape: CacheShape, *, device: torch.device, dtype: torch.dtype) -> None:
        if min(shape.rows, shape.capacity) < 1:
            raise ValueError(
                f"a cache needs at least one row and one token of capacity, not "
                f"{shape.rows} rows of {shape.capacity}"
            )
        self.shape = shape
        size = (shape.rows, shape.capacity, shape.kv_heads, shape.head_width)
        # Zeros, not uninitialised memory: a masked key gets weight 0, and 0 * nan is nan.
        # Outside inference mode, so that a cache outlives the mode it was made in.
        with torch.inference_mode(False):
            self.keys = [torch.zeros(size, device=device, dtype=dtype) for _ in range(shape.layers)]
            self.values = [torch.zeros_like(keys) for keys in self.keys]
            self.lengths = torch.zeros(shape.rows, device=device, dtype=torch.long)
        self.shortest = 0
        self.longest = 0

    def begin(self, rows: int, count: int, mask: Tensor | None) -> CacheStep:
        """Plan a call of `count` tokens a row; nothing changes until `end`.

        mask: B T bool, True = a real token; padding must come after the real tokens of its row.
        """
        if torch.is_grad_enabled():
            raise ValueError("a cache is for decoding: call under torch.no_grad()")
        if rows != self.shape.rows:
            raise ValueError(
                f"{rows} rows were given to a cache of {self.shape.rows}: "
                "keep the two in step with cache.select(rows)"
            )
        if self.longest + count > self.shape.capacity:
            raise ValueError(
                f"the cache is full: it holds {self.shape.capacity} tokens a row, the longest row "
                f"has {self.longest} and {count} more were given; make the cache with a capacity "
                f"of at least {self.longest + count}"
            )
        device = self.lengths.device
        ahead = torch.arange(count, device=device)
        positions = self.lengths[:, None] + ahead  # B T
        first_slot = torch.arange(rows, device=device)[:, None] * self.shape.capacity
        span = self.longest + count
        fresh = self.longest == 0
        # A single token of a batch of equal lengths sees every key there is.
        if fresh or (count == 1 and self.shortest == self.longest):
            visible = None
        else:
            visible = torch.arange(span, device=device) <= positions[:, None, :, None]
        lengths, shortest, longest = self._lengths_after(count, mask)
        slots = (first_slot + positions).flatten()
        return CacheStep(positions, slots, span, visible, fresh, lengths, shortest, longest)

    def write(
        self, layer: int, step: CacheStep, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values (B T G W); return all of the span (B S G W)."""
        all_keys, all_values = self.keys[layer], self.values[layer]
        # Rows have different lengths: seen as one list of slots, one copy writes them all.
        for storage, new in ((all_keys, keys), (all_values, values)):
            flat = storage.view(-1, self.shape.kv_heads, self.shape.head_width)
            flat.index_copy_(0, step.slots, new.flatten(0, 1).to(storage.dtype))
        return all_keys[:, : step.span], all_values[:, : step.span]

    def end(self, step: CacheStep) -> None:
        """Accept the tokens of a planned call, once every layer has written them."""
        self.lengths = step.lengths
        self.shortest = step.shortest
        self.longest = step.longest

    def cut(self, lengths: Tensor) -> None:
        """Forget all tokens beyond each row's new length (B), which may not exceed its old one.

        Nothing is erased: slots beyond a length are never attended to, and are overwritten.
        """
        lengths = lengths.to(self.lengths.device, torch.long, copy=True)
        if lengths.shape != self.lengths.shape:
            raise ValueError(
                f"{tuple(lengths.shape)} lengths were given to a cache of {self.shape.rows} rows: "
                "give one for each row"
            )
        excess = (lengths - self.lengths).max()  # one transfer below brings all three numbers
        shortest, longest, more = torch.stack([*lengths.aminmax(), excess]).tolist()
        if more > 0 or shortest < 0:
            raise ValueError("a cache can only be cut to lengths from 0 to what its rows hold")
        self.lengths, self.shortest, self.longest = lengths, shortest, longest

    def select(self, rows: Tensor | Sequence[int]) -> Cache:
        """A new cache of the given rows: drop finished ones, reorder, or repeat a shared prompt."""
        rows = torch.as_tensor(rows, device=self.lengths.device)
        if rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        chosen = replace(self.shape, rows=len(rows))
        picked = Cache(chosen, device=self.lengths.device, dtype=self.keys[0].dtype)
        picked.lengths = self.lengths[rows]
        picked.shortest, picked.longest = torch.stack(picked.lengths.aminmax()).tolist()
        filled = picked.longest
        for old, new in zip(self.keys + self.values, picked.keys + picked.values, strict=True):
            new[:, :filled] = old[rows, :filled]
        return picked

    def _lengths_after(self, count: int, mask: Tensor | None) -> tuple[Tensor, int, int]:
        if mask is None:
            return self.lengths + count, self.shortest + count, self.longest + count
        added = mask.sum(dim=1)
        packed = mask == (torch.arange(count, device=mask.device) < added[:, None])
        lengths = self.lengths + added
        shortest, longest, right_padded = torch.stack(
            [lengths.min(), lengths.max(), packed.all().long()]
        ).tolist()
        if not right_padded:
            raise ValueError(
                "the mask of a cached call has padding before real tokens: pad on the right"
            )
        return lengths, shortest, longest


Rotation = tuple[Tensor, Tensor]
"""[cos | cos] and [-sin | sin] of the angles, each (1 or B) L 1 W, float32."""


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn each pair (j, j + W/2) of every head by its angle: B L H W -> B L H W.

    x cos + (x with its halves exchanged) (-sin | sin), in passes over whole heads: half the time of
    turning the halves one by one. The float32 tables promote half precision for the turn itself.
    """
    cos, sin = rotation
    exchanged = x.roll(x.shape[-1] // 2, dims=-1)
    return (x * cos).add_(exchanged * sin).to(x.dtype)


class Rotary:
    """The cosines and sines of a net, computed once per length and device.

    Deliberately no module: as buffers the tables would follow `.to(bfloat16)` and lose their
    precision, and would be left uninitialised on the way from the meta device to a real one.
    """

    def __init__(self, head_width: int, theta: float) -> None:
        self.head_width = head_width
        self.theta = theta
        self._table: Rotation | None = None

    def prefix(self, length: int, device: torch.device) -> Rotation:
        """Positions 0 .. length - 1."""
        cos, sin = self._grown(length, device)
        return cos[:, :length], sin[:, :length]

    def pick(self, positions: Tensor, limit: int) -> Rotation:
        """Positions (B L) known to be below `limit`."""
        cos, sin = self._grown(limit, positions.device)
        return cos[0, positions], sin[0, positions]

    def at(self, positions: Tensor) -> Rotation:
        """Any positions (B L). Computed afresh: the host does not know how large they are."""
        even = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=positions.device)
        frequency = 1.0 / self.theta ** (even / self.head_width)
        angle = positions.float()[..., None, None] * frequency  # B L 1 W/2
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def _grown(self, length: int, device: torch.device) -> Rotation:
        table = self._table
        if table is None or table[0].shape[1] < length or table[0].device != device:
            rows = 1 << max(length - 1, 63).bit_length()  # doubling, so that growth is rare
            # A table made in inference mode could not be used for training later on.
            with torch.inference_mode(False), torch.no_grad():
                table = self.at(torch.arange(rows, device=device)[None])
            self._table = table
        return table


TIME_SCALE = 1000.0
MAX_PERIOD = 10000.0


def sinusoids(time: Tensor, width: int, scale: float = TIME_SCALE) -> Tensor:
    """The [cos | sin] features of a time in [0, 1], always in float32: B -> B D.

    Half precision would round the time itself (bfloat16 keeps 8 bits), hence the explicit float32.
    """
    half = width // 2
    index = torch.arange(half, dtype=torch.float32, device=time.device)
    frequency = torch.exp(-math.log(MAX_PERIOD) * index / half)
    angle = scale * time.float()[:, None] * frequency  # B D/2
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


class TimeEmbedding(nn.Module):
    """Time -> the condition vector that every layer reads: B -> B D."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, time: Tensor) -> Tensor:
        features = sinusoids(time, self.width).to(self.inner.weight.dtype)
        return self.outer(F.silu(self.inner(features)))


class Modulation(nn.Module):
    """Condition -> the scale and shift of one layer: B D -> two times B 1 D."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 2 * width)

    def forward(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.project(condition)[:, None, :].chunk(2, dim=-1)
        return scale, shift


def modulate(normed: Tensor, scale_shift: tuple[Tensor, Tensor] | None) -> Tensor:
    """Apply a layer's scale and shift to the output of a norm; None leaves it as it is."""
    if scale_shift is None:
        return normed
    scale, shift = scale_shift
    return torch.addcmul(shift, normed, 1 + scale)


Join = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(layer, new keys, new values) -> all keys and values to attend to, each B S G W."""


@dataclass(frozen=True)
class AttentionContext:
    """Shared by the layers of one call: positions, and which keys each column may see."""

    rotation: Rotation
    visible: Tensor | None
    """Boolean, broadcastable to B H L S, True = may be seen."""
    causal: bool = False
    """Use the attention kernel's own causal rule (then `visible` is None)."""
    join: Join | None = None
    """Joins the keys and values of this call with earlier ones; None: there are none."""


@dataclass(frozen=True)
class Memory:
    """Keys (already turned) and values of columns that were read once, for each layer."""

    keys: list[Tensor] = field(default_factory=list)  # B P G W each
    values: list[Tensor] = field(default_factory=list)

    def record(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """A `Join` that records keys and values, and adds none."""
        assert layer == len(self.keys)
        self.keys.append(keys)
        self.values.append(values)
        return keys, values

    def precede(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """A `Join` that puts the recorded columns before the new ones."""
        return (
            torch.cat([self.keys[layer], keys], dim=1),
            torch.cat([self.values[layer], values], dim=1),
        )

    def keep(self, rows: Tensor) -> Memory:
        return Memory([each[rows] for each in self.keys], [each[rows] for each in self.values])


class Attention(nn.Module):
    """Multi-head or grouped-query attention with rotary positions."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_width = config.head_width
        self.grouped = config.kv_heads != config.heads
        inner = config.heads * config.head_width
        kv_inner = config.kv_heads * config.head_width
        self.query = nn.Linear(config.width, inner, bias=config.qkv_bias)
        self.key = nn.Linear(config.width, kv_inner, bias=config.qkv_bias)
        self.value = nn.Linear(config.width, kv_inner, bias=config.qkv_bias)
        self.out = nn.Linear(inner, config.width, bias=config.o_bias)
        normed = (config.head_width, config.norm_eps)
        self.query_norm = nn.RMSNorm(*normed) if config.qk_norm else None
        self.key_norm = nn.RMSNorm(*normed) if config.qk_norm else None

    def keys_values(self, x: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        heads = (-1, self.head_width)
        key = self.key(x).unflatten(-1, heads)
        if self.key_norm is not None:
            key = self.key_norm(key)
        key = rotate(key, context.rotation)  # B L G W
        value = self.value(x).unflatten(-1, heads)  # B L G W
        return (key, value) if context.join is None else context.join(self.layer, key, value)

    def forward(self, x: Tensor, context: AttentionContext, skip: int = 0) -> Tensor:
        """Queries of all but the first `skip` columns: B L D -> B L-skip D."""
        cos, sin = context.rotation
        query = self.query(x[:, skip:]).unflatten(-1, (-1, self.head_width))
        if self.query_norm is not None:
            query = self.query_norm(query)
        query = rotate(query, (cos[:, skip:], sin[:, skip:]))  # B L H W
        key, value = self.keys_values(x, context)  # B S G W
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=context.visible,
            is_causal=context.causal,
            enable_gqa=self.grouped,
        )  # B H L W
        return self.out(mixed.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """The gated feed-forward map."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.mlp_width, bias=False)
        self.up = nn.Linear(config.width, config.mlp_width, bias=False)
        self.down = nn.Linear(config.mlp_width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class TransformerBlock(nn.Module):
    """One layer."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(config, layer)
        self.mlp_norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.mlp = SwiGLU(config)
        self.modulation = Modulation(config.width) if config.time_modulated else None

    def forward(
        self, x: Tensor, context: AttentionContext, condition: Tensor | None, skip: int = 0
    ) -> Tensor:
        scale_shift = None
        if self.modulation is not None and condition is not None:
            scale_shift = self.modulation(condition)
        normed = modulate(self.attention_norm(x), scale_shift)
        x = x[:, skip:] + self.attention(normed, context, skip)
        return x + self.mlp(modulate(self.mlp_norm(x), scale_shift))


class Stack(nn.Module):
    """Vectors -> states. The owner of a stack draws its weights with its tables (init.py).

    A subclass whose tables must come first in lists of parameters calls `nn.Module.__init__`, adds
    the tables, then calls `add_layers`.
    """

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, *, final_norm: bool = True) -> None:
        super().__init__()
        self.add_layers(config, final_norm)

    def add_layers(self, config: TransformerConfig, final_norm: bool) -> None:
        self.config = config
        self.time = TimeEmbedding(config.width) if config.time_modulated else None
        self.blocks = nn.ModuleList(
            TransformerBlock(config, layer) for layer in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps) if final_norm else None
        self.rotary = Rotary(config.head_width, config.rope_theta)

    def run(
        self, x: Tensor, context: AttentionContext, *, time: Tensor | None = None, skip: int = 0
    ) -> Tensor:
        """The states of all but the first `skip` columns: B L D -> B L-skip D.

        With `skip`, all columns must see the same keys.
        """
        # The kernel's causal rule would line up the first query that is left with the first key.
        assert not skip or not (context.causal or self.config.causal)
        condition = self._condition(x, time)
        last = len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            x = block(x, context, condition, skip if layer == last else 0)
        return x if self.norm is None else self.norm(x)

    def advance(
        self,
        x: Tensor,
        cache: Cache,
        mask: Tensor | None = None,
        *,
        time: Tensor | None = None,
    ) -> Tensor:
        """The states of the next columns of the cache's rows: B L D -> B L D."""
        self._check_mask(x, mask)
        step = cache.begin(len(x), x.shape[1], mask)
        states = self.run(
            x,
            AttentionContext(
                self.rotary.pick(step.positions, step.span),
                step.visible,
                step.causal,
                lambda layer, keys, values: cache.write(layer, step, keys, values),
            ),
            time=time,
        )
        cache.end(step)
        return states

    def remember(self, x: Tensor, context: AttentionContext) -> Memory:
        """The keys and values of these columns in every layer, for later columns to attend to.

        Columns read this way have no time, so that they serve all times.
        """
        memory = Memory()
        context = AttentionContext(context.rotation, context.visible, context.causal, memory.record)
        *earlier, last = self.blocks  # of the last layer only keys and values are needed
        for block in earlier:
            x = block(x, context, None)
        assert isinstance(last, TransformerBlock)
        last.attention.keys_values(last.attention_norm(x), context)
        return memory

    def plain_context(
        self, x: Tensor, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> AttentionContext:
        """Columns that see each other: all of them, or in a causal stack those before.

        mask B L bool, True = a real key (None: all are); positions B L, by default 0 .. L - 1.
        """
        self._check_mask(x, mask)
        length = x.shape[1]
        if positions is None:
            rotation = self.rotary.prefix(length, x.device)
        else:
            rotation = self.rotary.at(positions)
        if mask is None:
            return AttentionContext(rotation, None, self.config.causal)
        visible = mask[:, None, None, :]  # B 1 1 L
        if self.config.causal:  # spelled out: the kernel takes a mask or its own causal rule
            visible = visible & torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        return AttentionContext(rotation, visible)

    def new_cache(self, rows: int, capacity: int) -> Cache:
        """An empty cache for `rows` sequences of up to `capacity` columns."""
        if not self.config.causal:
            raise ValueError("only a causal net can use a cache: make it with causal=True")
        config = self.config
        shape = CacheShape(config.layers, rows, capacity, config.kv_heads, config.head_width)
        weight = next(self.parameters())
        return Cache(shape, device=weight.device, dtype=weight.dtype)

    def _check_mask(self, x: Tensor, mask: Tensor | None) -> None:
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(
                f"mask must be boolean, True at real tokens, of shape {tuple(x.shape[:2])}: "
                f"this one is {mask.dtype} of shape {tuple(mask.shape)}"
            )

    def _condition(self, x: Tensor, time: Tensor | None) -> Tensor | None:
        if (time is None) != (self.time is None):
            raise ValueError(
                "this net is not time-modulated: give no time, or make it with time_modulated=True"
                if self.time is None
                else "this net is time-modulated: give a time for each row"
            )
        if time is None or self.time is None:
            return None
        if time.shape != x.shape[:1]:
            raise ValueError(f"time has shape {tuple(time.shape)}: one for each of {len(x)} rows")
        return self.time(time)  # B D
