"""The networks as decoders see them: protocols, and adapters that make a network fit one.

Decoders ask for the hidden states of a whole canvas, and for the logits of its open positions only:
the vocabulary head is the most expensive part of a small model. The protocols are

    Denoiser          tokens (and perhaps a time) -> states -> logits       mdm, duo
    Inserter          the same, and the log of what is missing in each gap  flexmdm
    Planner           states -> log-odds of revealing a slot now            mdm with a planner head
    SphereDenoiser    unit vectors in place of tokens                       sflm
    SegmentNet        segments in place of tokens                           latentmdm
    SegmentInserter   the same, and what is missing in each gap             flexlatent

A `Denoiser` promises that hidden[:, i] predicts token i. If a network's state at i - 1 does,
`shift_states` (transformer.py) moves the states: `Shifted` wraps any such network, `ShiftedNet` is
a backbone of ours. `as_denoiser` adapts callables that return logits, `Barred` leaves ids out.

`States` lists the rows of a vocabulary that a text may hold, for processes that draw tokens
uniformly (duo) or give every slot a token (sflm): ordinary tokens, EOS and PAD, but never the mask,
BOS, other special tokens or unused rows of the table.

Over segments, a row is a prompt and a number of slots, one vector for each (paper, Section 4.2):

    an open slot                     mask_vector
    a revealed segment y             encode(y)
    a revealed empty segment         empty_vector            (a slot that the text does not need)

From these vectors the latent network makes one *condition* for every slot, and a `SegmentDrafter`
writes a segment from a condition, token by token, until EOS or `segment_length` tokens. EOS closes
segments inside the network only; callers give and get ids without it, except with a drafter.

`SegmentWriter` is the drafter with a causal stack and a key/value cache:

    columns    condition, y_1, y_2, ...      at positions 0, 1, 2, ...
    the state at column j predicts y_{j+1}

Not here: the networks (transformer.py, families/*/net.py), sampling, loading, and gradients over
segments (`LatentNet.decode_states`).
Letters: B rows, L positions, P prompt positions, S slots, N chosen positions or segments, T tokens,
D width, K states, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.checks import check_rows
from anyorder.nets.init import take_weights
from anyorder.nets.shapes import ShiftedConfig
from anyorder.nets.stack import Cache, Stack
from anyorder.nets.transformer import (
    CachedStates,
    ShiftedPartialCache,
    Transformer,
    rereader_of,
    shift_states,
)
from anyorder.vocab import Vocab


class Denoiser(Protocol):
    """A network as decoders see it."""

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """B L -> B L D. mask: B L bool, True = a real token; time: B, where the network has one."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen hidden states: N D -> N V."""
        ...


GAP_LIMIT = 15.0
"""A gap head's output is clamped to this, without a gradient beyond; decoders clamp too."""


class Look(NamedTuple):
    """The result of one network call on a canvas."""

    states: Tensor
    """head(states[b, i]) predicts token i.  # B L D"""
    gaps: Tensor
    """log of the expected number of tokens missing after token i.  # B L"""


class TrainedSchedules(Protocol):
    """The schedules on which a network was trained."""

    @property
    def coordinate(self) -> str: ...
    @property
    def insertion_exponent(self) -> float: ...
    @property
    def unmasking_exponent(self) -> float: ...


class Inserter(TrainedSchedules, Protocol):
    """A network that can insert, as decoders see it."""

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        """ids B L, mask B L bool (True = a real token), time B in the network's coordinate."""
        ...

    def head(self, states: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        ...


class Planner(Protocol):
    """A network that plans, as decoders see it; it is a `Denoiser` as well."""

    def plan(
        self, states: Tensor, *, masked: Tensor, eligible: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Log-odds of revealing each slot now; those outside `eligible` mean nothing.  # B L

        states B L D, under the vocabulary head; masked B L, every slot that is still masked;
        eligible B L, those that may be revealed; mask B L, True = a real token (None: all are).
        """
        ...


class SphereDenoiser(Protocol):
    """A network over unit vectors, as decoders see it."""

    @property
    def least_signal(self) -> float: ...
    @property
    def most_signal(self) -> float: ...

    def unit_table(self) -> Tensor:
        """The vectors of all tokens, of length 1.  # V D"""
        ...

    def hidden(
        self,
        vectors: Tensor,
        *,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        signal: Tensor,
    ) -> Tensor:
        """B L D -> B L D. ids: B L, those of prompts count; mask: B L bool, True = a real token;
        signal: B."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen hidden states: N D -> N V."""
        ...


class Shifted:
    """A denoiser around a network whose states at i - 1 predict token i, as in Dream."""

    def __init__(self, inner: Denoiser) -> None:
        self.inner = inner

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        return shift_states(self.inner.hidden(ids, mask=mask, time=time))

    def head(self, hidden: Tensor) -> Tensor:
        return self.inner.head(hidden)

    def rereader(self, rows: int, columns: int) -> CachedStates:
        """The inner network's, shifted by the same place."""
        return ShiftedPartialCache(rereader_of(self.inner, rows, columns))


class Barred:
    """A denoiser around a network that must not propose some ids, such as [CLS] and [PAD]."""

    def __init__(self, inner: Denoiser, ids: Iterable[int]) -> None:
        self.inner = inner
        self.ids = torch.tensor(sorted(ids))

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        return self.inner.hidden(ids, mask=mask, time=time)

    def head(self, hidden: Tensor) -> Tensor:
        logits = self.inner.head(hidden)
        # A copy: the head of a wrapped network is the identity, and its states are kept.
        return logits.index_fill(-1, self.ids.to(logits.device), -torch.inf)


class Suffixed:
    """A denoiser around a network that expects some ids after every text, such as [SEP].

    They follow the last real id of each row; the states are those of the row without them.
    """

    def __init__(self, inner: Denoiser, ids: Sequence[int]) -> None:
        self.inner = inner
        self.ids = torch.tensor(ids)

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        place = real.sum(dim=1)[:, None] + torch.arange(len(self.ids), device=ids.device)
        ended = F.pad(ids, (0, len(self.ids))).scatter(
            1, place, self.ids.to(ids.device).expand_as(place)
        )
        whole = F.pad(real, (0, len(self.ids))).scatter(1, place, True)
        return self.inner.hidden(ended, mask=whole, time=time)[:, : ids.shape[1]]

    def head(self, hidden: Tensor) -> Tensor:
        return self.inner.head(hidden)


def inside(net: Any) -> Any:
    """The network inside the wrappers."""
    while isinstance(net, Shifted | Barred | Suffixed):
        net = net.inner
    return net


class LogitsDenoiser:
    """A denoiser around any callable (ids, attention_mask=...) -> logits, or -> .logits.

    This is the calling convention of `transformers` models. Such a callable computes all logits at
    once: they are the hidden states here, and the head is the identity.
    """

    def __init__(self, network: Callable[..., Any]) -> None:
        self.network = network
        self.takes_mask = _takes(network, "attention_mask")

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        if time is not None:
            raise ValueError("a wrapped network takes no time: leave it out")
        if isinstance(self.network, nn.Module) and self.network.training:
            raise ValueError(
                f"{type(self.network).__name__} is in training mode, where dropout makes its "
                "predictions random: call its .eval() first"
            )
        real = torch.ones_like(ids) if mask is None else mask.to(ids.dtype)
        if self.takes_mask:
            output = self.network(ids, attention_mask=real)
        elif bool(real.all()):
            output = self.network(ids)
        else:
            raise ValueError(
                "the wrapped network takes no attention_mask, so it cannot tell padding from text: "
                "sample prompts of one length, or one at a time (batch=1)"
            )
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != ids.shape:
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
            raise ValueError(
                f"a wrapped network must return logits of shape {(*ids.shape, 'V')}, as a tensor "
                f"or as .logits: it returned {found}"
            )
        return logits  # B L V

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def as_denoiser(module: Any, *, shift: bool = False) -> Denoiser:
    """Make a denoiser of a network.

    Objects with `hidden` and `head` methods, such as our nets, pass through. Anything else that
    can be called is wrapped by `LogitsDenoiser`, such as a masked language model of `transformers`.
    shift: the network predicts token i at position i - 1.
    """
    denoiser: Denoiser
    if _has_method(module, "hidden") and _has_method(module, "head"):
        denoiser = module
    elif callable(module):
        denoiser = LogitsDenoiser(module)
    else:
        raise ValueError(
            f"a {type(module).__name__} is no network: give an object with hidden() and head(), "
            "or a callable (ids, attention_mask=...) that returns logits"
        )
    return Shifted(denoiser) if shift else denoiser


def _has_method(module: Any, name: str) -> bool:
    # A submodule that happens to be called `head` or `hidden` is callable too, but no method.
    found = getattr(module, name, None)
    return callable(found) and not isinstance(found, nn.Module)


def _takes(network: Callable[..., Any], name: str) -> bool:
    """Whether a callable has a parameter of that name, or **kwargs."""
    call = network.forward if isinstance(network, nn.Module) else network
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature to read
        return True
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


class ShiftedNet(nn.Module):
    """A masked model whose state at i - 1 predicts token i: Dream, DiffuCoder, Dream-Coder.

    All weights are the backbone's, and a function of (config, seed).
    """

    def __init__(self, config: ShiftedConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = Transformer(config.backbone, seed=seed)

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """States of which the one at i predicts token i: B L -> B L D."""
        return shift_states(self.backbone.hidden(ids, mask=mask, time=time))

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        return self.backbone.head(hidden)

    def rereader(self, rows: int, columns: int) -> ShiftedPartialCache:
        """The backbone's, shifted by the same place."""
        return ShiftedPartialCache(self.backbone.rereader(rows, columns))

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of another shifted model, or of a left-to-right one.

        An unshifted masked model predicts at other positions, and is refused.
        """
        if isinstance(base, ShiftedNet):
            take_weights(self, base)
        elif isinstance(base, Transformer) and base.config.causal:
            take_weights(self.backbone, base)
        else:
            raise ValueError(
                f"a {type(base).__name__} that predicts token i at i cannot be the start of a "
                "network with net.shift: leave net.shift out, or give a left-to-right model"
            )


def unshifted(base: nn.Module, *, wanted: bool, remedy: str) -> nn.Module:
    """The backbone to take weights from, for a network that shifts (wanted) or does not.

    A left-to-right base serves both; a masked one must predict at the same positions.
    """
    if isinstance(base, ShiftedNet):
        if not wanted:
            raise ValueError(f"the model to begin with predicts token i at i - 1: {remedy}")
        return base.backbone
    return base


def start_backbone(net: nn.Module, base: nn.Module) -> None:
    """Take the weights of a base. A causal net shifts: it predicts the next token."""
    shifts = bool(vars(net)["config"].causal)
    take_weights(net, unshifted(base, wanted=shifts, remedy="give the recipe net.shift=True"))


@dataclass(frozen=True, eq=False)
class States:
    """The ids that are states, and which state each id is."""

    ids: Tensor  # K
    number: Tensor
    """The state of each id; -1 for an id that is no state.  # V"""

    @classmethod
    def of(cls, vocab: Vocab, *, without: frozenset[int] = frozenset()) -> States:
        """All ids that a text of this vocabulary may hold, except `without`."""
        return _states(vocab, without)

    @property
    def count(self) -> int:
        """K."""
        return len(self.ids)

    def to(self, device: torch.device | str) -> States:
        return States(self.ids.to(device), self.number.to(device))

    def logits(self, all_logits: Tensor) -> Tensor:
        """The logits of the states, at least in float32: (..., V) -> (..., K)."""
        check_rows(all_logits.shape[-1], len(self.number))
        chosen = all_logits.index_select(-1, self.ids)
        return chosen.to(torch.promote_types(chosen.dtype, torch.float32))


@lru_cache(maxsize=8)
def _states(vocab: Vocab, without: frozenset[int]) -> States:
    ends = {vocab.eos_id, vocab.pad_id}
    kept = [
        id
        for id in range(vocab.size)
        if id not in without
        and (id in ends or (id not in vocab.special_ids and vocab.decode([id], begun=True)))
    ]
    # The result is cached: made under a decoder's inference mode, it could not be used in training.
    with torch.inference_mode(False):
        number = torch.full((vocab.size,), -1)
        number[kept] = torch.arange(len(kept))
        return States(torch.tensor(kept), number)


class ReadPrompt(Protocol):
    """Prompts that were read once; the network decides what it keeps of them."""

    def keep(self, rows: Tensor) -> ReadPrompt:
        """Only these rows (indices; they may repeat or reorder)."""
        ...


class SegmentDrafter(Protocol):
    """N segments being written, each from its condition."""

    def first(self) -> Tensor:
        """N D: head(first()) predicts the first token of each segment."""
        ...

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """Read the next tokens of every segment: N T -> N T D; each state predicts the token after.

        real: N T bool, padding on the right only; None: all are. States at padding mean nothing.
        Reading before the first call of `first` is one pass through the network instead of two.
        """
        ...

    def cut(self, lengths: Tensor) -> None:
        """Forget all but the first lengths[n] tokens of each segment."""
        ...

    def keep(self, rows: Tensor) -> Self:
        """A writer of these segments only (indices; they may repeat or reorder)."""
        ...


class SegmentCoder(Protocol):
    """What every network over segments can do: map tokens to vectors, and back."""

    @property
    def slots(self) -> int:
        """L_s: slots of a training example (its most segments, where no slot may stay empty)."""
        ...

    @property
    def segment_length(self) -> int:
        """L_seg: positions of a segment, the closing EOS included."""
        ...

    @property
    def mask_vector(self) -> Tensor:
        """D: the latent of an open slot."""
        ...

    def read(self, ids: Tensor, length: Tensor) -> ReadPrompt:
        """Prompts B P of `length` (B) tokens, padded on the right."""
        ...

    def encode(self, ids: Tensor, length: Tensor) -> Tensor:
        """Segments N T of `length` (N) >= 1 tokens, padded on the right, without EOS -> N D."""
        ...

    def write(self, conditions: Tensor) -> SegmentDrafter:
        """Begin N >= 1 segments from their conditions, N D."""
        ...

    def head(self, states: Tensor) -> Tensor:
        """Logits of a writer's states: (..., D) -> (..., V)."""
        ...


class SegmentNet(SegmentCoder, Protocol):
    """A network of latentmdm: any number of slots after a prompt -> conditions."""

    @property
    def empty_vector(self) -> Tensor:
        """D: the latent of a slot that is revealed to be empty."""
        ...

    def conditions(self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None) -> Tensor:
        """latents B S D, real B S bool (None: all are) -> B S D; those at padding mean nothing.

        Slots follow each prompt's true end; padding slots come after the real ones.
        """
        ...


class SegmentLook(NamedTuple):
    """The result of one call of an inserting network."""

    states: Tensor
    """The conditions of the slots.  # B S D"""
    gaps: Tensor
    """log of the expected number of segments missing after the anchor (first column) and after
    each slot.  # B S+1"""


class SegmentInserter(SegmentCoder, TrainedSchedules, Protocol):
    """A network of flexlatent: slots after a prompt that ends with an anchor, at a time."""

    def look(
        self, prompt: ReadPrompt, latents: Tensor, real: Tensor | None = None, *, time: Tensor
    ) -> SegmentLook:
        """latents B S D (S may be 0), real B S bool (None: all are), time B.

        Each prompt's last token is its anchor: the first gap is right after it.
        """
        ...


class SegmentWriter:
    """A `SegmentDrafter` of at most `room` tokens a segment."""

    def __init__(self, stack: Stack, embed: nn.Embedding, conditions: Tensor, room: int) -> None:
        self.stack = stack
        self.embed = embed
        self.room = room
        self._conditions = conditions
        self._first: Tensor | None = None
        self._cache: Cache | None = None

    @torch.no_grad()
    def first(self) -> Tensor:
        """N D: predicts the first token of each segment."""
        if self._first is None:
            self._first = self._advance(self._conditions[:, None], None)[:, 0]
        return self._first

    @torch.no_grad()
    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """The next tokens of every segment, N T, padded on the right (real: N T) -> N T D."""
        vectors = self.embed(ids)
        if self._first is not None:
            return self._advance(vectors, real)
        # The condition waited for this: one pass then checks a known segment under a new condition.
        vectors = torch.cat([self._conditions[:, None].to(vectors.dtype), vectors], dim=1)
        states = self._advance(vectors, None if real is None else F.pad(real, (1, 0), value=True))
        self._first = states[:, 0]
        return states[:, 1:]

    def cut(self, lengths: Tensor) -> None:
        """Forget all but the first lengths[n] tokens of each segment."""
        if self._cache is None:
            self.first()
        assert self._cache is not None
        self._cache.cut(lengths + 1)  # the condition stays

    def keep(self, rows: Tensor) -> SegmentWriter:
        """A writer of these segments only (indices; they may repeat or reorder)."""
        # Before the first pass there is no cache to copy: the conditions are enough.
        kept = SegmentWriter(self.stack, self.embed, self._conditions[rows], self.room)
        if self._cache is not None and self._first is not None:
            kept._cache = self._cache.select(rows)
            kept._first = self._first[rows]
        return kept

    def _advance(self, vectors: Tensor, real: Tensor | None) -> Tensor:
        if self._cache is None:
            self._cache = self.stack.new_cache(len(vectors), 1 + self.room)
        return self.stack.advance(vectors, self._cache, real)
