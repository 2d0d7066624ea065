"""Tuning a planner by its rewards: dUltra's GRPO as an objective of the training loop.

`anyorder train tiny/planner-grpo --start MODEL`. Each step decodes a group of samples for each
problem of the batch with the current planner (`roll`), runs their programs in the sandbox
(`solved`), replays the decoding steps (`Rollouts.moments`), and minimises

    R = correct * [all checks pass] - step_penalty * steps
    loss = - sum over steps and samples of A log pi / (samples * slots)

Each set of samples gives one update, so nothing is clipped. Samples and grades are functions of
(weights, seed, step), so training resumes like any other. The backbone is frozen unless
`tuning.joint` is set. The states of a frozen one are recorded while decoding, not computed twice.

Not here: advantages and log pi (process/masking.py), the loop (training/loop.py).
Letters: B samples (grouped by problem), L positions, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.bench.checks import PASSED
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits
from anyorder.bench.tasks import Problem, Stories
from anyorder.data.batches import Batch
from anyorder.data.corpora.stories import StoriesConfig
from anyorder.decode.canvas import Canvas, Decoded, stack
from anyorder.decode.quota import block_of_slots
from anyorder.families.family import Objective
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions, TuningConfig
from anyorder.families.mdm.planner import PlannedNet
from anyorder.model import load
from anyorder.process.masking import LossParts, action_log_prob, group_advantages
from anyorder.process.noise import Noise, key_of
from anyorder.recipes import Recipe
from anyorder.trace import Trace
from anyorder.vocab import Vocab


@dataclass
class _Recorder:
    """A planned network that records the states of its calls."""

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
class RolloutMoment:
    """One decoding step of the rows that were incomplete before it."""

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
    """The decoded samples of one batch, and the states of all network calls."""

    canvases: Sequence[Canvas]
    decoded: Sequence[Decoded]
    calls: Sequence[Tensor]
    options: MdmOptions
    vocab: Vocab
    device: torch.device

    @property
    def steps(self) -> Tensor:
        """The number of steps of each row.  # B"""
        return torch.tensor([row.steps for row in self.decoded], device=self.device)

    def moments(self) -> Iterator[RolloutMoment]:
        """Every decoding step, rebuilt from the reveal steps."""
        ids, free, real = stack(self.canvases, self.vocab, self.device)
        tokens, reveal = ids.clone(), torch.zeros_like(ids)
        for row, (canvas, found) in enumerate(zip(self.canvases, self.decoded, strict=True)):
            span = slice(canvas.prompt_length, len(canvas.ids))
            tokens[row, span] = torch.tensor(found.token_ids, device=self.device)
            reveal[row, span] = torch.tensor(found.reveal_step, device=self.device)
        blocks = block_of_slots(free, self.options.block)
        for step, states in enumerate(self.calls, start=1):
            rows = (self.steps >= step).nonzero()[:, 0]
            width = states.shape[1]  # the decoder drops columns that only finished rows need
            masked = (free & (reveal >= step))[rows, :width]
            block = blocks[rows, :width]
            # Only the first block with masks is open, as in decoding.
            window = block.masked_fill(~masked, blocks.max() + 1).amin(dim=1, keepdim=True)
            yield RolloutMoment(
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
    """`config.group` samples of each row's problem; noise is keyed by step, problem, sample."""
    canvases, keys = [], []
    for row in range(len(batch.ids)):
        prompt = batch.ids[row, : int(batch.prompt_length[row])].tolist()
        slots = int(batch.length[row]) - len(prompt)
        canvas, index = Canvas.of([prompt, slots], vocab), int(batch.index[row])
        for sample in range(config.group):
            canvases.append(canvas)
            keys.append(key_of("tuning", noise.seed, noise.step, index, sample))
    options = mdm.resolve(
        MdmOptions(policy="planner", temperature=config.temperature, block=config.block)
    )
    recorder = _Recorder(net)
    decoded = mdm.decode(recorder, vocab, canvases, keys, options, batch.ids.device)
    # Autograd refuses tensors that were made in inference mode; copies are fine.
    calls = [states.clone() for states in recorder.calls]
    return Rollouts(canvases, decoded, calls, options, vocab, batch.ids.device)


def solved(rollouts: Rollouts, batch: Batch, task: Stories, config: TuningConfig) -> Tensor:
    """1 for each sample whose program passes all checks, run in the sandbox.  # B"""
    problems: list[Problem] = [task.problem_at(index) for index in batch.index.tolist()]
    items = []
    for number, text in enumerate(rollouts.texts()):
        problem = problems[number // config.group]
        program = problem.program(text, task.extraction)
        items.append(Item(number, program, problem.checks, problem.prologue))
    limits = Limits(**dict(task.limits))  # type: ignore[arg-type]
    passed = torch.zeros(len(items), device=rollouts.device)
    for verdict in grade(items, workers=config.workers, limits=limits):
        passed[verdict.key] = float(verdict.verdict == PASSED)
    return passed


def grpo(recipe: Recipe, vocab: Vocab) -> Objective:
    """The objective of a tuning recipe; its problems are the training split of stories."""
    config, data = recipe.settings, recipe.data
    if not isinstance(config, TuningConfig):
        raise ValueError("grpo tunes a planner: use the recipe tiny/planner-grpo")
    if data.source != "stories":
        raise ValueError(f"data.source={data.source!r}: tuning needs programs to check: stories")
    if recipe.train.validate_every:
        raise ValueError(
            "tuning has no loss to validate: set validate_every=0, and compare models with "
            "benchmarks/planner.py"
        )
    if recipe.start is not None and not isinstance(load(recipe.start).net, PlannedNet):
        raise ValueError(
            f"{recipe.start} has no planner head to tune: --start with a model of tiny/planner, or "
            f"make one with `anyorder train tiny/planner --start {recipe.start}`"
        )
    dials = {name: getattr(data, name) for name in ("layout", "wording", "state_layout", "seed")}
    task = Stories(StoriesConfig(**dials))

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        if not isinstance(net, PlannedNet):
            raise ValueError("this network has no planner head: use the recipe tiny/planner-grpo")
        rollouts = roll(net, batch, noise, config, vocab)
        correct = solved(rollouts, batch, task, config)  # B
        rewards = config.correct * correct - config.step_penalty * rollouts.steps
        groups = rewards.unflatten(0, (-1, config.group))
        advantages = group_advantages(groups, config.least_advantage).flatten()
        loss = tuning_loss(net, rollouts, advantages, config)
        return _parts(loss, rollouts, {"solved": correct, "reward": rewards})

    return objective


def tuning_loss(
    net: PlannedNet, rollouts: Rollouts, advantages: Tensor, config: TuningConfig
) -> Tensor:
    """-A log pi, summed over steps and samples, per slot."""
    slots = sum(map(sum, (canvas.free for canvas in rollouts.canvases)))
    total = torch.zeros((), device=advantages.device)
    for moment in rollouts.moments():
        weight = advantages[moment.rows]
        if not bool(weight.any()):
            continue  # no advantage, no gradient
        log_prob = moment_log_prob(net, moment, rollouts.vocab, joint=config.joint)
        total = total - (log_prob * weight).sum()
    if not total.requires_grad:  # the loop calls backward in any case: give it a zero gradient
        total = total + 0 * net.planner.odds.bias.sum()
    return total / slots


def moment_log_prob(net: PlannedNet, moment: RolloutMoment, vocab: Vocab, *, joint: bool) -> Tensor:
    """log pi of one step's action.  # B

    With a frozen backbone the tokens' part is constant and left out.
    """
    states = net.hidden(moment.canvas, mask=moment.real) if joint else moment.states
    odds = net.plan(
        states, masked=moment.masked, eligible=moment.eligible, mask=moment.real
    ).double()
    tokens = None
    if joint:
        logits = net.head(states[moment.taken]).double()
        barred = torch.arange(logits.shape[-1], device=logits.device) >= vocab.size
        barred[vocab.mask_id] = True  # as in decoding
        log_prob = logits.masked_fill(barred, -torch.inf).log_softmax(dim=-1)
        chosen = log_prob.gather(1, moment.tokens[moment.taken][:, None])[:, 0]
        tokens = torch.zeros_like(odds).masked_scatter(moment.taken, chosen)
    return action_log_prob(odds, moment.taken, moment.eligible, tokens)


def _parts(loss: Tensor, rollouts: Rollouts, means: dict[str, Tensor]) -> LossParts:
    """The loss with log values. The log divides by tokens, so means are multiplied by them."""
    nats = -torch.tensor([row.log_prob for row in rollouts.decoded], dtype=torch.float64).sum()
    tokens = torch.tensor(sum(len(row.token_ids) for row in rollouts.decoded))
    means = means | {"steps": rollouts.steps.double()}
    return LossParts(
        loss=loss,
        nats=nats,
        tokens=tokens,
        extras={name: values.double().mean() * tokens for name, values in means.items()},
    )
