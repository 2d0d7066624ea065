"""What decoders know of a network: hidden states, a head for chosen positions, and little more.

Decoders ask for the hidden states of a whole canvas, and for the logits of its open positions only:
the vocabulary head is the dearest part of a small model. The protocols are

    Denoiser         tokens (and perhaps a time) -> states -> logits       mdm, duo
    Inserter         the same, and the log of what is missing in each gap  flexmdm
    Planner          states -> log-odds of revealing a slot now            mdm with a planner head
    SphereDenoiser   unit vectors in place of tokens                       sflm

A `Denoiser` promises that hidden[:, i] predicts token i. Where a network's state at i - 1 does,
`shift_states` (transformer.py) moves the states: `Shifted` wraps a network of somebody else,
`ShiftedNet` is a backbone of ours. `as_denoiser` adapts callables that return logits.

`States` says which rows of a vocabulary a text may hold, for processes that draw tokens uniformly
(duo) or give every slot a token (sflm): ordinary tokens, EOS and PAD, but never the mask, BOS,
other special tokens or unused rows of the table.

Not here: sampling, loading; networks over segments have their own protocols (segments.py).
Letters: B rows, L positions, N chosen positions, D width of a hidden state, K states, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from anyorder.nets.init import take_weights
from anyorder.nets.shapes import ShiftedConfig
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
"""The head's own output stays within this, without a gradient beyond; decoders read no more."""


class Look(NamedTuple):
    """What one call of the network says of a canvas."""

    states: Tensor
    """head(states[b, i]) predicts token i.  # B L D"""
    gaps: Tensor
    """log of the expected number of tokens missing after token i.  # B L"""


class Inserter(Protocol):
    """All that a decoder knows of a network that can insert."""

    @property
    def coordinate(self) -> str: ...
    @property
    def insertion_exponent(self) -> float: ...
    @property
    def unmasking_exponent(self) -> float: ...

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        """ids B L, mask B L bool (True = a real token), time B in the network's coordinate."""
        ...

    def head(self, states: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        ...


class Planner(Protocol):
    """What a decoder knows of a network that plans, besides its states and its head."""

    def plan(
        self, states: Tensor, *, masked: Tensor, eligible: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Log-odds of revealing each slot now; those outside `eligible` mean nothing.  # B L

        states B L D, under the vocabulary head; masked B L, every slot that is still masked;
        eligible B L, those that may be revealed; mask B L, True = a real token (None: all are).
        """
        ...


class SphereDenoiser(Protocol):
    """All that a decoder knows of a network over unit vectors."""

    @property
    def least_signal(self) -> float: ...
    @property
    def most_signal(self) -> float: ...

    def unit_table(self) -> Tensor:
        """The vectors of all tokens, of length 1.  # V D"""
        ...

    def hidden(self, vectors: Tensor, *, mask: Tensor | None = None, signal: Tensor) -> Tensor:
        """B L D -> B L D. mask: B L bool, True = a real token; signal: B."""
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
        """The inner network's, moved by the same place."""
        return ShiftedPartialCache(rereader_of(self.inner, rows, columns))


class LogitsDenoiser:
    """A denoiser around any callable (ids, attention_mask=...) -> logits, or -> .logits.

    This is the calling convention of `transformers` models. Such a callable computes all logits at
    once: they are the hidden states here, and the head has nothing left to do.
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
    """See a network as a denoiser.

    Objects with `hidden` and `head` methods, such as our nets, pass through. Anything else that
    can be called is wrapped by `LogitsDenoiser`, such as a masked language model of `transformers`.
    shift: the network's predictions for token i stand at position i - 1.
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
    """Whether a callable has a parameter of that name, or takes any."""
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
        """The backbone's, moved by the same place."""
        return ShiftedPartialCache(self.backbone.rereader(rows, columns))

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of another shifted model, or of a left-to-right one.

        An unshifted masked model predicts elsewhere, and is refused.
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

    A left-to-right base serves both; a masked one must predict where the network does.
    """
    if isinstance(base, ShiftedNet):
        if not wanted:
            raise ValueError(f"the model to begin with predicts token i at i - 1: {remedy}")
        return base.backbone
    return base


@dataclass(frozen=True, eq=False)
class States:
    """The ids that are states, and which state each id is."""

    ids: Tensor  # K
    number: Tensor
    """-1 for an id that is none.  # V"""

    @classmethod
    def of(cls, vocab: Vocab, *, without: frozenset[int] = frozenset()) -> States:
        """All that a text of this vocabulary may hold, but not `without`."""
        return _states(vocab, without)

    @property
    def count(self) -> int:
        """K."""
        return len(self.ids)

    def to(self, device: torch.device | str) -> States:
        return States(self.ids.to(device), self.number.to(device))

    def logits(self, all_logits: Tensor) -> Tensor:
        """The logits of the states, in float32 at the least: (..., V) -> (..., K)."""
        if all_logits.shape[-1] < len(self.number):
            raise ValueError(
                f"the network gives {all_logits.shape[-1]} logits for a vocabulary of "
                f"{len(self.number)}: use the vocabulary that it was trained with"
            )
        chosen = all_logits.index_select(-1, self.ids)
        return chosen.to(torch.promote_types(chosen.dtype, torch.float32))


@lru_cache(maxsize=8)
def _states(vocab: Vocab, without: frozenset[int]) -> States:
    ends = {vocab.eos_id, vocab.pad_id}
    kept = [
        id
        for id in range(vocab.size)
        if id not in without
        and (id in ends or (id not in vocab.special_ids and vocab.decode([id])))
    ]
    # Made once for all uses: a decoder that asks first must not bar training from them.
    with torch.inference_mode(False):
        number = torch.full((vocab.size,), -1)
        number[kept] = torch.arange(len(kept))
        return States(torch.tensor(kept), number)
