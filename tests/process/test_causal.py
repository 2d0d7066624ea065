"""The causal process: states stand one place left of what they predict."""

from __future__ import annotations

import pytest
import torch

from anyorder.process import masking as causal


def test_predictors_stand_one_place_left() -> None:
    targets = torch.tensor([[False, False, True, True], [False, True, False, False]])
    expected = torch.tensor([[False, True, True, False], [True, False, False, False]])
    assert torch.equal(causal.predictors(targets), expected)


def test_first_position_has_no_predictor() -> None:
    with pytest.raises(ValueError, match="BOS"):
        causal.predictors(torch.tensor([[True, False]]))


def test_token_mean() -> None:
    parts = causal.mean_over_tokens(torch.tensor([1.0, 2.0, 6.0]))
    assert float(parts.loss) == pytest.approx(3.0)
    assert int(parts.tokens) == 3 and float(parts.nats) == pytest.approx(9.0)
