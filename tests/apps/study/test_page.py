"""The page: made from stored records alone, the same every time, honest about what is missing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from study_support import make_study

from anyorder.apps.study.page import IMAGES, Written, write_page
from anyorder.apps.study.plan import Plan
from anyorder.apps.study.questions.all import QUESTIONS
from anyorder.apps.study.questions.section import Section
from anyorder.apps.study.view import Study
from anyorder.cli import main as anyorder

VERDICTS = {"yes", "no", "undecided", "not measured yet"}
CELL = re.compile(r"^-?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]$")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anyorder.files.sync", lambda path: None)  # hundreds of small files
        make_study(path, Plan())
    return path


@pytest.fixture(scope="module")
def written(folder: Path) -> Written:
    return write_page(Study(folder, Plan()), folder.parent / "docs" / "results.md")


@pytest.fixture
def sections(written: Written) -> dict[str, Section]:
    return written.sections


def all_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.timeout(240)
def test_the_page_is_the_same_every_time_and_complete(
    folder: Path, written: Written, tmp_path: Path
) -> None:
    page = tmp_path / "again" / "results.md"
    assert anyorder(["study", "--only", "page", "--folder", str(folder), "--page", str(page)]) == 0
    first, second = all_files(written.page.parent), all_files(page.parent)
    assert first == second
    text = first["results.md"].decode()
    figures = set(re.findall(rf"\(({IMAGES}/[a-z0-9-]+\.svg)\)", text))
    assert figures == set(first) - {"results.md"} and len(figures) == len(written.figures) >= 8
    assert tuple(written.sections) == tuple(QUESTIONS)
    for name, section in written.sections.items():
        assert f"## {section.title}" in text and f"anyorder study {name}" in text
        assert section.claims and {each.holds for each in section.claims} <= VERDICTS
        assert section.tables and section.checks
    assert "not run yet" not in text.lower() and "not trained yet" not in text


def test_numbers_have_intervals(sections: dict[str, Section]) -> None:
    """Every cell of one's own: an estimate with its bounds; bare numbers are the paper's."""
    for section in sections.values():
        for table in section.tables:
            for label, *cells in table.rows:
                if not label.startswith("paper"):
                    bare = [each for each in cells if re.match(r"^-?\d", each)]
                    assert all(CELL.match(each) for each in bare), (table.title, label, bare)


def test_all_seeds_and_sweep_points_are_shown(sections: dict[str, Section]) -> None:
    for name, table in (("s3", 0), ("s4", 0), ("s5", 0)):
        labels = [row[0] for row in sections[name].tables[table].rows]
        for seed in (0, 1, 2):
            assert any(label.endswith(f"seed {seed}") for label in labels), (name, seed)
    swept = [row[0] for row in sections["s5"].tables[0].rows]
    for value in ("1", "0.75", "0.6", "0.5"):
        assert any(label == f"T_ins {value}, all seeds" for label in swept)


@pytest.mark.timeout(120)
def test_what_is_missing_is_said_and_not_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan()
    gone = {name for name, model in plan.models.items() if model.seed or model.dialled}
    folder = tmp_path / "tiny"
    monkeypatch.setattr("anyorder.files.sync", lambda path: None)
    make_study(folder, plan, without={*gone, "counted"})
    (folder / "race.json").unlink()
    written = write_page(Study(folder, plan), tmp_path / "docs" / "results.md")
    text = written.page.read_text()
    assert "| mdm-dial-layout0 | mdm | the dial, layout0 | 0 | not trained yet |" in text
    assert "mdm, confidence, seed 0, seed 1 missing, seed 2 missing" in text
    assert "No race is stored yet" in text
    dial = {claim.says: claim.holds for claim in written.claims["dial"]}
    assert set(dial.values()) == {"not measured yet"}
    assert {claim.holds for claim in written.claims["s6"]} == {"not measured yet"}


@pytest.mark.timeout(60)
def test_an_empty_study_is_a_page_too(tmp_path: Path) -> None:
    written = write_page(Study(tmp_path / "none", Plan()), tmp_path / "results.md")
    assert not written.figures
    holds = {claim.holds for claims in written.claims.values() for claim in claims}
    assert holds == {"not measured yet"}


def test_a_damaged_file_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(folder, copy)
    bad = copy / "runs" / "mdm-layout1.greedy" / "records.parquet"
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(ValueError, match="damaged"):
        write_page(Study(copy, Plan()), tmp_path / "results.md")
