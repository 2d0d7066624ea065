"""compat against a slow transcription of the release's procedure: the same draws, the same traces.

The slow form is release_sampler.py. Both must leave the random stream in the same state.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from release_sampler import BOS, MASK, PAD, VOCAB, Recorded, Settings, slow_release
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas
from anyorder.families.flexmdm import compat as flexmdm_compat
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.compat import decode_compat
from anyorder.families.flexmdm.config import FlexConfig, FlexOptions
from anyorder.families.flexmdm.net import FlexNet
from anyorder.nets.denoiser import Inserter, Look
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.schedule import Power
from anyorder.trace.trace import Trace


class Tables:
    """A network whose answers are looked up: by a slot's neighbours, its row's length and time.

    Some contexts are so sure that float32 rounds their probability to 1, so that scores tie.
    """

    def __init__(self, coordinate: str = "raw", seed: int = 0, missing: float = 16.0) -> None:
        self.coordinate, self.insertion_exponent, self.unmasking_exponent = coordinate, 1.7, 2.89
        g = torch.Generator().manual_seed(seed)
        size = VOCAB.size + 1  # one more for "nothing there"
        self.left, self.right, self.own = (
            torch.randn(size, VOCAB.size, generator=g) for _ in range(3)
        )
        self.sure = torch.rand(size, size, generator=g) < 0.3
        self.gap = torch.randn(size, size, generator=g)
        self.missing = missing
        self.times: list[float] = []

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        assert mask is not None and time.dtype == torch.float32 and time.shape == ids.shape[:1]
        self.times.append(time[0].item())
        seen = torch.where(mask, ids, VOCAB.size)
        before = torch.nn.functional.pad(seen[:, :-1], (1, 0), value=VOCAB.size)
        after = torch.nn.functional.pad(seen[:, 1:], (0, 1), value=VOCAB.size)
        logits = self.left[before] + self.right[after] + self.own[seen] * time[:, None, None]
        logits = logits * torch.where(self.sure[before, after], 60.0, 1.0)[:, :, None]
        length = mask.sum(dim=1)
        remaining = (1 - time) ** (1.7 if self.coordinate == "raw" else 1.0)
        share = self.missing * remaining / length
        return Look(logits, self.gap[seen, after] + share.log()[:, None])

    def head(self, states: Tensor) -> Tensor:
        return states


def tiny_net(convention: str = "release", coordinate: str = "raw") -> FlexNet:
    backbone = TransformerConfig(
        vocab_size=VOCAB.size, width=16, layers=2, heads=2, kv_heads=1, head_width=8, mlp_width=24,
        time_modulated=True,
    )  # fmt: skip
    config = FlexConfig(backbone, convention=convention, coordinate=coordinate)  # type: ignore[arg-type]
    net = FlexNet(config, seed=3).eval()
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=g)
        net.gap.outer.bias += 2.5
    return net


PROMPTS = ([BOS, 0, 1, PAD], [BOS, 4, PAD], [BOS, 2, 2, 7, PAD])


def options_of(case: Settings) -> FlexOptions:
    policy = {"top_k": "sampled", "entropy": "entropy", "origin": "random"}[case.algorithm]
    return flexmdm.resolve(
        FlexOptions(
            policy=policy,
            steps=case.steps,
            counts=case.counts,  # type: ignore[arg-type]
            hazard="midpoint" if case.midpoint else "left",
            insertion_schedule=case.inference_exponent,
            unmasking_schedule=case.unmasking_exponent,
            insertion_temperature=case.insertion_temperature or 1.0,
            temperature=case.temperature,
            mode="compat",
        )
    )


def canvases(prompts: Sequence[Sequence[int]], size: int) -> list[GrowingCanvas]:
    return [
        GrowingCanvas(tuple(ids), (False,) * (len(ids) - 1) + (True,), size - len(ids))
        for ids in prompts
    ]


def both(
    net: Inserter, case: Settings, seed: int = 0, options: FlexOptions | None = None
) -> tuple[list[Decoded], list[Recorded]]:
    fast_stream = torch.Generator().manual_seed(seed)
    slow_stream = torch.Generator().manual_seed(seed)
    boxes = canvases(PROMPTS, case.size)
    fast = decode_compat(net, VOCAB, boxes, options or options_of(case), fast_stream)
    slow = slow_release(net, PROMPTS, case, slow_stream)
    assert torch.equal(fast_stream.get_state(), slow_stream.get_state()), "other draws"
    return fast, slow


def check_equal(fast: Sequence[Decoded], slow: Sequence[Recorded]) -> None:
    for prompt, row, record in zip(PROMPTS, fast, slow, strict=True):
        expected = Trace.from_snapshots(
            record.snapshots,
            MASK,
            prompt_length=record.prompt_length,
            insertion_masks=record.created,
        )
        # Canvases do not tell a mask that the last step drew from one that was never revealed.
        drawn_last = [token == MASK for token in row.token_ids]
        assert all(
            step == row.steps
            for step, mask in zip(row.reveal_step, drawn_last, strict=True)
            if mask
        )
        reveal = [
            row.steps + 1 if mask else step
            for step, mask in zip(row.reveal_step, drawn_last, strict=True)
        ]
        seen = Trace.from_tokens(
            None,
            row.token_ids,
            prompt_ids=prompt,
            insert_step=row.insert_step,
            reveal_step=reveal,
            steps=row.steps,
            mask_id=MASK,
        )
        assert seen == expected
        for step, snapshot in enumerate(record.snapshots):
            assert seen.replay(step).ids(MASK, prompt=True).tolist() == snapshot


CASES = list(
    itertools.product(
        ("top_k", "entropy", "origin"), (0.0, 0.1, 1.0), ("poisson", "floor_bernoulli")
    )
)


@pytest.mark.parametrize(("algorithm", "temperature", "counts"), CASES)
def test_traces_equal_the_slow_form(algorithm: str, temperature: float, counts: str) -> None:
    overflowed, complete, ties = 0, 0, 0
    for seed, size in itertools.product(range(4), (12, 40)):
        case = Settings(algorithm, temperature, counts, size=size)
        fast, slow = both(Tables(seed=seed), case, seed)
        check_equal(fast, slow)
        overflowed += sum(record.overflowed for record in slow)
        complete += sum(not record.overflowed and bool(row.token_ids)
                        for row, record in zip(fast, slow, strict=True))  # fmt: skip
        ties += sum(row.ties for row in fast)
    assert overflowed >= 3 and complete >= 3
    assert (ties > 0) == (algorithm != "origin")


@pytest.mark.parametrize(("algorithm", "temperature", "counts"), CASES)
@pytest.mark.parametrize("convention", ["release", "plain"])
def test_a_real_network_too(
    algorithm: str, temperature: float, counts: str, convention: str
) -> None:
    net = tiny_net(convention, coordinate="raw" if convention == "release" else "progress")
    fast, slow = both(net, Settings(algorithm, temperature, counts, size=24))
    check_equal(fast, slow)
    assert sum(len(row.token_ids) for row in fast) > 10


def test_a_mask_that_is_drawn_stays_a_mask() -> None:
    net = Tables(seed=1)
    net.left[:, MASK] += 2
    case = Settings("top_k", 1.0, steps=16, size=30)
    fast, slow = both(net, case)
    check_equal(fast, slow)
    assert sum(record.masks_drawn for record in slow) > 5
    net.left[:, MASK] += 100  # now the last step leaves masks as well
    fast, slow = both(net, case)
    check_equal(fast, slow)
    assert {token for row in fast for token in row.token_ids} == {MASK}
    assert all(step == case.steps for row in fast for step in row.reveal_step)


@pytest.mark.parametrize("seed", range(3))
def test_the_other_options(seed: int) -> None:
    for change in (
        {"midpoint": True},
        {"insertion_temperature": 0.5, "temperature": 0.1},
        {"inference_exponent": 1.7, "unmasking_exponent": 1.0, "steps": 30},
        {"insertion_temperature": 2.0, "counts": "floor_bernoulli", "size": 12},
    ):
        case = Settings(**change)  # type: ignore[arg-type]
        check_equal(*both(Tables("progress", seed=seed), case, seed))


def test_insertion_temperature_one_is_none() -> None:
    case = Settings(temperature=0.1, size=30)
    g = torch.Generator().manual_seed(2)
    plain = flexmdm.resolve(FlexOptions(policy="sampled", steps=12, temperature=0.1, mode="compat"))
    first = decode_compat(Tables(), VOCAB, canvases(PROMPTS, 30), options_of(case), g)
    g.manual_seed(2)
    second = decode_compat(Tables(), VOCAB, canvases(PROMPTS, 30), plain, g)
    assert repr(first) == repr(second)
    assert any(row.token_ids for row in first)


def test_published_choices_are_the_defaults() -> None:
    case = Settings(steps=512, size=16)
    check_equal(
        *both(Tables(missing=8.0), case, options=flexmdm.resolve(FlexOptions(mode="compat")))
    )


def test_the_published_run() -> None:
    """512 steps: h dt at step 510 is what the release gave, 0.134; so is the last time, 0.99998."""
    late = torch.tensor(510 / 512)
    assert flexmdm_compat.hazard(Power(2.9), late).item() / 512 == pytest.approx(0.134, abs=5e-4)
    assert Power(2.9).hazard(late).item() / 512 == pytest.approx(1.45, abs=5e-3)
    net = Tables(missing=8.0)
    check_equal(*both(net, Settings(steps=512, size=16)))
    assert len(net.times) == 2 * 512
    assert net.times[:512] == net.times[512:]
    assert net.times[0] == 0
    assert net.times[256] == pytest.approx(1 - 0.5 ** (2.9 / 1.7), abs=1e-6)
    assert net.times[-1] == pytest.approx(0.99998, abs=5e-6)


def test_the_ends_of_the_noise() -> None:
    ends = torch.tensor([0.0, 0.5, 1 - 2.0**-24])
    expected = [-np.log(8 * np.log(10)), -np.log(np.log(2)), -np.log(2.0**-24 + 1e-8)]
    np.testing.assert_allclose(flexmdm_compat.gumbel(ends), expected, rtol=1e-5)


def test_log_probabilities_are_untempered() -> None:
    """A net that ignores its canvas: each token's log-probability can be looked up."""

    class Same(Tables):
        def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
            look = super().look(ids, mask=mask, time=time)
            return Look(self.left[0].expand(*ids.shape, -1), look.gaps)

    net = Same()
    table = net.left[0].double().log_softmax(dim=-1)
    fast, _ = both(net, Settings(temperature=1.0, size=40))
    for row in fast:
        assert row.forwards == row.steps == 12
        np.testing.assert_allclose(row.log_prob, table[row.token_ids], atol=1e-6)


def test_what_the_release_cannot_do_is_refused() -> None:
    options, g = options_of(Settings()), torch.Generator()
    uneven = [*canvases([[BOS, PAD]], 8), *canvases([[BOS, PAD]], 9)]
    with pytest.raises(ValueError, match="rows of one canvas size"):
        decode_compat(Tables(), VOCAB, uneven, options, g)
    hole = GrowingCanvas((BOS, PAD, 3), (False, True, False), 5)
    with pytest.raises(ValueError, match="mode='exact'"):
        decode_compat(Tables(), VOCAB, [hole], options, g)
    two = GrowingCanvas((BOS, PAD, 3), (False, True, True), 5)
    with pytest.raises(ValueError, match="mode='exact'"):
        decode_compat(Tables(), VOCAB, [two], options, g)
