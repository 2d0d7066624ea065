"""Samples to tune a planner with: decoded by it, graded in the sandbox, seen again step by step.

    rollouts = roll(net, batch, ...)       a group of samples for each problem of a batch
    correct = solved(rollouts, batch, ...)  1 for each sample whose program passes its checks
    moments = rollouts.moments()            each step's canvas, and what was revealed of it

Nothing is recorded while decoding but the states of each network call: a frozen backbone need not
be asked twice. Canvases follow from the reveal steps, as in any trace.

Not here: the loss (planner_tuning.py), its mathematics (process/planning.py).
Letters: B rows (problem by problem, its samples together), L positions, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Stories
from anyorder.bench.verdicts import PASSED
from anyorder.data.batches import Batch
from anyorder.decode import mdm
from anyorder.decode.canvas import Canvas, Decoded, stack
from anyorder.decode.mdm_options import MdmOptions
from anyorder.decode.quota import block_of_slots
from anyorder.measure.extract import extract
from anyorder.nets.planner import PlannedNet
from anyorder.process.noise import Noise, key_of
from anyorder.trace import Trace
from anyorder.train.planner_config import TuningConfig
from anyorder.vocab import Vocab


@dataclass
class _Recorder:
    """A planned network that keeps the states of its calls."""

    net: PlannedNet
    calls: list[Tensor] = field(default_factory=list)

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        states = self.net.hidden(ids, mask=mask, time=time)
        self.calls.append(states)
        return states

    def head(self, hidden: Tensor) -> Tensor:
        return self.net.head(hidden)

    def plan(self, states: Tensor, **slots: Any) -> Tensor:
        return self.net.plan(states, **slots)


@dataclass(frozen=True)
class Moment:
    """One step of the rows that were not complete before it."""

    rows: Tensor  # B, their numbers
    canvas: Tensor  # B L
    real: Tensor  # B L
    masked: Tensor  # B L
    eligible: Tensor  # B L
    taken: Tensor  # B L
    tokens: Tensor  # B L, of the finished rows
    states: Tensor  # B L D, of the call that decided this step


@dataclass(frozen=True)
class Rollouts:
    """What became of the canvases of one batch."""

    canvases: Sequence[Canvas]
    decoded: Sequence[Decoded]
    calls: Sequence[Tensor]
    options: MdmOptions
    vocab: Vocab
    device: torch.device

    @property
    def steps(self) -> Tensor:
        """Steps of each row, which all reveal something.  # B"""
        return torch.tensor([row.steps for row in self.decoded], device=self.device)

    def moments(self) -> Iterator[Moment]:
        """Every step that was made, rebuilt from the reveal steps."""
        ids, free, real = stack(self.canvases, self.vocab, self.device)
        tokens, reveal = ids.clone(), torch.zeros_like(ids)
        for row, (canvas, found) in enumerate(zip(self.canvases, self.decoded, strict=True)):
            span = slice(canvas.prompt_length, len(canvas.ids))
            tokens[row, span] = torch.tensor(found.token_ids, device=self.device)
            reveal[row, span] = torch.tensor(found.reveal_step, device=self.device)
        blocks = block_of_slots(free, self.options.block)
        for step, states in enumerate(self.calls, start=1):
            rows = (self.steps >= step).nonzero()[:, 0]
            width = states.shape[1]  # columns that only finished rows needed are gone
            masked = (free & (reveal >= step))[rows, :width]
            block = blocks[rows, :width]
            window = block.masked_fill(~masked, blocks.max() + 1).amin(dim=1, keepdim=True)
            yield Moment(
                rows=rows,
                canvas=tokens[rows, :width].masked_fill(masked, self.vocab.mask_id),
                real=real[rows, :width],
                masked=masked,
                eligible=masked & (block == window),
                taken=(reveal == step)[rows, :width],
                tokens=tokens[rows, :width],
                states=states,
            )

    def texts(self) -> list[str]:
        return [
            Trace.from_tokens(
                self.vocab,
                row.token_ids,
                prompt_ids=canvas.ids[: canvas.prompt_length],
                insert_step=row.insert_step,
                reveal_step=row.reveal_step,
            ).text
            for canvas, row in zip(self.canvases, self.decoded, strict=True)
        ]


def roll(
    net: PlannedNet, batch: Batch, noise: Noise, config: TuningConfig, vocab: Vocab
) -> Rollouts:
    """`config.group` samples of each row's problem; the noise is named by step, problem, sample."""
    canvases, keys = [], []
    for row in range(len(batch.ids)):
        prompt = batch.ids[row, : int(batch.prompt_length[row])].tolist()
        slots = int(batch.length[row]) - len(prompt)
        canvas, index = Canvas.of([prompt, slots], vocab), int(batch.index[row])
        for sample in range(config.group):
            canvases.append(canvas)
            keys.append(key_of("tuning", noise.seed, noise.step, index, sample))
    options = MdmOptions(
        policy="planner", temperature=config.temperature, block=config.block
    ).resolved()
    recorder = _Recorder(net)
    decoded = mdm.decode(recorder, vocab, canvases, keys, options, batch.ids.device)
    # Tensors of inference cannot be used in training: copies can.
    calls = [states.clone() for states in recorder.calls]
    return Rollouts(canvases, decoded, calls, options, vocab, batch.ids.device)


def solved(rollouts: Rollouts, batch: Batch, task: Stories, config: TuningConfig) -> Tensor:
    """1 for each sample whose program passes all checks, run in the sandbox.  # B"""
    problems: list[Problem] = [task.problem_at(index) for index in batch.index.tolist()]
    items = []
    for number, text in enumerate(rollouts.texts()):
        problem = problems[number // config.group]
        program = extract(
            text, mode=task.extraction, entry_point=problem.entry_point, prefix=problem.prefix
        )
        items.append(Item(number, program, problem.checks, problem.prologue))
    limits = Limits(**dict(task.limits))  # type: ignore[arg-type]
    passed = torch.zeros(len(items), device=rollouts.device)
    for verdict in grade(items, workers=config.workers, limits=limits):
        passed[verdict.key] = float(verdict.verdict == PASSED)
    return passed
