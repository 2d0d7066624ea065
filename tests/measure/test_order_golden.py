"""The release's own numbers: every aggregate and node value, through import and measure.

The golden file is data, kept beside the project; each line is a trace of one token per character
with what the release's metric code printed for it.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from anyorder.cli import main

SCOPE_OF = {
    "reference_aware": "full_output",
    "code_only": "code_only",
    "entry_only": "entry_only",
}
FALLBACK_OF = {
    "cleaned_answer": "whole",
    "fenced_code_block": "fenced",
    "before_closing_fence": "before_fence",
    "longest_valid_prefix": "longest_lines",
}
METRICS = ("cbc", "rub", "rub_plus", "obw")
COUNT = 44


@pytest.fixture(scope="module")
def goldens(golden_order_metrics: Path) -> list[dict[str, Any]]:
    lines = golden_order_metrics.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def as_interchange(golden: dict[str, Any]) -> dict[str, Any]:
    return {
        "task_id": golden["id"],
        "sample": 0,
        "prompt": golden["prompt"],
        "tokens": list(golden["text"]),
        "insert_step": golden["ins"],
        "reveal_step": golden["rev"],
        "steps": golden["steps"],
        "entry_point": golden["entry"],
    }


@pytest.fixture(scope="module")
def record(
    goldens: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("golden")
    lines = "".join(json.dumps(as_interchange(golden)) + "\n" for golden in goldens)
    (folder / "goldens.jsonl").write_text(lines, encoding="utf-8")
    out = folder / "run"
    assert main(["import", str(folder / "goldens.jsonl"), "--out", str(out)]) == 0
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["measure", str(out), "--mode", "compat", "--only", "order", "--json"]) == 0
    return dict(json.loads(printed.getvalue())["runs"]["run"]["order"]["compat"])


def test_all_of_them(goldens: list[dict[str, Any]], record: dict[str, Any]) -> None:
    assert len(goldens) == len(record["samples"]) == COUNT
    compared = 0
    for golden, sample in zip(goldens, record["samples"], strict=True):
        assert sample["task_id"] == golden["id"]
        assert sample["fallback"] == FALLBACK_OF[golden["kind"]]
        assert set(golden["expect"]) == set(SCOPE_OF)
        for theirs, ours in SCOPE_OF.items():
            expected, found = golden["expect"][theirs], sample["scopes"][ours]
            for part in ("overall", "split_only"):
                assert found[part] == pytest.approx(expected[part], abs=1e-12), golden["id"]
            assert [found[name] for name in ("nonleaf", "split", "excluded")] == [
                expected[name] for name in ("nonleaf", "split", "excluded")
            ]
            compared += _compare_nodes(expected["nodes"], found["nodes"])
    assert compared > 200


def _compare_nodes(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> int:
    assert len(found) == len(expected)
    for node, ours in zip(expected, found, strict=True):
        assert (ours["node"], ours["depth"]) == (node["viz_node_id"], node["depth"])
        assert ours["child_count"] == node["child_count"]
        assert ours["visits"] == node["child_visit_counts"]
        for name in METRICS:
            assert ours[name] == pytest.approx(node[name], abs=1e-12)
    return len(found)


def test_their_trees(goldens: list[dict[str, Any]], record: dict[str, Any]) -> None:
    for golden, sample in zip(goldens, record["samples"], strict=True):
        labels = {number: (kind, label) for number, kind, label, _ in golden["viz"]}
        for node in sample["scopes"]["full_output"]["nodes"]:
            assert (node["kind"], node["label"]) == labels[node["node"]]


def test_the_aggregate_is_the_mean_of_the_samples(
    goldens: list[dict[str, Any]], record: dict[str, Any]
) -> None:
    for theirs, ours in SCOPE_OF.items():
        for part in ("overall", "split_only"):
            for name in METRICS:
                values = [golden["expect"][theirs][part][name] for golden in goldens]
                known = [value for value in values if value is not None]
                cell = record["aggregate"][ours][part][name]
                assert cell["samples"] == len(known)
                assert cell["mean"] == pytest.approx(sum(known) / len(known), abs=1e-12)
    assert record["statuses"] == {"parsed": 32, "fallback": 12}
