"""Remasking in mdm's loop: what it may touch, what it costs, and that every canvas is replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from replay_support import placed_by, whole
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.mdm.remasking import parse_remasking
from anyorder.families.replay import masked_reader
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.process.remasking import Cap, ConfidenceHeuristic, Loop, Rescale, reveal_chance
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.events import changes_of, spelled
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
MASK = VOCAB.mask_id


def options(remask: str, **more: Any) -> MdmOptions:
    return MdmOptions(**{"remask": remask, "steps": 24, "temperature": 0.8, **more})


OPTIONS = [
    options("cap:0.1"),
    options("cap:0.3", steps=9),
    options("rescale:0.3"),
    options("loop:0.3", steps=40),
    options("confidence"),
    options("cap:0.2", policy="confidence"),
    options("rescale:0.2", policy="sampled", eos="last"),
    options("cap:0.2", policy="left_to_right", eos="forbid"),
    options("cap:0.2", policy="entropy", posterior="filtered", top_p=0.9, ties="leftmost"),
    options("cap:0.2", temperature=0.0),
]


def label(given: MdmOptions) -> str:
    changed = {k: v for k, v in asdict(given).items() if v != getattr(MdmOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items())


anyhow = pytest.mark.parametrize("given", OPTIONS, ids=label)
somehow = pytest.mark.parametrize("given", OPTIONS[::3], ids=label)


def real_net() -> Transformer:
    torch.manual_seed(0)
    shape = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_width": 8, "mlp_width": 64}
    net = Transformer(TransformerConfig(vocab_size=VOCAB.size, **shape)).eval()
    with torch.no_grad():
        for parameter in net.parameters():  # far from uniform, so that slots differ clearly
            if parameter.ndim == 2:
                parameter.mul_(6)
    return net


class HandSet:
    """Any posteriors, which depend on the whole canvas; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        self.calls += 1
        assert mask is not None
        place = torch.arange(ids.shape[1])
        seen = ((ids + 1) * (place + 2) * mask).sum(dim=1)[:, None, None]
        token = torch.arange(VOCAB.size)
        return 2 * torch.sin(1.7 * seen + 0.9 * place[:, None] + 2.3 * token**2).double()

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


NETS = {"real": real_net, "by hand": HandSet}
networks = pytest.mark.parametrize("net", NETS.values(), ids=NETS)


def canvases() -> list[Canvas]:
    """Prompts of several lengths, and one text with two gaps."""
    frozen = [[0, 1], [2], [1, 1, 0, 2, 2]]
    plain = [Canvas.of([ids, slots], VOCAB) for ids, slots in zip(frozen, (9, 12, 3), strict=True)]
    return [*plain, Canvas.of([[0], 4, [1, 2], 5, [0, 0, 0]], VOCAB)]


def watched(net: Any, given: MdmOptions) -> tuple[list[Decoded], dict[int, list[Decoded]]]:
    """What was decoded, and each row's canvases after every step."""
    story: dict[int, list[Decoded]] = {row: [] for row in range(len(canvases()))}

    def watch(rows: Sequence[Decoded]) -> None:
        for seen in rows:
            story[seen.row].append(seen)

    keys = [key_of(1, row) for row in story]
    return mdm.decode(net, VOCAB, canvases(), keys, given, watch=watch), story


def traced(canvas: Canvas, row: Decoded, number: int = 0) -> Trace:
    return Trace.from_tokens(
        VOCAB,
        row.token_ids,
        prompt_ids=canvas.ids[: canvas.prompt_length],
        insert_step=row.insert_step,
        reveal_step=row.reveal_step,
        steps=row.steps,
        events=spelled(VOCAB, row.changes),
        log_prob=row.log_prob,  # type: ignore[arg-type]
        task_id=f"t/{number}",
    )


@anyhow
@networks
def test_every_canvas_is_replayed_as_it_was(net: Any, given: MdmOptions) -> None:
    rows, story = watched(net(), given)
    again = 0
    for number, (canvas, row) in enumerate(zip(canvases(), rows, strict=True)):
        trace = traced(canvas, row)
        assert [seen.step for seen in story[number]] == list(range(1, row.steps + 1))
        assert trace.replay(0).ids(MASK).tolist() == list(canvas.ids[canvas.prompt_length :])
        for before, seen in zip([None, *story[number]], story[number], strict=False):
            replayed = trace.replay(seen.step)
            assert replayed.ids(MASK).tolist() == seen.token_ids
            for token, reveal, log_prob in zip(
                seen.token_ids, seen.reveal_step, seen.log_prob, strict=True
            ):
                assert (token != MASK) or (reveal == 0 and math.isnan(log_prob))
            if before is not None:
                lost = [
                    slot
                    for slot, (old, new) in enumerate(
                        zip(before.token_ids, seen.token_ids, strict=True)
                    )
                    if old != MASK and new == MASK
                ]
                assert list(seen.masked_again) == lost
                again += len(lost)
    assert again > 0


@somehow
def test_changes_are_those_of_the_snapshots(given: MdmOptions) -> None:
    """The decoder writes them down as they happen; they can also be read off the canvases."""
    rows, story = watched(real_net(), given)
    for canvas, row, seen in zip(canvases(), rows, story.values(), strict=True):
        start = canvas.ids[canvas.prompt_length :]
        shown = np.array([list(start), *(each.token_ids for each in seen)])
        free = np.array(canvas.free[canvas.prompt_length :])
        reveal, changes = changes_of(np.where(free, shown, shown[-1]), MASK)
        assert reveal.tolist() == row.reveal_step
        assert [change for change in changes if free[change.slot]] == list(row.changes)


@somehow
def test_traces_survive_both_formats(given: MdmOptions, tmp_path: Path) -> None:
    rows, story = watched(real_net(), given)
    traces = [traced(*pair, n) for n, pair in enumerate(zip(canvases(), rows, strict=True))]
    run = Run.create(tmp_path / "run", RunCard("c", {}))
    run.append(0, traces)
    run.finish()
    stored = list(Run.open(tmp_path / "run").traces())
    assert stored == traces and any(trace.events for trace in stored)
    for number, trace in enumerate(stored):
        line = Trace.from_jsonl(trace.to_jsonl())
        for seen in story[number]:
            assert trace.replay(seen.step).ids(MASK).tolist() == seen.token_ids
            mine, theirs = trace.replay(seen.step), line.replay(seen.step)
            assert mine.revealed.tolist() == theirs.revealed.tolist()
            assert mine.pieces == theirs.pieces


@somehow
def test_what_comes_out_is_well_formed(given: MdmOptions) -> None:
    """No mask is left, nothing frozen has moved, and the trace accepts it."""
    rows, story = watched(real_net(), given)
    for number, (canvas, row) in enumerate(zip(canvases(), rows, strict=True)):
        start = canvas.prompt_length
        assert MASK not in row.token_ids and row.steps <= (given.steps or 0)
        for at, free in enumerate(canvas.free[start:]):
            assert (1 <= row.reveal_step[at] <= row.steps) if free else row.reveal_step[at] == 0
            frozen = {seen.token_ids[at] for seen in story[number]}
            assert free or frozen == {canvas.ids[start + at]}
        assert all(canvas.free[start + change.slot] for change in row.changes)
        if given.eos == "forbid":
            shown = {change.token_id for change in row.changes} | set(row.token_ids)
            assert VOCAB.eos_id not in shown


@anyhow
def test_batched_equals_alone(given: MdmOptions) -> None:
    net = real_net()
    keys = [key_of(0, i) for i in range(len(canvases()))]
    together = mdm.decode(net, VOCAB, canvases(), keys, given)
    for canvas, key, row in zip(canvases(), keys, together, strict=True):
        (alone,) = mdm.decode(net, VOCAB, [canvas], [key], given)
        assert (row.token_ids, row.reveal_step) == (alone.token_ids, alone.reveal_step)
        assert list(row.changes) == list(alone.changes)
        assert (row.steps, row.forwards, row.ties) == (alone.steps, alone.forwards, alone.ties)
        assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)


@anyhow
def test_resolving_twice_changes_nothing(given: MdmOptions) -> None:
    assert mdm.resolve(mdm.resolve(given)) == mdm.resolve(given)


@pytest.mark.parametrize("steps", [24, 120])
def test_calls_are_counted_and_made_only_where_something_is_revealed(steps: int) -> None:
    net = HandSet()
    canvas = Canvas.of([[0, 1], 7], VOCAB)
    (row,) = mdm.decode(net, VOCAB, [canvas], [5], options("cap:0.05", steps=steps))
    reveals = {change.step for change in row.changes if change.token_id is not None}
    reveals |= set(row.reveal_step)
    assert net.calls == row.forwards == len(reveals) < steps
    masked = {change.step for change in row.changes if change.token_id is None}
    assert masked - reveals  # a step that only masks again asks nothing


@pytest.mark.parametrize("remask", ["cap:0.2", "rescale:0.4", "loop:0.3"])
@pytest.mark.parametrize("policy", ["random", "confidence"])
def test_the_share_of_masks_follows_the_grid(remask: str, policy: str) -> None:
    """Whatever the policy; without the compensation it would be far off."""
    steps, rows, slots = 12, 300, 10
    masks = np.zeros(steps)

    def watch(seen: Sequence[Decoded]) -> None:
        masks[seen[0].step - 1] += sum(each.token_ids.count(MASK) for each in seen)

    keys = [key_of(8, row) for row in range(rows)]
    canvas = [Canvas.of([[0], slots], VOCAB)] * rows
    given = options(remask, steps=steps, policy=policy)
    mdm.decode(HandSet(), VOCAB, canvas, keys, given, "cpu", watch)
    grid = parse_remasking(remask).grid(steps)
    share, total = 1 - grid.share[1:].numpy(), rows * slots
    error = np.sqrt(share * (1 - share) / total) + 1e-12
    assert np.abs(masks / total - share).max() < 5 * error.max()
    plain = reveal_chance(grid.share[:-1], grid.share[1:], torch.zeros(()).double()).numpy()
    wrong, worst = 1.0, 0.0  # the share of masks if reveals were not compensated
    for sigma, rho, right in zip(grid.sigma.numpy(), plain, share, strict=True):
        wrong = wrong * (1 - rho) + (1 - wrong) * sigma
        worst = max(worst, abs(wrong - right))
    assert worst > 10 * error.max()


class TwoKinds(HandSet):
    """Sure of every other slot, without a clue of the rest."""

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        logits = torch.zeros(*ids.shape, VOCAB.size)
        logits[:, ::2, 0] = 9.0
        return logits


def test_the_heuristic_masks_the_least_sure_tokens_more_often() -> None:
    """As often as the formula says, from the canvases before each step."""
    steps, rows = 16, 300
    sigma = ConfidenceHeuristic().grid(steps).sigma.tolist()
    before: dict[int, Decoded] = {}
    expected, counted = {True: 0.0, False: 0.0}, {True: 0, False: 0}

    def watch(rows: Sequence[Decoded]) -> None:
        for seen in rows:
            if was := before.get(seen.row):
                weights = [0.0 if math.isnan(p) else math.exp(-math.exp(p)) for p in was.log_prob]
                for slot, weight in enumerate(weights):
                    total = max(sum(weights), 1e-9)
                    expected[slot % 2 == 1] += sigma[seen.step - 1] * weight / total
                    counted[slot % 2 == 1] += slot in set(seen.masked_again)
            before[seen.row] = seen

    keys = [key_of(9, row) for row in range(rows)]
    canvas = [Canvas.of([[0], 12], VOCAB)] * rows  # one frozen: the sure slots are 1, 3, 5, ...
    given = options("confidence", steps=steps, temperature=1.0)
    mdm.decode(TwoKinds(), VOCAB, canvas, keys, given, "cpu", watch)
    assert counted[True] < counted[False]
    for sure, number in counted.items():
        assert number == pytest.approx(expected[sure], abs=4 * math.sqrt(expected[sure]))


def test_placement_sees_what_the_sampler_saw() -> None:
    """Slots are open again once they are masked, and every commitment has its probability."""
    given = options("cap:0.2", steps=30)
    rows, story = watched(real_net(), given)
    traces = [traced(*pair) for pair in zip(canvases(), rows, strict=True)]
    reader = masked_reader(real_net(), VOCAB, given)
    moments = reader.moments([whole(trace) for trace in traces])
    committed_then_masked = 0
    for number, (row, each) in enumerate(zip(rows, moments, strict=True)):
        for moment, seen in zip(each[1:], story[number], strict=False):
            assert moment.open == seen.token_ids.count(MASK)
            prompt = len(moment.ids) - len(seen.token_ids)
            assert moment.ids[prompt:].tolist() == seen.token_ids
        for moment in each:
            after = next(
                (s for s in story[number] if s.step > moment.step and _differs(moment, s)), None
            )
            if after is None:
                continue
            for slot, token in zip(moment.committed.tolist(), moment.tokens.tolist(), strict=True):
                assert after.token_ids[slot] == token != MASK
                committed_then_masked += row.reveal_step[slot] != after.step
    assert committed_then_masked > 0
    compared = 0
    for moment, found in placed_by(reader, [whole(trace) for trace in traces]):
        known = ~np.isnan(moment.log_prob)
        believed = np.log(found.committed[known])
        assert believed == pytest.approx(moment.log_prob[known], abs=1e-4)
        compared += int(known.sum())
    # From quiet steps the same commitment is seen several times.
    assert compared >= sum(sum(step > 0 for step in row.reveal_step) for row in rows)


def _differs(moment: Any, seen: Decoded) -> bool:
    return moment.ids[len(moment.ids) - len(seen.token_ids) :].tolist() != seen.token_ids


def test_remaskings_are_found_by_name() -> None:
    assert parse_remasking("cap:0.02") == Cap(0.02)
    assert parse_remasking("rescale:0.1") == Rescale(0.1)
    assert parse_remasking("loop:0.02") == Loop(0.02)
    assert parse_remasking("confidence") == ConfidenceHeuristic(1.0)
    assert parse_remasking("confidence:0.5") == ConfidenceHeuristic(0.5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"remask": "cap"}, "'cap' needs a number from 0 to 1, such as cap:0.02"),
        ({"remask": "cap:"}, "unknown remasking"),
        ({"remask": "cap:x"}, "'cap:x' needs a number from 0 to 1, such as cap:0.02"),
        ({"remask": "cap:2"}, "from 0 to 1"),
        ({"remask": "switch:0.1"}, "unknown remasking"),
        ({"steps": None}, "give --steps"),
        ({"steps": 0}, "at least 1"),
        ({"remask": "loop:0.1", "steps": 3}, "none for the loop"),
        ({"quota": "even"}, "leave --quota out"),
        ({"block": 4}, "leave --block out"),
        ({"mode": "compat"}, "masks nothing again"),
        ({"eos": "fill"}, "choose plain"),
        ({"eos": "last"}, "no effect"),
        ({"ties": "leftmost"}, "no ties"),
        ({"posterior": "filtered"}, "no effect"),
    ],
)
def test_wrong_or_unused_options_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mdm.resolve(MdmOptions(**{"remask": "cap:0.1", "steps": 8, **wrong}))


def test_the_default_is_chances_own_order() -> None:
    full = mdm.resolve(MdmOptions(remask="cap:0.1", steps=8))
    assert (full.policy, full.quota, full.ties, full.posterior) == ("random", None, None, None)
