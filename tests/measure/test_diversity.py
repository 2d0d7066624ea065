"""Diversity within a policy, by hand."""

from __future__ import annotations

import json

import pytest

from anyorder.measure.programs import Programs
from anyorder.measure.similarity_scores import SimilarityOptions, diversity

ADD = "def f(x):\n    y = x + 1\n    return y\n"
SAME = "def g(a):\n    b = a + 1\n    return b\n"
SHORT = "def f(x):\n    return x + 2\n"
QUICK = SimilarityOptions(resamples=100)


def test_by_hand() -> None:
    programs = Programs.of_texts("p", {"q1": [ADD, SAME, SHORT, "no program"], "q2": [ADD]})
    table = diversity(programs, QUICK)
    [row] = table.rows
    assert (row.prompts, row.samples) == (1, 3)
    assert row.distinct["texts"].estimate == 1.0
    assert row.distinct["trees"].estimate == pytest.approx(2 / 3)
    far = 1 - 5 / 12
    assert row.nearest["ASTD"].estimate == pytest.approx((1 + 1 + far) / 3)
    assert row.pairwise["ASTD"].estimate == pytest.approx((1 + far + far) / 3)
    assert row.pairwise["TSED"].estimate == pytest.approx((1 + 2 * (1 - 4 / 14)) / 3)
    assert table.statuses == {"p": {"parsed": 4, "unparsable": 1}}
    json.dumps(table.to_record(), allow_nan=False)


def test_correct_programs_only() -> None:
    verdicts = {("q1", 0): True, ("q1", 1): True, ("q1", 2): False}
    programs = Programs.of_texts("p", {"q1": [ADD, SAME, SHORT]}, verdicts=verdicts)
    valid, correct = diversity({"named": programs}, QUICK).rows
    assert (valid.filter, correct.filter, correct.policy) == ("valid", "correct", "named")
    assert correct.pairwise["ASTD"].estimate == 1.0 and correct.samples == 2
