"""Tuning a planner by its rewards: dUltra's GRPO as an objective of the one training loop.

`anyorder train tiny/planner-grpo --start MODEL`. Each step decodes a group of samples for each
problem of the batch with the present planner, runs their programs in the sandbox, and

    R = correct * [all checks pass] - step_penalty * steps
    loss = - sum over steps and samples of A log pi / (samples * slots)

There is one update for each set of samples, so nothing is clipped (process/planning.py). Because
samples and grades are a function of (weights, seed, step), training resumes as any other does.
The backbone is frozen unless `tuning.joint` is set.

Not here: samples and grades (planner_rollouts.py), the loop (train/loop.py).
Letters: B samples, L positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyorder.apps.planner_rollouts import Moment, Rollouts, roll, solved
from anyorder.bench.tasks import Stories
from anyorder.data.batches import Batch
from anyorder.data.stories import StoriesConfig
from anyorder.model import load
from anyorder.nets.planner import PlannedNet
from anyorder.process.noise import Noise
from anyorder.process.parts import LossParts
from anyorder.process.planning import action_log_prob, group_advantages
from anyorder.recipes import Recipe
from anyorder.train.objective import Objective
from anyorder.train.planner_config import TuningConfig
from anyorder.vocab import Vocab


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
    """-A log pi of all steps of all samples, per sample and slot."""
    slots = sum(map(sum, (canvas.free for canvas in rollouts.canvases)))
    total = torch.zeros((), device=advantages.device)
    for moment in rollouts.moments():
        weight = advantages[moment.rows]
        if not bool(weight.any()):
            continue  # all samples of these groups are alike
        log_prob = moment_log_prob(net, moment, rollouts.vocab, joint=config.joint)
        total = total - (log_prob * weight).sum()
    if not total.requires_grad:  # nothing to learn from this batch: a loss of 0, with a gradient
        total = total + 0 * net.planner.odds.bias.sum()
    return total / slots


def moment_log_prob(net: PlannedNet, moment: Moment, vocab: Vocab, *, joint: bool) -> Tensor:
    """log pi of one step's action.  # B

    With a frozen backbone the tokens' part does not depend on what is trained and is left out.
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
    """For the log: nats of the samples' tokens, and means over samples (it divides by tokens)."""
    nats = -torch.tensor([row.log_prob for row in rollouts.decoded], dtype=torch.float64).sum()
    tokens = torch.tensor(sum(len(row.token_ids) for row in rollouts.decoded))
    means = means | {"steps": rollouts.steps.double()}
    return LossParts(
        loss=loss,
        nats=nats,
        tokens=tokens,
        extras={name: values.double().mean() * tokens for name, values in means.items()},
    )
