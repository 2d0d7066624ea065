"""A run with blocks from sampling to the page: controls within blocks, the order between given."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anyorder.cli import main
from anyorder.report.runs import Material, gather
from anyorder.report.sections.order import IN_BLOCKS, place, section, tau_of
from anyorder.report.tables import Section
from anyorder.trace import Run
from anyorder.trace.blocks import GIVEN_ORDER, BlockRule

SAMPLE = ["sample", "mdm", "--task", "stories", "--limit", "2", "--temperature", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("blocks") / "run"
    assert main([*SAMPLE, "--block", "4", "--out", str(out)]) == 0
    words = ["--placement", "mdm", "--stride", "8", "--only", "order,arness,placement"]
    assert main(["measure", str(out), *words]) == 0
    return out


def test_the_run_card_says_what_the_decoder_did(folder: Path) -> None:
    """Each block of four slots is filled before the next begins."""
    run = Run.open(folder)
    rule = run.blocks()
    assert rule == BlockRule(4)
    for trace in run.traces():
        blocks, steps = rule.tokens(trace), trace.timing()[1]
        assert len(set(blocks.tolist())) == len(steps) // 4
        assert (steps.reshape(-1, 4).max(axis=1)[:-1] < steps.reshape(-1, 4).min(axis=1)[1:]).all()


def test_measures_are_within_blocks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads((folder / "measures.json").read_bytes())
    tau, inside = (found["arness"]["aggregate"][name] for name in ("tau", "tau_in_blocks"))
    # Some forty tokens in blocks of four: nearly all pairs are ordered by the blocks.
    assert tau["random_in_blocks"] > 0.85 and tau["left_to_right_in_blocks"] == 1
    assert inside["chance"] == 0 and abs(inside["mean"]) <= 1
    for name in ("arness", "order"):
        entry = found["order"]["exact"] if name == "order" else found[name]
        assert entry["blocks"]["slots"] == 4 and entry["blocks"]["order_between"] == "given"
    assert found["placement"]["about"]["block_slots"] == 4
    assert 1 <= found["placement"]["all"]["open"]["estimate"] <= 4
    assert main(["measure", str(folder), "--only", "order,arness"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count(GIVEN_ORDER.format(4)) == 2
    assert "random in blocks" in printed and "left to right in blocks" in printed


def test_the_report_is_within_blocks(folder: Path) -> None:
    material = Material(gather([folder]), ())
    found = section(material)
    assert isinstance(found, Section)
    assert GIVEN_ORDER.format(4) in " ".join(found.text)
    titles = [figure.title for figure in found.figures]
    [table] = found.figures[titles.index("Inside blocks of slots")].tables
    assert set(IN_BLOCKS.values()) < set(table.heads)
    (run,) = material.gathered.runs
    measures = run.measures["arness"]["aggregate"]
    assert tau_of(run).estimate == measures["tau_in_blocks"]["mean"]
    kept = run.measures["order"]["aggregate"]["full_output"]["split_only"]["rub"]
    assert place(run, "rub").estimate == kept["position_in_blocks"]["estimate"]
    trees = next(figure for figure in found.figures if "parts of a block" in figure.title)
    small = [row[0].small for row in trees.tables[0].rows if not row[0].text]
    assert small[:3] == list(IN_BLOCKS.values())


def test_the_page_says_it(folder: Path, tmp_path: Path) -> None:
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    page = re.sub(r"\s+", " ", (tmp_path / "page.html").read_text())
    assert page.count(GIVEN_ORDER.format(4)) == 2  # in the summary and above the figures
    assert "within blocks of 4" in page and "random order within blocks" in page


def test_a_run_without_blocks_has_none_of_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main([*SAMPLE, "--steps", "8", "--out", str(out)]) == 0
    assert main(["measure", str(out), "--only", "order,arness"]) == 0
    record = json.loads((out / "measures.json").read_bytes())
    assert "block" not in json.dumps({name: record[name] for name in ("order", "arness")})
    found = section(Material(gather([out]), ()))
    assert isinstance(found, Section)
    assert "blocks of slots" not in " ".join([*found.text, *(f.title for f in found.figures)])
