"""The page in docs/ is what the stored study gives, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_support import bare_decimals, bare_numbers

from studies.page import write_page
from studies.study_job import StudyJob
from studies.view import Study

ROOT = Path(__file__).parents[2]


def test_the_published_page_comes_from_the_stored_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = StudyJob()
    if not (ROOT / job.folder).is_dir():
        pytest.skip("the stored study is in the repository only, not in a source distribution")
    monkeypatch.chdir(ROOT)  # the page names the study's folder as it was given
    written = write_page(Study(job.folder, job.plan), tmp_path / "results.md")
    assert written.page.read_text() == job.page.read_text()
    assert bare_numbers(written.sections) == []
    for section in written.sections.values():
        told = [*(claim.here for claim in section.claims), *section.checks]
        assert [each for each in told if bare_decimals(each)] == []
    images = {path.name: path.read_bytes() for path in written.figures}
    folder = job.page.parent / "images" / "results"
    assert images == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_table_of_the_readme_is_the_head_of_the_page() -> None:
    """To the letter, and with bounds on every estimate."""
    readme, page = ((ROOT / name).read_text() for name in ("README.md", StudyJob().page))
    short = page.partition("## In short\n\n")[2].partition("\n## ")[0]
    assert short.count("\n| ") >= 9 and short in readme
    assert bare_decimals(short) == []
