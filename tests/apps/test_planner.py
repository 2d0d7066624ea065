"""A planned model from the recipe to the analyses, and its tuning: rewards, gradients, resuming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyorder
from anyorder.apps import planner_grpo as planner_tuning
from anyorder.apps.dry_run import measure_sizes
from anyorder.apps.jobs import SampleJob
from anyorder.apps.placement import placement
from anyorder.apps.planner_grpo import Rollouts, grpo, moment_log_prob, roll, solved, tuning_loss
from anyorder.apps.play.form import form_of
from anyorder.apps.sample import sample_to_run
from anyorder.apps.train import train
from anyorder.bench.tasks import Stories
from anyorder.data import BatchConfig, Batches, StoriesConfig, StoriesSource, stories_vocab
from anyorder.data.batches import Batch
from anyorder.families.mdm.config import PlannedConfig, TuningConfig
from anyorder.families.mdm.loss import corrupt_block, log_confidence
from anyorder.families.mdm.planner import PlannedNet, planner_names
from anyorder.model import Model
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.masking import factor_choice
from anyorder.process.noise import Noise
from anyorder.recipes import find_recipe, override

VOCAB = stories_vocab()
SMALL = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}
SMALL_HEAD = SMALL | {"net.planner_mlp_width": 16, "net.planner_features": 8}
BRIEF: dict[str, Any] = {
    "warmup": 0, "batch": 2, "log_every": 1, "save_every": 2, "threads": 1,
}  # fmt: skip
STORIES = StoriesConfig(layout=1.0)


@pytest.fixture(scope="module")
def planned_mdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped mdm under a planner head that has learnt three steps."""
    out = tmp_path_factory.mktemp("planned") / "model"
    train("tiny/planner", out=out, steps=3, progress=False, validate_every=0, **BRIEF)
    return out


def test_the_recipe_keeps_every_bit_of_the_backbone(planned_mdm: Path) -> None:
    model, base = anyorder.load(planned_mdm), anyorder.load("mdm")
    assert isinstance(model.net, PlannedNet) and isinstance(base.net, Transformer)
    for name, value in base.net.named_parameters():
        assert torch.equal(value, model.net.backbone.get_parameter(name)), name
    fresh = PlannedNet(model.net.config).planner
    assert not torch.equal(model.net.planner.odds.weight, fresh.odds.weight)


def test_sizes_are_told() -> None:
    sizes = measure_sizes(find_recipe("tiny/planner"))
    assert (sizes["backbone_parameters"], sizes["added_parameters"]) == (424_320, 66_433)
    assert measure_sizes(find_recipe("tiny/mdm"))["added_parameters"] == 0


def test_what_is_frozen_must_have_been_trained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name a model with --start"):
        train("tiny/planner-grpo", out=tmp_path / "x")
    with pytest.raises(ValueError, match="shape"):
        train("tiny/planner", out=tmp_path / "x", **SMALL_HEAD)
    assert not (tmp_path / "x").exists()


def test_what_is_tuned_must_have_a_planner(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mdm has no planner head.*a model of tiny/planner"):
        train("tiny/planner-grpo", out=tmp_path / "x", start="mdm")
    assert not (tmp_path / "x").exists()


def test_models_without_a_head_refuse_before_anything_is_written(tmp_path: Path) -> None:
    job = SampleJob("mdm", task="stories", limit=1, out=tmp_path / "run")
    with pytest.raises(ValueError, match="no planner head"):
        sample_to_run(job, {"policy": "planner"}, command="", progress=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="no planner head"):
        anyorder.load("mdm").sample("a", policy="planner")


def test_a_head_decides_where_no_other_order_is_asked_for(planned_mdm: Path) -> None:
    model = anyorder.load(planned_mdm)

    def policy(**options: Any) -> str:
        return str(model.choose(options, ["a"]).policy)

    assert policy() == policy(temperature=0.5) == policy(quota="even", steps=4) == "planner"
    assert policy(policy="margin") == "margin"
    assert policy(remask="rescale:0.5", steps=4) == "random"
    assert policy(mode="compat") == "sampled"
    assert anyorder.load("mdm").choose({}, ["a"]).policy == "confidence"
    with pytest.raises(ValueError, match="decides its own steps"):
        policy(steps=4)
    (trace,) = model.sample(Stories(STORIES).problems(1)[0].prompt, max_new_tokens=4)
    assert trace.policy == "planner"
    (field,) = [each for each in form_of(model) if each.name == "policy"]
    assert field.default == "planner"


@pytest.fixture(scope="module")
def planner_run(planned_mdm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "planner"
    job = SampleJob(str(planned_mdm), task="stories", limit=3, samples=2, out=out)
    sample_to_run(job, {"policy": "planner", "block": 32}, command="", progress=False)
    return out


def test_the_analyses_take_it_like_any_policy(planned_mdm: Path, planner_run: Path) -> None:
    run = anyorder.Run.open(planner_run)
    traces = list(run.traces())
    assert len(traces) == 6 and {trace.policy for trace in traces} == {"planner"}
    assert run.card.config["options"]["quota"] == "bernoulli"
    for trace in traces:
        assert trace.forwards == trace.steps and 2 <= trace.steps <= 64
        first, second = trace.reveal_step[:32], trace.reveal_step[32:]
        assert first.max() < second.min()  # a block is closed before the next begins
        assert "<mask>" not in trace.text
    assert len({tuple(trace.reveal_step.tolist()) for trace in traces[:2]}) == 2  # lots differ
    table = anyorder.measure.order(run, seeds=range(4))
    assert np.isfinite(table.cells["full_output", "split_only", "rub"].mean)
    assert anyorder.measure.arness(run)
    assert anyorder.measure.similarity({"planner": run}, run).row("planner")
    placed = placement(planner_run, planned_mdm, progress=False, stride=8)
    rows = list(placed.rows())
    assert rows and {row["step"] % 8 for row in rows} == {0}
    # What the network says of the canvases again is what the decoder stored.
    assert placed.to_record()["agreement"]["largest_log_prob_difference"] < 1e-4


class Tuning:
    """A small planned network, a batch of stories and samples of it."""

    def __init__(self, **changes: Any) -> None:
        shape = TransformerConfig(
            vocab_size=VOCAB.size + 3, width=8, layers=1, heads=2, kv_heads=2, head_width=4,
            mlp_width=8,
        )  # fmt: skip
        config = PlannedConfig(shape, planner_mlp_width=8, planner_features=4)
        self.net = PlannedNet(config, seed=1).double()
        self.config = TuningConfig(**{"group": 2, "block": 24} | changes)
        deal = BatchConfig(size=2, canvas=64)
        self.batch: Batch = Batches(StoriesSource(STORIES), VOCAB, deal)(0)

    def roll(self, step: int = 0) -> Rollouts:
        return roll(self.net, self.batch, Noise(0, step), self.config, VOCAB)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_samples_are_seen_again_as_they_were_made(temperature: float) -> None:
    tuning = Tuning(temperature=temperature)
    rollouts = tuning.roll()
    assert len(rollouts.decoded) == 4
    assert rollouts.decoded[0].reveal_step != rollouts.decoded[1].reveal_step
    revealed = torch.zeros(4, dtype=torch.int64)
    tuning.net.requires_grad_(False)
    for moment in rollouts.moments():
        states = tuning.net.hidden(moment.canvas, mask=moment.real)
        real = moment.real[..., None]
        assert torch.allclose(states * real, moment.states * real, atol=1e-9)
        assert not (moment.taken & ~moment.eligible).any()
        assert (moment.taken.sum(dim=1) >= 1).all()
        assert (moment.eligible.sum(dim=1) <= 24).all()
        revealed[moment.rows] += moment.taken.sum(dim=1)
        odds = tuning.net.plan(
            states, masked=moment.masked, eligible=moment.eligible, mask=moment.real
        )
        logits = tuning.net.head(states)
        logits[..., VOCAB.mask_id] = -torch.inf  # no slot may hold it
        logits[..., VOCAB.size :] = -torch.inf
        token = logits.log_softmax(-1)
        token = token.gather(-1, moment.tokens[..., None])[..., 0]
        for at, found in enumerate(moment_log_prob(tuning.net, moment, VOCAB, joint=True)):
            by_hand = 0.0
            for place in moment.eligible[at].nonzero()[:, 0].tolist():
                chance = float(torch.sigmoid(odds[at, place]))
                if moment.taken[at, place]:
                    by_hand += np.log(chance) + float(token[at, place])
                else:
                    by_hand += np.log(1 - chance)
            assert float(found) == pytest.approx(by_hand, abs=1e-6)
    assert revealed.tolist() == [64] * 4


@pytest.mark.parametrize("joint", [False, True])
def test_the_gradient_against_finite_differences(joint: bool) -> None:
    """With the samples held, the loss's slope along each direction."""
    tuning = Tuning(joint=joint)
    rollouts = tuning.roll()
    advantages = torch.tensor([0.5, -0.5, 1.0, -1.0], dtype=torch.float64)
    tuning_loss(tuning.net, rollouts, advantages, tuning.config).backward()

    def moved(name: str, direction: torch.Tensor, by: float) -> float:
        parameter = tuning.net.get_parameter(name)
        with torch.no_grad():
            parameter.add_(by * direction)
            value = float(tuning_loss(tuning.net, rollouts, advantages, tuning.config))
            parameter.sub_(by * direction)
        return value

    names = ["planner.odds.weight", "planner.inner.bias", "planner.mark.weight"]
    names += ["planner.layer.blocks.0.mlp.up.weight"]
    names += ["backbone.embed.weight", "backbone.blocks.0.attention.out.weight"] if joint else []
    for name in names:
        gradient = tuning.net.get_parameter(name).grad
        assert gradient is not None and bool(gradient.any()), name
        shape = gradient.shape
        direction = torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()
        slope = (moved(name, direction, 1e-5) - moved(name, direction, -1e-5)) / 2e-5
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-9)
    if not joint:
        assert all(parameter.grad is None for parameter in tuning.net.backbone.parameters())


def test_a_step_makes_what_was_better_more_likely() -> None:
    tuning = Tuning()
    rollouts = tuning.roll()
    advantages = torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)

    def likelihood() -> torch.Tensor:
        total = torch.zeros(4, dtype=torch.float64)
        with torch.no_grad():
            for moment in rollouts.moments():
                total[moment.rows] += moment_log_prob(tuning.net, moment, VOCAB, joint=False)
        return total

    before = likelihood()
    tuning_loss(tuning.net, rollouts, advantages, tuning.config).backward()
    with torch.no_grad():
        for parameter in tuning.net.planner.parameters():
            parameter.sub_(0.02 * parameter.grad)  # type: ignore[operator]
    after = likelihood() - before
    assert after[0] > after[1]


def test_programs_are_run_and_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right program, a wrong one, no program: graded in the sandbox, problem by problem."""
    tuning, task = Tuning(), Stories(STORIES)
    rollouts = tuning.roll()
    right = [task.problem_at(index).solution for index in tuning.batch.index.tolist()]
    texts = [right[0], "def solve(*given):\n    return -1", "nothing", right[1]]
    monkeypatch.setattr(Rollouts, "texts", lambda self: texts)
    assert solved(rollouts, tuning.batch, task, tuning.config).tolist() == [1.0, 0.0, 0.0, 1.0]


def by_length(rollouts: Rollouts, *_: Any) -> torch.Tensor:
    """Stands for the sandbox: what took an even number of steps is right."""
    return (rollouts.steps % 2 == 0).float()


def tuned(out: Path, start: Path, **changes: Any) -> Model:
    given: Mapping[str, Any] = {"steps": 4, **BRIEF, **SMALL_HEAD, **changes}
    return train("tiny/planner-grpo", out=out, start=str(start), progress=False, **given)


def test_tuning_trains_the_planner_resumes_and_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_tuning, "solved", by_length)
    bare, base = tmp_path / "bare", tmp_path / "base"
    train("tiny/mdm", out=bare, steps=1, progress=False, validate_every=0, **BRIEF, **SMALL,
          **{"data.layout": 1.0})  # fmt: skip
    train("tiny/planner", out=base, start=str(bare), steps=1, progress=False, validate_every=0,
          **BRIEF, **SMALL_HEAD)  # fmt: skip
    whole = tuned(tmp_path / "whole", base, **{"tuning.group": 2})
    assert isinstance(whole.net, PlannedNet)
    first = tuned(tmp_path / "halves", base, minutes=1e-9, **{"tuning.group": 2})  # a step each
    for _ in range(3):
        first = tuned(tmp_path / "halves", base, minutes=1e-9, **{"tuning.group": 2})
    for (name, value), again in zip(
        whole.net.named_parameters(), first.net.parameters(), strict=True
    ):
        assert torch.equal(value, again), name
    started = anyorder.load(base).net
    for name, value in started.named_parameters():
        if name.startswith("backbone."):
            assert torch.equal(value, whole.net.get_parameter(name))
    rows = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 4 and all('"solved"' in row and '"steps"' in row for row in rows)
    joint = tuned(tmp_path / "joint", base, **{"tuning.group": 2, "tuning.joint": True})
    assert not torch.equal(
        joint.net.backbone.embed.weight, started.get_parameter("backbone.embed.weight")
    )
    assert planner_names(joint.net)


def test_wrong_settings_are_refused() -> None:
    recipe = find_recipe("tiny/planner-grpo")
    with pytest.raises(ValueError, match="stories"):
        grpo(override(recipe, {"data.source": "x.jsonl"}), VOCAB)
    with pytest.raises(ValueError, match="validate_every=0"):
        grpo(override(recipe, {"validate_every": 5}), VOCAB)
    with pytest.raises(ValueError, match="tiny/planner-grpo"):
        grpo(replace(find_recipe("tiny/mdm"), loss="grpo"), VOCAB)


@torch.inference_mode()
def agreement(net: PlannedNet, stories: int) -> float:
    """The share of masked slots of held-out stories that the head judges as the factor rule."""
    source = StoriesSource(StoriesConfig(split="heldout", layout=1.0))
    batch: Batch = Batches(source, VOCAB, BatchConfig(size=stories, canvas=64, bucket=1))(0)
    alike = judged = 0
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        masked, eligible = corrupt_block(batch.answer, batch.index, Noise(0xA6, 0, level), 16)
        states = net.hidden(batch.ids.masked_fill(masked, VOCAB.mask_id), mask=batch.real)
        target = factor_choice(log_confidence(net, states, eligible, VOCAB))
        odds = net.plan(states, masked=masked, eligible=eligible, mask=batch.real)
        alike += int((((odds > 0) == target) & eligible).sum())
        judged += int(eligible.sum())
    return alike / judged


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_imitation_learns_the_factor_rule(planned_mdm: Path, tmp_path: Path) -> None:
    """The shipped head's own training on the shipped mdm, from before its tuning by rewards."""
    fresh = anyorder.load(planned_mdm).net  # three steps: as good as none
    assert isinstance(fresh, PlannedNet)
    quiet = {"validate_every": 0, "threads": 1, "save_every": 2_000}
    learnt = train("tiny/planner", out=tmp_path / "x", progress=False, **quiet).net
    assert isinstance(learnt, PlannedNet)
    before, after = agreement(fresh, 64), agreement(learnt, 64)
    assert before < 0.85
    assert after >= 0.95, (before, after)
