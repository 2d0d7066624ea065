"""A stored trace of segments, looked at again: the posteriors along its tentative segments.

Facts from the LatentMDM release's own analysis. The canvas after s steps is rebuilt
(segment_moments.py) and the latent network is called on it once, at the time at which the sampler
asked it (replay_times.py; latentmdm has none). Every open segment that is looked at then has a
tentative text, and the *positions* of placement are the places along these texts, each up to and
including its closing EOS: at place j the posterior of the token, given the tentative tokens before
it. The tentative text is

    of a segment that is committed next     what was committed
    of any other                            the most likely token at every place (greedy)

so that the probability of a committed token is the `log_prob` of the trace. At temperature 0, the
sampler's candidates are these very texts. Greedy texts are found by verifying the segment's final
text and going on from its first wrong token (candidates.py): most need one pass. Then all texts are
read once, and the states are kept; the vocabulary head runs in pieces, as in replayer.py.

Barred are MASK, PAD and BOS, which no segment may hold, and where no segment is empty (flexlatent)
EOS at its first place; elsewhere EOS closes it.
Letters: B canvases, S slots, N segments that are read, T places of a segment, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.candidates import Candidates
from anyorder.decode.draw import Draw
from anyorder.decode.flexlatent_options import FlexLatentOptions
from anyorder.decode.latentmdm_options import LatentOptions
from anyorder.decode.moments import IntArray, Replay
from anyorder.decode.policy import Policy
from anyorder.decode.proposals import Proposer
from anyorder.decode.replay_times import EventTimes, StepTimes, Times
from anyorder.decode.replayer import CanvasPosterior
from anyorder.decode.segment_inputs import SegmentInputs
from anyorder.decode.segment_moments import Ids, SegmentMoment, SegmentTrace, Slot
from anyorder.decode.segment_times import SegmentView
from anyorder.nets.segment_net import ReadPrompt, SegmentCoder, SegmentInserter, SegmentNet
from anyorder.vocab import Vocab

Conditions = Callable[[ReadPrompt, Tensor, Tensor, Tensor | None], Tensor]
"""(prompts, latents B S D, real B S, time B or None) -> B S D."""


class SegmentPosterior(CanvasPosterior):
    """What a network believes along the tentative texts of one canvas."""

    def __init__(
        self, states: Tensor, positions: IntArray, proposer: Proposer, endless: Tensor
    ) -> None:
        super().__init__(states, positions, proposer)
        self._endless = endless  # N, where EOS must not stand

    def _logits(self, piece: Tensor) -> Tensor:
        logits = super()._logits(piece)
        logits[self._endless[piece], self._proposer.vocab.eos_id] = -torch.inf
        return logits


@dataclass(frozen=True)
class SegmentReader:
    """A network over segments, and how it is asked about a canvas."""

    net: SegmentCoder
    conditions: Conditions
    inputs: SegmentInputs
    may_be_empty: bool
    """Whether EOS may be a segment's first token."""
    times: Times | None = None
    """The network's time at each step of each replay; None: it has no time."""
    erased_of: int | None = None
    """Segments that a step reveals, where some may have been erased later; None: none was."""

    def moments(self, replays: Sequence[Replay]) -> list[list[SegmentMoment]]:
        """The canvases of each replay."""
        eos_id, most = self.inputs.vocab.eos_id, self.net.segment_length
        traces = [SegmentTrace.of(replay, eos_id) for replay in replays]
        if self.erased_of is not None:
            for trace in traces:
                trace.check_erased(self.erased_of)
        times: list[list[Any]] = [[None] * len(each.steps) for each in replays]
        if self.times is not None:
            times = [row.tolist() for row in self.times(replays)]
        return [
            [trace.moment(step, time, most) for step, time in zip(each.steps, row, strict=True)]
            for each, trace, row in zip(replays, traces, times, strict=True)
        ]

    def posteriors(
        self, moments: Sequence[SegmentMoment], batch: int = 32
    ) -> Iterator[tuple[int, SegmentPosterior]]:
        """(number of the moment, its posterior), by length; of those that have something to read.

        Use each before asking for the next: only one canvas's probabilities should exist.
        """
        numbers = [
            number
            for number, moment in enumerate(moments)
            if any(slot.read for slot in moment.slots)
        ]
        numbers.sort(key=lambda number: len(moments[number].prompt))
        proposer = self._proposer()
        for start in range(0, len(numbers), batch):
            group = numbers[start : start + batch]
            found = self._look([moments[number] for number in group])
            for number, (states, positions) in zip(group, found, strict=True):
                first = positions % self.net.segment_length == 0
                endless = torch.as_tensor(first & (not self.may_be_empty), device=states.device)
                yield number, SegmentPosterior(states, positions, proposer, endless)

    def _proposer(self) -> Proposer:
        """What a segment may hold: all but MASK, PAD and BOS."""
        vocab = self.inputs.vocab
        never = {vocab.mask_id, vocab.pad_id, vocab.bos_id} - {vocab.eos_id, None}
        barred = tuple(token for token in never if token is not None)
        return Proposer(self.net.head, vocab, Policy(), Draw(), barred)

    @torch.inference_mode()
    def _look(self, moments: Sequence[SegmentMoment]) -> list[tuple[Tensor, IntArray]]:
        """For each canvas the states at its positions (N D), and their numbers (N)."""
        read = [
            (row, place, slot)
            for row, moment in enumerate(moments)
            for place, slot in self.inputs.places(moment)
            if slot.read
        ]
        row = self.inputs.whole([row for row, _, _ in read])
        place = self.inputs.whole([place for _, place, _ in read])
        conditions = self._call(moments)[row, place]  # N D
        texts = self._texts([slot for _, _, slot in read], conditions)
        states = self._read(texts, conditions)  # N T D
        found: list[tuple[list[Tensor], list[IntArray]]] = [([], []) for _ in moments]
        for number, ((owner, _, slot), text) in enumerate(zip(read, texts, strict=True)):
            found[owner][0].append(states[number, : len(text)])
            found[owner][1].append(slot.number * self.net.segment_length + np.arange(len(text)))
        return [(torch.cat(rows), np.concatenate(places)) for rows, places in found]

    def _call(self, moments: Sequence[SegmentMoment]) -> Tensor:
        """The conditions of all slots.  # B S D"""
        time = None
        if self.times is not None:
            asked = [moment.time for moment in moments]
            time = torch.tensor(asked, dtype=torch.float64, device=self.inputs.device)
        return self.conditions(*self.inputs.of(moments), time)

    def _texts(self, slots: Sequence[Slot], conditions: Tensor) -> list[Ids]:
        """The tentative text of each segment, its closing EOS included."""
        vocab, most = self.inputs.vocab, self.net.segment_length
        texts = [slot.ids if len(slot.ids) == most else (*slot.ids, vocab.eos_id) for slot in slots]
        free = [number for number, slot in enumerate(slots) if not slot.taken]
        if not free:
            return texts
        row = torch.arange(len(free), device=conditions.device)
        slot = torch.zeros_like(row)  # each a row of its own; greedy, so without noise
        store = Candidates(self.net, vocab, Draw(), slot, 1, may_be_empty=self.may_be_empty)
        guess, length = self.inputs.padded([texts[number] for number in free])
        store.tokens[:, 0, : guess.shape[1]] = guess
        store.length[:, 0] = length
        store.refresh(row, slot, conditions[self.inputs.whole(free)])
        written = zip(free, store.tokens[:, 0].tolist(), store.length[:, 0].tolist(), strict=True)
        for number, ids, count in written:
            texts[number] = tuple(ids[:count])
        return texts

    def _read(self, texts: Sequence[Ids], conditions: Tensor) -> Tensor:
        """The states that predict the tokens of each text.  # N T D"""
        before = [text[:-1] for text in texts]
        writer = self.net.write(conditions)
        states = []
        if any(before):
            ids, length = self.inputs.padded(before)
            ahead = torch.arange(ids.shape[1], device=ids.device)
            states = [writer.read(ids, ahead < length[:, None])]
        return torch.cat([writer.first()[:, None], *states], dim=1)


def latent_reader(
    net: SegmentNet,
    vocab: Vocab,
    options: LatentOptions | None = None,
    device: torch.device | str = "cpu",
) -> SegmentReader:
    """How to ask a network of latentmdm; `options`, which made the traces, tell if it erased."""
    full = None if options is None else options.resolved()
    erased_of = full.k if full is not None and full.build_tail().erases else None

    def conditions(
        prompt: ReadPrompt, latents: Tensor, real: Tensor, time: Tensor | None
    ) -> Tensor:
        assert time is None
        return net.conditions(prompt, latents, real)

    inputs = SegmentInputs(net, vocab, net.empty_vector, net.slots, device)
    return SegmentReader(net, conditions, inputs, may_be_empty=True, erased_of=erased_of)


def flex_latent_reader(
    net: SegmentInserter,
    vocab: Vocab,
    options: FlexLatentOptions | None = None,
    device: torch.device | str = "cpu",
) -> SegmentReader:
    """How to ask a network of flexlatent; `options`, which made the traces, tell its time."""
    if options is None:
        raise ValueError(
            "flexlatent is asked at the sampler's time, and nothing says how these traces were "
            "sampled: give their options, such as steps=128"
        )
    full = options.resolved()
    inputs = SegmentInputs(net, vocab, device=device)
    clocks: dict[str, Callable[[], Times]] = {
        "steps": lambda: StepTimes(net, full),
        "events": lambda: EventTimes(net, full, SegmentView(net, inputs), device),
    }

    def conditions(
        prompt: ReadPrompt, latents: Tensor, real: Tensor, time: Tensor | None
    ) -> Tensor:
        assert time is not None
        return net.look(prompt, latents, real, time=time).states

    return SegmentReader(net, conditions, inputs, may_be_empty=False, times=clocks[full.clock]())
