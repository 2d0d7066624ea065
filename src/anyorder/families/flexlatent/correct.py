"""The ask-again corrector over segments.

The rounds, the rule and the score are those of flexmdm (families/flexmdm/correct.py); an item is a
whole segment. `SegmentAsker` asks the network:

    missing    the gap head, on the latents of the segments
    again      one segment is masked. Its condition gives the log-probability of the tokens that
               stood there, closing EOS included, and the greedy segment with its own: the decoder
               first checks the old text (latentmdm/candidates.py), most of which it confirms

A replaced segment may have another length, so in the trace the old one is deleted and a new one is
inserted at its place. Tokens inside a segment are not asked one by one: the decoder writes them
from left to right, and would not see what follows them.

Letters: N canvases or segments, S slots, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingSegments, Watcher, padded
from anyorder.decode.draw import Draw, Posterior, refuse_nan, text_logits
from anyorder.families.flexmdm.correct import (
    END,
    Answer,
    CorrectionRule,
    TextItem,
    VisitedText,
    correct,
    grouped,
    network_times,
    rows_along,
)
from anyorder.families.flexmdm.history import SlotRecord, TextHistory
from anyorder.families.latentmdm.candidates import Candidates, never_written
from anyorder.nets.denoiser import GAP_LIMIT, ReadPrompt, SegmentInserter, SegmentLook
from anyorder.vocab import Vocab

SegmentContent = tuple[int, ...]

RULE = CorrectionRule(far=2.0)
"""A text has few segments: two missing ones are as large a part of it as ten tokens."""


@dataclass(frozen=True)
class SegmentAsker:
    """Asks a network of flexlatent about texts."""

    net: SegmentInserter
    vocab: Vocab
    prompt: ReadPrompt
    """Of all rows of the request."""
    prefixes: Sequence[tuple[SegmentContent, ...]]
    """The segments frozen in front of each row's text."""
    device: torch.device | str = "cpu"
    rule: CorrectionRule = RULE
    latents: dict[SegmentContent, Tensor] = field(default_factory=dict)
    """Of the segments met so far: texts differ in one segment from round to round."""

    def time(self, left: float) -> float:
        return float(network_times(self.net, [left])[0])

    def missing(self, texts: Sequence[VisitedText], left: Sequence[float]) -> list[list[float]]:
        found: list[list[float]] = [[]] * len(texts)
        for numbers, look in self._looks([(text, None) for text in texts], left):
            expected = look.gaps.double().clamp(max=GAP_LIMIT).exp().tolist()
            for number, row in zip(numbers, expected, strict=True):
                first = len(self.prefixes[texts[number].row])
                found[number] = row[first : first + len(texts[number].items) + 1]
        return found

    def again(self, masked: Sequence[tuple[VisitedText, int]]) -> list[Answer]:
        found: dict[int, Answer] = {}
        for numbers, look in self._looks(masked, [END] * len(masked)):
            asked = [masked[number] for number in numbers]
            place = [len(self.prefixes[text.row]) + place for text, place in asked]
            row = torch.arange(len(numbers))
            conditions = look.states[row, torch.tensor(place)]  # N D
            texts = [text.items[place].ids for text, place in asked]
            found.update(zip(numbers, self._answers(texts, conditions), strict=True))
        return [found[number] for number in range(len(masked))]

    def _answers(self, texts: Sequence[SegmentContent], conditions: Tensor) -> Iterator[Answer]:
        """What stood there, () if nothing did, and what the decoder writes from conditions N D."""
        row = torch.arange(len(texts), device=conditions.device)
        slot = torch.zeros_like(row)
        store = Candidates(self.net, self.vocab, Draw(), slot, 1, may_be_empty=False)
        known = [number for number, text in enumerate(texts) if text]
        own = dict(
            zip(known, self._log_probs([texts[n] for n in known], conditions[known]), strict=True)
        )
        for number in known:
            closed = self._closed(texts[number])
            store.tokens[number, 0, : len(closed)] = torch.tensor(closed)
            store.length[number, 0] = len(closed)
        store.refresh(row, slot, conditions)
        ids, length = store.content(row, slot)
        columns = (ids, length, store.log_prob[:, 0], store.length[:, 0])
        for number, (tokens, count, each, closed_count) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            written = (tuple(tokens[:count]), tuple(each[:count]))
            yield Answer(own.get(number, math.nan), sum(each[:closed_count]), *written)

    def _log_probs(self, texts: Sequence[SegmentContent], conditions: Tensor) -> list[float]:
        """log p of segments with their closing EOS, from conditions N D."""
        if not texts:
            return []
        closed = [self._closed(text) for text in texts]
        ids, length = padded([text[:-1] for text in closed], self.vocab.pad_id)
        targets, count = padded(closed, self.vocab.pad_id)  # N T
        real = torch.arange(ids.shape[1]) < length[:, None]
        writer = self.net.write(conditions)
        read = [writer.read(ids.to(self.device), real.to(self.device))] if ids.shape[1] else []
        states = torch.cat([writer.first()[:, None], *read], dim=1)  # N T D
        inside = torch.arange(targets.shape[1]) < count[:, None]
        logits = text_logits(self.net.head(states[inside]), self.vocab, never_written(self.vocab))
        # No segment is empty: EOS is never its first token.
        first = inside.nonzero()[:, 1] == 0
        logits[first.to(self.device), self.vocab.eos_id] = -torch.inf
        found = Posterior(logits).log_prob(targets[inside].to(self.device))
        refuse_nan(found)
        total = torch.zeros(len(texts), dtype=torch.float64, device=found.device)
        owner = torch.arange(len(texts)).repeat_interleave(count).to(self.device)
        return [float(value) for value in total.index_add(0, owner, found)]

    def _closed(self, text: SegmentContent) -> SegmentContent:
        return text if len(text) == self.net.segment_length else (*text, self.vocab.eos_id)

    def _looks(
        self, canvases: Sequence[tuple[VisitedText, int | None]], left: Sequence[float]
    ) -> Iterator[tuple[list[int], SegmentLook]]:
        """(numbers of some canvases, the network's answers); a canvas may have one masked place."""
        shown = [self._segments(*canvas) for canvas in canvases]
        self._encode({ids for each in shown for ids in each if ids})
        nothing = self.net.mask_vector.detach()
        order = sorted(range(len(canvases)), key=lambda number: len(shown[number]))
        for numbers in grouped(order, lambda number: 1 + len(shown[number])):
            most = len(shown[numbers[-1]])
            latents = [[self.latents.get(ids, nothing) for ids in shown[n]] for n in numbers]
            rows = [torch.stack(each) if each else nothing[None, :][:0] for each in latents]
            stacked = torch.stack([F.pad(each, (0, 0, 0, most - len(each))) for each in rows])
            length = torch.tensor([len(shown[number]) for number in numbers])
            real = (torch.arange(most) < length[:, None]).to(self.device)
            prompt = self.prompt.keep(
                torch.tensor([canvases[number][0].row for number in numbers], device=self.device)
            )
            time = network_times(self.net, [left[number] for number in numbers]).to(self.device)
            yield numbers, self.net.look(prompt, stacked, real, time=time)

    def _segments(self, text: VisitedText, masked: int | None) -> list[SegmentContent]:
        """All segments of a canvas; () for the masked one."""
        items = [() if place == masked else item.ids for place, item in enumerate(text.items)]
        return [*self.prefixes[text.row], *items]

    def _encode(self, segments: set[SegmentContent]) -> None:
        new = sorted(segments - self.latents.keys())
        if new:
            ids, length = padded(new, self.vocab.pad_id)
            latents = self.net.encode(ids.to(self.device), length.to(self.device))
            self.latents.update(zip(new, latents.to(self.net.mask_vector.dtype), strict=True))


def correct_segments(
    net: SegmentInserter,
    vocab: Vocab,
    canvases: Sequence[GrowingSegments],
    rows: Sequence[Decoded],
    rounds: int,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Correct decoded rows of segments, which belong to these canvases."""
    ids, length = padded([canvas.prompt for canvas in canvases], vocab.pad_id)
    prompt = net.read(ids.to(device), length.to(device))
    prefixes = [canvas.segments[: canvas.prefix] for canvas in canvases]
    asker = SegmentAsker(net, vocab, prompt, prefixes, device)
    slots = [_slots(row) for row in rows]
    texts = [_text(number, *each) for number, each in enumerate(zip(canvases, slots, strict=True))]
    histories = [
        TextHistory(row, each, vocab.mask_id, segment=canvas.prefix)
        for row, each, canvas in zip(rows, slots, canvases, strict=True)
    ]
    return rows_along(correct(asker, texts, rounds), histories, watch)


def _text(number: int, canvas: GrowingSegments, slots: Sequence[SlotRecord]) -> VisitedText:
    grows = iter(canvas.grows[canvas.prefix + 1 :])
    items = tuple(
        TextItem(slot.ids or ()) if slot.insert else TextItem(slot.ids or (), True, next(grows))
        for slot in slots
    )
    return VisitedText(number, items, canvas.room - sum(not item.frozen for item in items))


def _slots(row: Decoded) -> list[SlotRecord]:
    """The segments of a decoded row."""
    assert row.segment is not None and row.score is not None
    found = []
    for _, group in groupby(range(len(row.token_ids)), row.segment.__getitem__):
        at = list(group)
        first, span = at[0], slice(at[0], at[-1] + 1)
        shown: list[tuple[int, SegmentContent | None]] = [
            (row.reveal_step[first], tuple(row.token_ids[span]))
        ]
        found.append(
            SlotRecord(row.insert_step[first], shown, row.log_prob[span], row.score[first])
        )
    return found
