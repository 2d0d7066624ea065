"""The published sampler, one position at a time: a slow transcription to hold compat against.

It is written from the procedure's description alone and shares no code with the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anyorder.nets.denoiser import Inserter
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcdefghijklm"))  # with mask, pad, bos and eos: 17 ids
BOS, PAD, MASK = VOCAB.bos_id, VOCAB.pad_id, VOCAB.mask_id
assert BOS is not None


@dataclass
class Settings:
    """One case; the names are the release's."""

    algorithm: str = "top_k"
    temperature: float = 0.0
    counts: str = "poisson"
    steps: int = 12
    size: int = 20
    midpoint: bool = False
    inference_exponent: float = 2.9
    unmasking_exponent: float = 2.89
    insertion_temperature: float | None = None


@dataclass
class Recorded:
    """What the slow form shows of one row."""

    prompt_length: int
    snapshots: list[list[int]] = field(default_factory=list)
    created: list[list[bool]] = field(default_factory=list)
    overflowed: bool = False
    masks_drawn: int = 0


def hazard(exponent: float, t: Tensor) -> Tensor:
    """alpha' / (1 - alpha + eps), each formed in float32."""
    survival = torch.pow(1 - t, exponent)
    alpha = 1 - survival
    return exponent * torch.pow(1 - t, exponent - 1) / ((1 - alpha) + 1e-6)


def slow_release(
    net: Inserter, prompts: Sequence[Sequence[int]], case: Settings, generator: torch.Generator
) -> list[Recorded]:
    """The release's loop, one position at a time."""
    rows = [list(prompt) for prompt in prompts]
    marks = [[False] * len(prompt) for prompt in prompts]
    records = [Recorded(len(prompt)) for prompt in prompts]
    dt, t = 1 / case.steps, torch.tensor(0.0)

    def snapshot() -> None:
        for record, row, mark in zip(records, rows, marks, strict=True):
            record.snapshots.append(list(row))
            record.created.append(list(mark))

    snapshot()
    for s in range(case.steps):
        x = torch.full((len(rows), case.size), PAD)
        active = torch.zeros(len(rows), case.size, dtype=torch.bool)
        for b, row in enumerate(rows):
            for i, token in enumerate(row):
                x[b, i], active[b, i] = token, True
        if net.coordinate == "raw":
            tau = 1 - torch.pow(1 - t, case.inference_exponent / 1.7)
        else:
            tau = 1 - torch.pow(1 - t, case.inference_exponent)
        look = net.look(x, mask=active, time=torch.stack([tau] * len(rows)))
        logits = net.head(look.states).float()
        if s == case.steps - 1:
            for b, row in enumerate(rows):
                for i in range(len(row)):
                    if row[i] == MASK:
                        row[i] = int(logits[b, i].argmax().item())
                marks[b] = [False] * len(row)
            snapshot()
            break
        slow_unmask(rows, records, logits, hazard_at(case, case.unmasking_exponent, t), case,
                    generator)  # fmt: skip
        slow_insert(rows, marks, records, look.gaps, hazard_at(case, case.inference_exponent, t),
                    case, generator)  # fmt: skip
        snapshot()
        t = torch.minimum(t + dt, torch.tensor(1 - 1e-6))
    return records


def hazard_at(case: Settings, exponent: float, t: Tensor) -> Tensor:
    return hazard(exponent, t + (0.5 / case.steps if case.midpoint else 0.0))


def slow_unmask(
    rows: list[list[int]],
    records: list[Recorded],
    logits: Tensor,
    h: Tensor,
    case: Settings,
    generator: torch.Generator,
) -> None:
    batch, length, size = logits.shape
    dt = 1 / case.steps
    if case.temperature <= 0:
        drawn = logits.argmax(dim=-1)
    else:
        u = torch.rand(batch, length, size, generator=generator)
        gumbel = -torch.log(-torch.log(torch.maximum(u, torch.tensor(1e-8))) + 1e-8)
        drawn = (logits / case.temperature + gumbel).argmax(dim=-1)
    p = torch.softmax(logits, dim=-1)
    open_slots = [[i for i, token in enumerate(row) if token == MASK] for row in rows]
    if case.algorithm == "origin":
        u = torch.rand(batch, length, generator=generator)
        chance = (1 - torch.exp(-h * dt)).item()
        taken = [[i for i in open_slots[b] if u[b, i].item() < chance] for b in range(batch)]
    else:
        expected = torch.tensor([float(len(each)) for each in open_slots]) * h * dt
        k = torch.poisson(expected, generator=generator)
        taken = []
        for b in range(batch):
            confidence = torch.full((length,), float("-inf"))
            for i in open_slots[b]:
                if case.algorithm == "top_k":
                    confidence[i] = p[b, i, drawn[b, i].item()].item()
                else:
                    confidence[i] = -torch.special.entr(p[b, i]).sum().item()
            count = min(int(k[b].item()), len(open_slots[b]))
            taken.append(torch.topk(confidence, count).indices.tolist())
    for b, places in enumerate(taken):
        for i in places:
            token = int(drawn[b, i].item())
            records[b].masks_drawn += token == MASK
            rows[b][i] = token


def slow_insert(
    rows: list[list[int]],
    marks: list[list[bool]],
    records: list[Recorded],
    gaps: Tensor,
    h: Tensor,
    case: Settings,
    generator: torch.Generator,
) -> None:
    g = torch.minimum(gaps, torch.tensor(15.0))
    rate = torch.exp(g) * h
    if case.insertion_temperature is not None:
        rate = torch.zeros_like(g)
        for b, row in enumerate(rows):
            first = records[b].prompt_length - 1
            valid = g[b, first : len(row)]
            share = torch.softmax(valid / case.insertion_temperature, dim=0)
            rate[b, first : len(row)] = torch.exp(torch.logsumexp(valid, dim=0)) * share * h
    rate = rate * (1 / case.steps)
    if case.counts == "poisson":
        counts = torch.poisson(rate, generator=generator)
    else:
        u = torch.rand(*rate.shape, generator=generator)
        counts = rate.floor() + (u < rate - rate.floor())
    for b, row in enumerate(rows):
        capacity = case.size - len(row)
        longer: list[int] = []
        marked: list[bool] = []
        for i, token in enumerate(row):
            longer.append(token)
            marked.append(False)
            wanted = int(counts[b, i].item()) if i >= records[b].prompt_length - 1 else 0
            given = min(wanted, capacity)
            records[b].overflowed |= given < wanted
            capacity -= given
            longer += [MASK] * given
            marked += [True] * given
        rows[b], marks[b] = longer, marked
