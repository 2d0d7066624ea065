"""All that a decoder knows of a network: hidden states, and a head for chosen positions.

Decoders ask for the hidden states of a whole canvas and for the logits of its open positions only.
A `Denoiser` promises that hidden[:, i] already predicts token i, so how a network was trained (its
logits one place to the left, no time, padding by attention mask) stays inside this file.

Not here: sampling, vocabularies, loading.
Letters: B rows, L positions, N chosen positions, D width of a hidden state, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anyorder.nets.kept import Rereader, ShiftedColumns, rereader_of


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


class Shifted:
    """A denoiser around a network whose states at i - 1 predict token i, as in Dream.

    Position 0 has nothing before it and keeps its own state.
    """

    def __init__(self, inner: Denoiser) -> None:
        self.inner = inner

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        states = self.inner.hidden(ids, mask=mask, time=time)
        return torch.cat([states[:, :1], states[:, :-1]], dim=1)

    def head(self, hidden: Tensor) -> Tensor:
        return self.inner.head(hidden)

    def rereader(self, rows: int, columns: int) -> Rereader:
        """The inner network's, moved by the same place (`kept.py`)."""
        return ShiftedColumns(rereader_of(self.inner, rows, columns))


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
