"""A tiny network, batches and objective to train, and a program that trains it in a process.

Run as a program it is a nursery: for each line `OUT STEPS SAVE_EVERY` on standard input it starts a
process that trains the toy and prints its id; for the line `wait` that follows, how that process
ended. With a fourth word, `doomed`, the process never ends by itself, however late its killer
comes. They are forked from one that has imported torch and not used it, so that a test that kills
many of them need not wait for imports.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise, Stream
from anyorder.training.config import TrainConfig
from anyorder.training.loop import FitOptions, fit

VOCABULARY, WIDTH, LENGTH, MASK = 12, 8, 6, 11


class ToyNet(nn.Module):
    """Two layers over the mean and the token itself; the head is tied to the embedding."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.mix = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.2, generator=generator)
            else:
                # nn.Linear draws its bias from the global stream: set it, or runs differ.
                nn.init.zeros_(parameter)
        nn.init.ones_(self.norm.weight)
        self.out.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)  # B L D
        around = x.mean(dim=1, keepdim=True).expand_as(x)
        return self.out(self.norm(x + torch.tanh(self.mix(torch.cat([x, around], dim=-1)))))


@dataclass(frozen=True)
class ToyBatch:
    """The fields of a batch that the loop and the toy objective read."""

    ids: Tensor
    length: Tensor
    index: Tensor

    def to(self, device: torch.device) -> ToyBatch:
        return ToyBatch(self.ids.to(device), self.length.to(device), self.index.to(device))


def batch_of(step: int, rows: int = 8) -> ToyBatch:
    """Rows that count upwards from a random start: easy to learn, a function of the step."""
    index = torch.arange(step * rows, (step + 1) * rows)
    start = (index * 7919) % (MASK - LENGTH + 1)
    ids = start[:, None] + torch.arange(LENGTH)
    return ToyBatch(ids, torch.full((rows,), LENGTH), index)


def objective(net: nn.Module, batch: ToyBatch, noise: Noise) -> LossParts:
    """Cross-entropy at masked positions; the share of masks is the noise level."""
    item = torch.arange(LENGTH)
    places = noise.uniform(Stream.PLACE, batch.index[:, None], item)
    masked = places < noise.levels(len(batch.ids))[:, None]
    masked[:, 0] = True
    logits = net(batch.ids.masked_fill(masked, MASK))
    nats = F.cross_entropy(logits[masked], batch.ids[masked], reduction="none")
    return LossParts(
        loss=nats.mean(),
        nats=nats.detach().sum(),
        tokens=masked.sum(),
        extras={"first": nats.detach()[0]},
    )


CONFIG = TrainConfig(
    steps=40,
    batch=8,
    lr=1e-2,
    warmup=5,
    ema=0.9,
    log_every=3,
    validate_every=7,
    validate_batches=2,
    save_every=10,
    threads=1,
)

VALIDATION = [batch_of(1000 + number) for number in range(2)]


OPTIONS = FitOptions(levels=(0.3, 0.9, None), progress=False)


def train(out: Path, options: FitOptions | None = None, **changes: object):  # type: ignore[no-untyped-def]
    """`fit` on the toy, with changes to its configuration; returns (result, network)."""
    net = ToyNet()
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]
    options = options or OPTIONS
    return fit(net, objective, batch_of, VALIDATION, config, out, options), net


def train_in_a_process(out: str, steps: str, save_every: str, doomed: str = "") -> int:
    """The id of a new process that trains and ends with exit code 0, or waits to be killed."""
    child = os.fork()
    if child:
        return child
    try:
        options = replace(OPTIONS, export=lambda net: time.sleep(600)) if doomed else OPTIONS
        train(Path(out), options, steps=int(steps), save_every=int(save_every))
        os._exit(0)
    finally:  # never back into the parent's code
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    importlib.import_module("torch._dynamo")  # the optimiser would, in each process anew
    for line in iter(sys.stdin.readline, ""):
        child = train_in_a_process(*line.split())
        print(child, flush=True)
        assert sys.stdin.readline() == "wait\n"
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
