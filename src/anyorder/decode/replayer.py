"""A stored trace, looked at again: the posteriors of the canvases that it went through.

The network is called once on each canvas (moments.py), at the time at which the sampler asked it
(replay_times.py; mdm has none): the call that decided the next step is made again, and nothing is
drawn. Read are chosen slots only, from the untempered posterior over the ids that the sampler let a
slot hold: mdm bars the mask (and EOS where it was forbidden), flexmdm also BOS, EOS and PAD, its
mode compat nothing.

Canvases of several traces and steps share a call, sorted by length. The vocabulary head runs on
HEAD_BUDGET logits at a time, canvas by canvas. A canvas with more than KEPT_BUDGET of them passes
through it twice, once for the masses of all tokens and once for the profiles of a few.

Not here: what is made of posteriors (measure/placement.py), and choosing slots.
Letters: B canvases, L positions, N slots that are read, K tokens, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.mdm_options import MdmOptions
from anyorder.decode.moments import FloatArray, IntArray, Moment, Replay, moment_of
from anyorder.decode.posterior import refuse_nan
from anyorder.decode.proposals import HEAD_BUDGET, Proposer, Sight
from anyorder.decode.replay_times import CompatTimes, EventTimes, StepTimes, Times, TokenView
from anyorder.nets.denoiser import Denoiser, Inserter, LogitsDenoiser, Shifted
from anyorder.vocab import Vocab

KEPT_BUDGET = 1 << 26
"""Probabilities of one canvas that are kept between two questions, in numbers."""
LOGITS_BUDGET = 1 << 26
"""Numbers that a wrapped network, which computes all logits at once, may return in one call."""


class CanvasPosterior:
    """What a network believes of some slots of one canvas: a source for measure/placement.py."""

    def __init__(self, states: Tensor, slots: IntArray, proposer: Proposer) -> None:
        self.positions = slots
        self._states = states  # N D
        self._proposer = proposer
        size = proposer.vocab.size
        slot = torch.arange(len(states), device=states.device)
        self._pieces = slot.split(max(1, HEAD_BUDGET // size))
        self._keeps = len(states) * size <= KEPT_BUDGET
        self._kept: list[Tensor] = []

    def mass(self) -> FloatArray:
        """The sum of each token's probabilities.  # V"""
        # Within a piece in float32, which is twenty times as fast: masses choose tokens, and what
        # is said of the chosen ones is computed from their profiles.
        total = torch.zeros((), dtype=torch.float64, device=self._states.device)
        for probability in self._probabilities():
            total = total + probability.sum(dim=0).double()
        refuse_nan(total)
        return np.asarray(total.cpu().numpy())

    def profile(self, tokens: IntArray) -> FloatArray:
        """The probabilities of chosen tokens.  # N K"""
        chosen = torch.as_tensor(tokens, device=self._states.device)
        parts = [each[:, chosen].double() for each in self._probabilities()]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _probabilities(self) -> Iterator[Tensor]:
        """n V for some slots after others."""
        if len(self._kept) == len(self._pieces):
            yield from self._kept
            return
        self._kept.clear()
        for piece in self._pieces:
            probability = self._softmax(piece)
            if self._keeps:
                self._kept.append(probability)
            yield probability

    @torch.inference_mode()
    def _softmax(self, piece: Tensor) -> Tensor:
        return self._logits(piece).softmax(dim=-1)

    def _logits(self, piece: Tensor) -> Tensor:
        """Of some slots, without the ids that they must not hold.  # n V"""
        sight = Sight(self._states[None], piece[:1], piece[None], 0)  # only its states are read
        return self._proposer.logits(sight, torch.zeros_like(piece), piece)


@dataclass(frozen=True)
class Reader:
    """A network of one family, and how it is asked about a canvas."""

    states: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """(ids B L, real B L, time B) -> B L D."""
    proposer: Proposer
    times: Times | None = None
    """The network's time at each step of each replay; None: it has no time."""
    time_dtype: torch.dtype = torch.float64
    pads: bool = True
    """Whether the network can tell padding from text."""
    all_logits: bool = False
    """Whether `states` are all logits."""
    device: torch.device | str = "cpu"

    def moments(self, replays: Sequence[Replay]) -> list[list[Moment]]:
        """The canvases of each replay."""
        mask_id = self.proposer.vocab.mask_id
        if self.times is None:
            return [
                [moment_of(each, step, None, mask_id) for step in each.steps] for each in replays
            ]
        return [
            [
                moment_of(each, step, float(time), mask_id)
                for step, time in zip(each.steps, times, strict=True)
            ]
            for each, times in zip(replays, self.times(replays), strict=True)
        ]

    def posteriors(
        self, moments: Sequence[Moment], batch: int = 32
    ) -> Iterator[tuple[int, CanvasPosterior]]:
        """(number of the moment, its posterior), by length; of those that have slots to read.

        Use each before asking for the next: only one canvas's probabilities should exist.
        """
        numbers = [number for number, moment in enumerate(moments) if len(moment.places)]
        numbers.sort(key=lambda number: len(moments[number].ids))
        for group in self._groups(moments, numbers, batch):
            states = self._call([moments[number] for number in group])  # B L D
            for row, number in enumerate(group):
                places = torch.as_tensor(moments[number].places, device=states.device)
                slots = moments[number].slots
                yield number, CanvasPosterior(states[row, places], slots, self.proposer)

    def _groups(
        self, moments: Sequence[Moment], numbers: Sequence[int], batch: int
    ) -> Iterator[list[int]]:
        """Canvases that go into one call, by growing length."""
        group: list[int] = []
        for number in numbers:
            length = len(moments[number].ids)
            most = batch
            if self.all_logits:
                most = min(batch, LOGITS_BUDGET // (length * self.proposer.vocab.size))
            uneven = not self.pads and group and len(moments[group[0]].ids) != length
            if group and (uneven or len(group) >= most):
                yield group
                group = []
            group.append(number)
        if group:
            yield group

    @torch.inference_mode()
    def _call(self, moments: Sequence[Moment]) -> Tensor:
        longest = max(len(moment.ids) for moment in moments)
        ids = torch.full((len(moments), longest), self.proposer.vocab.pad_id)
        real = torch.zeros(ids.shape, dtype=torch.bool)
        for row, moment in enumerate(moments):
            ids[row, : len(moment.ids)] = torch.from_numpy(moment.ids)
            real[row, : len(moment.ids)] = True
        time = None
        if self.times is not None:
            told = [moment.time for moment in moments]
            time = torch.tensor(told, dtype=self.time_dtype, device=self.device)
        return self.states(ids.to(self.device), real.to(self.device), time)


def masked_reader(
    net: Denoiser,
    vocab: Vocab,
    options: MdmOptions | None = None,
    device: torch.device | str = "cpu",
) -> Reader:
    """How to ask a network of mdm; `options` made the traces, without them only MASK is barred."""
    options = (options or MdmOptions()).resolved()
    barred = (vocab.mask_id, *([vocab.eos_id] if options.stopping().forbids else []))
    inner = net.inner if isinstance(net, Shifted) else net
    return Reader(
        states=lambda ids, real, time: net.hidden(ids, mask=real),
        proposer=Proposer(net.head, vocab, options.build_policy(), options.draw(), barred),
        pads=inner.takes_mask if isinstance(inner, LogitsDenoiser) else True,
        all_logits=isinstance(inner, LogitsDenoiser),
        device=device,
    )


def flex_reader(
    net: Inserter,
    vocab: Vocab,
    options: FlexOptions | None = None,
    device: torch.device | str = "cpu",
) -> Reader:
    """How to ask a network of flexmdm; `options`, which made the traces, tell its time."""
    if options is None:
        raise ValueError(
            "flexmdm is asked at the sampler's time, and nothing says how these traces were "
            "sampled: give their options, such as mode='compat' and steps=512"
        )
    full = options.resolved()
    compat = full.mode == "compat"
    specials = (vocab.mask_id, vocab.pad_id, vocab.eos_id, vocab.bos_id)
    barred = () if compat else tuple({token for token in specials if token is not None})
    clocks: dict[str, Callable[[], Times]] = {
        "steps": lambda: (CompatTimes if compat else StepTimes)(net, full),
        "events": lambda: EventTimes(net, full, TokenView(net, vocab, device), device),
    }

    def states(ids: Tensor, real: Tensor, time: Tensor | None) -> Tensor:
        assert time is not None
        return net.look(ids, mask=real, time=time).states

    return Reader(
        states=states,
        proposer=Proposer(net.head, vocab, full.build_policy(), full.draw(), barred),
        times=clocks[full.clock](),
        time_dtype=torch.float32 if compat else torch.float64,
        device=device,
    )
