"""Rows of slots: what stands in each slot while segments are being revealed.

A slot is open, or it holds a segment: a frozen one, a revealed one, or an empty one because the
tail rule says so. The tokens of all of them, and of the candidates for open slots, stand in one
table (candidates.py). Not here: which segments are chosen. Letters: B rows, S slots, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from anyorder.decode.candidates import Candidates
from anyorder.decode.canvas import Candidate, Decoded
from anyorder.decode.contest import Choice
from anyorder.decode.segment_canvas import SegmentCanvas
from anyorder.nets.segment_net import ReadPrompt, SegmentNet
from anyorder.vocab import Vocab


@dataclass
class SegmentRows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    latents: Tensor  # B S D
    free: Tensor  # B S, not frozen
    open: Tensor  # B S
    reveal: Tensor  # B S, the step of the reveal; 0 before it, and where nothing is revealed
    score: Tensor  # B S, what the segment was chosen by
    forwards: Tensor  # B
    ties: Tensor  # B
    prompt: ReadPrompt
    segments: Candidates

    @classmethod
    def start(
        cls, net: SegmentNet, canvases: Sequence[SegmentCanvas], segments: Candidates
    ) -> SegmentRows:
        """Canvases that fit the network; slots that a canvas does not mention are empty."""
        vocab, device, shape = segments.vocab, segments.key.device, (len(canvases), net.slots)
        free = torch.zeros(shape, dtype=torch.bool)
        length = torch.zeros(shape, dtype=torch.int64)
        ids = torch.full((*shape, net.segment_length), vocab.pad_id)
        for row, canvas in enumerate(canvases):
            for slot, segment in enumerate(canvas.segments):
                free[row, slot] = segment is None
                length[row, slot] = len(segment or ())
                ids[row, slot, : len(segment or ())] = torch.tensor(segment or (), dtype=ids.dtype)
        frozen = (~free).nonzero(as_tuple=True)
        at = (frozen[0].to(device), frozen[1].to(device))
        segments.put(*at, ids[frozen].to(device), length[frozen].to(device))
        zeros = torch.zeros(shape, dtype=torch.int64, device=device)
        rows = cls(
            row=torch.arange(len(canvases), device=device),
            latents=net.mask_vector.detach().repeat(*shape, 1),
            free=free.to(device),
            open=free.to(device, copy=True),
            reveal=zeros,
            score=torch.full(shape, nan, dtype=torch.float64, device=device),
            forwards=zeros[:, 0].clone(),
            ties=zeros[:, 0].clone(),
            prompt=_read_prompts(net, canvases, vocab, device),
            segments=segments,
        )
        rows.encode(net, ~rows.free)
        return rows

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows."""
        self.prompt = self.prompt.keep(rows)
        self.segments.keep(rows)
        for name in ("row", "latents", "free", "open", "reveal", "score", "forwards", "ties"):
            setattr(self, name, getattr(self, name)[rows])

    def commit(self, choice: Choice, emptied: Tensor, step: int) -> None:
        """Reveal what was chosen, and empty other slots (B S)."""
        row, slot = emptied.nonzero(as_tuple=True)
        self.segments.put(row, slot, row.new_empty(len(row), 0), torch.zeros_like(row))
        self.score = self.score.where(~choice.taken, choice.scores).masked_fill(emptied, nan)
        changed = choice.taken | emptied
        self.reveal = self.reveal.masked_fill(changed, step)
        self.open = self.open & ~changed

    def encode(self, net: SegmentNet, chosen: Tensor) -> None:
        """Bring the latents of chosen slots (B S) to the segments that stand there."""
        row, slot = chosen.nonzero(as_tuple=True)
        ids, length = self.segments.content(row, slot)
        self.latents[row, slot] = net.empty_vector
        longest = max(length.tolist(), default=0)
        if longest:
            full = length.nonzero()[:, 0]
            self.latents[row[full], slot[full]] = net.encode(ids[full, :longest], length[full])

    def collect(
        self, index: int, canvas: SegmentCanvas, step: int, proposed: list[Candidate] | None
    ) -> Decoded:
        """What was done with one row: its content in slot order, then an EOS for each empty slot.

        A slot that is still open shows as one mask, a frozen empty one not at all.
        """
        vocab, count = self.segments.vocab, len(canvas.segments)
        slots = torch.arange(count, device=self.row.device)
        ids, length = self.segments.content(torch.full_like(slots, index), slots)
        log_prob = self.segments.log_prob[index].tolist()
        state = (self.free, self.open, self.reveal, self.score)
        free, is_open, reveal, score = (each[index].tolist() for each in state)
        content, ends = [], []
        for slot, (tokens, size) in enumerate(zip(ids.tolist(), length.tolist(), strict=True)):
            about = (slot, reveal[slot], score[slot])
            if is_open[slot]:
                content.append((vocab.mask_id, nan, *about))
            elif size:
                pairs = zip(tokens[:size], log_prob[slot][:size], strict=True)
                content += [(*pair, *about) for pair in pairs]
            elif free[slot]:
                ends.append((vocab.eos_id, log_prob[slot][0], *about))
        before = canvas.prompt_length - len(canvas.prompt)
        columns = zip(*content[before:], *ends, strict=True)
        token_ids, log_probs, segment, reveals, scores = (list(column) for column in columns)
        return Decoded(
            token_ids=token_ids,
            insert_step=[0] * len(token_ids),
            reveal_step=reveals,
            log_prob=log_probs,
            steps=step,
            forwards=int(self.forwards[index]),
            ties=int(self.ties[index]),
            segment=segment,
            score=scores,
            candidates=proposed,
        )


def _read_prompts(
    net: SegmentNet, canvases: Sequence[SegmentCanvas], vocab: Vocab, device: torch.device
) -> ReadPrompt:
    length = torch.tensor([len(canvas.prompt) for canvas in canvases])
    ids = torch.full((len(canvases), int(length.max())), vocab.pad_id)
    for row, canvas in enumerate(canvases):
        ids[row, : len(canvas.prompt)] = torch.tensor(canvas.prompt, dtype=ids.dtype)
    return net.read(ids.to(device), length.to(device))
